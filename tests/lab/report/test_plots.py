"""What is drawn is what was measured, and nothing that cannot be."""

import numpy as np
import pytest

from olss.lab.report.collect import collect
from olss.lab.report.figures import PLOTS
from olss.lab.report.summary import summarise
from tests.lab.report.made import made


def stream_of(folder, seeds, scores=(0.02, 0.99)):
    """Two methods, one at each end of what can be, so that intervals would leave it."""
    for method, score in zip(("sgd", "olss"), scores, strict=True):
        for seed in range(seeds):
            record = made(method, seed, tasks=2)
            shift = 0.02 * (-1) ** seed
            record.accuracy = np.where(np.tri(2, dtype=bool), np.clip(score + shift, 0, 1), np.nan)
            record.save(folder / method / f"seed-{seed}")
    return summarise(collect([folder]))["streams"][0]


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_are_drawn_one_by_one(tmp_path, seeds):
    stream = stream_of(tmp_path, seeds)
    figure = PLOTS["curves"](stream)
    axes = figure.axes[0]
    assert len(axes.lines) == 2 * (1 + seeds)  # mean and single runs of each
    assert not axes.collections  # no band
    singles = sorted(line.get_ydata()[-1] for line in axes.lines[1 : 1 + seeds])
    assert singles == pytest.approx(sorted(100 * 0.02 * (1 + (-1) ** s) for s in range(seeds)))


def test_from_four_seeds_on_a_band_that_stays_within_what_can_be(tmp_path):
    stream = stream_of(tmp_path, 4)
    assert stream["methods"][0]["curves"]["average"]["low"][-1] < 0  # what Student says
    axes = PLOTS["curves"](stream).axes[0]
    assert len(axes.lines) == 2
    for band in axes.collections:
        heights = band.get_paths()[0].vertices[:, 1]
        assert heights.min() >= 0
        assert heights.max() <= 100


@pytest.mark.parametrize("name", ["measures", "pareto"])
@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_marks_beside_a_mean_are_single_runs_or_the_interval(tmp_path, name, seeds):
    stream = stream_of(tmp_path, seeds)
    axes = PLOTS[name](stream).axes[0]
    beside = [line for line in axes.lines if line.get_marker() != "o" and len(line.get_xdata())]
    points = {1: 0, 2: 2, 4: 2}[seeds]  # none, two runs, two ends
    lengths = [len(line.get_xdata()) for line in beside]
    assert lengths.count(points) >= (2 if points else 0)
    if name == "pareto" and points:
        heights = np.concatenate([line.get_ydata() for line in beside])
        assert 0 <= heights.min() <= heights.max() <= 100


def test_nothing_is_drawn_over_a_title(tmp_path):
    from matplotlib import rc_context

    from olss.lab.report.figures import LOOK

    stream = stream_of(tmp_path, 2)
    for name in ("curves", "final", "measures", "pareto", "time"):
        with rc_context(LOOK):
            figure = PLOTS[name](stream)
            figure.canvas.draw()
        for axes in figure.axes:
            title = axes.title if axes.title.get_text() else axes._left_title
            box = title.get_window_extent()
            drawn = [text.get_window_extent() for text in axes.texts]
            assert not any(box.overlaps(other) for other in drawn), name
