"""How long `import olss` takes beyond NumPy and SciPy, and `olss --help` in all.

python benchmarks/start.py
"""

from __future__ import annotations

import subprocess
import sys
import time


def best(code: str, times: int = 7) -> float:
    """Return the least wall-clock seconds of a fresh interpreter running `code`."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    below = best("import numpy, scipy.linalg, scipy.sparse")
    olss = best("import olss")
    invoke = "CliRunner().invoke(app, ['--help'])"
    help_text = best(f"from typer.testing import CliRunner\nfrom olss.cli import app\n{invoke}")
    print(f"NumPy and SciPy          {below:.3f} s")
    print(f"import olss              {olss:.3f} s, {olss - below:.3f} s beyond them (limit 0.6)")
    print(f"olss --help, everything  {help_text:.3f} s")


if __name__ == "__main__":
    main()
