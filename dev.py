"""One command for everything: sets up ``.venv`` beside this file, then runs what you ask for.

    python3 dev.py demo      see forgetting, and not forgetting (about a minute)
    python3 dev.py test      run the tests; with -m slow the long repetitions, with -m "" all
    python3 dev.py lint      ruff and mypy
    python3 dev.py docs      build the documentation into site/
    python3 dev.py stats     modules, lines, and how deep some typical calls go
    python3 dev.py package   build wheel and sdist into dist/ and try them in a clean environment
    python3 dev.py olss ...  any olss command, for example  dev.py olss data list

Needs Python 3.11 or newer with pip. Packages, caches and results stay inside this folder.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
CACHE = HERE / ".cache"

# What to install, and what to run then. Further words of the command line are passed on.
COMMANDS: dict[str, tuple[str, list[list[str]]]] = {
    "demo": ("lab", [["olss", "demo"]]),
    "olss": ("lab", [["olss"]]),
    "test": ("dev", [["pytest", "-n", "2", "--dist", "worksteal"]]),
    "lint": ("dev", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]]),
    "docs": ("dev", [["mkdocs", "build", "--strict"]]),
    "stats": ("dev", [["python", "-m", "benchmarks.stats"]]),
    "package": ("dev", [["python", "-m", "tests.try_package"]]),
}


def environment() -> dict[str, str]:
    """Return the environment that keeps caches inside this folder."""
    inside = {
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(CACHE / "pip")),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "MPLCONFIGDIR": str(CACHE / "matplotlib"),
        "XDG_CACHE_HOME": str(CACHE),
        "OLSS_CACHE": os.environ.get("OLSS_CACHE", str(CACHE / "olss")),
    }
    return os.environ | inside


def set_up(extra: str) -> None:
    """Make the virtual environment and install olss with an extra, unless that is done."""
    wanted = hashlib.sha256(extra.encode())
    for name in ("pyproject.toml", "constraints.txt"):
        wanted.update((HERE / name).read_bytes())
    stamp = VENV / f".installed-{extra}"
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        return
    if not BIN.exists():
        print(f"Making a virtual environment in {VENV.name}/", flush=True)
        venv.create(VENV, with_pip=True)
    print(f"Installing olss[{extra}]: a minute or two the first time", flush=True)
    pip = [str(BIN / "python"), "-m", "pip", "install", "--quiet", "--progress-bar", "on"]
    target = ["-c", str(HERE / "constraints.txt"), "-e", f"{HERE}[{extra}]"]
    subprocess.run([*pip, *target], check=True, env=environment())
    stamp.write_text(wanted.hexdigest())


def main() -> int:
    """Set up, run, and return the first exit code that is not 0."""
    if sys.version_info < (3, 11):  # noqa: UP036  this file runs before anything is installed
        print(f"olss needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
        return 2
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(__doc__)
        return 2
    extra, commands = COMMANDS[sys.argv[1]]
    try:
        set_up(extra)
    except subprocess.CalledProcessError as error:
        print("The installation failed; what pip says above tells why.")
        return error.returncode
    for command in commands:
        program = str(BIN / command[0])
        words = [program, *command[1:], *sys.argv[2:]]
        code = subprocess.run(words, cwd=HERE, env=environment()).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
