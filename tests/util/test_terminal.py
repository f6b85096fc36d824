from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from olss.errors import DataError, InputError, MissingExtraError
from olss.util.terminal import Interrupted, report_errors
from olss.util.text import escape_controls


def ending_with(error: BaseException) -> tuple[int, str]:
    app = typer.Typer()

    @app.command()
    @report_errors
    def command(rows: int = 3) -> None:
        """Do it."""
        raise error

    result = CliRunner().invoke(app, ["--rows", "4"])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("size is 0."), 1, "Error: size is 0."),
        (DataError("no rows."), 1, "Error: no rows."),
        (MissingExtraError("optuna", "tune", "olss tune"), 1,
         f"Error: {MissingExtraError('optuna', 'tune', 'olss tune')}"),
        (FileNotFoundError(2, "No such file or directory", "a.toml"), 1,
         "Error: a.toml: No such file or directory."),
        (OSError(28, "No space left on device"), 1, "Error: No space left on device."),
        (KeyboardInterrupt(), 130, "Stopped. The same command starts again."),
        (Interrupted("Saved."), 130, "Saved."),
    ],
)  # fmt: skip
def test_one_line_and_a_code(error: BaseException, code: int, said: str) -> None:
    assert ending_with(error) == (code, said + "\n")


def test_bugs_keep_their_traceback() -> None:
    @report_errors
    def command() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command()


def test_the_signature_is_kept_for_the_options() -> None:
    app = typer.Typer()

    @app.command()
    @report_errors
    def command(rows: int = 3) -> None:
        """Do it."""
        typer.echo(rows + 1)

    runner = CliRunner()
    assert runner.invoke(app, ["--rows", "4"]).output == "5\n"
    assert runner.invoke(app, ["--rows", "x"]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Zürich, ✓ 日本", "plain, Zürich, ✓ 日本"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("left\u202eright", "left\\u202eright"),
        ("two\n\tlines", "two\n\tlines"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_what_would_steer_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


def test_errors_let_no_escape_codes_through() -> None:
    assert ending_with(InputError("no column \x1b[31m.")) == (1, "Error: no column \\x1b[31m.\n")
