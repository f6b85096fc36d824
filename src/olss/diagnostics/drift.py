"""Whether a batch of rows is unlike everything remembered: three questions, and what moved.

**Is there a difference?** An exact test. Remembered rows of weight w are thinned: each stays with
probability w / max(w). What stays has equal weights, so it is a uniform sample of everything seen,
and new rows of the same kind are exchangeable with it: a permutation test of any statistic gives a
false alarm with the probability stated, whatever the columns look like, rare levels and long tails
included (Fisher 1935; Lehmann & Romano 2005, theorem 15.2.1). Thinning costs some power and buys
that. Columns are replaced by their ranks among both lots of rows. Of each column the mean rank and
the mean rank of the distance from the middle are compared, a shift and a change of spread, as
z-values; the largest of these and their sum of squares count. Changes that no single column shows,
of correlations for instance, show in the novelty of rows (`olss.memory.novelty`): its mean rank,
and how many rows are in its highest twentieth. So that new rows and those they are compared with
stand to the Gram matrix alike, half of the thinned rows are compared and the Gram matrix is that
of the other rows. Among statistics of the same permutations, the smallest p-value is judged by its
own law (Westfall & Young 1993), which makes the columns' p-values right all at once; that of the
columns and that of novelty are joined by Bonferroni's rule.

**How large is it?** Standardised mean differences of each column (Cohen 1988), and one overall: the
Mahalanobis distance, without what chance alone gives (Del Giudice 2009).

**Is it larger than usual?** Rows that come in the order of time are never exchangeable, and every
batch differs a little from those before. `olss.memory.novelty` has how much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import to_numpy
from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.errors import InputError
from olss.memory import engine
from olss.memory.config import Config
from olss.memory.encoder import NOTHING_TO_SCORE, Encoder
from olss.memory.novelty import (
    FEWEST_ROWS,
    TAIL,
    History,
    NoveltyScorer,
    comparable_columns,
    compare_numbers,
    sample_encoded,
    standardized_difference,
)
from olss.memory.rows import Array, length_of, take
from olss.memory.state import State
from olss.util import checks

Floats: TypeAlias = NDArray[np.float64]

ALPHA = 0.01
SMALL = 0.2  # standard deviations: Cohen's (1988) small effect

# The work is permutations x numbers compared: at most this many numbers, rows x columns.
NUMBERS = 5_000_000
LEAST_ROWS = 200

PERMUTATIONS = 999
BLOCK = 500  # permutations worked on at a time
PRECISE_ROWS = 2_048  # compared with the history of batches
GROWING = 0.99  # rank correlation with the order of the stream
RIDGE = 0.01  # relative to the mean eigenvalue
FEWEST_OVERALL = 10  # rows from which an overall effect is measured
WIDEST = 1_024  # numbers a discriminant is found for

# Values of float32 sums nearer to each other than this are equal.
DIGITS = 3
EQUAL = 10.0**-DIGITS

SHOWN = 5  # columns a printed answer shows


@dataclass(frozen=True)
class Drift:
    """How rows differ from those remembered; true in an ``if`` when that is an alarm.

    Attributes
    ----------
    alarm : bool
        Whether `p` is at most `alpha` and the difference is larger than usual: `usual_p` is at
        most `alpha`. Without enough past batches, `effect` must be at least 0.2 instead.
    p : float
        The probability that rows exchangeable with those remembered differ as much as these.
    alpha : float
        The share of alarms among batches that bring no change, at most.
    effect : float
        How large the difference is: the Mahalanobis distance between the means of new and
        remembered rows, of all columns and their spreads, less what chance adds to it; for one
        column the standardised mean difference. nan for fewer than ten rows.
    effect_interval : (float, float)
        Its 95% interval.
    usual_p : float or None
        The probability that a batch like those before differs as much from what is remembered;
        None before eight batches.
    past : int
        Past batches that were compared with what was remembered when they came.
    novel : float
        The share of the new rows more novel than 19 of 20 remembered ones: 0.05 without change.
    names : list of str
        The columns, those that moved most first; of text, of each value (``kind = 'town'``).
    column_p : (d,) array
        For each of them the probability that any column moves as much by chance.
    shift : (d,) array
        How far its mean moved, in remembered standard deviations; values beyond five of them
        count as five.
    shift_interval : (d, 2) array
        95% intervals of the shifts.
    spread : (d,) array
        How far the mean distance from the remembered mean moved, in its standard deviations:
        above 0 where new rows are further out.
    usual : (d,) array
        How far the column usually shifts from what is remembered; nan if that is not known.
    left_out : dict of str to str
        Columns that were not compared, and why; empty if the columns to compare were named.
    rows, remembered : int
        New rows, and rows of equal weight they are compared with.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> held, weight = rng.standard_normal((400, 3)), np.full(400, 10.0)
    >>> new = rng.standard_normal((100, 3)) + [0, 0.8, 0]
    >>> print(drift(held, weight, new, names=["a", "b", "c"], seed=0))
    drift alarm: 100 new rows against 400 remembered, alpha 0.01
    is there a difference?  yes, p = 0.002 for exchangeable rows
    how large is it?        1.25 standard deviations (1.01 to 1.46); 17% novel rows (5% expected)
    larger than usual?      not known from 0 past batches; alarms need an effect of 0.2
    column  shift  95% interval     usual  spread      p
    b       +1.13  +0.92 to +1.34           +0.69  0.001
    """

    p: float
    alpha: float
    effect: float
    effect_interval: tuple[float, float]
    usual_p: float | None
    past: int
    novel: float
    names: list[str]
    column_p: Floats
    shift: Floats
    shift_interval: Floats
    spread: Floats
    usual: Floats
    rows: int
    remembered: int
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def alarm(self) -> bool:
        """Whether the difference is no chance, and larger than usual."""
        if self.p > self.alpha:
            return False
        if self.usual_p is None:
            return not self.effect < SMALL
        return self.usual_p <= self.alpha

    def __bool__(self) -> bool:
        return self.alarm

    @property
    def verdict(self) -> str:
        """Whether this is an alarm, as text."""
        return (
            f"{'drift alarm' if self else 'no drift alarm'}: {self.rows:,} new "
            f"row{'s' * (self.rows != 1)} against {self.remembered:,} remembered, "
            f"alpha {self.alpha:g}"
        )

    @property
    def answers(self) -> list[tuple[str, str]]:
        """The three questions and their answers, as text."""
        low, high = self.effect_interval
        how_large = f"{self.effect:.2f} standard deviations ({low:.2f} to {high:.2f})"
        if np.isnan(self.effect):
            how_large = f"not measured with fewer than {FEWEST_OVERALL} rows"
        few = self.rows < FEWEST_ROWS and self.past
        known = f"for fewer than {FEWEST_ROWS} rows" if few else f"from {self.past:,} past batches"
        usual = f"not known {known}; alarms need an effect of {SMALL:g}"
        if self.usual_p is not None:
            verdict = "yes" if self.usual_p <= self.alpha else "no"
            usual = f"{verdict}, p = {self.usual_p:.2g} by {self.past:,} past batches"
        verdict = "yes" if self.p <= self.alpha else "none seen"
        novel = f"{self.novel:.0%} novel rows ({TAIL:.0%} expected)"
        return [
            ("is there a difference?", f"{verdict}, p = {self.p:.2g} for exchangeable rows"),
            ("how large is it?", f"{how_large}; {novel}"),
            ("larger than usual?", usual),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as lists, dictionaries, strings and numbers, as ``--json`` prints."""
        columns = zip(
            self.names, self.column_p, self.shift, self.shift_interval, self.spread, self.usual,
            strict=True,
        )  # fmt: skip
        return {
            "alarm": self.alarm, "alpha": self.alpha, "rows": self.rows,
            "remembered": self.remembered, "p": self.p, "effect": _number(self.effect),
            "effect_interval": [_number(end) for end in self.effect_interval],
            "usual_p": self.usual_p, "past": self.past, "novel": self.novel,
            "left_out": self.left_out,
            "columns": [
                {
                    "name": name, "p": float(p), "shift": float(shift),
                    "shift_interval": interval.tolist(), "spread": float(spread),
                    "usual": _number(usual),
                }
                for name, p, shift, interval, spread, usual in columns
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [self.verdict]
        lines += [f"{question:<22}  {answer}" for question, answer in self.answers]
        moved = np.flatnonzero(self.column_p <= self.alpha)
        if len(moved) and self.p <= self.alpha:
            width = max(6, *(len(self.names[j]) for j in moved[:SHOWN]))
            lines.append(f"{'column':<{width}}  shift  95% interval     usual  spread      p")
            lines += [
                f"{self.names[j]:<{width}}  {self.shift[j]:+.2f}  "
                f"{self.shift_interval[j, 0]:+.2f} to {self.shift_interval[j, 1]:+.2f}  "
                f"{'' if np.isnan(self.usual[j]) else format(self.usual[j], '.2f'):>6}   "
                f"{self.spread[j]:+.2f}  {self.column_p[j]:5.2g}"
                for j in moved[:SHOWN]
            ]
            if len(moved) > SHOWN:
                lines.append(f"and {len(moved) - SHOWN:,} columns more")
        elif self.p <= self.alpha:
            lines.append("no single column moved much: they changed together")
        if self.left_out:
            text = [f"{name} ({why})" for name, why in self.left_out.items()]
            more = f" and {len(text) - SHOWN:,} more" if len(text) > SHOWN else ""
            lines.append(f"left out: {', '.join(text[:SHOWN])}{more}")
        return "\n".join(lines)

    __repr__ = __str__


def drift(
    remembered: Array,
    weight: Floats,
    rows: Array,
    *,
    names: Sequence[str] | None = None,
    left_out: Mapping[str, str] | None = None,
    alpha: float = ALPHA,
    seed: int | np.random.Generator | None = 0,
) -> Drift:
    """Return how rows differ from those remembered, and which columns moved most.

    Parameters
    ----------
    remembered, rows : arrays (m, ...) and (b, ...)
        What is compared: the rows held, and the new ones.
    weight : (m,) array
        How many of the rows seen each row held stands for.
    names : sequence of str, optional
        Of the columns.
    left_out : mapping of str to str, optional
        Names that are not to be compared, and why.
    alpha : float between 0.0001 and 0.5
        The share of batches without a change that may raise an alarm.
    seed : int, numpy.random.Generator or None
        For the thinning and the permutations. The same seed gives the same answer.
    """
    if not 1e-4 <= alpha <= 0.5:
        raise InputError(f"alpha must be a number from 0.0001 to 0.5, found {alpha!r}.")
    if not len(rows) or len(remembered) < 4:
        raise InputError(
            f"drift needs four rows to compare with and one to compare, found {len(remembered)} "
            f"remembered and {len(rows)} new."
        )
    rng = checks.generator(seed)
    columns = int(np.prod(rows.shape[1:]))
    names = [str(j) for j in range(columns)] if names is None else list(names)
    if len(names) != columns:
        raise InputError(f"names must have one for each of the {columns} columns, found {names}.")
    left_out = dict(left_out or {})
    compared = [j for j, name in enumerate(names) if name not in left_out]
    if not compared:
        raise InputError(f"columns: none is left to compare; left out are {', '.join(left_out)}.")
    if len(compared) < columns:
        remembered, rows = (flatten(part)[:, compared] for part in (remembered, rows))
        names = [names[j] for j in compared]
    novel = float(np.mean(NoveltyScorer.fit(remembered, weight).novelty(rows) > 1 - TAIL))

    # Equal weights by thinning, then as many rows of both as the work allows.
    most = max(LEAST_ROWS, NUMBERS // len(names) // 2)
    held = thin(weight, most, rng)
    new = rng.choice(len(rows), min(len(rows), most), replace=False)
    fresh = take(rows, new)
    permutations = max(PERMUTATIONS, int(np.ceil(4 / alpha)) - 1)

    before, after = flatten(take(remembered, held)), flatten(fresh)
    ranks = _ranks(np.concatenate([before, after]))
    z, permuted = _permute(np.column_stack(list(ranks)), len(new), permutations, rng)
    largest = permuted.max(axis=1)
    by_column = _least_p(np.column_stack([largest, (permuted**2).sum(axis=1)]))

    judged = held[: len(held) // 2]
    others = np.setdiff1d(np.arange(len(weight)), judged)
    judge = NoveltyScorer.fit(take(remembered, others), weight[others])
    novelty = np.concatenate([judge.score(take(remembered, judged)), judge.score(fresh)])
    (rank, _) = _ranks(novelty[:, None])
    _, permuted = _permute(np.column_stack([rank, rank > 0.5 - TAIL]), len(new), permutations, rng)
    by_novelty = _least_p(permuted.max(axis=1)[:, None])

    d = len(names)
    standard = compare_numbers(before, after)
    moved, variance = standardized_difference(*standard)
    margin = 1.96 * np.sqrt(variance[:d])
    effect, interval = _overall(*standard)
    order = np.argsort(-np.abs(z).reshape(2, -1).max(axis=0), kind="stable")
    reached = np.abs(z).reshape(2, -1).max(axis=0)[order]
    intervals = np.column_stack([moved[:d] - margin, moved[:d] + margin])
    return Drift(
        p=min(1.0, 2 * min(by_column, by_novelty)),
        alpha=alpha,
        effect=effect,
        effect_interval=interval,
        usual_p=None,
        past=0,
        novel=novel,
        names=[names[j] for j in order],
        column_p=np.array([np.mean(largest >= z_max - EQUAL) for z_max in reached]),
        shift=moved[:d][order],
        shift_interval=intervals[order],
        spread=moved[d : 2 * d][order],
        usual=np.full(d, np.nan),
        rows=len(rows),
        remembered=len(held),
        left_out=left_out,
    )


def thin(weight: Floats, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return rows, at most so many, each kept in proportion to its weight, in random order."""
    equal = max(2, min(int(weight.sum() / weight.max() * (1 + 1e-9)), most))
    line = rng.permutation(len(weight))
    kept = line[pivotal_sample(inclusion_probabilities(weight[line], equal), rng)]
    return rng.permutation(kept)


def drift_of(
    config: Config,
    state: State,
    rows: Any,
    *,
    columns: Sequence[str | int] | None,
    alpha: float,
    seed: int | np.random.Generator | None,
) -> Drift:
    """Return how rows differ from those a sketch remembers, as `olss.Sketch.drift` describes it."""
    encoder = engine.comparison_encoder(config, state)
    if encoder.has_no_features:
        raise InputError(f"drift: {NOTHING_TO_SCORE}")
    X, held = engine.read_new(config, state, rows), state.rows
    if not length_of(X):
        raise InputError("rows must have at least one row, found none.")
    before, after = encoder.encode(held["X"]), encoder.encode(X)
    names = [str(j) for j in range(int(np.prod(before.shape[1:])))]
    if encoder.plan is not None:  # the last number is the constant
        before, after, names = before[:, :-1], after[:, :-1], encoder.plan.labels()
    weight, history = held["weight"], state.history
    left_out = find_left_out(config, state, encoder, before, names, columns)
    found = drift(before, weight, after, names=names, left_out=left_out, alpha=alpha, seed=seed)
    if columns is not None:  # that others were not asked for need not be said
        found = replace(found, left_out={})
    if not history.recorded:
        return found
    numbers = [
        sample_encoded(encoder, config.time, [(part, 0, weights)], PRECISE_ROWS)
        for part, weights in ((held["X"], weight), (X, np.ones(len(after))))
    ]
    at = np.arange(len(names))
    if encoder.plan is not None:
        at = comparable_columns(encoder.plan, config.time)
    compared = [names[j] for j in at] if len(at) == numbers[0].shape[1] else []
    usual, p = _compare_with_past(history, numbers, compared, found.names)
    return replace(found, past=history.recorded, usual=usual, usual_p=p)


def find_left_out(
    config: Config,
    state: State,
    encoder: Encoder,
    encoded: Array,
    names: Sequence[str],
    columns: Sequence[str | int] | None,
) -> dict[str, str]:
    """Return the columns not to be compared, and why.

    By default these are dates, counters, and columns that are not scored, such as the target.
    """
    owners = list(names) if encoder.plan is None else encoder.plan.owners()
    found: dict[str, str] = {}
    if columns is not None:
        asked = {str(name) for name in columns}
        for name in asked:
            checks.column("columns", name, [*dict.fromkeys([*owners, *names])])
        both = zip(names, owners, strict=True)
        others = [name for name, owner in both if not {name, owner} & asked]
        return dict.fromkeys(others, "not asked for")
    if encoder.plan is not None:
        kept = set(comparable_columns(encoder.plan, config.time))
        for j, name in enumerate(names):
            if j not in kept:
                found[name] = "date or time"
        if state.table is not None and state.table.target is not None:
            found[state.table.target] = "target"
        found |= {column.name: column.why for column in encoder.plan.columns if not column.width}
    if len(state.rows) >= FEWEST_ROWS and not hasattr(encoded, "tocsr"):
        rows = np.arange(len(state.rows))[:: max(1, len(state.rows) // PRECISE_ROWS)]
        grows = only_grows(flatten(take(encoded, rows)), state.rows["index"][rows])
        for j in np.flatnonzero(grows).tolist():
            found.setdefault(names[j], "only grows")
    return found


def only_grows(values: Floats, index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(d,) which columns grow, or fall, with the position of their rows in the stream: counters.

    That is where ranks in that order correlate with the same ranks sorted by 0.99 or more, so that
    a few late rows do not matter. At least three different values are needed.
    """
    from scipy.stats import rankdata  # slow to load, and not needed before

    ranks = rankdata(values[np.argsort(index, kind="stable")], axis=0)
    ranks -= ranks.mean(axis=0)
    ordered = np.sort(ranks, axis=0)
    largest = np.maximum((ordered**2).sum(axis=0), 1e-9)
    up, down = ((ranks * line).sum(axis=0) / largest for line in (ordered, ordered[::-1]))
    several = np.count_nonzero(np.diff(ordered, axis=0), axis=0) >= 2
    grows: NDArray[np.bool_] = several & (np.maximum(up, down) >= GROWING)
    return grows


def _compare_with_past(
    history: History, numbers: Sequence[Floats], number_names: Sequence[str], names: Sequence[str]
) -> tuple[Floats, float | None]:
    """Return the usual shift of each column compared, and how unusual this batch is.

    Without `number_names`, numbers are those of folded rows, and all of them count. Batches of
    fewer than 20 rows are not recorded, so that it is not known how much these differ.
    """
    e, _ = standardized_difference(*compare_numbers(numbers[0], numbers[1]))
    if len(e) != len(history.excess):
        return np.full(len(names), np.nan), None
    place = {name: j for j, name in enumerate(number_names)}
    known = history.usual
    usual = np.array([known[place[name]] if name in place else np.nan for name in names])
    if not history.is_enough or len(numbers[1]) < FEWEST_ROWS:
        return usual, None
    counted, d = np.ones(len(e), dtype=bool), len(number_names)
    counted[: 2 * d] = np.tile([name in set(names) for name in number_names], 2)
    scale = history.scale(sum(1 / len(part) for part in numbers))
    return usual, history.chance(float(np.max((np.abs(e) / scale)[counted])))


def _overall(before: Floats, after: Floats) -> tuple[float, tuple[float, float]]:
    """Return the Mahalanobis distance between the means of two lots of rows, and its interval.

    D^2 = e' (S + ridge)^-1 e, S the covariance within both lots, is above zero by chance, too: by
    p v on average, for p directions and v = 1/m + 1/n, and by a factor N / (N - p - 1) for N
    degrees of freedom. Both are taken off. The variance of the rest is 4 D^2 v + 2 p v^2.
    """
    m, n = len(before), len(after)
    if min(m, n) < FEWEST_OVERALL:
        return np.nan, (np.nan, np.nan)
    before, after = before[:, :WIDEST], after[:, :WIDEST]
    e, total, v = after.mean(axis=0) - before.mean(axis=0), m + n - 2, 1 / m + 1 / n
    centred = np.concatenate([before - before.mean(axis=0), after - after.mean(axis=0)])
    values, vectors = np.linalg.eigh(centred.T @ centred / total)
    values = np.maximum(values, 0.0)
    shrunk = values + RIDGE * values.mean() + 1e-12
    p = float(np.sum(values / shrunk))
    squared = float(np.sum((vectors.T @ e) ** 2 / shrunk)) * max(total - p - 1, 1.0) / total - p * v
    margin = 1.96 * np.sqrt(4 * max(squared, 0.0) * v + 2 * p * v**2)
    low, effect, high = np.sqrt(np.maximum([squared - margin, squared, squared + margin], 0.0))
    return float(effect), (float(low), float(high))


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def flatten(rows: Array) -> Floats:
    """Return rows as a matrix of float64, (n, d)."""
    return to_numpy(rows).reshape(len(rows), -1).astype(np.float64)


def _ranks(values: Floats) -> Floats:
    """Return two tables of ranks from -1/2 to 1/2, (2, n, d): of values, of their outlyingness."""
    from scipy.stats import rankdata  # slow to load, and not needed before

    centred = (rankdata(values, axis=0) - 0.5) / len(values) - 0.5
    outlying = (rankdata(np.abs(centred), axis=0) - 0.5) / len(values) - 0.5
    return np.stack([centred, outlying])


def _permute(
    scores: Floats, new: int, permutations: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the z-values of columns for the last `new` rows, and |z| of them and permuted ones.

    Under permutations the sum over b of n numbers s that sum to zero has the variance
    b (n - b) / (n (n - 1)) sum s^2.
    """
    n = len(scores)
    scores = scores - scores.mean(axis=0)
    scale = np.sqrt((scores**2).sum(axis=0) * new * (n - new) / n / (n - 1))
    scores = (scores / np.where(scale > 0, scale, 1)).astype(np.float32)
    lot = np.arange(n) >= n - new
    found = []
    for start in range(0, permutations + 1, BLOCK):
        lots = np.tile(lot, (min(BLOCK, permutations + 1 - start), 1))
        own = int(start == 0)  # the first line is that of the new rows themselves
        lots[own:] = rng.permuted(lots[own:], axis=1)
        found.append(lots.astype(np.float32) @ scores)
    z = np.concatenate(found)
    return z[0].astype(np.float64), np.abs(z)


def _least_p(statistics: Floats) -> float:
    """Return the probability that the least p-value of a line's is as small as the first line's."""
    rounded = np.round(statistics, DIGITS)
    below = [np.searchsorted(np.sort(column), column) for column in rounded.T]
    most = np.max(below, axis=0)
    return float(np.mean(most >= most[0]))
