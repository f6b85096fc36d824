import numpy as np
import pytest

from olss.errors import InputError
from olss.streams.stream_draws import check_seed, check_share, draw, generator, stratified


def test_generators_differ_by_seed_purpose_and_task_and_repeat() -> None:
    keys = [(s, p, t) for s in (0, 1) for p in ("angle", "train rows") for t in (0, 1)]
    first = [generator(*key).random() for key in keys]
    assert len(set(first)) == len(keys)
    assert first == [generator(*key).random() for key in keys]


def test_draw_takes_distinct_rows_in_random_order() -> None:
    rows = draw(np.arange(100, 200), 50, np.random.default_rng(0))
    assert len(np.unique(rows)) == 50
    assert rows.min() >= 100
    assert not (np.sort(rows) == rows).all()


@pytest.mark.parametrize("size", [0, 1, 6, 19, 20])
def test_stratified_gives_each_class_its_share_up_to_one(size: int) -> None:
    y = np.repeat([5, 2, 9], [7, 3, 10])
    rows = stratified(y, np.arange(20), size, np.random.default_rng(size))
    assert len(np.unique(rows)) == size
    for label, count in ((5, 7), (2, 3), (9, 10)):
        # Systematic sampling: a run of c of n rows gets floor or ceil of c * size / n.
        assert abs((y[rows] == label).sum() - count * size / 20) < 1


def test_stratified_gives_every_row_the_same_chance() -> None:
    y, size, repeats = np.repeat([0, 1], [7, 13]), 6, 4000
    rng = np.random.default_rng()
    counts = np.zeros(20)
    for _ in range(repeats):
        counts[stratified(y, np.arange(20), size, rng)] += 1
    # Standard error 0.0072; 5.5 of them for each of 20 rows fail once in a million runs.
    assert np.abs(counts / repeats - size / 20).max() < 5.5 * np.sqrt(0.3 * 0.7 / repeats)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True, None])
def test_bad_seed_is_named(seed: object) -> None:
    with pytest.raises(InputError, match=f"seed must be a whole number from 0 up, found {seed!r}"):
        check_seed(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0, -0.1, 1.1, "half", float("nan"), True])
def test_bad_share_is_named(share: object) -> None:
    with pytest.raises(InputError, match="share must be a share between 0 and 1"):
        check_share("share", share)  # type: ignore[arg-type]
