from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from olss.streams import Dataset, from_arrays, incremental, permuted


def test_tasks_go_across_and_examples_down(tmp_path: Path) -> None:
    stream = permuted("digits", tasks=7)
    figure = stream.preview(tmp_path / "stream.png", tasks=3, examples=4)
    with Image.open(tmp_path / "stream.png") as picture:
        assert picture.size[0] > 300
        assert np.asarray(picture.convert("L")).std() > 10
    assert len(figure.axes) == 12
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["1\npermutation 1", "4\npermutation 4", "7\npermutation 7"]
    drawn = np.asarray(figure.axes[3].images[0].get_array())  # second row, first task
    np.testing.assert_allclose(drawn, stream[0].X[1] / 16)


@pytest.mark.parametrize("shape", [(3, 5, 5), (1, 5, 5), (5, 5), (7,)])
def test_colours_single_channels_and_tables_can_be_drawn(shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    y = np.arange(12) % 4
    data = Dataset("noise", X, y, X, y, 255.0, ("a", "b", "c", "d"))
    figure = incremental(data, tasks=2).preview(examples=8)
    assert len(figure.axes) == 16
    figure.canvas.draw()
    labels = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert labels == {"a", "b", "c", "d"}


def test_real_targets_are_written_below() -> None:
    X = np.arange(40.0).reshape(10, 4)
    figure = from_arrays([(X, X[:, 0] / 3)]).preview(examples=2)
    assert all(axes.lines for axes in figure.axes)
    assert "." in figure.axes[1].texts[0].get_text()
