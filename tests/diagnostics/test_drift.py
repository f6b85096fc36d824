from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.diagnostics import drift as module
from olss.diagnostics.drift import drift
from olss.errors import InputError
from olss.memory.novelty import standardized_difference
from olss.memory.policies import POLICIES, Choice
from olss.sketch import Sketch


def table(rng, n):
    """Normal columns, correlated; long tails; rare levels; a constant."""
    x = rng.standard_normal((n, 3)) @ [[1, 0.9, 0], [0, 0.4, 0], [0, 0, 1]]
    tails = np.column_stack([rng.standard_t(2, n), rng.lognormal(0, 2, n)])
    return np.column_stack([x, tails, rng.random((n, 2)) < [0.1, 0.01], np.ones(n)])


NAMES = ["x", "near x", "z", "t", "lognormal", "tenth", "rare", "one"]


def weighted(rng, X, size):
    """Rows and weights of a draw by leverage, a quarter uniform."""
    leverage = np.einsum("ij,jk,ik->i", X, np.linalg.pinv(X.T @ X), X)
    pi = inclusion_probabilities(0.75 * leverage / leverage.sum() + 0.25 / len(X), size)
    rows = pivotal_sample(pi, rng)
    return X[rows], 1 / pi[rows]


BATCHES = 300


@pytest.mark.parametrize(("size", "batch"), [(300, 60), (100, 300)])
def test_false_alarms_are_as_rare_as_stated(size, batch, monkeypatch):
    monkeypatch.setattr(module, "PERMUTATIONS", 199)
    alarms = []
    for repetition in range(BATCHES):
        rng = np.random.default_rng([1, size, repetition])
        held, weight = weighted(rng, table(rng, 1_500), size)
        alarms.append(drift(held, weight, table(rng, batch), alpha=0.05, seed=rng).alarm)
    # Four standard errors; Bonferroni's rule makes it somewhat less than the nominal share.
    assert 0.01 < np.mean(alarms) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / BATCHES)


@pytest.mark.parametrize("change", ["z", "lognormal", "rare", "x"])
def test_a_column_that_moves_is_named(change):
    rng = np.random.default_rng(2)
    held, weight = weighted(rng, table(rng, 5_000), 800)
    new = table(rng, 300)
    column = NAMES.index(change)
    if change == "rare":
        new[:, column] = rng.random(300) < 0.1
    elif change == "lognormal":
        new[:, column] *= 3
    elif change == "x":  # wider only
        new[:, column] *= 2
    else:
        new[:, column] += 0.5
    answer = drift(held, weight, new, names=NAMES)
    assert answer
    assert answer.names[0] == change
    assert answer.column_p[0] <= 0.01
    assert f"\n{change} " in str(answer)
    assert (answer.spread if change == "x" else answer.shift)[0] > 0.05


def test_a_change_no_column_shows_is_seen():
    rng = np.random.default_rng(3)
    held, weight = weighted(rng, table(rng, 5_000), 800)
    new = table(rng, 300)
    new[:, 1] = rng.permutation(new[:, 1])  # no longer near x
    answer = drift(held, weight, new, names=NAMES)
    assert answer
    assert answer.novel > 0.1
    assert answer.column_p.min() > 0.01
    assert "changed together" in str(answer)


def test_no_change_is_no_alarm():
    rng = np.random.default_rng(4)
    held, weight = weighted(rng, table(rng, 5_000), 800)
    answer = drift(held, weight, table(rng, 300))
    assert not answer
    assert "no drift alarm" in str(answer)
    assert answer.names != NAMES
    assert set(answer.names) == set(map(str, range(8)))


def test_shifts_are_standardised_differences_and_p_values_those_of_mann_and_whitney():
    rng = np.random.default_rng(5)
    held, new = rng.standard_normal((150, 1)), rng.standard_normal((90, 1)) + 0.28
    answer = drift(held, np.full(150, 7.0), new, seed=6)
    z = np.clip((np.concatenate([held, new]) - held.mean()) / held.std(), -5, 5)
    expected = (z[150:].mean() - z[:150].mean()) / z[:150].std()
    np.testing.assert_allclose(answer.shift, expected, rtol=1e-9)
    ranks = module._ranks(np.concatenate([held, new]))[0]
    z, permuted = module._permute(ranks, 90, 20_000, np.random.default_rng(7))
    truth = mannwhitneyu(new[:, 0], held[:, 0], method="asymptotic", use_continuity=False)
    from scipy.stats import norm

    np.testing.assert_allclose(2 * norm.sf(abs(z[0])), truth.pvalue, rtol=1e-5)
    share = np.mean(permuted[:, 0] >= permuted[0, 0])
    assert share == pytest.approx(truth.pvalue, abs=4 * np.sqrt(truth.pvalue / 20_000))


def test_rows_of_unequal_weight_are_thinned_to_a_uniform_sample():
    # Half of the rows held are ones and stand for a hundredth of all rows seen; a batch with a
    # hundredth of ones is nothing new.
    held = np.repeat([[0.0], [1.0]], 100, axis=0)
    weight = np.repeat([99.0, 1.0], 100)
    new = (np.arange(300) % 100 == 0)[:, None].astype(float)
    answer = drift(held, weight, new)
    assert answer.p > 0.2
    assert answer.remembered == 101
    assert drift(held, np.ones(200), new).alarm


def test_wide_rows_and_many_of_them_are_cut_to_what_can_be_compared(monkeypatch):
    monkeypatch.setattr(module, "NUMBERS", 20_000)
    rng = np.random.default_rng(8)
    held, new = rng.standard_normal((3_000, 4, 5)), 1.2 * rng.standard_normal((3_000, 4, 5))
    answer = drift(held, np.ones(3_000), new)
    assert answer.remembered == 500
    assert answer.rows == 3_000
    assert answer


def test_the_same_seed_gives_the_same_answer():
    rng = np.random.default_rng(9)
    held, new = rng.standard_normal((50, 3)), rng.standard_normal((20, 3))
    assert drift(held, np.ones(50), new).p == drift(held, np.ones(50), new).p


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha": 0}, "alpha"),
        ({"rows": np.ones((0, 2))}, "found 9 remembered and 0 new"),
        ({"names": ["a"]}, "names must have one for each of the 2 columns"),
        ({"rows": np.full((3, 2), np.nan)}, "NaN"),
    ],
)
def test_bad_input_is_told(given, message):
    with pytest.raises(InputError, match=message):
        drift(**{"remembered": np.eye(9, 2), "weight": np.ones(9), "rows": np.eye(2), **given})


def test_of_text_each_value_that_moved_is_named_once():
    rng = np.random.default_rng(6)

    def day(rows, shares):
        return {"carrier": rng.choice(["UA", "AA", "B6"], rows, p=shares), "hour": rng.random(rows)}

    sketch = Sketch(size=400, seed=0).update(day(4_000, [0.3, 0.3, 0.4]))
    moved = sketch.drift(day(500, [0.7, 0.3, 0.0]))
    assert set(moved.names[:2]) == {"carrier = 'UA'", "carrier = 'B6'"}
    lines = [line.split("  ")[0] for line in str(moved).splitlines()[5:]]
    assert lines[:2] == moved.names[:2]
    assert len(set(moved.names)) == len(moved.names)


def test_questions_about_everything_seen_need_known_probabilities():
    rng = np.random.default_rng(10)
    X, y = rng.standard_normal((600, 3)), rng.integers(0, 2, 600)
    for policy in POLICIES:
        sketch = Sketch(100, policy, seed=0).update(X, y)
        for question in (
            sketch.estimate,
            lambda s=sketch: s.drift(X),
            lambda s=sketch: s.novelty(X),
        ):
            if policy in ("weighted", "reservoir"):
                question()
                continue
            with pytest.raises(InputError, match=f"probabilities.*{policy!r}"):
                question()
    own = Sketch(100, lambda pool, rng: Choice(np.arange(pool.size))).update(X)
    with pytest.raises(InputError, match="drift needs"):
        own.drift(X)


def test_effects_are_within_their_intervals():
    # 1,000 repetitions, 95% intervals: 0.007 is one standard error of a share.
    held_in = overall_in = zero_in = 0
    truth = 0.5 / np.sqrt(1.0)
    for seed in range(1_000):
        rng = np.random.default_rng([11, seed])
        held, new = rng.standard_normal((400, 4)), rng.standard_normal((200, 4))
        _, interval = module._overall(held, new)
        zero_in += interval[0] == 0
        new[:, 0] += 0.5
        _, (low, high) = module._overall(held, new)
        overall_in += low <= truth <= high
        e, variance = standardized_difference(held, new)
        held_in += abs(e[0] - 0.5) <= 1.96 * np.sqrt(variance[0])
    assert held_in / 1_000 == pytest.approx(0.95, abs=4 * 0.007)
    assert overall_in / 1_000 == pytest.approx(0.95, abs=4 * 0.007)
    assert zero_in / 1_000 > 0.95


def test_dates_and_counters_are_left_out_unless_asked_for():
    rng = np.random.default_rng(12)

    def day(number):
        n = np.arange(200) + 200 * number
        return {
            "when": np.datetime64("2024-01-01", "s") + n.astype("timedelta64[h]"),
            "order": n + rng.integers(0, 5, 200),
            "year": 2000 + n // 500,
            "x": rng.standard_normal(200),
        }

    sketch = Sketch(300, seed=0)
    for number in range(10):
        sketch.update(day(number))
    answer = sketch.drift(day(10))
    assert answer.left_out == {"when": "date or time", "order": "only grows", "year": "only grows"}
    assert answer.names == ["x"]
    assert not answer
    assert "left out: when (date or time)" in str(answer)
    asked = sketch.drift(day(10), columns=["order", "x"])
    assert asked.names[0] == "order"
    assert asked.p <= 0.01
    with pytest.raises(InputError, match=r"columns.*'nothing'"):
        sketch.drift(day(10), columns=["nothing"])
    with pytest.raises(InputError, match="none is left to compare"):
        Sketch(50, seed=0).update({"t": np.arange(100)}).drift({"t": [100, 101]})


def test_batches_of_any_size_and_strange_columns_have_an_answer():
    rng = np.random.default_rng(13)

    def rows(n, **more):
        return {"x": rng.standard_normal(n), "one": np.ones(n), "none": np.full(n, np.nan), **more}

    sketch = Sketch(200, seed=0).update(rows(1_000))
    single = sketch.drift(rows(1))
    assert np.isnan(single.effect)
    assert "fewer than 10 rows" in str(single)
    assert not single
    with pytest.raises(InputError, match="at least one row"):
        sketch.drift(rows(0))
    with pytest.raises(InputError, match="'x'"):
        sketch.drift({"one": np.ones(3)})
    with pytest.raises(InputError, match="'new'"):
        sketch.drift(rows(50, new=rng.random(50)))
    growing = Sketch(200, seed=0, new_columns="keep").update(rows(1_000))
    assert "new" not in growing.drift(rows(50, new=rng.random(50))).names
    changed = sketch.drift(rows(50) | {"one": np.zeros(50)})
    assert changed.names[0] == "one"
    assert changed
    filled = sketch.drift(rows(50) | {"none": rng.random(50)})
    assert np.isfinite([filled.p, filled.effect]).all()
    with pytest.raises(InputError, match="the sketch is empty"):
        Sketch(10).drift(rows(5))
    assert not Sketch(50, seed=0).update(np.ones((100, 2))).drift(np.ones((20, 2)))


def test_columns_that_are_not_scored_are_named():
    rng = np.random.default_rng(13)
    table = {"x": rng.standard_normal(500), "y": rng.standard_normal(500), "z": np.arange(500) % 7}
    sketch = Sketch(300, exclude=["z"], seed=0).update(table, y="y")
    answer = sketch.drift(table)
    assert answer.left_out == {"y": "target", "z": "not asked for"}
    assert "y (target)" in str(answer)
    assert sketch.drift(table, columns=["x"]).left_out == {}
    few = sketch.drift({name: column[:1] for name, column in table.items()})
    assert few.usual_p is None
    assert "1 new row against" in str(few)
