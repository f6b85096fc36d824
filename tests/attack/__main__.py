"""Attack olss and count what came of it: ``python -m tests.attack --budget full``."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

from tests.attack.runner import GOOD, VERDICTS, Tally, run

# Trials, and the seconds one may take.
BUDGETS: dict[str, dict[str, tuple[int, float]]] = {
    "ci": {
        "hostile_files": (200, 20),
        "signals": (60, 20),
        "kills": (2, 120),
        "odd_inputs": (500, 20),
    },
    "full": {
        "hostile_files": (10_000, 20),
        "signals": (1_000, 20),
        "kills": (200, 120),
        "odd_inputs": (2_000, 20),
    },
}
START, END = "<!-- counts: made by python -m tests.attack -->", "<!-- end of counts -->"


def table(tallies: list[Tally]) -> str:
    """Return the counts as a Markdown table."""
    lines = [
        f"| attack | tried | {' | '.join(VERDICTS)} |",
        "|---|" + "---:|" * (1 + len(VERDICTS)),
    ]
    for tally in tallies:
        counts = " | ".join(f"{tally.counts[verdict]:,}" for verdict in VERDICTS)
        lines.append(f"| {tally.kind.replace('_', ' ')} | {tally.tried:,} | {counts} |")
    return "\n".join(lines)


def write(page: Path, text: str) -> None:
    """Put the text between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"{page} has no place marked {START} ... {END}")
    page.write_text(f"{before}{START}\n{text}\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--budget", choices=BUDGETS, default="ci")
    parser.add_argument("--only", choices=BUDGETS["ci"], help="one kind of attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="so many trials instead of the budget's")
    parser.add_argument("--start", type=int, default=0, help="number of the first trial")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the counts into a page")
    parser.add_argument("--show", type=int, default=30, help="so many faults of each kind")
    asked = parser.parse_args()
    tallies = []
    for kind, (count, timeout) in BUDGETS[asked.budget].items():
        if asked.only in (None, kind):
            begun = time.monotonic()
            tallies.append(run(kind, asked.count or count, asked.seed, timeout, asked.start))
            print(f"{kind}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    for tally in tallies:
        print("\n".join(tally.bad[: asked.show]), file=sys.stderr)
    print(table(tallies))
    if asked.write:
        system = f"Python {platform.python_version()}, {platform.system()}, seed {asked.seed}"
        write(asked.write, f"{table(tallies)}\n\n{system}.")
    sys.exit(any(set(tally.counts) - set(GOOD) for tally in tallies))


if __name__ == "__main__":
    main()
