"""Ctrl-C before a command has begun: a line and 130, whatever is being imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from olss.util.terminal import STOPPED

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")

PRESS = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_an_import_that_swallows_everything_does_not_swallow_it(tmp_path: Path) -> None:
    (tmp_path / "swallows.py").write_text(f"try:\n    {PRESS}\nexcept BaseException:\n    pass\n")
    script = (
        "from olss.util.terminal import exit_on_early_ctrl_c; exit_on_early_ctrl_c()\n"
        "import swallows; print('went on')"
    )
    ended = run(tmp_path, script)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", f"{STOPPED}\n")


def test_elsewhere_it_is_an_interrupt_as_always(tmp_path: Path) -> None:
    script = (
        "from olss.util.terminal import exit_on_early_ctrl_c; exit_on_early_ctrl_c()\n"
        f"try:\n    {PRESS}\nexcept KeyboardInterrupt:\n    print('caught')"
    )
    assert run(tmp_path, script).stdout == "caught\n"


def test_the_command_itself_ends_so_while_its_modules_load(tmp_path: Path) -> None:
    """Typer, which the command line is made of, is replaced by a module that presses Ctrl-C."""
    (tmp_path / "typer.py").write_text(PRESS)
    script = "import sys; sys.argv = ['olss', 'demo']\nfrom olss.__main__ import main; main()"
    ended = run(tmp_path, script)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", f"{STOPPED}\n")


def test_new_processes_do_not_hear_it_even_before_they_can_say_so() -> None:
    from olss.lab.executors import _deaf_to_ctrl_c

    with _deaf_to_ctrl_c():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1); print('on')"],
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0] == "on\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
