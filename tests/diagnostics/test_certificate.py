"""The certificate against dense eigenvalue decompositions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import eigh, null_space

from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.diagnostics.certificate import certify
from olss.errors import DataError, InputError
from olss.memory.moments import SeenMoments
from tests.core.test_leverage import UGLY


def rng(seed=0):
    return np.random.default_rng(seed)


def drawn(A, size, seed=0, leverage=True):
    """Rows drawn with known probability, and the weights that make them unbiased."""
    scores = SeenMoments().update(A).leverage([A])[0] if leverage else np.ones(len(A))
    pi = inclusion_probabilities(scores, size)
    rows = pivotal_sample(pi, rng(seed))
    return A[rows], 1 / pi[rows]


def dense_errors(A, X, w):
    """Return (relative, spectral) by generalised eigenvalues, in the directions of A."""
    A, X = A.astype(np.float64), X.astype(np.float64)
    G, S = A.T @ A, (X * w[:, None]).T @ X
    s, V = np.linalg.eigh(G)
    V = V[:, s > s[-1] * 1e-12]
    h = eigh(V.T @ S @ V, V.T @ G @ V, eigvals_only=True)
    spectral = abs(np.linalg.eigvalsh(G - S)).max() / s[-1]
    return max(h[-1] - 1, 1 - h[0]), spectral


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("columns", [3, 40, 90])
def test_both_errors_are_those_of_the_dense_matrices(dtype, columns):
    A = (rng().standard_normal((4000, columns)) * np.linspace(1, 9, columns) + 20).astype(dtype)
    X, w = drawn(A, 600)
    found = certify(
        SeenMoments().update(A[:1000]).update(A[1000:]), [X[:100], X[100:]], [w[:100], w[100:]]
    )
    relative, spectral = dense_errors(A, X, w)
    assert found.relative == pytest.approx(relative, rel=1e-3)
    assert found.spectral == pytest.approx(spectral, rel=1e-3)
    assert (found.rows, found.seen, found.directions) == (600, 4000, columns)
    assert found.relative_interval == (found.relative, found.relative)
    assert found.scale == 1
    assert max(found.most - 1, 1 - found.least) == found.relative


def test_dependent_and_dead_columns_are_no_directions_of_their_own():
    A = rng().standard_normal((3000, 10)) @ rng(1).standard_normal((10, 30))
    A[:, 4] = 0
    X, w = drawn(A, 400)
    found = certify(SeenMoments().update(A), [X], [w])
    relative, spectral = dense_errors(A, X, w)
    assert found.directions == 10
    assert found.relative == pytest.approx(relative, rel=1e-6)
    assert found.spectral == pytest.approx(spectral, rel=1e-6)


def test_columns_of_very_different_size_and_a_dominant_row():
    """Relative errors do not depend on units; a dense solver does, so none is asked."""
    A = rng().standard_normal((3000, 12))
    X, w = drawn(A, 300)
    units = np.logspace(-9, 9, 12)
    plain = certify(SeenMoments().update(A), [X], [w])
    scaled = certify(SeenMoments().update(A * units), [X * units], [w])
    assert scaled.relative == pytest.approx(plain.relative, rel=1e-6)
    huge = certify(SeenMoments().update(A * 1e200), [X * 1e200], [w])
    assert huge.relative == pytest.approx(plain.relative, rel=1e-6)
    assert huge.spectral == pytest.approx(plain.spectral, rel=1e-6)
    # In the basis (dominant row, rest) both matrices are known; all other rows are kept.
    D = UGLY["dominant row 1e7"][0]
    keep = np.delete(np.arange(len(D)), 3)
    found = certify(SeenMoments().update(D), [D[keep]])
    (leverage,) = SeenMoments().update(D).leverage([D[3:4]])
    assert found.relative == pytest.approx(leverage[0], rel=1e-3)  # h = 1 - x' G^+ x


def test_a_missing_direction_is_an_infinite_error():
    A = rng().standard_normal((500, 5))
    A[:, 4] = 0
    A[0, 4] = 1.0
    found = certify(SeenMoments().update(A), [A[1:]])
    assert found.relative == np.inf
    assert found.least == 0
    assert found.most == pytest.approx(1.0)
    assert "missing" in str(found)
    assert null_space(A[1:]).shape[1] == 1
    one = certify(SeenMoments().update(A), [A[:1]])
    assert one.relative == np.inf
    assert 0 < one.spectral <= 1
    assert "1 rows cannot span 5 directions" in str(one)
    alone = certify(SeenMoments().update(A[:1]), [A[:1]])
    assert alone.relative < 1e-12
    assert "Every row seen is in the sketch" in str(alone)


def test_everything_kept_is_no_error():
    A = rng().standard_normal((300, 8)).astype(np.float32)
    found = certify(SeenMoments().update(A), [A])
    assert found.relative < 1e-5
    assert found.spectral < 1e-5


@pytest.mark.parametrize("columns", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_rows_without_weights_are_judged_at_the_best_scale(columns):
    A = rng().standard_normal((3000, columns))
    X = A[:1000] * 1.1
    found = certify(SeenMoments().update(A), [X], up_to_scale=True)
    scales = np.linspace(0.8, 1.2, 401) * found.scale
    errors = np.array([dense_errors(A, X, np.full(1000, c)) for c in scales[::8]])
    assert found.relative <= errors[:, 0].min() * (1 + 1e-9)
    at_scale = dense_errors(A, X, np.full(1000, found.scale))
    assert found.relative == pytest.approx(at_scale[0], rel=1e-6)
    assert found.spectral <= errors[:, 1].min() * 1.001
    assert found.spectral >= errors[:, 1].min() * 0.9
    assert "best scale" in str(found)


def test_least_squares_holds_what_is_promised():
    """The promise is for every column as a target; the worst of them must keep it."""
    A = rng().standard_normal((5000, 6)) @ rng(1).standard_normal((6, 6))
    X, w = drawn(A, 300)
    found = certify(SeenMoments().update(A), [X], [w])
    promised = (1 + found.relative) / (1 - found.relative)
    assert f"at most {promised:.3g} times" in found.promise
    for target in range(6):
        others = np.delete(np.arange(6), target)
        root = np.sqrt(w)[:, None]
        fit = np.linalg.lstsq(X[:, others] * root, X[:, target] * root[:, 0], rcond=None)[0]
        best = np.linalg.lstsq(A[:, others], A[:, target], rcond=None)[0]
        loss, least = (np.sum((A[:, target] - A[:, others] @ b) ** 2) for b in (fit, best))
        assert least <= loss <= promised * least


def test_the_law_and_the_rows_it_asks_for():
    """Draws by leverage at the sizes asked for have the errors asked for, within a fifth.

    Rows of equal leverage, for which the law is exact in the limit; a draw of n rows of 40
    columns scatters by a few per cent.
    """
    A = rng().standard_normal((200_000, 40))
    X, w = drawn(A, 2000, leverage=False)
    seen = SeenMoments().update(A)
    found = certify(seen, [X], [w])
    assert found.relative == pytest.approx(found.expected_error, rel=0.2)
    for error in (0.5, 0.2):
        rows = found.rows_for(error)
        again = certify(seen, *([part] for part in drawn(A, rows, seed=1, leverage=False)))
        assert again.relative == pytest.approx(error, rel=0.25)
    assert found.rows_for(1e-9) == 200_000
    assert "as good as can be expected" in found.verdict
    with pytest.raises(InputError, match="error must be a number above 0"):
        found.rows_for(0)


def test_a_sketch_far_better_than_the_law_still_needs_rows_for_each_direction():
    A = rng().standard_normal((2_000, 40))
    found = certify(SeenMoments().update(A), [A], [np.ones(len(A))])
    better = replace(found, relative=0.001, rows=1_000)
    assert better.rows_for(0.5) == 80
    assert better.rows_for(3.0) == 40  # what the law says
    assert "this is better" in better.verdict


def test_uniform_rows_of_heavy_tails_are_called_worse_than_leverage():
    A = rng().standard_normal((20_000, 10))
    A[:20] *= 300
    seen = SeenMoments().update(A)
    uniform = certify(seen, *([part] for part in drawn(A, 500, seed=2, leverage=False)))
    weighted = certify(seen, *([part] for part in drawn(A, 500, seed=2)))
    assert "worse than rows drawn by leverage" in str(uniform)
    assert weighted.relative < uniform.relative


def test_wide_rows_have_an_interval_that_holds_the_truth(monkeypatch):
    monkeypatch.setattr("olss.memory.moments.column_limit", lambda: 80)
    monkeypatch.setattr("olss.core.frequent_directions.column_limit", lambda: 160)
    A = rng().standard_normal((900, 12)) @ rng(1).standard_normal((12, 200))
    A += 0.05 * rng(2).standard_normal((900, 200))
    for seen, all_rows, w in (
        (SeenMoments().update(A), A, 3.0),
        (SeenMoments().update(A), A, 0.3),
        (SeenMoments().update(A).subtract(A[850:]), A[:850], 3.0),
    ):
        found = certify(seen, [A[:300]], [np.full(300, w)])
        G, S = all_rows.T @ all_rows, w * A[:300].T @ A[:300]
        ridge = found.ridge * np.eye(200)
        h = eigh(S + ridge, G + ridge, eigvals_only=True)
        truth = max(h[-1] - 1, 1 - h[0])
        low, high = found.relative_interval
        assert low * 0.998 <= truth <= high * 1.002
        assert low < high == found.relative
        spectral = abs(np.linalg.eigvalsh(G - S)).max() / np.linalg.eigvalsh(G)[-1]
        assert found.spectral_interval[0] * 0.998 <= spectral <= found.spectral * 1.002
        assert "between" in str(found)
    B = rng().standard_normal((900, 200))
    left = SeenMoments().update(B).subtract(B[20:])  # of which less is known than what it is
    assert certify(left, [B[:20]]).spectral == np.inf
    few = certify(SeenMoments().update(A[:15]), [A[:15]])
    assert few.relative < 1e-6
    assert few.ridge == 0


def test_what_cannot_be_judged_says_why():
    A = rng().standard_normal((50, 3))
    for spectrum, parts in ((SeenMoments(), [A]), (SeenMoments().update(A), [A[:0]])):
        with pytest.raises(InputError, match="the sketch is empty"):
            certify(spectrum, parts)
    with pytest.raises(DataError, match="X must have 3 columns, found 2"):
        certify(SeenMoments().update(A), [A[:, :2]])
    zeros = certify(SeenMoments().update(np.zeros((5, 2))), [np.zeros((2, 2))])
    assert zeros.spectral == 0
    assert str(zeros)
