"""How large the package is and how far a call travels: ``python -m benchmarks.stats``.

Prints modules, lines and public names by folder, then how many frames deep and through how many
functions and modules of the package some typical calls go. Frames of other packages do not count,
and a comprehension is part of its function.
"""

from __future__ import annotations

import ast
import sys
import tempfile
import threading
import tokenize
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import olss

PACKAGE = Path(olss.__file__).parent
TESTS = Path(__file__).parents[1] / "tests"
Prepare = Callable[[Path], Callable[[], object]]
INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


@dataclass
class Size:
    """Counts of some Python files."""

    modules: int = 0
    lines: int = 0
    code: int = 0
    docstrings: int = 0
    names: int = 0

    def add(self, path: Path) -> None:
        """Count one file: its lines of code are those with anything but a comment or docstring."""
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = {
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node, clean=False) is not None
            for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        }
        with path.open("rb") as file:
            blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
                     tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)  # fmt: skip
            used = {
                line
                for token in tokenize.tokenize(file.readline)
                if token.type not in blank
                for line in range(token.start[0], token.end[0] + 1)
            }
        self.modules += 1
        self.lines += len(path.read_text(encoding="utf-8").splitlines())
        self.docstrings += len(documented)
        self.code += len(used - documented)
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                self.names += len(ast.literal_eval(node.value))


@dataclass
class Journey:
    """What runs in the package while it is the profiler."""

    depth: int = 0
    functions: set[tuple[str, str]] = field(default_factory=set)
    _now: threading.local = field(default_factory=threading.local)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Follow calls and returns inside the package."""
        code = frame.f_code
        ours = code.co_filename.startswith(str(PACKAGE)) and code.co_name not in INLINE
        if not ours or event not in ("call", "return"):
            return
        now = getattr(self._now, "depth", 0) + (1 if event == "call" else -1)
        self._now.depth = now
        self.depth = max(self.depth, now)
        self.functions.add((code.co_filename, code.co_qualname))

    @property
    def modules(self) -> int:
        """How many modules the functions live in."""
        return len({file for file, _ in self.functions})


def follow(prepare: Prepare) -> Journey:
    """Follow a call; it runs once before, so that nothing is imported on the way."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))()
    with tempfile.TemporaryDirectory() as folder:
        return _followed(prepare(Path(folder)))


def _followed(call: Callable[[], object]) -> Journey:
    journey = Journey()
    threading.setprofile(journey)
    sys.setprofile(journey)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return journey


def array(_: Path) -> Callable[[], object]:
    """Update a sketch that holds rows with an array."""
    rows = np.random.default_rng(0).standard_normal((2_000, 8))
    sketch = olss.Sketch(200, seed=0).update(rows)
    return lambda: sketch.update(rows)


def columns(rows: int = 2_000) -> Any:
    """Return a table of numbers, text and a target."""
    import pandas as pd

    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "hour": rng.integers(24, size=rows),
            "carrier": rng.choice(["UA", "AA", "DL"], rows),
            "delay": rng.standard_normal(rows),
            "late": rng.random(rows) < 0.2,
        }
    )


def table(_: Path) -> Callable[[], object]:
    """Update a sketch that holds rows with a table."""
    rows = columns()
    sketch = olss.Sketch(200, seed=0).update(rows, y="late")
    return lambda: sketch.update(rows, y="late")


def file(folder: Path) -> Callable[[], object]:
    """Compress one CSV file."""
    from olss.files import compress

    columns().to_csv(folder / "day.csv", index=False)
    return lambda: compress(folder / "day.csv", into=folder / "s.parquet", size=200, seed=0)


def task(name: str) -> Prepare:
    """Learn a second task by a method."""

    def prepare(_: Path) -> Callable[[], object]:
        from olss.learn import recipe
        from olss.streams import permuted

        first, second = permuted("digits", tasks=2, train_rows=200, seed=0)
        learner = recipe(name, net="mlp-20", epochs=1, batch=20)
        learner.fit_task(first)
        return lambda: learner.fit_task(second)

    return prepare


def report(folder: Path) -> Callable[[], object]:
    """Write the report of two methods with three seeds each."""
    from olss.lab.report import write_report
    from olss.learn import recipe, run
    from olss.streams import permuted

    for method in ("sgd", "olss"):
        for seed in (0, 1, 2):
            stream = permuted("digits", tasks=2, train_rows=200, seed=seed)
            record = run(stream, recipe(method, net="mlp-20", epochs=1, batch=20), seed=seed)
            record.save(folder / "runs" / method / f"seed-{seed}")
    return lambda: write_report([folder / "runs"], folder / "report")


JOURNEYS: dict[str, Prepare] = {
    "update of an array": array,
    "update of a table": table,
    "compress of a file": file,
    "fit_task of sgd": task("sgd"),
    "fit_task of der++": task("der++"),
    "fit_task of olss": task("olss"),
    "report": report,
}


def print_sizes() -> None:
    """Print modules, lines and names by folder."""
    folders = {path.name: path for path in sorted(PACKAGE.iterdir()) if path.is_dir()}
    sizes = {"(root)": Size()}
    for path in PACKAGE.glob("*.py"):
        sizes["(root)"].add(path)
    for name, folder in folders.items():
        for path in folder.rglob("*.py"):
            sizes.setdefault(name, Size()).add(path)
    total = Size(*(sum(getattr(s, k) for s in sizes.values()) for k in vars(Size())))
    tests = Size()
    for path in TESTS.rglob("*.py"):
        tests.add(path)
    print(f"{'':24}{'modules':>8}{'lines':>8}{'code':>8}{'docstr.':>8}{'__all__':>8}")
    for name, size in {**sizes, "src/olss": total, "tests": tests}.items():
        print(f"{name:24}" + "".join(f"{value:8,}" for value in vars(size).values()))


def main() -> None:
    """Print sizes, then journeys."""
    print_sizes()
    print(f"\n{'':24}{'deep':>8}{'funct.':>8}{'modules':>8}")
    for name, prepare in JOURNEYS.items():
        found = follow(prepare)
        print(f"{name:24}{found.depth:8}{len(found.functions):8}{found.modules:8}", flush=True)


if __name__ == "__main__":
    main()
