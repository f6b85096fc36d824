from __future__ import annotations

import sys

import numpy as np
import pytest

from olss import InputError, MissingExtraError, Sketch
from olss.diagnostics.describe import along_stream
from olss.memory.policies import POLICIES

matplotlib = pytest.importorskip("matplotlib")


def made(policy="weighted", tasks=3, classes=2):
    rng = np.random.default_rng(0)
    sketch = Sketch(60, policy, seed=0)
    for task in range(tasks):
        X = rng.standard_t(3, (200, 3))
        sketch.update(X, y=np.arange(200) % classes, task=task)
    return sketch


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_drawn(policy, tmp_path):
    sketch = made(policy)
    figure = sketch.plot()
    assert isinstance(figure, matplotlib.figure.Figure)
    bars, weights, stream = figure.axes
    assert sum(bar.get_height() for bar in bars.patches) == 60
    if len(weights.patches) > 1:
        assert sum(bar.get_height() for bar in weights.patches) == 60
    shares = [patch.get_data().values for patch in stream.patches]
    assert len(shares) == (1 if policy in ("paper", "recent") else 2)  # without weights, with
    seen = along_stream(sketch._state).seen
    assert [share @ seen for share in shares] == pytest.approx([1] * len(shares))
    figure.savefig(tmp_path / "sketch.png", dpi=40)


def test_many_tasks_classes_and_odd_names(tmp_path):
    figure = made(tasks=50, classes=30).plot()
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == 60
    odd = Sketch(9, seed=0).update(np.eye(4), y=["$x", "_y", "z" * 80, ""], task="$a_{b")
    odd.plot().savefig(tmp_path / "odd.png", dpi=40)


def test_weights_that_are_nearly_alike_are_drawn():
    X = np.eye(4)
    sketch = Sketch(9).update(X, weight=np.array([1.0, 1 + 1e-16, 1 + 2e-9, 1 + 3e-9]))
    assert sum(bar.get_height() for bar in sketch.plot().axes[1].patches) == 4


def test_an_empty_sketch_and_no_matplotlib_are_said(monkeypatch):
    with pytest.raises(InputError, match="nothing to plot"):
        Sketch(5).plot()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plot\\(\\) needs matplotlib"):
        made().plot()


def test_shares_along_the_stream_are_those_counted():
    sketch = made("recent")
    found = along_stream(sketch._state, 6)
    # Nothing is left of what came before, so the axis begins with the first row held.
    np.testing.assert_allclose(found.edges[[0, -1]], [sketch.index.min(), sketch.seen])
    np.testing.assert_allclose(found.kept, 1 / 6)
    np.testing.assert_allclose(found.seen, 1 / 6)
    sketch = made()
    found = along_stream(sketch._state, 7)
    for a, b, kept, stands in zip(
        found.edges[:-1], found.edges[1:], found.kept, found.stands, strict=True
    ):
        here = (sketch.index >= a) & (sketch.index < b)
        assert kept == pytest.approx(here.mean())
        assert stands == pytest.approx(sketch.weight[here].sum() / sketch.weight.sum())
    assert len(along_stream(Sketch(9).update(np.eye(3))._state).kept) == 3
