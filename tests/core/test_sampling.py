from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from olss.core.sampling import inclusion_probabilities, pivotal_sample, successive_sample
from olss.errors import InputError

# A chi-square test fails by chance with this probability on another seed.
LEVEL = 1e-4

WEIGHTS = {
    "equal": np.ones(4),
    "graded": np.array([1.0, 2.0, 4.0, 8.0]),
    "one dominates": np.array([0.1, 0.2, 50.0, 0.3, 0.4]),
    "some zero": np.array([0.0, 3.0, 1.0, 0.0, 2.0, 2.0]),
    "tiny": np.array([1.0, 2.0, 4.0, 8.0]) * 1e-300,
    "huge": np.array([1.0, 2.0, 4.0, 8.0]) * 1e300,
}

finite = st.floats(0, allow_infinity=False, allow_nan=False)
ugly_weights = st.lists(finite, min_size=1, max_size=60).filter(any)


def sequential_law(weights, size):
    """Probability of each set of rows when drawn one by one, summed over the orders of drawing."""
    w = weights / weights.max()
    law = {}
    for rows in combinations(np.flatnonzero(w), size):
        law[rows] = sum(one_order(w, order) for order in permutations(rows))
    return law


def one_order(w, order):
    probability, left = 1.0, w.sum()
    for row in order:
        probability *= w[row] / left
        left -= w[row]
    return probability


def counts(draws, sets):
    found = {rows: 0 for rows in sets}
    for draw in draws:
        found[tuple(int(i) for i in draw)] += 1
    return np.array([found[rows] for rows in sets])


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", WEIGHTS)
def test_successive_has_the_law_of_drawing_one_by_one(name, size):
    weights, rng, repeats = WEIGHTS[name], np.random.default_rng(1), 6_000
    law = sequential_law(weights, size)
    assert sum(law.values()) == pytest.approx(1)
    found = counts((successive_sample(weights, size, rng) for _ in range(repeats)), law)
    expected = repeats * np.array(list(law.values()))
    common = expected >= 5  # the chi-square law needs enough in each cell; the rare ones are pooled
    f = np.append(found[common], found[~common].sum())
    e = np.append(expected[common], expected[~common].sum())
    f, e = (f, e) if e[-1] > 0 else (f[:-1], e[:-1])
    assert stats.chisquare(f, e * f.sum() / e.sum()).pvalue > LEVEL


def test_successive_has_the_law_of_numpy_choice():
    weights, size, repeats = np.array([1.0, 2.0, 3.0, 5.0, 9.0]), 3, 8_000
    rng, p = np.random.default_rng(2), weights / weights.sum()
    sets = list(combinations(range(5), size))
    ours = counts((successive_sample(weights, size, rng) for _ in range(repeats)), sets)
    theirs = counts((np.sort(rng.choice(5, size, False, p)) for _ in range(repeats)), sets)
    assert stats.chi2_contingency([ours, theirs]).pvalue > LEVEL


def test_successive_orders_weights_600_decades_apart():
    weights = np.array([1e-300, 1e300, 1e-300, 1e300, 5e-324])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert successive_sample(weights, 2, rng).tolist() == [1, 3]
        assert successive_sample(weights, 4, rng).tolist() == [0, 1, 2, 3]


def test_successive_fills_up_with_zero_rows_uniformly():
    weights, rng, repeats = np.array([0, 0, 2, 0, 1, 0, 0]), np.random.default_rng(3), 4_000
    draws = np.array([successive_sample(weights, 4, rng) for _ in range(repeats)])
    found = np.bincount(draws.ravel(), minlength=7)
    assert found[2] == found[4] == repeats
    assert stats.chisquare(found[weights == 0]).pvalue > LEVEL
    assert successive_sample(weights, 7, rng).tolist() == list(range(7))
    assert successive_sample(weights, 100, rng).tolist() == list(range(7))


@given(ugly_weights, st.integers(1, 70), st.integers(0, 2**32))
def test_successive_gives_distinct_sorted_rows_of_the_exact_size(weights, size, seed):
    rows = successive_sample(weights, size, np.random.default_rng(seed))
    assert rows.dtype == np.int64
    assert len(rows) == min(size, len(weights))
    assert np.all(np.diff(rows) > 0)
    positive = np.flatnonzero(weights)
    assert len(np.intersect1d(rows, positive)) == min(size, len(positive))
    assert np.array_equal(rows, successive_sample(weights, size, np.random.default_rng(seed)))


def slow_inclusion(weights, size):
    """Cap, rescale the others, repeat: the textbook way."""
    w, capped = np.asarray(weights, dtype=float), np.zeros(len(weights), dtype=bool)
    while True:
        pi = np.where(capped, 1.0, w * (size - capped.sum()) / w[~capped].sum())
        if (pi <= 1).all():
            return pi
        capped |= pi > 1


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=60),
    st.integers(1, 59),
)
def test_inclusion_agrees_with_repeated_capping(weights, size):
    size = min(size, len(weights) - 1)
    np.testing.assert_allclose(
        inclusion_probabilities(weights, size), slow_inclusion(weights, size), rtol=1e-9
    )


@given(ugly_weights, st.integers(1, 70))
def test_inclusion_sums_to_the_size_and_is_monotone(weights, size):
    pi = inclusion_probabilities(weights, size)
    positive = np.count_nonzero(weights)
    assert pi.dtype == np.float64
    assert np.all((pi >= 0) & (pi <= 1))
    assert pi.sum() == pytest.approx(min(size, positive), rel=1e-12)
    assert np.all(pi[np.asarray(weights) == 0] == 0)
    assert np.all(np.diff(pi[np.argsort(weights)]) >= 0)
    if size >= positive:
        assert np.array_equal(pi, np.asarray(weights) > 0)


def test_inclusion_over_the_range_of_floats():
    np.testing.assert_array_equal(
        inclusion_probabilities([1e300, 1e-300, 1e-300], 2), [1, 0.5, 0.5]
    )
    np.testing.assert_array_equal(
        inclusion_probabilities([5e-324, 5e-324, 1e-323], 1), [0.25, 0.25, 0.5]
    )
    np.testing.assert_array_equal(
        inclusion_probabilities([5e-324, 5e-324, 1e308], 2), [0.5, 0.5, 1]
    )
    np.testing.assert_allclose(
        inclusion_probabilities([1.7e308] * 3 + [1e-300], 2), [2 / 3] * 3 + [0]
    )
    np.testing.assert_allclose(inclusion_probabilities([np.finfo(float).max] * 3, 1), [1 / 3] * 3)


PROBABILITIES = {
    "equal": np.full(10, 0.3),
    "odd number": np.full(9, 1 / 3),
    "with zeros and ones": np.array([0, 0.5, 1, 0.5, 0, 0.9, 0.1, 1]),
    "pairs that sum to one": np.array([0.25, 0.75, 0.6, 0.4, 0.5, 0.5]),
    "nearly one": np.array([1 - 1e-12, 1e-12, 0.5, 0.5, 1 - 1e-9, 1e-9]),
    "skewed": inclusion_probabilities(np.random.default_rng(4).lognormal(sigma=3, size=101), 17),
    "large": inclusion_probabilities(np.random.default_rng(5).pareto(1, size=500), 250),
}


@pytest.mark.parametrize("name", PROBABILITIES)
def test_pivotal_includes_each_row_with_its_probability(name):
    pi, rng, repeats = PROBABILITIES[name], np.random.default_rng(6), 4_000
    size, found = round(pi.sum()), np.zeros(len(pi))
    for _ in range(repeats):
        rows = pivotal_sample(pi, rng)
        assert len(rows) == size
        assert np.all(np.diff(rows) > 0)
        found[rows] += 1
    error = np.sqrt(pi * (1 - pi) / repeats)
    # Four standard errors, and one count more: a Poisson count of small mean has a longer tail.
    assert np.all(np.abs(found / repeats - pi) <= 4 * error + 1 / repeats)
    assert np.all(found[pi == 0] == 0)
    assert np.all(found[pi == 1] == repeats)


def test_pivotal_total_error_is_that_of_a_chi_square():
    # All rows together; a small bias shared by many of them would hide in the test row by row.
    pi, rng, repeats = np.full(64, 0.25), np.random.default_rng(7), 6_000
    found = np.zeros(64)
    for _ in range(repeats):
        found[pivotal_sample(pi, rng)] += 1
    z = (found - repeats * pi) / np.sqrt(repeats * pi * (1 - pi))
    # One row is drawn from each of 16 blocks of four, so this is 4/3 of a chi-square with 16 * 3
    # degrees of freedom.
    assert abs(np.sum(z**2) - 64) < 4 * 4 / 3 * np.sqrt(2 * 48)


def test_pivotal_spreads_over_the_order_of_rows():
    pi, rng = np.full(1024, 0.25), np.random.default_rng(8)
    for _ in range(50):
        per_block = np.bincount(pivotal_sample(pi, rng) // 64, minlength=16)
        assert np.all(np.abs(per_block - 16) <= 1)


@given(ugly_weights, st.integers(1, 70), st.integers(0, 2**32))
def test_pivotal_draws_the_exact_size(weights, size, seed):
    pi = inclusion_probabilities(weights, size)
    rows = pivotal_sample(pi, np.random.default_rng(seed))
    assert rows.dtype == np.int64
    assert len(rows) == min(size, np.count_nonzero(weights))
    assert np.all(pi[rows] > 0)
    assert set(np.flatnonzero(pi == 1)) <= set(rows)
    assert np.array_equal(rows, pivotal_sample(pi, np.random.default_rng(seed)))


def test_exact_size_on_many_rows_and_from_float32():
    rng = np.random.default_rng(9)
    weights = rng.lognormal(sigma=4, size=200_001)
    for size in (1, 777, 100_000, 200_000):
        pi = inclusion_probabilities(weights, size)
        assert len(pivotal_sample(pi, rng)) == size
        assert len(pivotal_sample(pi.astype(np.float32), rng)) == size
        assert len(successive_sample(weights, size, rng)) == size


def test_torch_weights():
    torch = pytest.importorskip("torch")
    weights = np.array([0.5, 1.0, 4.0, 0.25])
    tensor = torch.tensor(weights, requires_grad=True)
    pi = inclusion_probabilities(tensor, 2)
    assert np.array_equal(pi, inclusion_probabilities(weights, 2))
    rows = [successive_sample(w, 2, np.random.default_rng(0)).tolist() for w in (weights, tensor)]
    assert rows[0] == rows[1]


def test_all_zero_probabilities_draw_nothing():
    assert pivotal_sample(np.zeros(5), np.random.default_rng(0)).size == 0


def test_arguments_are_left_as_they_were():
    weights = np.random.default_rng(0).random(50)
    pi = inclusion_probabilities(weights, 20)
    before = weights.copy(), pi.copy()
    successive_sample(weights, 20, np.random.default_rng(0))
    pivotal_sample(pi, np.random.default_rng(0))
    assert np.array_equal(weights, before[0])
    assert np.array_equal(pi, before[1])


BAD_VECTORS = [
    ([1.0, -1.0], r"found -1\.0 at row 1"),
    ([np.nan, 1.0], r"found nan at row 0"),
    ([1.0, 0.5, np.inf], r"found inf at row 2"),
    ([[1.0, 2.0]], r"vector, found shape \(1, 2\)"),
    ([], r"vector, found shape \(0,\)"),
    (3.0, r"vector, found shape \(\)"),
    (["a", "b"], "real numbers"),
    ([1j, 2], "real numbers"),
    ([None, 1], "real numbers"),
]


@pytest.mark.parametrize(("values", "message"), BAD_VECTORS)
def test_bad_vectors(values, message):
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="weights.*" + message):
        successive_sample(values, 1, rng)
    with pytest.raises(InputError, match="weights.*" + message):
        inclusion_probabilities(values, 1)
    with pytest.raises(InputError, match="pi.*" + message):
        pivotal_sample(values, rng)


def test_all_zero_weights():
    with pytest.raises(InputError, match="weights are all zero"):
        successive_sample(np.zeros(3), 1, np.random.default_rng(0))
    with pytest.raises(InputError, match="weights are all zero"):
        inclusion_probabilities(np.zeros(3), 1)


@pytest.mark.parametrize("size", [0, -1, 2.0, 1.5, True, np.True_, "2", None, np.array([1, 2])])
def test_bad_sizes(size):
    with pytest.raises(InputError, match="size must be"):
        successive_sample([1, 2, 3], size, np.random.default_rng(0))
    with pytest.raises(InputError, match="size must be"):
        inclusion_probabilities([1, 2, 3], size)


def test_numpy_integers_are_sizes():
    assert len(successive_sample([1, 2, 3], np.int32(2), np.random.default_rng(0))) == 2


def test_bad_probabilities():
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"from 0 to 1, found 1\.5"):
        pivotal_sample([1.5, 0.5], rng)
    with pytest.raises(InputError, match="pi must sum to an integer"):
        pivotal_sample([0.8, 0.5], rng)


@pytest.mark.parametrize("rng", [0, None, np.random.RandomState(0)])
def test_bad_generators(rng):
    with pytest.raises(InputError, match="rng must be a numpy Generator"):
        successive_sample([1, 2], 1, rng)
    with pytest.raises(InputError, match="rng must be a numpy Generator"):
        pivotal_sample([0.5, 0.5], rng)
