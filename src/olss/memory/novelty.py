"""How unlike what is remembered a row is, and a batch of rows; and how unlike batches usually are.

**Rows.** The measure is ridge leverage x' (G + ridge I)^-1 x against the weighted Gram matrix
G = sum w x x' of the remembered rows: large where x points into directions, or reaches lengths,
that they do not. A number by itself says little, so it is compared with what the remembered rows
themselves score when each is left out, t / (1 - w t) for t = x' (G + ridge I)^-1 x (Sherman &
Morrison). A new row like the remembered ones is exchangeable with them: its place among theirs is
uniform.

**Batches.** The measure is a standardized mean difference (Cohen 1988) for each of some numbers of
a row: its columns, their distances from the remembered mean, and the lengths of a few random sums
of columns, which change where columns change together and none of them alone.

**History.** Some rows of each batch are compared with some of the rows held before it, as
standardized differences e of variance v. For each number, the sum of e^2 - v over the batches is
kept, whose mean estimates the square of its usual difference u (a random-effects model;
DerSimonian & Laird 1986), and for each batch one number, its surprise: the largest of
e / sqrt(u^2 + v), with the u known before it. A batch is unusual if its surprise is unusual among
those of the last hundred batches. A batch is what one update brings; updates of fewer than 20 rows
count together, up to about a thousand rows. For `olss.compress` a batch is a file. The first 32
batches are recorded, of the next 32 every second, and so on, in the end one in 64, which keeps the
cost small.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, project_columns, to_numpy
from olss.core.gram import Factor, Gram, column_limit
from olss.errors import OlssError, OlssWarning
from olss.memory.config import Config
from olss.memory.encoder import Encoder
from olss.memory.rows import Array, Floats, Indices, take
from olss.tables.columns import Date
from olss.tables.encoder import TableEncoder
from olss.util import sparse as sp

# The ridge, relative to the squared length of one average row. Above zero, directions never seen
# are novel without bound; small, directions seldom seen still count.
RIDGE = 0.01

# Values further from the mean count as if they were so many standard deviations away: one outlier
# is not a change.
CLIP = 5.0
TOGETHER = 8  # random sums of columns

# A change is where more rows than chance allows are more novel than 19 of 20 remembered ones.
TAIL = 0.05


@dataclass(frozen=True)
class NoveltyScorer:
    """What remembered rows look like; compares new rows with them.

    Attributes
    ----------
    factor : Factor
        Scores rows against the Gram matrix.
    scores : (m,) array, ascending
        What the remembered rows score when left out.
    share : (m + 1,) array from 0 to 1
        share[i] is the share of all weight that the i lowest scores have.
    rows : float
        How many rows of equal weight tell as much: (sum w)^2 / sum w^2.
    """

    factor: Factor
    scores: Floats
    share: Floats
    rows: float

    @classmethod
    def fit(cls, rows: Any, weight: Floats) -> NoveltyScorer:
        """Return a scorer fitted to remembered rows and their weights."""
        gram = Gram()
        for part, block in _blocks(rows):
            gram.update(block, weight[part])
        ridge = RIDGE * float(np.trace(gram.matrix)) / len(weight)
        factor = gram.scorer(ridge or 1.0)  # rows of zeros only: any ridge will do
        inside = np.concatenate([factor(block) for _, block in _blocks(rows)])
        left_out = inside / np.maximum(1 - weight * inside, np.finfo(np.float64).eps)
        order = np.argsort(left_out)
        share = np.concatenate([[0.0], np.cumsum(weight[order])]) / weight.sum()
        return cls(factor, left_out[order], share, float(weight.sum() ** 2 / (weight**2).sum()))

    def novelty(self, rows: Any) -> Floats:
        """Return, for each new row, the share of remembered rows that are less novel."""
        return np.asarray(self.share[np.searchsorted(self.scores, self.score(rows))])

    def score(self, rows: Any) -> Floats:
        """Return x' (G + ridge I)^-1 x of new rows."""
        return np.concatenate([self.factor(block) for _, block in _blocks(rows)])

    def chance(self, novelty: Floats) -> float:
        """Return the probability that rows like the remembered ones are as novel as these.

        Of b new rows exchangeable with m remembered ones, the number beyond the k-th most novel
        of those has the beta-binomial law with parameters b, k and m - k + 1.
        """
        k = max(1.0, TAIL * self.rows)
        beyond = int(np.count_nonzero(novelty > 1 - (k - 0.5) / self.rows))
        return _beta_binomial_tail(beyond, len(novelty), k, max(self.rows - k, 0.0) + 1)


def _beta_binomial_tail(least: int, n: int, a: float, b: float) -> float:
    """Return the probability of `least` or more of n under the beta-binomial law."""
    from scipy.special import betaln, gammaln  # slow to load, and not needed before

    j = np.arange(least, n + 1)
    choose = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
    return float(np.exp(choose + betaln(j + a, n - j + b) - betaln(a, b)).sum())


def _blocks(rows: Any) -> Iterator[tuple[slice, Any]]:
    blocks = Blocks(rows, name="X")
    if blocks.columns > column_limit():
        (blocks,) = project_columns([blocks], column_limit())
    return blocks.read(blocks.dtype)


def compare_numbers(remembered: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Return the numbers by which remembered rows (m, d) and new rows (n, d) are compared.

    (m, 2 d + 8) and (n, 2 d + 8): columns in units of the remembered rows' mean and deviation, at
    most 5 of these; their absolute values; absolute values of 8 sums of columns, signs at random.
    """
    mean, deviation = remembered.mean(axis=0), remembered.std(axis=0)
    deviation = np.maximum(deviation, 1e-9 * (1 + np.abs(mean)))
    signs = _random_signs(remembered.shape[1])
    found = []
    for part in (remembered, rows):
        z = (part - mean) / deviation
        np.clip(z, -CLIP, CLIP, out=z)
        found.append(np.concatenate([z, np.abs(z), np.abs(z @ signs)], axis=1))
    return found[0], found[1]


@lru_cache(maxsize=8)
def _random_signs(columns: int) -> Floats:
    return np.random.default_rng(0).choice([-1.0, 1.0], (columns, TOGETHER))


def standardized_difference(remembered: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Return how far the mean of each number moved, in remembered deviations, and its variance.

    The variance of d = (mean of rows - mean remembered) / s is s_rows^2 / (s^2 n) + 1 / m, and
    d^2 / 2 m for the estimate of s (Hedges & Olkin 1985, chapter 5). A number that does not vary
    counts in its own units.
    """
    m, n = len(remembered), len(rows)
    deviation = remembered.std(axis=0)
    deviation[deviation == 0] = 1.0
    difference = (rows.mean(axis=0) - remembered.mean(axis=0)) / deviation
    own = (rows.std(axis=0) / deviation) ** 2 if n > 1 else np.ones_like(difference)
    return difference, own / n + (1 + difference**2 / 2) / m


FEWEST_ROWS = 20  # of a batch, and remembered, that are compared
MOST_ROWS = 256
NUMBERS = 50_000  # rows x columns compared, for wide rows
WIDEST = 1_024  # columns; wider rows are folded
FIRST = 32  # batches that are all recorded
KEPT = 100  # surprises
WARM_UP = 2  # batches before a surprise can be measured
ENOUGH = 6  # surprises that tell what is usual
SHARED = 3  # batches that the mean over all numbers counts for


@dataclass(frozen=True, eq=False)
class History:
    """How much past batches differed from what was then remembered.

    Attributes
    ----------
    batches, recorded : int
        Batches that could be compared, and those that were.
    excess : (k,) array
        Sum of e^2 - v over the batches recorded, for each number compared.
    noise : float
        Sum of v.
    surprises : tuple of float
        The surprise of each of the last batches recorded, oldest first.
    encoder : Encoder or None
        How rows are encoded to be compared, where the sketch itself does not score them.
    """

    batches: int = 0
    recorded: int = 0
    excess: Floats = field(default_factory=lambda: np.zeros(0))
    noise: float = 0.0
    surprises: tuple[float, ...] = ()
    encoder: Encoder | None = None

    @property
    def is_enough(self) -> bool:
        """Whether there are batches enough to tell what is usual."""
        return len(self.surprises) >= ENOUGH

    @property
    def is_due(self) -> bool:
        """Whether the next batch is to be recorded: the first 32, then fewer, at last 1 in 64."""
        every = 1 << min(6, (self.batches // FIRST).bit_length())
        return self.batches % every == 0

    @property
    def usual(self) -> Floats:
        """(k,) the usual difference of each number; nan before the first batch."""
        if not self.recorded:
            return np.full(len(self.excess), np.nan)
        return np.sqrt(np.maximum(self.excess / self.recorded, 0.0))

    def scale(self, noise: float) -> Floats:
        """(k,) the differences to expect of a usual batch, whose own noise is known.

        What is usual is itself known up to the noise of past batches, sqrt(2 / batches) of it, and
        of few batches little is known of one number alone: the mean of all counts as three more.
        """
        h, found = self.recorded, self.usual**2
        own = self.noise / h * np.sqrt(2 / h)
        usual = (h * found + SHARED * found.mean()) / (h + SHARED)
        scale: Floats = np.sqrt(usual + noise + own)
        return scale

    def chance(self, surprise: float) -> float:
        """Return the probability that a batch like those before has at least this surprise.

        From a prediction interval for the logarithms (Student's t).
        """
        from scipy.special import stdtr  # slow to load, and not needed before

        past = np.log(np.maximum(self.surprises, 1e-9))
        n = len(past)
        spread = max(float(past.std(ddof=1)), 0.05) * np.sqrt(1 + 1 / n)
        t = (np.log(max(surprise, 1e-9)) - past.mean()) / spread
        return float(stdtr(n - 1, -t))

    def update(self, remembered: Floats, rows: Floats) -> History:
        """Return the history with a batch, compared with what was remembered, both encoded."""
        e, _ = standardized_difference(*compare_numbers(remembered, rows))
        noise = 1 / len(rows) + 1 / len(remembered)
        surprises = self.surprises
        if len(self.excess) != len(e):  # the first, or missing values got columns of their own
            return History(self.batches + 1, 1, e**2 - noise, noise, (), self.encoder)
        if self.recorded >= WARM_UP:
            largest = float(np.max(np.abs(e) / self.scale(noise)))
            surprises = (*surprises, largest)[-KEPT:]
        return History(
            self.batches + 1,
            self.recorded + 1,
            self.excess + e**2 - noise,
            self.noise + noise,
            surprises,
            self.encoder,
        )

    def merge(self, other: History, *, same: bool) -> History:
        """Return the history of both; of this one alone, if numbers are not the `same`."""
        if not other.recorded or (self.recorded and not same):
            return self
        if not self.recorded or len(self.excess) != len(other.excess):
            return self if self.recorded else other
        return History(
            self.batches + other.batches,
            self.recorded + other.recorded,
            self.excess + other.excess,
            self.noise + other.noise,
            (*self.surprises, *other.surprises)[-KEPT:],
            self.encoder or other.encoder,
        )


def record_batches(
    config: Config,
    history: History,
    encoder: Encoder | None,
    held: tuple[Array | None, Floats],
    new: tuple[Array, Floats],
    ends: Sequence[int],
) -> History:
    """Return the history with batches of new rows, compared with the rows held and those before.

    None is kept of policies whose rows are no sample of everything seen, nor with a feature map,
    which may change from batch to batch.

    Parameters
    ----------
    encoder : Encoder or None
        That of the sketch, or None if it does not encode rows: the history then has its own.
    held, new : (rows, weights)
    ends : sequence of int
        Where batches end among the new rows. Batches of fewer than 20 rows count with the next.
    """
    if not config.policy.knows_probabilities or config.features is not None:
        return history
    start, total = 0, len(new[1])
    for end in ends:
        if end - start < FEWEST_ROWS and end < total:
            continue
        if min(len(held[1]) + start, end - start) >= FEWEST_ROWS:
            if history.is_due:
                history = _record(config, history, encoder, held, new, start, end)
            else:
                history = replace(history, batches=history.batches + 1)
        start = end
    return history


def _record(
    config: Config,
    history: History,
    encoder: Encoder | None,
    held: tuple[Array | None, Floats],
    new: tuple[Array, Floats],
    start: int,
    end: int,
) -> History:
    try:
        if encoder is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OlssWarning)
                own = history.encoder or Encoder()
                encoder = own.fit(held[0], new[0], config.columns, config.exclude)
            history = replace(history, encoder=encoder)
        if encoder.has_no_features:
            return history
        before = [(held[0], 0, held[1]), (new[0], 0, new[1][:start])]
        return history.update(
            sample_encoded(encoder, config.time, before, MOST_ROWS),
            sample_encoded(encoder, config.time, [(new[0], start, new[1][start:end])], MOST_ROWS),
        )
    except OlssError:  # what cannot be scored and need not be; else the update will say so
        return history


def sample_encoded(
    encoder: Encoder, time: str | None, lots: Sequence[tuple[Array, int, Floats]], most: int
) -> Floats:
    """Return some rows, chosen in proportion to their weights, as the numbers to be compared.

    Each lot is rows, the number of the first that counts, and the weights of those that do.
    """
    lots = [lot for lot in lots if len(lot[2])]
    X = lots[0][0]
    width = int(np.prod(X.shape[1:])) if encoder.plan is None else encoder.plan.width
    most = max(2 * FEWEST_ROWS, min(most, NUMBERS * most // MOST_ROWS // max(width, 1)))
    chosen = stratified_sample(np.concatenate([weight for _, _, weight in lots]), most)
    samples, at = [], 0
    for X, first, weight in lots:
        mine = chosen[(chosen >= at) & (chosen < at + len(weight))] - at + first
        at += len(weight)
        if len(mine):
            samples.append(comparable(encoder, time, encoder.encode(take(X, mine))))
    return samples[0] if len(samples) == 1 else np.concatenate(samples)


def comparable(encoder: Encoder, time: str | None, encoded: Array) -> Floats:
    """Return encoded rows (n, ...) without dates and the constant; wide rows are folded."""
    values = encoded if hasattr(encoded, "tocsr") else to_numpy(encoded).reshape(len(encoded), -1)
    if encoder.plan is not None:
        values = values[:, comparable_columns(encoder.plan, time)]
    values = fold_columns(values, WIDEST)
    dense = values.toarray() if hasattr(values, "toarray") else values
    return np.asarray(dense, dtype=np.float64)


def fold_columns(values: Any, width: int) -> Any:
    """Return sums of columns with random signs, `width` of them, if there are more columns."""
    wide = values.shape[1]
    if wide <= width:
        return values
    rng = np.random.default_rng(wide)
    place, sign = rng.permutation(wide) % width, rng.choice([-1.0, 1.0], wide)
    return values @ sp.csr_array((sign, (np.arange(wide), place)), shape=(wide, width))


def comparable_columns(plan: TableEncoder, time: str | None) -> NDArray[np.int64]:
    """Return the encoded columns of a table that are no dates; those only grow."""
    at, kept = 0, list[int]()
    for column in plan.used:
        skipped = 1 if isinstance(column, Date) else 0
        if column.name != time:
            kept += range(at + skipped, at + column.width)
        at += column.width
    return np.array(kept, dtype=np.int64)


def stratified_sample(weight: Floats, most: int) -> Indices:
    """Return at most so many rows, each as often as its share of the weight says, in order.

    The weights are cut into equal stretches, none shorter than the largest weight, and one place
    in each is taken: at random, so that no period of the rows is met, but always the same.
    """
    total = np.cumsum(weight)
    count = min(most, max(1, int(total[-1] / weight.max() * (1 + 1e-9))))
    places = (np.arange(count) + _jitter(count)) * (total[-1] / count)
    rows: Indices = np.minimum(np.searchsorted(total, places), len(weight) - 1)
    return rows


@lru_cache(maxsize=8)
def _jitter(count: int) -> Floats:
    return np.random.default_rng(count).random(count)
