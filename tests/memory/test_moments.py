"""The spectrum of everything seen scores rows as a float64 SVD of everything seen does."""

import json
import warnings

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import olss
import olss.core.running_gram
from olss.core.running_gram import DenseGram, FactoredGram
from olss.errors import DataError, FormatError, InputError, OlssWarning
from olss.memory.moments import SeenMoments
from olss.util.serialize import from_json, to_json
from tests.core.test_leverage import FLOAT64, UGLY, D, N, relative_error, rng, svd_scores


def moments_of(A, cuts=1, weights=None):
    seen = SeenMoments()
    for rows in np.array_split(np.arange(len(A)), cuts):
        seen = seen.update(A[rows], None if weights is None else weights[rows])
    return seen


@pytest.fixture
def A():
    return rng().standard_normal((N, D)).astype(np.float32)


# Accuracy


@pytest.mark.filterwarnings("ignore::olss.OlssWarning")
@pytest.mark.parametrize("cuts", [1, 3, 40])
@pytest.mark.parametrize("name", UGLY)
def test_float32_streams_agree_with_a_float64_svd_of_everything(name, cuts):
    A, rank = UGLY[name]
    A = A.astype(np.float32)
    (scores,) = moments_of(A, cuts).leverage([A])
    assert relative_error(scores, svd_scores(A, rank)) < 1e-3


@pytest.mark.parametrize("cuts", [1, 3, 40])
@pytest.mark.parametrize("name", FLOAT64)
def test_float64_streams_agree_with_a_float64_svd_of_everything(name, cuts):
    A, rank, tolerance = FLOAT64[name]
    (scores,) = moments_of(A, cuts).leverage([A])
    assert relative_error(scores, svd_scores(A, rank)) < max(tolerance, 1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("new", ["rows", "a trace", "a column"])
def test_directions_that_come_later_count_at_once(new, dtype):
    """Rank 20 at first; then a direction more with each update, in few rows or faintly."""
    base = rng(1).standard_normal((20, D))
    base[:, -6:] = 0
    seen, everything = SeenMoments(), []
    for step in range(6):
        rows = rng(10 + step).standard_normal((200, 20)) @ base
        if step and new == "a column":
            rows[7, -step] = 1e-3
        elif step:
            faint = {1: 1e-2, 2: 1e-4}.get(step, 1.0) if new == "a trace" else 1.0
            rows[: 10 // step] += faint * rng(50 + step).standard_normal(D)
        everything.append(rows.astype(dtype))
        seen = seen.update(everything[-1])
        A = np.vstack(everything)
        (scores,) = seen.leverage([A])
        assert scores.sum() == pytest.approx(20 + step, rel=1e-3)
        assert relative_error(scores, svd_scores(A, 20 + step)) < 1e-3


def test_a_dominant_row_and_dependent_columns_together():
    A = (rng().standard_normal((N, 20)) @ rng(1).standard_normal((20, D))).astype(np.float32)
    A[700] *= np.float32(1e7)
    for cuts in (1, 4):
        (scores,) = moments_of(A, cuts).leverage([A])
        assert scores.sum() == pytest.approx(20, rel=1e-3)
        assert scores[700] == pytest.approx(1.0, rel=1e-3)
        others = np.arange(N) != 700
        # The dominant row takes one direction for itself; the rest is as among the others.
        u = A[700] / np.linalg.norm(A[700])
        rest = A[others] - np.outer(A[others] @ u, u)
        assert relative_error(scores[others], svd_scores(rest, 19)) < 2e-3


def test_uint8_images_with_dead_and_rare_pixels():
    A = rng().integers(0, 256, size=(3000, 100)).astype(np.uint8)
    A[:, :30] = 0
    A[:, 30:50] *= rng(1).random((3000, 20)) < 0.002
    (scores,) = moments_of(A, 3).leverage([A])
    assert relative_error(scores, svd_scores(A)) < 1e-3


def test_each_way_of_holding_the_matrix_is_reached(A):
    dominated = UGLY["dominant row 1e7"][0].astype(np.float32)
    assert moments_of(A).sum.single
    assert not moments_of(A.astype(np.float64)).sum.single
    assert not moments_of(UGLY["rank deficient"][0].astype(np.float32)).sum.single
    assert isinstance(moments_of(dominated).sum, FactoredGram)
    late = moments_of(A).update(dominated)
    assert isinstance(late.sum, FactoredGram)
    both = np.vstack([A, dominated])
    assert relative_error(late.leverage([both])[0], svd_scores(both, D)) < 1e-3


def test_rounding_of_many_updates_is_accounted_for():
    """Each sum rounds; where columns nearly agree that adds up, until rows are held instead."""
    A = rng().standard_normal((N, D))
    A[:, 1] = A[:, 0] + 2e-5 * A[:, 1]
    assert isinstance(moments_of(A, 10).sum, DenseGram)
    seen = moments_of(A, 150)
    assert isinstance(seen.sum, FactoredGram)
    assert relative_error(seen.leverage([A])[0], svd_scores(A)) < 1e-4


def test_a_wrong_product_is_noticed(A, monkeypatch):
    """Were float32 products off by 1%, scores would be too: the check must not let it pass."""
    honest, tried = olss.core.running_gram.sum_products, []

    def damaged(blocks, dtype, beside):
        G, cross = honest(blocks, dtype, beside)
        tried.append(dtype.name)
        if dtype == np.float32:
            G[3, 3] *= 1.01
        return G, cross

    monkeypatch.setattr(olss.core.running_gram, "sum_products", damaged)
    (scores,) = SeenMoments().update(A).leverage([A])
    assert relative_error(scores, svd_scores(A)) < 1e-3
    assert tried == ["float32", "float64"]


def test_weights_ridges_and_kinds_of_arrays(A):
    w = rng(1).random(N) + 0.5
    seen = moments_of(A, 3, w)
    assert seen.weight == pytest.approx(w.sum())
    (scores,) = seen.leverage([A])
    np.testing.assert_allclose(scores * w, olss.leverage_scores(A, weights=w), rtol=1e-3)
    for scores, options in ((2.5, {"ridge": 2.5}), ("ridge", {"ridge": "auto", "size": 200})):
        (found,) = moments_of(A, 3).leverage([A], scores=scores, size=200)
        np.testing.assert_allclose(found, olss.leverage_scores(A, **options), rtol=1e-3)
    assert len(moments_of(A).leverage([A[:3], A[3:]])) == 2
    sparse = SeenMoments().update(sp.csr_array(A)).leverage([sp.csr_array(A)])[0]
    np.testing.assert_allclose(sparse, olss.leverage_scores(A), rtol=1e-3)
    images = SeenMoments().update(A.reshape(N, 3, 4, 5))
    assert images.columns == D


@pytest.mark.parametrize("name", ["plain", "rank deficient", "dominant row 1e7"])
def test_arrays_of_other_devices_and_tensors(name):
    """array-api-strict stands for arrays that are neither NumPy's nor on the host."""
    A, rank = UGLY[name]
    A = A.astype(np.float32)
    for kind in (array_api_strict.asarray, torch.from_numpy):
        X = kind(A)
        seen = SeenMoments().update(X[:700, ...]).update(X[700:, ...])
        scores, none = seen.leverage([X, X[:0, ...]])
        assert relative_error(scores, svd_scores(A, rank)) < 1e-3
        assert none.shape == (0,)


def test_a_ridge_on_rows_that_lose_digits():
    A = UGLY["dominant row 1e7"][0]
    G = A.T @ A + 3.0 * np.eye(D)
    others = np.arange(N) != 17
    truth = np.einsum("ij,ij->i", A[others], np.linalg.solve(G, A[others].T).T)
    (scores,) = moments_of(A, 2).leverage([A], scores=3.0)
    # The dense truth itself has few digits here: 1e14 against 1e3 in one matrix.
    np.testing.assert_allclose(scores[others], truth, rtol=2e-2)
    assert scores[17] == pytest.approx(1, abs=1e-6)


def test_sketched_scores_have_the_documented_error(A):
    truth = svd_scores(A)
    (scores,) = moments_of(A, 2).leverage([A], scores="sketched", seed=3)
    error = abs(scores - truth) / truth
    assert np.median(error) < 0.2
    assert np.quantile(error, 0.99) < 0.75
    assert scores.sum() == pytest.approx(D, rel=0.1)
    (again,) = moments_of(A, 2).leverage([A], scores="sketched", seed=3)
    np.testing.assert_array_equal(scores, again)
    D7 = UGLY["dominant row 1e7"][0].astype(np.float32)
    (scores,) = moments_of(D7, 2).leverage([D7], scores="sketched", seed=3)
    assert np.median(abs(scores / svd_scores(D7, D) - 1)) < 0.2


def test_scores_through_a_map_are_those_of_the_mapped_rows(A):
    """A table's rows are z = ((x - shift) / scale, 1); asked for is the leverage of x = T z."""
    Z = np.hstack([A, np.ones((N, 1), dtype=np.float32)])
    T = np.eye(D, D + 1)
    T[:, -1] = rng(1).standard_normal(D) * 30
    seen = moments_of(Z, 2)
    X = Z.astype(np.float64) @ T.T
    np.testing.assert_allclose(seen.factor(map=T)(Z), svd_scores(X), rtol=1e-3)
    few = rng(2).permutation(D)[:7]
    np.testing.assert_allclose(seen.factor(map=T[few])(Z), svd_scores(X[:, few]), rtol=1e-3)
    ridge = seen.factor(4.0, map=T)
    np.testing.assert_allclose(ridge(Z), olss.leverage_scores(X, ridge=4.0), rtol=1e-3)
    assert ridge.dimension == pytest.approx(ridge(Z).sum(), rel=1e-3)
    dominated = Z * np.where(np.arange(N) == 5, np.float32(1e7), np.float32(1))[:, None]
    held = moments_of(dominated, 2)
    assert isinstance(held.sum, FactoredGram)
    truth = svd_scores(dominated.astype(np.float64) @ T.T, D)
    assert relative_error(held.factor(map=T)(dominated), truth) < 1e-3


# A value that adds up


def test_nothing_changes_what_is_there(A):
    seen = moments_of(A[:600])
    before = to_json(seen)
    seen.update(A[600:])
    seen.merge(seen)
    seen.subtract(A[:5])
    seen.scale(0.5)
    seen.leverage([A])
    assert to_json(seen) == before
    for bad, error, message in (
        (A[:, :5], DataError, "60 columns as before, found 5"),
        (np.full((2, D), np.nan), DataError, "found NaN in row 0"),
        (np.zeros((0, D)), DataError, "at least one row"),
    ):
        with pytest.raises(error, match=message):
            seen.update(bad)
    assert to_json(seen) == before


@pytest.mark.parametrize("name", ["plain", "rank deficient", "dominant row 1e7", "rare pixels"])
def test_merging_is_seeing_all(name):
    A, rank = UGLY[name]
    A = A.astype(np.float32)
    parts = [moments_of(A[:500]), moments_of(A[500:900], 3), moments_of(A[900:], 40)]
    for order in ([0, 1, 2], [2, 0, 1]):
        seen = SeenMoments()
        for k in order:
            seen = seen.merge(parts[k])
        assert (seen.rows, seen.weight) == (N, N)
        assert relative_error(seen.leverage([A])[0], svd_scores(A, rank)) < 1e-3
    assert SeenMoments().merge(SeenMoments()) == SeenMoments()
    with pytest.raises(InputError, match="60 columns, found 3"):
        parts[0].merge(SeenMoments().update(np.ones((4, 3))))


def test_a_direction_that_only_one_of_two_has_survives_a_merge():
    A = np.hstack([rng().standard_normal((N, D - 1))] * 2)[:, : D + 10]
    B = A.copy()
    B[3, -1] += 1e-4
    seen = SeenMoments().update(A).merge(SeenMoments().update(B))
    both = np.vstack([A, B])
    assert relative_error(seen.leverage([both])[0], svd_scores(both, D)) < 1e-3


def test_scaling_is_weighting(A):
    seen = moments_of(A[:600]).scale(0.25).update(A[600:])
    w = np.repeat([0.25, 1.0], 600)
    assert seen.weight == pytest.approx(w.sum())
    assert seen.rows == N
    (scores,) = seen.leverage([A])
    np.testing.assert_allclose(scores * w, olss.leverage_scores(A, weights=w), rtol=1e-3)
    rows = moments_of(UGLY["dominant row 1e7"][0]).scale(0.25)
    np.testing.assert_allclose(
        rows.leverage([A])[0] * 0.25,
        moments_of(UGLY["dominant row 1e7"][0]).leverage([A])[0],
        rtol=1e-9,
    )
    for bad in (0, -1.0, np.nan):
        with pytest.raises(InputError, match="factor must be a number above 0"):
            seen.scale(bad)


@pytest.mark.parametrize("name", ["plain", "rank deficient", "rare pixels", "dead columns"])
def test_rows_removed_are_as_if_never_seen(name):
    A, rank = UGLY[name]
    A = A.astype(np.float32)
    left = moments_of(A, 2).subtract(A[:300])
    assert (left.rows, left.weight) == (N - 300, N - 300)
    (scores,) = left.leverage([A[300:]])
    assert relative_error(scores, svd_scores(A[300:], rank)) < 1e-3


def test_a_column_whose_rows_are_all_removed_is_dead_again(A):
    A[:, 5] = 0
    A[7, 5] = 3.0
    left = moments_of(A).subtract(A[7:8])
    assert left.matrix[5].tolist() == [0.0] * D
    kept = np.delete(A, 7, axis=0)
    assert relative_error(left.leverage([kept])[0], svd_scores(kept)) < 1e-3


def test_removing_nearly_all_of_a_direction_says_that_digits_are_gone():
    A = rng().standard_normal((N, D)).astype(np.float32)
    A[:, 5] *= 0.01
    A[7, 5] = 30.0
    with pytest.warns(OlssWarning, match="known to about"):
        moments_of(A).subtract(A[7:8])
    assert moments_of(A).subtract(A) == SeenMoments()
    with pytest.raises(InputError, match="among the 1,200 seen, found 2,400"):
        moments_of(A).subtract(np.vstack([A, A]))
    with pytest.raises(InputError, match="nothing has been seen"):
        SeenMoments().subtract(A)


# More columns than a Gram matrix takes


@pytest.fixture
def wide(monkeypatch):
    """Rows of more columns than allowed, near a space of 12 dimensions."""
    monkeypatch.setattr("olss.memory.moments.column_limit", lambda: 80)
    monkeypatch.setattr("olss.core.frequent_directions.column_limit", lambda: 160)
    A = rng().standard_normal((700, 12)) @ rng(1).standard_normal((12, 200))
    return A + 0.05 * rng(2).standard_normal((700, 200))


def test_wide_rows_are_held_by_frequent_directions(wide):
    seen = moments_of(wide, 3)
    shed = seen.sum.shed
    assert shed > 0
    G = wide.T @ wide
    B = seen.sum.as_rows()
    gap = np.linalg.eigvalsh(G - B.T @ B)
    assert -1e-9 * G.trace() < gap[0] <= gap[-1] <= shed * (1 + 1e-9)
    for scores, ridge in (("exact", shed), (9 * shed, 9 * shed)):
        inverse = np.linalg.inv(B.T @ B + ridge * np.eye(200))
        truth = np.einsum("ij,jk,ik->i", wide, inverse, wide)
        np.testing.assert_allclose(seen.leverage([wide], scores=scores)[0], truth, rtol=1e-8)
    halves = moments_of(wide[:300]).merge(moments_of(wide[300:]))
    assert halves.rows == 700
    assert np.linalg.eigvalsh(G - halves.sum.as_rows().T @ halves.sum.as_rows())[0] > -1e-6
    assert from_json(SeenMoments, to_json(seen)) == seen
    more = from_json(SeenMoments, to_json(seen)).update(wide)
    assert more == seen.update(wide)
    assert seen.scale(0.5).sum.shed == pytest.approx(shed / 2)


def test_wide_rows_removed_leave_bounds_that_hold(wide):
    left = moments_of(wide).subtract(wide[:40]).subtract(wide[40:300])
    G = wide[300:].T @ wide[300:]
    B = left.sum.as_rows()
    gap = np.linalg.eigvalsh(G - B.T @ B)
    assert -left.sum.over - 1e-9 <= gap[0] < gap[-1] <= left.sum.shed * (1 + 1e-9)
    assert left.rows == 400


def test_few_wide_rows_are_known_exactly(wide):
    few = wide[:15]
    seen = SeenMoments().update(few)
    assert seen.sum.shed == 0
    with pytest.warns(OlssWarning, match="carries no information"):
        np.testing.assert_allclose(seen.leverage([few])[0], 1.0, rtol=1e-6)


# The file's bytes, and what is wrong


@pytest.mark.parametrize("name", ["plain", "rank deficient", "dominant row 1e9"])
def test_bytes_bring_back_the_same_spectrum(name):
    A = UGLY[name][0].astype(np.float32)
    seen = moments_of(A, 2)
    again = from_json(SeenMoments, to_json(seen))
    assert again == seen
    assert again != seen.update(A[:1])
    assert to_json(again.update(A)) == to_json(seen.update(A))
    np.testing.assert_array_equal(again.leverage([A])[0], seen.leverage([A])[0])
    assert from_json(SeenMoments, to_json(SeenMoments())) == SeenMoments()
    assert repr(again) == "SeenMoments(rows=1,200, columns=60)"


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.replace('"DenseGram"', '"Dense"'),
        lambda s: s.replace('"columns": 60', '"columns": "60"'),
        lambda s: s.replace('"rows": 1200', '"rows": 1200.5'),
        lambda s: s.replace('"weight": 1200.0', '"weight": NaN'),
        lambda s: s.replace('"data": "', '"data": "AAAA'),
        lambda s: s.replace('"shape": [60]', '"shape": [61]'),
        lambda s: s.replace('"total"', '"tonal"'),
    ],
)
def test_damaged_moments_are_refused(A, damage):
    text = json.dumps(to_json(moments_of(A)))
    assert damage(text) != text
    with pytest.raises(FormatError, match="damaged"):
        from_json(SeenMoments, json.loads(damage(text)))


def test_questions_that_have_no_answer_say_why(A):
    with pytest.raises(InputError, match="no row can be scored"):
        SeenMoments().leverage([A])
    with pytest.raises(InputError, match="there is no 'exakt'"):
        moments_of(A).leverage([A], scores="exakt")
    with pytest.raises(InputError, match="needs size"):
        moments_of(A).leverage([A], scores="ridge")
    with pytest.raises(InputError, match=r"map must have shape \(k, 60\), found \(2, 3\)"):
        moments_of(A).factor(map=np.ones((2, 3)))
    with pytest.warns(OlssWarning, match=r"20 rows of 60 columns.*ridge='auto'"):
        moments_of(A[:20]).leverage([A[:20]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moments_of(A[:20]).leverage([A[:20]], scores=1.0)
    assert isinstance(moments_of(A).sum, DenseGram)
    assert moments_of(A).nbytes == 2 * 8 * D**2
