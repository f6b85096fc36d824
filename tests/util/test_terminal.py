from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from olss.errors import DataError, InputError, MissingExtraError
from olss.util.terminal import STOPPED, Interrupted, report_errors
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


posix = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
PRESS = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60
    )


@posix
def test_an_import_that_swallows_everything_does_not_swallow_it(tmp_path: Path) -> None:
    (tmp_path / "swallows.py").write_text(f"try:\n    {PRESS}\nexcept BaseException:\n    pass\n")
    script = (
        "from olss.util.terminal import exit_on_early_ctrl_c; exit_on_early_ctrl_c()\n"
        "import swallows; print('went on')"
    )
    ended = run(tmp_path, script)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", f"{STOPPED}\n")


@posix
def test_elsewhere_it_is_an_interrupt_as_always(tmp_path: Path) -> None:
    script = (
        "from olss.util.terminal import exit_on_early_ctrl_c; exit_on_early_ctrl_c()\n"
        f"try:\n    {PRESS}\nexcept KeyboardInterrupt:\n    print('caught')"
    )
    assert run(tmp_path, script).stdout == "caught\n"


@posix
def test_the_command_itself_ends_so_while_its_modules_load(tmp_path: Path) -> None:
    """Typer, which the command line is made of, is replaced by a module that presses Ctrl-C."""
    (tmp_path / "typer.py").write_text(PRESS)
    script = "import sys; sys.argv = ['olss', 'demo']\nfrom olss.__main__ import main; main()"
    ended = run(tmp_path, script)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", f"{STOPPED}\n")


@posix
def test_new_processes_do_not_hear_it_even_before_they_can_say_so() -> None:
    from olss.lab.executors import _block_ctrl_c

    with _block_ctrl_c():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1); print('on')"],
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0] == "on\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
