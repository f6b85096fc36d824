"""Everything that is no table of numbers, and some that are, through every public entry.

Each must be refused by an `OlssError` (scikit-learn's estimators: also by a ValueError, their
custom), or be taken in and found again exactly.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import olss
from olss.core import sampling
from olss.core.kernels import bless
from olss.files import compress, inspect
from olss.streams import from_arrays, permuted
from tests.attack.runner import judge

BOUNDED = True
N, D = 40, 3
GOOD = np.random.default_rng(0).standard_normal((N, D))
LABELS = np.arange(N) % 3


def with_one(value: float) -> Any:
    X = GOOD.copy()
    X[7, 1] = value
    return X


ARRAYS: dict[str, Callable[[], Any]] = {
    "as it should be": lambda: GOOD,
    "a list": lambda: GOOD.tolist(),
    "float32": lambda: GOOD.astype(np.float32),
    "float16": lambda: GOOD.astype(np.float16),
    "longdouble": lambda: GOOD.astype(np.longdouble),
    "big-endian": lambda: GOOD.astype(">f8"),
    "column order": lambda: np.asfortranarray(GOOD),
    "every other row": lambda: np.repeat(GOOD, 2, axis=0)[::2],
    "backwards": lambda: GOOD[::-1],
    "read-only": lambda: np.frombuffer(GOOD.tobytes()).reshape(N, D),
    "whole numbers": lambda: np.arange(N * D).reshape(N, D),
    "huge whole numbers": lambda: np.full((N, D), 2**62),
    "unsigned": lambda: np.full((N, D), 2**64 - 1, np.uint64),
    "bool": lambda: GOOD > 0,
    "uint8 images": lambda: np.random.default_rng(1).integers(0, 255, (N, 4, 4), np.uint8),
    "zeros": lambda: np.zeros((N, D)),
    "one row": lambda: GOOD[:1],
    "one column": lambda: GOOD[:, :1],
    "equal rows": lambda: np.ones((N, D)),
    "tiny": lambda: GOOD * 1e-300,
    "large": lambda: GOOD * 1e150,
    "too large": lambda: GOOD * 1e300,
    "NaN": lambda: with_one(np.nan),
    "infinite": lambda: with_one(np.inf),
    "minus infinite": lambda: with_one(-np.inf),
    "all NaN": lambda: np.full((N, D), np.nan),
    "no rows": lambda: GOOD[:0],
    "no columns": lambda: GOOD[:, :0],
    "nothing": lambda: [],
    "a number": lambda: 3.0,
    "a 0-d array": lambda: np.array(3.0),
    "one dimension": lambda: GOOD[:, 0],
    "five dimensions": lambda: GOOD.reshape(N, 1, 1, D, 1),
    "None": lambda: None,
    "text": lambda: "rows",
    "bytes": lambda: b"rows",
    "array of text": lambda: GOOD.astype(str),
    "array of bytes": lambda: GOOD.astype("S5"),
    "objects": lambda: GOOD.astype(object),
    "mixed objects": lambda: np.array([[1, "a", None]] * N, dtype=object),
    "dicts": lambda: [{"a": 1}] * N,
    "a dict": lambda: {"a": GOOD[:, 0]},
    "a set": lambda: {1, 2, 3},
    "a generator": lambda: (row for row in GOOD),
    "a function": lambda: len,
    "complex": lambda: GOOD + 1j,
    "dates": lambda: np.arange(N * D).astype("datetime64[D]").reshape(N, D),
    "spans of time": lambda: np.arange(N * D).astype("timedelta64[s]").reshape(N, D),
    "dates of Python": lambda: [[datetime.date(2024, 1, 1)] * D] * N,
    "decimals": lambda: [[Decimal("1.5")] * D] * N,
    "ragged": lambda: [[1.0, 2.0], [3.0]] * (N // 2),
    "nested": lambda: [[[1.0], [2.0, 3.0]]] * N,
    "masked": lambda: np.ma.masked_less(GOOD, 0),
    "masked, nothing hidden": lambda: np.ma.masked_greater(GOOD, 1e9),
    "records": lambda: np.zeros(N, dtype=[("a", float), ("b", int)]),
    "sparse rows": lambda: sp.csr_array(GOOD),
    "sparse coordinates": lambda: sp.coo_array(GOOD),
    "tensor": lambda: torch.tensor(GOOD),
    "tensor with gradient": lambda: torch.tensor(GOOD, requires_grad=True),
    "bfloat16 tensor": lambda: torch.tensor(GOOD).bfloat16(),
    "sparse tensor": lambda: torch.tensor(GOOD).to_sparse(),
    "complex tensor": lambda: torch.tensor(GOOD + 1j),
    "meta tensor": lambda: torch.empty((N, D), device="meta"),
    "matrix": lambda: np.asmatrix(GOOD),
    "memoryview": lambda: memoryview(GOOD),
    "too many rows": lambda: np.repeat(GOOD, 3, axis=0),
    "too few rows": lambda: GOOD[:5],
    "numbers of 400 digits": lambda: [[10**400] * D] * N,
}
COLUMNS: dict[str, Callable[[], Any]] = {
    "labels": lambda: LABELS,
    "a list of labels": lambda: LABELS.tolist(),
    "text labels": lambda: np.array(["a", "b", "ä"])[LABELS],
    "text objects": lambda: np.array(["a", "b", "c"], dtype=object)[LABELS],
    "floats that are whole": lambda: LABELS.astype(float),
    "real targets": lambda: GOOD[:, 0],
    "two targets": lambda: GOOD[:, :2],
    "labels of 2^63 and more": lambda: LABELS.astype(np.uint64) + np.uint64(2**63),
    "labels below 0": lambda: LABELS - 5,
    "times": lambda: np.arange(N).astype("datetime64[s]"),
    "NaT": lambda: np.full(N, np.datetime64("NaT", "s")),
    "with None": lambda: [None, *LABELS[1:].tolist()],
    "a scalar": lambda: 1,
    **{name: (lambda make=make: make()) for name, make in ARRAYS.items() if name != "nothing"},
}
SCALARS: dict[str, Any] = {
    "0": 0, "-1": -1, "1": 1, "2^31": 2**31, "2^63": 2**63, "10^400": 10**400, "1.5": 1.5,
    "nan": float("nan"), "inf": float("inf"), "True": True, "None": None, "text": "many",
    "empty text": "", "bytes": b"5", "list": [5], "tuple": (5,), "dict": {}, "object": object(),
    "np.int8": np.int8(5), "np.uint64": np.uint64(2**64 - 1), "np.float64": np.float64(5),
    "0-d": np.array(5), "1-d": np.array([5]), "complex": 5j, "generator": np.random.default_rng(0),
    "nul": "a\0b", "long": "x" * 100_000, "Path": Path("nowhere/at/all"), "class": int,
}  # fmt: skip


def sketch(**options: Any) -> olss.Sketch:
    return olss.Sketch(**{"size": 20, "seed": 0} | options)


class Attack:
    """Trials with odd arguments."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        np.save(folder / "in.npy", GOOD)
        self.held = sketch().update(GOOD, LABELS)
        trials: list[tuple[str, Callable[[], str | None]]] = []
        for name, make in ARRAYS.items():
            trials += [(f"{what} of {name}", _with(f, make)) for what, f in self.of_arrays()]
        for name, make in COLUMNS.items():
            trials += [(f"{what} of {name}", _with(f, make)) for what, f in self.of_columns()]
        for name, value in SCALARS.items():
            trials += [
                (f"{what} = {name}", _with(f, lambda value=value: value))
                for what, f in self.of_scalars()
            ]
        order = np.random.default_rng(seed).permutation(len(trials))
        self.trials = [trials[i] for i in order]

    def trial(self, number: int) -> tuple[str, str]:
        if number < len(self.trials):
            name, work = self.trials[number]
        else:  # rows and columns odd at the same time
            rng = np.random.default_rng([self.seed, number])
            x, y = str(rng.choice(list(ARRAYS))), str(rng.choice(list(COLUMNS)))
            name = f"update of {x} with y of {y}"
            work = lambda: taken(ARRAYS[x](), COLUMNS[y]())  # noqa: E731
        try:
            wrong = work()
        except Exception as error:
            verdict, note = judge(error)
            if name.startswith("classifier") and isinstance(error, ValueError | TypeError):
                verdict = "clean error"
            return verdict, f"{name}: {note}"
        return ("silent" if wrong else "fine"), f"{name}: {wrong}"

    def of_arrays(self) -> list[tuple[str, Callable[[Any], str | None]]]:
        def after_another(X: Any) -> str | None:
            s = sketch().update(GOOD)
            before = s.X.copy(), s.weight.copy(), s.seen
            try:
                s.update(X)
            except olss.OlssError:
                same = (before[0] == s.X).all() and (s.weight == before[1]).all()
                if not same or s.seen != before[2]:
                    return "an error, and yet another sketch"
                raise
            return None

        return [
            ("update", lambda X: taken(X, None)),
            ("second update", after_another),
            ("leverage_scores", scored),
            ("Gram", gram),
            ("FrequentDirections", directions),
            ("bless", lambda X: bounded(bless(X, 1.0, seed=0)[0])),
            ("from_arrays", streamed),
            ("inclusion", lambda w: bounded(sampling.inclusion_probabilities(w, 2))),
            (
                "successive",
                lambda w: indices(sampling.successive_sample(w, 2, np.random.default_rng(0))),
            ),
            ("classifier", classified),
            ("remove", lambda i: self.removed(i)),
        ]

    def of_columns(self) -> list[tuple[str, Callable[[Any], str | None]]]:
        return [
            ("y", lambda y: taken(GOOD, y)),
            ("task", lambda task: tasks(task)),
            ("by", lambda by: None if len(from_arrays(GOOD, LABELS, by=by)) else "no task"),
            ("classifier's y", lambda y: classified(GOOD, y)),
        ]

    def of_scalars(self) -> list[tuple[str, Callable[[Any], str | None]]]:
        X, path = GOOD, self.folder

        def compressed(**options: Any) -> None:
            given = {"into": path / "out.parquet", "size": 5, "seed": 0, "fresh": True} | options
            compress(given.pop("inputs", path / "in.npy"), **given)

        works: dict[str, Callable[[Any], Any]] = {
            "size": lambda v: sketch(size=v).update(X),
            "policy": lambda v: sketch(policy=v).update(X) if not callable(v) else None,
            "scores": lambda v: sketch(scores=v).update(X),
            "seed": lambda v: sketch(seed=v).update(X),
            "ridge": lambda v: olss.leverage_scores(X, ridge=v),
            "rank": lambda v: olss.leverage_scores(X, rank=v),
            "directions": lambda v: olss.FrequentDirections(v) if v != 2**63 else None,
            "merge": lambda v: sketch().update(X).merge(v),
            "load": lambda v: olss.Sketch.load(v),
            "inspect": lambda v: inspect(v),
            "compress inputs": lambda v: compressed(inputs=v),
            "compress size": lambda v: compressed(size=v),
            "compress target": lambda v: compressed(target=v),
            "compress task": lambda v: compressed(task=v),
            "compress policy": lambda v: compressed(policy=v),
            "compress scores": lambda v: compressed(scores=v),
            "compress seed": lambda v: compressed(seed=v),
            "permuted tasks": lambda v: permuted("digits", tasks=v),
            "permuted seed": lambda v: permuted("digits", tasks=2, seed=v)[0],
            "from_arrays test": lambda v: from_arrays([(X, LABELS)], test=v),
        }
        return [(name, _quiet(work)) for name, work in works.items()]

    def removed(self, index: Any) -> str | None:
        s = sketch().update(GOOD)
        before = set(s.index.tolist())
        s.remove(index)
        return None if set(s.index.tolist()) <= before else "rows that were not there"


def _with(work: Callable[[Any], str | None], make: Callable[[], Any]) -> Callable[[], str | None]:
    return lambda: work(make())


def _quiet(work: Callable[[Any], Any]) -> Callable[[Any], None]:
    def done(value: Any) -> None:
        work(value)

    return done


def plain(values: Any) -> Any:
    """Return what was given as NumPy sees it, the mask lost, the gradient too."""
    if isinstance(values, torch.Tensor):
        values = values.detach()
        values = values.float() if values.dtype == torch.bfloat16 else values
    return values.toarray() if sp.issparse(values) else np.asarray(values)


def taken(X: Any, y: Any) -> str | None:
    """Take rows in; every row held must be a row given, with its own label."""
    if np.ma.isMaskedArray(X) and np.ma.getmaskarray(X).any():
        sketch().update(X, y)
        return "a mask was lost"
    s = sketch().update(X, y)
    given, held = plain(X), plain(s.X)
    places = s.index.astype(int)
    gaps = held.dtype.kind == "f"
    if not np.array_equal(given[places].astype(held.dtype), held, equal_nan=gaps):
        return "rows held are not rows given"
    if len(s) != min(20, len(given)) or not (s.weight > 0).all():
        return f"{len(s)} rows, weights {s.weight[:3]}"
    if y is None:
        return None
    labels = plain(s.y)  # compared as bytes, since no NaT equals another
    same = plain(y)[places].astype(labels.dtype).tobytes() == labels.tobytes()
    return None if same else "a row has another's label"


def tasks(task: Any) -> str | None:
    s = sketch().update(GOOD, task=task)
    if task is None:
        return None
    given = np.broadcast_to(plain(task), (N,))[s.index.astype(int)]
    return None if [str(t) for t in given] == [str(t) for t in s.task] else "another task"


def bounded(scores: Any) -> str | None:
    values = plain(scores)
    fits = np.isfinite(values).all() and (values >= 0).all() and (values <= 1 + 1e-6).all()
    return None if fits else f"scores from {values.min()} to {values.max()}"


def scored(X: Any) -> str | None:
    scores = plain(olss.leverage_scores(X)).astype(float)
    A = (X.toarray() if sp.issparse(X) else plain(X)).astype(float)
    A = A.reshape(len(A), -1)
    A = A / (np.abs(A).max() or 1)
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    truth = (U[:, s > 1e-9 * s[0]] ** 2).sum(axis=1) if s[0] else np.zeros(len(A))
    return None if np.allclose(scores, truth, atol=2e-3) else "not the leverage scores"


def gram(X: Any) -> str | None:
    found = olss.Gram().update(X).matrix
    A = (X.toarray() if sp.issparse(X) else plain(X)).astype(float)
    A = A.reshape(len(A), -1)
    return None if np.allclose(found, A.T @ A, rtol=1e-3) else "not the Gram matrix"


def directions(X: Any) -> str | None:
    fd = olss.FrequentDirections(30).update(X)
    A = (X.toarray() if sp.issparse(X) else plain(X)).astype(float)
    A = A.reshape(len(A), -1)
    same = np.allclose(fd.matrix.T @ fd.matrix, A.T @ A, rtol=1e-3, atol=1e-3 * fd._mass)
    return None if same else "not the Gram matrix"


def streamed(X: Any) -> str | None:
    task = from_arrays([(X, LABELS)])[0]
    rows = np.concatenate([task.X, task.X_test])
    given = {row.astype(rows.dtype).tobytes() for row in plain(X)}
    return None if {row.tobytes() for row in rows} <= given else "rows that were not given"


def indices(rows: Any) -> str | None:
    return None if (plain(rows) >= 0).all() else "rows below 0"


def classified(X: Any, y: Any = LABELS) -> str | None:
    from sklearn.tree import DecisionTreeClassifier

    from olss.adapters.sklearn import ContinualClassifier

    model = ContinualClassifier(DecisionTreeClassifier(random_state=0), size=20, random_state=0)
    found = model.partial_fit(X, y, classes=np.unique(plain(y))).predict(X)
    return None if set(np.unique(found)) <= set(np.unique(plain(y))) else "labels nobody gave"
