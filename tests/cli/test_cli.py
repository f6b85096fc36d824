from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import olss
from olss.cli import app
from olss.streams.record import Record

COMMANDS = ("demo", "run", "tune", "report", "compress", "inspect", "data", "list")


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f" {command} " in result.output, command


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


@pytest.mark.parametrize(
    "command", ["demo", "run", "tune", "report", "list", "data", "data list", "data get"]
)
def test_commands_of_the_laboratory_teach_by_examples(command: str) -> None:
    told = CliRunner().invoke(app, [*command.split(), "--help"]).output
    assert told.partition("Examples")[2].count(f"olss {command.split()[0]}") >= 2


def test_verbose_says_what_happens_and_silence_is_the_default(tmp_path: Path) -> None:
    Record(accuracy=[[0.5]], tasks=["a"]).save(tmp_path / "runs" / "seed-0")
    told = {
        flags: subprocess.run(
            [sys.executable, "-m", "olss", *flags, "report", "runs"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        ).stderr
        for flags in ((), ("--verbose",))
    }  # fmt: skip
    assert told[()] == ""
    assert "olss.lab.report.collect: 1 runs in 1 groups" in told["--verbose",]


def test_verbose_says_what_compress_reads(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "1.5,2\n2.5,1\n" * 50)
    for already, said in (
        (False, "1 pieces of input, 604 bytes"),
        (True, "continuing s.parquet"),
    ):
        assert (tmp_path / "s.parquet").exists() == already
        words = ["compress", "a.csv", "--into", "s.parquet", "--size", "5"]
        told = subprocess.run(
            [sys.executable, "-m", "olss", "--verbose", *words],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        ).stderr  # fmt: skip
        assert f"olss.files.compress: {said}" in told


def test_help_teaches_by_examples() -> None:
    assert "olss run FILE.toml" in CliRunner().invoke(app, ["--help"]).output


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"olss {olss.__version__}\n"


def test_without_arguments_it_helps_and_ends_with_2() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "Usage" in result.output
    assert CliRunner().invoke(app, ["rnu"]).exit_code == 2


def test_completion_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Or it looks for a shell among the processes that started this one, and there may be none.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    result = CliRunner().invoke(app, ["--show-completion", "bash"])
    assert result.exit_code == 0
    assert "complete" in result.output
