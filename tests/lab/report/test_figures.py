"""What is drawn is what was measured, and nothing that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from olss.lab.report import figures
from olss.lab.report.collect import ORDER, collect
from olss.lab.report.figures import PLOTS, RECIPES, _group_near, assign_styles, space_labels
from olss.lab.report.summary import summarize
from olss.learn import recipe_names
from tests.lab.report.made import LEARNERS, made


def test_every_method_has_a_look_of_its_own():
    looks = assign_styles([(f"method {i}", "olss", None) for i in range(30)])
    assert len(set(looks.values())) == 30


def test_every_recipe_has_a_place_and_a_colour():
    assert set(ORDER) == set(RECIPES) == set(recipe_names())


def test_colours_do_not_depend_on_who_else_is_there():
    few = assign_styles([("sgd", "sgd", None), ("olss", "olss", "paper")])
    many = assign_styles(
        (name, name, "paper" if name == "olss" else None)
        for name in ("x", "y", "sgd", "gem", "olss")
    )
    assert few["sgd"] == many["sgd"]
    assert few["olss"] == many["olss"]


def test_methods_of_a_kind_share_a_colour_and_differ_in_dashes():
    found = assign_styles(
        [("gem", "gem", None), ("w", "olss", "weighted"), ("m", "olss", "weighted")]
    )
    assert len({style.colour for style in found.values()}) == 1
    assert [bool(style.dash) for style in found.values()] == [False, True, True]
    assert len(set(found.values())) == 3


@pytest.mark.parametrize(
    "values", [[1.0, 1.0, 1.0], [5.0, 1.0, 1.1, 5.05], [9.9, 9.8, 9.95, 0.0], [3.0], []]
)
def test_labels_are_moved_apart_in_order_and_within_bounds(values):
    placed = np.array(space_labels(values, 1.0, 0.0, 10.0))
    order = np.argsort(values, kind="stable")
    assert all(np.diff(placed[order]) >= 1.0 - 1e-9)
    assert all((placed >= 0.5 - 1e-9) & (placed <= 9.5 + 1e-9))


def test_labels_with_room_stay_where_they_are():
    assert space_labels([2.0, 7.0, 4.5], 1.0, 0.0, 10.0) == [2.0, 7.0, 4.5]


def test_only_near_values_are_put_together():
    assert _group_near([0.9, 0.1, 0.15, 0.5], 0.14) == [[1, 2], [3], [0]]


def stream_of(folder, seeds, scores=(0.02, 0.99)):
    """Two methods, one at each end of what can be, so that intervals would leave it."""
    for method, score in zip(("sgd", "olss"), scores, strict=True):
        for seed in range(seeds):
            record = made(method, seed, tasks=2)
            shift = 0.02 * (-1) ** seed
            record.accuracy = np.where(np.tri(2, dtype=bool), np.clip(score + shift, 0, 1), np.nan)
            record.save(folder / method / f"seed-{seed}")
    return summarize(collect([folder]))["streams"][0]


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_are_drawn_one_by_one(tmp_path, seeds):
    stream = stream_of(tmp_path, seeds)
    figure = PLOTS["average"](stream)
    axes = figure.axes[0]
    assert len(axes.lines) == 2 * (1 + seeds)  # mean and single runs of each
    assert not axes.collections  # no band
    singles = sorted(line.get_ydata()[-1] for line in axes.lines[1 : 1 + seeds])
    assert singles == pytest.approx(sorted(100 * 0.02 * (1 + (-1) ** s) for s in range(seeds)))


def test_from_four_seeds_on_a_band_that_stays_within_what_can_be(tmp_path):
    stream = stream_of(tmp_path, 4)
    assert stream["methods"][0]["curves"]["average"]["low"][-1] < 0  # what Student says
    axes = PLOTS["average"](stream).axes[0]
    assert len(axes.lines) == 2
    for band in axes.collections:
        heights = band.get_paths()[0].vertices[:, 1]
        assert heights.min() >= 0
        assert heights.max() <= 100


@pytest.mark.parametrize("name", ["backward", "cost-memory"])
@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_marks_beside_a_mean_are_single_runs_or_the_interval(tmp_path, name, seeds):
    stream = stream_of(tmp_path, seeds)
    axes = PLOTS[name](stream).axes[0]
    beside = [line for line in axes.lines if line.get_marker() != "o" and len(line.get_xdata())]
    points = {1: 0, 2: 2, 4: 2}[seeds]  # none, two runs, two ends
    lengths = [len(line.get_xdata()) for line in beside]
    assert lengths.count(points) >= (2 if points else 0)
    if name == "cost-memory" and points:
        heights = np.concatenate([line.get_ydata() for line in beside])
        assert 0 <= heights.min() <= heights.max() <= 100


def test_every_figure_is_there_in_both_forms(report, content):
    for stream in content["streams"]:
        for name in PLOTS:
            svg = (report / "figures" / f"{stream['id']}-{name}.svg").read_text()
            png = (report / "figures" / f"{stream['id']}-{name}.png").read_bytes()
            assert svg.rstrip().endswith("</svg>")
            assert "mathdefault" not in svg  # a formula left unread
            assert png.startswith(b"\x89PNG")


def test_lines_are_labelled_by_name_in_their_colour(report, content):
    stream = content["streams"][0]
    svg = (report / "figures" / f"{stream['id']}-average.svg").read_text()
    for method in stream["methods"]:
        assert f">{method['label']}</text>" in svg
        assert method["colour"].lower() in svg.lower()
    assert len(stream["methods"]) == len(LEARNERS)


def test_the_same_content_gives_the_same_bytes(report, content, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "PLOTS", {k: PLOTS[k] for k in ("average", "memory")})
    drawn = figures.draw_figures(content["streams"][0], tmp_path)
    assert list(drawn) == ["average", "memory"]
    for name in drawn:
        for file in (f"{content['streams'][0]['id']}-{name}.{end}" for end in ("svg", "png")):
            assert (tmp_path / file).read_bytes() == (report / "figures" / file).read_bytes()
