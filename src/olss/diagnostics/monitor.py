"""A sequential drift alarm: asked after every batch, wrong at most once in 1/alpha lifetimes.

**Reference.** The rows held are thinned to a uniform sample of everything seen, as for
`olss.diagnostics.drift`. Three quarters of it are set apart; all other rows held fix what a row
is scored by: each column, and its novelty, in cells between quantiles. Those set apart are counted
in them.

**p-values.** A new row is ranked, by each score, among the rows counted so far, the new ones before
it included, ties broken at random; then it is counted, too. If all these rows are exchangeable, the
ranks are independent and uniform, whatever their law and however long this goes on (Vovk, Gammerman
& Shafer 2005, theorem 8.2). Ranks among the reference alone would not be: all of them would share
its chance deviation, and a test would find that in the end. Counts in cells are all that is kept.

**Bets.** Each score starts with a capital of one and bets on its ranks p: over a batch a bettor e
multiplies its capital by the product of 1 + e (p - 1/2), for several e from -2 to 2, after which
bettors share a tenth of their capital. Not all capital is at stake: after k batches
1 / (1 + log(1 + k)) is still in reserve, so that a change is found after a long time without one.
Nobody can expect to win against uniform ranks: the capital is a martingale, and by Ville's (1939)
inequality it ever reaches c with probability 1/c at most. Half of alpha is for novelty, the other
half is divided among the columns: an alarm is capital 2/alpha for novelty, 2 d/alpha for one of d
columns.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import is_arrow, is_sparse, to_numpy
from olss.diagnostics.drift import find_left_out, flatten, thin
from olss.errors import FormatError, InputError
from olss.memory import engine
from olss.memory.config import Config
from olss.memory.encoder import NOTHING_TO_SCORE, Encoder
from olss.memory.intake import TableKind, read_array, read_table
from olss.memory.novelty import CLIP, fold_columns
from olss.memory.rows import Array, RowStore, length_of, take
from olss.memory.state import State, create_generator, restore_generator
from olss.tables.frames import FrameKind
from olss.util import checks
from olss.util.files import add_checksum, read_json, verify_checksum, write_json
from olss.util.serialize import from_json, to_json

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]

VERSION = 2
FEWEST_ROWS = 40  # remembered, of equal weight
APART = 0.75  # of them, to be ranked with new rows; the others held fix the scores
EDGES = 16  # quantiles between cells
MOST_COLUMNS = 64  # of wider rows, so many sums of columns are watched
MOST_ROWS = 2_000  # of a batch, at random
BETS = np.array([-2, -1, -0.5, -0.25, 0.25, 0.5, 1, 2])
SHARED = 0.1  # of the capital, between bettors, after each batch
RIDGE = 0.01  # of novelty, relative to the mean eigenvalue
NOVELTY = "novelty"


@dataclass(frozen=True)
class Reader:
    """How rows are read and scored; fixed when a monitor is made.

    Attributes
    ----------
    shape, dtype : tuple of int, str
        Of a row of an array, and of its numbers.
    target : str or None
        A column of tables that is not looked at.
    new_columns : str
        What to do with columns unknown before.
    encoder : Encoder
    columns : (d,) int array
        The encoded columns watched.
    names : list of str
        Their names, or those of sums of columns; the last is "novelty".
    mean, deviation : (d,) arrays
    directions : (k, k) array
        Novelty of z is the squared length of z @ directions.
    edges : list of arrays
        For each score, the quantiles between cells.
    schema : pyarrow.Schema or None
        Of the columns of a table.
    """

    shape: tuple[int, ...]
    dtype: str
    target: str | None
    new_columns: str
    encoder: Encoder
    columns: Counts
    names: list[str]
    mean: Floats
    deviation: Floats
    directions: Floats
    edges: list[Floats]
    schema: Any = field(default=None, metadata={"arrow": "schema"})

    def read(self, rows: Any) -> Array:
        """Return rows as those the sketch held, or raise `InputError`."""
        if self.schema is None:
            held = RowStore({"X": np.empty((0, *self.shape), self.dtype)})
            return read_array(to_numpy(rows), held=held, pad=None)
        kind = TableKind(FrameKind("pyarrow", self.schema), None, self.target)
        held = RowStore({"X": self.schema.empty_table()})
        return read_table(rows, held=held, known=kind, new_columns=self.new_columns)

    def scores(self, X: Array) -> Floats:
        """Return the scores (n, k + 1) of rows: columns, and novelty."""
        encoded = flatten(self.encoder.encode(X))[:, self.columns]
        z = fold_columns(encoded, len(self.names) - 1)
        z = np.clip((z - self.mean) / self.deviation, -CLIP, CLIP)
        return np.column_stack([z, ((z @ self.directions) ** 2).sum(axis=1)])

    def cells(self, X: Array) -> Counts:
        """Return the cell of each score of each row, (n, k + 1)."""
        found = [
            np.searchsorted(edges, values, "left") + np.searchsorted(edges, values, "right")
            for edges, values in zip(self.edges, self.scores(X).T, strict=True)
        ]
        return np.column_stack(found)


@dataclass(repr=False, eq=False)
class Monitor:
    """A drift alarm to be asked after every batch; made by `olss.Sketch.monitor`.

    It compares with what the sketch remembered when it was made, and needs the sketch no more.

    Attributes
    ----------
    alarm : bool
        Whether there has been an alarm. It stays: make a new monitor afterwards.
    alpha : float
        The probability that a monitor ever raises an alarm while rows are exchangeable with those
        remembered, at most.
    evidence : float
        The largest capital of a score, relative to its share of alpha; an alarm at 1 / alpha.
    batches, rows : int
        Batches and rows seen by the monitor.
    names : list of str
        What is watched: columns, and "novelty" for all of them together.
    left_out : dict of str to str
        Columns that are not watched, and why.
    alarmed_at : int or None
        The batch that raised the alarm.
    cause : str or None
        What raised the alarm.

    Examples
    --------
    >>> from olss import Sketch
    >>> rng = np.random.default_rng(0)
    >>> sketch = Sketch(size=500, seed=0).update(rng.standard_normal((5_000, 3)))
    >>> monitor = sketch.monitor(alpha=0.01)
    >>> any(monitor.update(rng.standard_normal((100, 3))) for day in range(50))
    False
    >>> for day in range(10):
    ...     if monitor.update(rng.standard_normal((100, 3)) + [0, 0.7, 0]):
    ...         break
    >>> print(monitor)
    drift alarm at batch 51 by column 1: evidence 4.6e+04, alarms at 100; 5,100 rows
    """

    alpha: float
    left_out: dict[str, str]
    _reader: Reader
    _counts: list[Counts]
    _generator: dict[str, Any]
    # Logarithms of the capital at stake, of each score and bettor.
    _stakes: Floats = field(metadata={"finite": False})
    batches: int = 0
    rows: int = 0
    alarmed_at: int | None = None
    cause: str | None = None

    @property
    def names(self) -> list[str]:
        """What is watched."""
        return self._reader.names

    @property
    def alarm(self) -> bool:
        """Whether there has been an alarm."""
        return self.alarmed_at is not None

    def __bool__(self) -> bool:
        return self.alarm

    @property
    def evidence(self) -> float:
        """The largest capital of a score, relative to its share of alpha."""
        with np.errstate(over="ignore"):
            return float(np.exp(np.max(self._evidence())))

    def _evidence(self) -> Floats:
        """Return the logarithm of the evidence of each score."""
        watched = len(self.names) - 1
        share = np.array([1 / (2 * watched)] * watched + [1 / 2])
        capital = np.logaddexp(_log_sum(self._stakes), np.log(_reserve(self.batches)))
        found: Floats = capital + np.log(share)
        return found

    def __repr__(self) -> str:
        what = f"no alarm after {self.batches:,} batches: evidence {self.evidence:.2g}"
        if self.alarm:
            cause = self.cause if self.cause == NOVELTY else f"column {self.cause}"
            what = (
                f"drift alarm at batch {self.alarmed_at:,} by {cause}: evidence {self.evidence:.2g}"
            )
        return f"{what}, alarms at {1 / self.alpha:g}; {self.rows:,} rows"

    def update(self, rows: Any) -> Self:
        """Look at a batch of rows; the monitor is true in an ``if`` from the first alarm on.

        A failed call leaves the monitor unchanged. Of more than 2,000 rows, 2,000 are looked at.

        Parameters
        ----------
        rows : array (n, ...) or table
            Rows as for `olss.Sketch.update`; a target may be among the columns of a table.
        """
        X = self._reader.read(rows)
        n = length_of(X)
        if not n:
            raise InputError("rows must have at least one row, found none.")
        rng = restore_generator(self._generator)
        if n > MOST_ROWS:
            X = take(X, np.sort(rng.choice(n, MOST_ROWS, replace=False)))
        cells = self._reader.cells(X)
        counts, gains = [], []
        for known, mine in zip(self._counts, cells.T, strict=True):
            p, known = rank(known, mine, rng)
            counts.append(known)
            gains.append(np.log1p(BETS[:, None] * (p - 0.5)).sum(axis=1))
        k = self.batches
        fresh = np.log((_reserve(k) - _reserve(k + 1)) / len(BETS))
        stakes = np.logaddexp(self._stakes, fresh) + np.array(gains)
        pooled = _log_sum(stakes)[:, None] - np.log(len(BETS))
        self._stakes = np.logaddexp(np.log(1 - SHARED) + stakes, np.log(SHARED) + pooled)
        self._counts, self._generator = counts, dict(rng.bit_generator.state)
        self.batches, self.rows = k + 1, self.rows + n
        found = self._evidence()
        if self.alarmed_at is None and found.max() >= -np.log(self.alpha):
            self.alarmed_at, self.cause = self.batches, self.names[int(found.argmax())]
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return what there is to know as a dictionary, as ``--json`` prints it."""
        return {
            "alarm": self.alarm, "alpha": self.alpha, "evidence": self.evidence,
            "batches": self.batches, "rows": self.rows, "alarmed_at": self.alarmed_at,
            "cause": self.cause, "left_out": self.left_out,
        }  # fmt: skip

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor to a JSON file, whole or not at all; `load` continues from it."""
        content = {"version": VERSION, "monitor": to_json(self)}
        write_json(Path(path), add_checksum(content))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a monitor that `save` wrote."""
        content = read_json(Path(path))
        if not isinstance(content, dict) or not {"version", "monitor"} <= content.keys():
            raise FormatError(f"{path} is not a monitor written by Monitor.save.")
        if content["version"] != VERSION:
            raise FormatError(f"{path} is a monitor of another version of olss; make a new one.")
        found: Self = from_json(cls, verify_checksum(content, path)["monitor"], str(path))
        return found


def create_monitor(config: Config, state: State, alpha: float, seed: int | None) -> Monitor:
    """Return a monitor that compares with what a sketch remembers now."""
    alpha = checks.number("alpha", alpha, above=0, below=1)
    if config.features is not None:
        raise InputError("monitor is not supported with features=, which may change over time.")
    held = state.rows
    if is_sparse(held["X"]):
        raise InputError("monitor needs dense rows or tables, found sparse rows.")
    encoder = replace(engine.comparison_encoder(config, state), features=None)
    if encoder.has_no_features:
        raise InputError(f"monitor: {NOTHING_TO_SCORE}")
    generator = create_generator(seed)
    rng = restore_generator(generator)
    uniform = thin(held["weight"], len(held), rng)
    if len(uniform) < FEWEST_ROWS:
        raise InputError(
            f"monitor needs {FEWEST_ROWS} remembered rows of equal weight, found {len(uniform)} "
            f"(of {len(held)} rows held). Update the sketch first, or make it larger."
        )
    apart = uniform[: round(APART * len(uniform))]
    others = np.setdiff1d(np.arange(len(held)), apart)
    encoded = flatten(encoder.encode(held["X"]))
    names = [str(j) for j in range(encoded.shape[1])]
    if encoder.plan is not None:
        names = encoder.plan.labels()
        encoded = encoded[:, : len(names)]
    left_out = find_left_out(config, state, encoder, encoded, names, None)
    columns = np.array([j for j, name in enumerate(names) if name not in left_out], dtype=np.int64)
    if not len(columns):
        raise InputError(f"monitor: no column is left to watch; left out: {', '.join(left_out)}.")
    watched = [names[j] for j in columns]
    if len(columns) > MOST_COLUMNS:
        watched = [f"sum {k} of columns" for k in range(MOST_COLUMNS)]
    z, weight = fold_columns(encoded[others][:, columns], len(watched)), held["weight"][others]
    weight = weight / weight.sum()
    mean = weight @ z
    deviation = np.sqrt(weight @ (z - mean) ** 2)
    deviation = np.maximum(deviation, 1e-9 * (1 + np.abs(mean)))
    z = np.clip((z - mean) / deviation, -CLIP, CLIP)
    values, vectors = np.linalg.eigh((z.T * weight) @ z)
    directions = vectors / np.sqrt(np.maximum(values, 0) + RIDGE * values.mean() + 1e-12)
    X = held["X"]
    is_table = is_arrow(X)
    reader = Reader(
        shape=() if is_table else X.shape[1:],
        dtype="" if is_table else str(to_numpy(X[:0]).dtype),
        target=None if state.table is None else state.table.target,
        new_columns=config.new_columns,
        encoder=encoder,
        columns=columns,
        names=[*watched, NOVELTY],
        mean=mean,
        deviation=deviation,
        directions=directions,
        edges=[],
        schema=X.schema if is_table else None,
    )
    order = np.random.default_rng(0).permutation(len(others))
    scores = reader.scores(take(X, others[order]))
    reader = replace(reader, edges=[_quantiles(s, weight[order]) for s in scores.T])
    cells = reader.cells(take(X, apart))
    counts = [
        np.bincount(mine, minlength=2 * len(edges) + 1)
        for mine, edges in zip(cells.T, reader.edges, strict=True)
    ]
    stakes = np.full((len(reader.names), len(BETS)), -np.inf)
    return Monitor(alpha, left_out, reader, counts, dict(rng.bit_generator.state), stakes)


def rank(known: Counts, cells: Counts, rng: np.random.Generator) -> tuple[Floats, Counts]:
    """Return the ranks p of new values, one after the other, and the counts with all of them.

    p = (values above + u (equal values, its own included)) / values, u uniform: for exchangeable
    values these are independent and uniform on [0, 1].
    """
    n, width = len(cells), len(known)
    before = np.zeros((n, width), dtype=np.int64)
    before[np.arange(n), cells] = 1
    up_to = known + np.cumsum(before, axis=0)  # with the value itself
    at_least = np.cumsum(up_to[:, ::-1], axis=1)[:, ::-1]
    line = np.arange(n)
    equal = up_to[line, cells]
    above = at_least[line, cells] - equal
    p = (above + rng.random(n) * equal) / up_to.sum(axis=1)
    return p, up_to[-1]


def _reserve(batches: int) -> float:
    """Return the capital not yet at stake after so many batches."""
    return float(1 / (1 + np.log1p(batches)))


def _log_sum(stakes: Floats) -> Floats:
    found: Floats = np.logaddexp.reduce(stakes, axis=1)
    return found


def _quantiles(values: Floats, weight: Floats) -> Floats:
    """Return the values below which 1/17, 2/17, ... of the weight is, each once."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order])
    wanted = np.arange(1, EDGES + 1) / (EDGES + 1) * share[-1]
    return np.unique(values[order][np.minimum(np.searchsorted(share, wanted), len(order) - 1)])
