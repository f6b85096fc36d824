"""Spread sampling: the same probabilities, smaller errors, and intervals that know of it."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from olss.core.estimation import (
    BLOCK_ROWS,
    EXCHANGE,
    WeightedSample,
    local_blocks,
    replicate_weights,
)
from olss.core.sampling import (
    _hilbert_curve,
    hilbert_places,
    inclusion_probabilities,
    pivotal_sample,
    principal_directions,
    sort_line,
    threshold_sample,
)
from olss.errors import InputError
from olss.files import compress
from olss.memory import Weighted
from olss.memory.engine import sampling_design
from olss.sketch import Sketch, config_of, state_of
from tests.repeated import repeated


def rows_of(n=6_000, d=6, seed=0):
    """Rows in a few directions, with noise in all."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) + 0.3 * rng.standard_normal(
        (n, d)
    )


def sketch_of(X, spread, seed, updates=10, size=300, **extra):
    sketch = Sketch(size, Weighted(spread=spread), seed=seed)
    for part in np.array_split(np.arange(len(X)), updates):
        sketch.update(X[part], extra={"place": part})
    return sketch


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_the_curve_visits_every_cell_once_and_goes_to_a_neighbour(k):
    places = _hilbert_curve(k)
    cells = np.stack(np.meshgrid(*[np.arange(8)] * k, indexing="ij")).reshape(k, -1)
    assert np.array_equal(np.sort(places), np.arange(8**k))
    steps = np.abs(np.diff(cells[:, np.argsort(places)], axis=1)).sum(axis=0)
    assert (steps == 1).all()


def test_places_are_defined_for_any_number():
    odd = np.array([[0.0, 1.0], [np.nan, np.inf], [-np.inf, 1e300], [1e-300, -1e30]])
    assert hilbert_places(odd.T).shape == (4,)
    assert hilbert_places(np.zeros((3, 0))).shape == (0,)
    line = sort_line(
        np.array([3, 1, 0, 2]), np.array([1, 0, 1, 0]), np.array([700, 5, 4, 701], dtype=np.uint16)
    )
    assert line.tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("d", [5, 100])
def test_directions_are_those_of_the_correlation_matrix(d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 3)) * [6, 4, 2] @ rng.standard_normal((3, d))
    X = (X + 0.1 * rng.standard_normal(X.shape)) * rng.lognormal(size=d) + 10
    X[:, 0] = 7  # constant
    P, mean = principal_directions(X.T @ X, X.sum(axis=0), len(X), 3)
    Z = np.zeros(X.shape)
    Z[:, 1:] = (X[:, 1:] - X[:, 1:].mean(axis=0)) / X[:, 1:].std(axis=0)
    U, s, _ = np.linalg.svd(Z, full_matrices=False)
    expected = U[:, :3] * s[:3] / s[0] * np.sqrt(len(X))
    found = X @ P - mean
    signs = np.sign((found * expected).sum(axis=0))
    assert np.abs(found * signs - expected).max() < 1e-3


def test_rounding_does_not_turn_directions_of_equal_spread():
    rng = np.random.default_rng(0)
    X = np.hstack([np.kron(np.eye(6), np.ones((20, 1))), rng.standard_normal((120, 1))])
    gram, total = X.T @ X, X.sum(axis=0)
    noise = 1 + 1e-12 * rng.standard_normal((7, 7))
    for count in (2, 4, 7):  # the indicators add up to 1, so that one direction says nothing
        before, _ = principal_directions(gram, total, 120, count)
        after, _ = principal_directions(gram * (noise + noise.T) / 2, total, 120, count)
        np.testing.assert_allclose(before, after, atol=1e-6)


@repeated(3_000, 30_000)
def test_every_row_keeps_its_probability(repetitions):
    rng = np.random.default_rng(0)
    n, size = 60, 12
    X = rng.standard_normal((n, 3))
    q = rng.lognormal(size=n)
    pi = inclusion_probabilities(q, size)
    places, strata = hilbert_places(X.T), np.arange(n) % 2
    counts, total = np.zeros(n), np.zeros(n)
    threshold = np.sort(q)[-5]
    for _ in range(repetitions):
        line = sort_line(rng.permutation(n), strata, places)
        counts[line[pivotal_sample(pi[line], rng)]] += 1
        rows, growth = threshold_sample(q, threshold, rng, strata, places)
        total[rows] += growth
    se = np.sqrt(pi * (1 - pi) / repetitions)
    assert (np.abs(counts / repetitions - pi) <= 4.5 * se + 1e-9).all()
    # Weights are right on average: a row below the threshold stays with probability q / threshold.
    share = np.minimum(q / threshold, 1)
    assert (
        np.abs(total / repetitions - 1) <= 4.5 * np.sqrt((1 / share - 1) / repetitions) + 1e-9
    ).all()


def test_errors_are_smaller_and_the_estimates_unbiased():
    X = rows_of()
    seeds = 30
    found = {}
    for spread in (False, True):
        sketches = [sketch_of(X, spread, seed) for seed in range(seeds)]
        totals = np.array([s.weight @ X[s.extra["place"]] for s in sketches]) - X.sum(axis=0)
        weight = np.array([s.weight.sum() for s in sketches]) - len(X)
        error = np.mean([s.error().relative for s in sketches])
        found[spread] = np.sqrt(np.mean(totals**2)), np.sqrt(np.mean(weight**2)), error
        bias = totals.mean(axis=0) / (totals.std(axis=0) / np.sqrt(seeds))
        assert np.abs(bias).max() < 4
    ratio = np.array(found[True]) / found[False]
    assert (ratio < [0.6, 0.8, 1]).all(), ratio


def test_blocks_are_neighbours_of_one_stratum():
    rng = np.random.default_rng(0)
    places, strata, drawn = rng.permutation(500), rng.integers(0, 4, 500), rng.random(500) < 0.9
    blocks = local_blocks(places, drawn, strata)
    assert set(blocks) == set(range(blocks.max() + 1))
    for block in range(blocks.max() + 1):
        mine = blocks == block
        assert len(set(strata[mine])) == 1
        assert BLOCK_ROWS <= drawn[mine].sum() < 2 * BLOCK_ROWS
        between = (places > places[mine].min()) & (places < places[mine].max())
        assert mine[between & (strata == strata[mine][0])].all()
    few = local_blocks(np.arange(3), np.ones(3, dtype=bool), np.array([0, 1, 1]))
    assert few.tolist() == [0, 1, 1]
    assert local_blocks(np.arange(4), np.zeros(4, dtype=bool)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("several", [False, True])
def test_the_variance_is_that_about_the_mean_of_neighbours(several):
    rng = np.random.default_rng(0)
    n = 200
    pi = rng.uniform(0.1, 0.7, n)
    strata = rng.integers(0, 3, n) if several else None
    blocks = local_blocks(rng.permutation(n), np.ones(n, dtype=bool), strata)
    w, f, k = 1 / pi, rng.lognormal(size=n), 1 - pi
    count = blocks.max() + 1
    within, V, known, exchanged, means, noise, of = 0.0, 0.0, 0.0, 0.0, [], [], []
    z = w * f
    for block in range(count):
        mine = blocks == block
        means.append(np.average(z[mine], weights=k[mine]))
        noise.append((k[mine] ** 2).sum() / k[mine].sum() ** 2)
        of.append(None if strata is None else strata[mine][0])
        within += (k[mine] * (z[mine] - means[-1]) ** 2).sum()
        known += k[mine].sum() - (k[mine] ** 2).sum() / k[mine].sum()
    for b in range(count - 1):
        if of[b] == of[b + 1]:
            V += EXCHANGE * (means[b] - means[b + 1]) ** 2
            exchanged += EXCHANGE * (noise[b] + noise[b + 1])
    V += within / known * (k.sum() - exchanged)
    assert exchanged < 0.75 * k.sum()  # no floor is reached
    for h in range(3 if several else 0):
        V += np.average(z[strata == h], weights=k[strata == h]) ** 2
    code = np.zeros(n, dtype=np.int64)
    sample = WeightedSample(w, pi, code, 1, strata, blocks=blocks)
    assert sample.total(f).se[0] == pytest.approx(np.sqrt(V))
    groups = rng.integers(-1, 3, n)
    together = WeightedSample(w, pi, groups, 3, strata, blocks=blocks).total(f).se
    alone = [
        WeightedSample(w, pi, np.where(groups == g, 0, -1), 1, strata, blocks=blocks).total(f).se[0]
        for g in range(3)
    ]
    assert together == pytest.approx(alone)
    columns = replicate_weights(w, pi, 20_000, rng, strata, blocks=blocks)
    assert (columns > 0).all()
    off = f @ columns - z.sum()
    assert 2 * np.sqrt(np.mean(off**2)) == pytest.approx(np.sqrt(V), rel=0.03)


@repeated(80, 1_000)
@pytest.mark.parametrize("way", ["ten updates", "merge", "compress"])
def test_intervals_hold_and_are_shorter(way, repetitions, tmp_path):
    X = rows_of(4_000)
    value = X @ [1, 0, 2, 0, 0, 1] + np.random.default_rng(1).standard_normal(len(X))
    other = np.random.default_rng(2).random(len(X)) < 0.2
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(place=np.arange(len(X)), v=value)
    frame.to_parquet(tmp_path / "in.parquet", row_group_size=500)

    def create(seed, spread):
        policy = Weighted(spread=spread)
        if way == "compress":
            path = tmp_path / "out.parquet"
            compress(
                tmp_path / "in.parquet", into=path, size=300, seed=seed, fresh=True,
                policy=policy, exclude=["place", "v"],
            )  # fmt: skip
            sketch = Sketch.load(path)
            return sketch, sketch.frame["place"].to_numpy()
        if way == "merge":
            first, second = np.array_split(np.arange(len(X)), 2)
            sketch = Sketch(300, policy, seed=seed).update(X[first], extra={"place": first})
            theirs = Sketch(300, policy, seed=seed + 10_000)
            sketch.merge(theirs.update(X[second], extra={"place": second}))
        else:
            sketch = sketch_of(X, spread, seed)
        return sketch, sketch.extra["place"]

    hits, lengths = [], {True: [], False: []}
    for seed in range(repetitions):
        sketch, place = create(seed, True)
        total, mean = sketch.estimate(value[place]), sketch.estimate(X[place, 0])
        group = sketch.estimate(value[place], where=other[place])
        pairs = [
            (total.interval("total"), value.sum()),
            (mean.interval("mean"), X[:, 0].mean()),
            (group.interval("total"), value[other].sum()),
            (group.interval("count"), other.sum()),
        ]
        hits.append([low <= true <= high for (low, high), true in pairs])
        lengths[True].append(total.total_se)
        if seed < 20:
            plain, place = create(seed, False)
            lengths[False].append(plain.estimate(value[place]).total_se)
    shares = np.mean(hits, axis=0)
    assert (np.abs(shares - 0.95) < 4 * np.sqrt(0.95 * 0.05 / repetitions) + 0.01).all(), shares
    assert np.mean(lengths[True]) < 0.8 * np.mean(lengths[False])


def test_it_needs_moments_and_is_a_setting_that_is_saved(tmp_path):
    X = rows_of(1_000)
    spread = Sketch(100, seed=0).update(X)
    assert sampling_design(config_of(spread), state_of(spread)).blocks is not None
    plain = Sketch(100, Weighted(spread=False), seed=0).update(X)
    assert sampling_design(config_of(plain), state_of(plain)).blocks is None
    assert not np.array_equal(spread.index, plain.index)
    mapped = Sketch(100, features=lambda X: X[:, :2], seed=0).update(X)
    assert sampling_design(config_of(mapped), state_of(mapped)).blocks is None
    spread.save(tmp_path / "s.parquet")
    plain.save(tmp_path / "p.parquet")
    assert Sketch.load(tmp_path / "s.parquet").policy == Weighted()
    assert Sketch.load(tmp_path / "p.parquet").policy == Weighted(spread=False)
    again = Sketch.load(tmp_path / "s.parquet")
    assert again.estimate(X[again.index, 0]).total_se == spread.estimate(X[again.index, 0]).total_se
    with pytest.raises(InputError, match="spread"):
        Weighted(spread="no")
    # A uniform sample that is spread: all weights are equal.
    uniform = Sketch(100, Weighted(uniform_share=1.0), seed=0).update(X)
    assert uniform.weight == pytest.approx(np.full(100, 10.0))


@pytest.mark.slow
def test_spreading_takes_a_quarter_of_an_update_at_most():
    X = np.random.default_rng(0).standard_normal((100_000, 54)).astype(np.float32)
    took = {True: [], False: []}
    for seed in range(7):
        for spread in (False, True):
            sketch = Sketch(2_000, Weighted(spread=spread), seed=seed)
            began = time.process_time()
            sketch.update(X)
            took[spread].append(time.process_time() - began)
    assert min(took[True]) < min(took[False]) / 0.75
