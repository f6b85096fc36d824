import numpy as np
import pytest

from olss.streams.stream_draws import draw, stratified, task_generator


def test_generators_differ_by_seed_purpose_and_task_and_repeat() -> None:
    keys = [(s, p, t) for s in (0, 1) for p in ("angle", "train rows") for t in (0, 1)]
    first = [task_generator(*key).random() for key in keys]
    assert len(set(first)) == len(keys)
    assert first == [task_generator(*key).random() for key in keys]


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
