from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import t

from olss.core.estimation import Calibration, WeightedSample
from olss.core.sampling import inclusion_probabilities, pivotal_sample


def whole(weight, pi, calibration=None):
    code = np.zeros(len(weight), dtype=np.int64)
    return WeightedSample(weight, pi, code, 1, calibration=calibration)


def drawn(q, size, rng):
    """Rows of a pivotal draw in random order, and all inclusion probabilities."""
    pi = inclusion_probabilities(q, size)
    line = rng.permutation(len(pi))
    return line[pivotal_sample(pi[line], rng)], pi


def test_of_a_simple_random_sample_it_is_the_textbook_variance():
    rng = np.random.default_rng(0)
    N, n = 500, 40
    f = rng.standard_normal(n)
    w, pi = np.full(n, N / n), np.full(n, n / N)
    draw = whole(w, pi)
    # Cochran 1977, (2.20): v(total) = N^2 (1 - n/N) s^2 / n.
    variance = N**2 * (1 - n / N) * f.var(ddof=1) / n
    np.testing.assert_allclose(draw.total(f).se, np.sqrt(variance))
    np.testing.assert_allclose(draw.mean(f).se, np.sqrt(variance) / N)
    count = draw.total(np.ones(n))
    assert count.value == pytest.approx(N)
    assert count.se == pytest.approx(0, abs=1e-9)


def test_the_mean_of_a_part_is_the_textbook_ratio():
    rng = np.random.default_rng(1)
    N, n = 10_000, 400
    f, part = rng.standard_normal(n) + 3, rng.random(n) < 0.3
    draw = WeightedSample(np.full(n, N / n), np.full(n, n / N), np.where(part, 0, -1), 1)
    m = part.sum()
    # Cochran 1977, (2.47): v(mean) = (1 - n/N) s^2 / m within the part.
    variance = (1 - n / N) * f[part].var(ddof=1) / m
    np.testing.assert_allclose(draw.mean(f).se, np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(draw.mean(f).value, f[part].mean())


def test_groups_are_estimated_as_totals_of_values_that_are_zero_outside():
    rng = np.random.default_rng(2)
    n = 200
    pi = rng.uniform(0.05, 1, n)
    pi[:20] = 1
    f, code = rng.standard_normal(n) + 1, rng.integers(-1, 4, n)
    figure = WeightedSample(1 / pi, pi, code, 4).total(f)
    for group in range(4):
        alone = whole(1 / pi, pi).total(np.where(code == group, f, 0))
        for name in ("value", "se", "skewness", "freedom"):
            np.testing.assert_allclose(getattr(figure, name)[group], getattr(alone, name)[0])


def test_rows_certain_to_be_kept_add_no_error():
    rng = np.random.default_rng(3)
    pi = np.repeat([1.0, 0.2], [30, 50])
    f = rng.standard_normal(80)
    more = f.copy()
    more[:30] += 1e6
    draw = whole(1 / pi, pi)
    np.testing.assert_allclose(draw.total(f).se, draw.total(more).se)
    assert whole(np.ones(80), np.ones(80)).total(f).se == 0


def test_what_rows_count_scales_totals_and_their_errors():
    # w = a / pi: rows that count a times as much have totals and errors a times as large, and
    # means that are the same, which weights alone (pi = 1 / w) could not know.
    rng = np.random.default_rng(4)
    pi, f = rng.uniform(0.1, 1, 60), rng.standard_normal(60)
    one, ten = whole(1 / pi, pi), whole(10 / pi, pi)
    np.testing.assert_allclose(ten.total(f).se, 10 * one.total(f).se)
    np.testing.assert_allclose(ten.mean(f).se, one.mean(f).se)


def test_the_variance_is_right_on_average_with_rows_of_any_base_weight():
    # Against the spread of 4,000 draws, which is known within 1.1% (one standard error); the
    # mean of the variance estimates within less. Hájek's form itself is good to some 1/n.
    rng = np.random.default_rng(5)
    N, n = 600, 60
    age = np.arange(N)[::-1]
    a = 2.0 ** (-age / 200)
    f = rng.gamma(2, 1, N)
    totals, variances = [], []
    for _ in range(4_000):
        rows, pi = drawn(a * rng.permutation(np.ones(N)) * np.sqrt(f), n, rng)
        figure = whole(a[rows] / pi[rows], pi[rows]).total(f[rows])
        totals.append(figure.value[0])
        variances.append(figure.se[0] ** 2)
    standard_error = np.std(totals) / np.sqrt(4_000)
    assert abs(np.mean(totals) - (a * f).sum()) < 4 * standard_error
    assert np.mean(variances) == pytest.approx(np.var(totals), rel=0.08)


def test_degrees_of_freedom_are_those_of_normal_values():
    rng = np.random.default_rng(6)
    # The fourth moment of 20,000 normal values is 3 within 0.07 (one standard error: 0.035).
    n = 20_000
    figure = whole(np.full(n, 100.0), np.full(n, 0.01)).total(rng.standard_normal(n))
    assert figure.freedom[0] == pytest.approx(n, rel=0.07)


def test_intervals_without_skewness_are_those_of_student():
    f = np.array([-2.0, -1.0, 1.0, 2.0] * 10)
    figure = whole(np.full(40, 50.0), np.full(40, 0.02)).total(f)
    low, high = figure.interval(0.95)
    np.testing.assert_allclose((low + high) / 2, figure.value, atol=1e-3 * figure.se[0])
    np.testing.assert_allclose(
        (high - low) / 2, t.ppf(0.975, figure.freedom) * figure.se, rtol=1e-4
    )


def test_halls_interval_solves_his_equation():
    rng = np.random.default_rng(7)
    f = rng.lognormal(0, 1, 30) - 1
    figure = whole(np.full(30, 50.0), np.full(30, 0.02)).total(f)
    s = figure.skewness[0]
    for end, sign in zip(figure.interval(0.9), (1, -1), strict=True):
        T = (figure.value - end) / figure.se
        g = T + s * T**2 / 3 + s**2 * T**3 / 27 + s / 6
        np.testing.assert_allclose(g, sign * t.ppf(0.95, figure.freedom), rtol=1e-9)


def test_calibrated_weights_give_the_known_totals_and_leave_certain_rows_alone():
    rng = np.random.default_rng(8)
    x = np.column_stack([np.ones(100), rng.standard_normal((100, 3))])
    pi = np.repeat([1.0, 0.1], [20, 80])
    totals = np.array([1_000.0, 20.0, -5.0, 3.0])
    calibration = Calibration(x, totals, 1 / pi, pi)
    np.testing.assert_allclose(calibration.weight @ x, totals)
    np.testing.assert_array_equal(calibration.weight[:20], 1)
    # What is linear in x is known without error.
    assert whole(1 / pi, pi, calibration).total(x @ [1.0, 2, 3, 4]).se[0] < 1e-9


def test_calibration_is_the_least_variance_among_regressions():
    # Coefficients of the regression estimator minimise the estimated variance sum k w^2 e^2.
    rng = np.random.default_rng(9)
    x, f = rng.standard_normal((60, 2)), rng.standard_normal(60)
    pi = rng.uniform(0.05, 0.9, 60)
    calibration = Calibration(x, np.zeros(2), 1 / pi, pi)
    metric = (1 - pi) / pi**2
    best = (metric * calibration.residual(f) ** 2).sum()
    root = np.sqrt(metric)
    b = np.linalg.lstsq(root[:, None] * x, root * f, rcond=None)[0]
    np.testing.assert_allclose(best, (metric * (f - x @ b) ** 2).sum())


def test_calibration_to_many_columns_does_not_hide_the_error():
    # 30 columns that say nothing and 150 rows: 600 repetitions know a variance to 6%. That of
    # the regression itself (some rank / n) is of the second order and not counted.
    rng = np.random.default_rng(12)
    N, n = 2_000, 150
    x, f = rng.standard_normal((N, 30)), rng.standard_normal(N) + 3
    x[:, 0] = 1
    totals, variances = [], []
    for _ in range(600):
        rows, pi = drawn(np.ones(N), n, rng)
        calibration = Calibration(x[rows], x.sum(axis=0), 1 / pi[rows], pi[rows])
        figure = whole(1 / pi[rows], pi[rows], calibration).total(f[rows])
        totals.append(figure.value[0])
        variances.append(figure.se[0] ** 2)
    assert np.mean(variances) / np.var(totals) == pytest.approx(1, abs=0.3)


def test_an_enumeration_of_all_samples_gives_the_true_spread():
    # All 4-subsets of 8 rows: the mean of the variance estimates is the variance, exactly.
    f = np.array([1.0, 5.0, 2.0, 9.0, 4.0, 4.0, 0.0, 7.0])
    subsets = list(itertools.combinations(range(8), 4))
    figures = [whole(np.full(4, 2.0), np.full(4, 0.5)).total(f[list(rows)]) for rows in subsets]
    totals = np.array([figure.value[0] for figure in figures])
    assert np.mean([figure.se[0] ** 2 for figure in figures]) == pytest.approx(totals.var())


def test_of_a_stratified_sample_it_is_the_textbook_variance_and_a_row_a_stratum():
    rng = np.random.default_rng(10)
    N, n = np.array([400, 600]), np.array([20, 30])
    strata = np.repeat([0, 1], n)
    f = rng.standard_normal(50) + 5 * strata
    w, pi = np.repeat(N / n, n), np.repeat(n / N, n)
    figure = WeightedSample(w, pi, np.zeros(50, dtype=np.int64), 1, strata).total(f)
    # Cochran 1977, (5.9), with sums of squares over n - 2 rather than n_h - 1.
    parts = [f[strata == h] for h in (0, 1)]
    within = sum(
        (N[h] / n[h]) ** 2 * (1 - n[h] / N[h]) * n[h] * part.var() for h, part in enumerate(parts)
    )
    row = sum((N[h] / n[h] * parts[h].mean()) ** 2 for h in (0, 1))
    np.testing.assert_allclose(figure.se**2, within * 50 / 48 + row)


def test_strata_that_compete_first_are_counted_with_the_error_stated():
    # Eight draws in a row, each sorted by stratum; 400 repetitions know a variance to 7%.
    rng = np.random.default_rng(11)
    N, size = 4_000, 200
    strata = rng.choice(4, N, p=[0.6, 0.25, 0.1, 0.05])
    score = rng.lognormal(0, 0.7, N)
    counts, variances = [], []
    for _ in range(400):
        rows, weight = np.arange(0), np.ones(0)
        for new in np.array_split(np.arange(N), 8):
            rows, weight = np.append(rows, new), np.append(weight, np.ones(len(new)))
            line = rng.permutation(len(rows))
            line = line[np.argsort(strata[rows][line], kind="stable")]
            pi = inclusion_probabilities((weight * score[rows])[line], size)
            kept = pivotal_sample(pi, rng)
            rows, weight = rows[line[kept]], weight[line[kept]] / pi[kept]
        figure = WeightedSample(weight, 1 / weight, strata[rows], 4, strata[rows]).total(
            np.ones(size)
        )
        counts.append(figure.value)
        variances.append(figure.se**2)
    ratio = np.mean(variances, axis=0) / np.var(counts, axis=0)
    assert (np.abs(ratio - 1) < 4 * np.sqrt(2 / 400)).all(), ratio
