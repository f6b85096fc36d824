"""A virtual environment for each library, made from the package index where there is none yet."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"


@dataclass(frozen=True)
class Peer:
    """A library beside olss.

    Attributes
    ----------
    package, version : str
        Its name in the package index; the version measured.
    modules : tuple of str
        What is imported before the clock starts.
    also : tuple of str
        What must be installed with it.
    constrained : bool
        Whether it works with the versions in constraints.txt.
    """

    package: str
    version: str
    modules: tuple[str, ...]
    also: tuple[str, ...] = ()
    constrained: bool = True


PEERS = {
    "olss": Peer("olss", "", ("olss", "olss.files", "olss.files.compress", "olss.files.engines")),
    "duckdb": Peer("duckdb", "2.0.0", ("duckdb",)),
    "polars": Peer("polars", "2.1.0", ("polars",)),
    "pandas": Peer("pandas", "3.1.1", ("pandas",)),
    "datasketches": Peer("datasketches", "5.2.0", ("datasketches",)),
    "apricot": Peer("apricot-select", "0.6.1", ("apricot",), ("scikit-learn",)),  # undeclared
    "coreax": Peer("coreax", "1.0.0", ("coreax", "coreax.kernels", "coreax.solvers")),
    "skmatter": Peer("skmatter", "0.4.1", ("skmatter.sample_selection",)),
    "river": Peer("river", "0.26.1", ("river",), ("pandas",)),
    "evidently": Peer("evidently", "0.7.23", ("evidently",), ("pandas<3",), constrained=False),
    "nannyml": Peer("nannyml", "0.13.1", ("nannyml",), ("statsmodels",), constrained=False),
    # torch as constraints.txt says: of others the package index has builds with CUDA only
    "avalanche": Peer(
        "avalanche-lib",
        "0.6.0",
        ("benchmarks.peers.avalanche_buffers",),
        ("torch==2.13.0", "quadprog"),  # its GEM needs the last
    ),
}
BESIDE = ("numpy", "pyarrow")  # what rows come as, for every library


def python_of(name: str, cache: Path) -> tuple[str, str]:
    """Return the Python a library runs in, making its environment, and why not if it cannot."""
    peer = PEERS[name]
    if name == "olss":
        return sys.executable, ""
    folder = cache / f"{peer.package}-{peer.version}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        wanted = (f"{peer.package}=={peer.version}", *peer.also, *BESIDE)
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        limits = ("--constraint", str(CONSTRAINTS)) if peer.constrained else ()
        made = subprocess.run([*pip, *limits, *wanted], capture_output=True, text=True)
        if made.returncode:
            lines = [line for line in made.stderr.splitlines() if line.startswith("ERROR")]
            return "", f"does not install: {(lines or ['no reason given'])[-1]}"
        (folder / "complete").touch()
    return str(python), ""


def version_of(name: str) -> str:
    """Return the version measured."""
    import olss

    return PEERS[name].version or olss.__version__
