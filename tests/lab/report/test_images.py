import base64
import io

import numpy as np
import pytest
from PIL import Image

from olss.lab.report.collect import collect
from olss.lab.report.page import EXAMPLES, GAP, TASKS, draw_images
from olss.streams import load_dataset, permuted, rotated
from tests.lab.report.made import made


def drawn(folder, rows, stream, **options):
    """Draw what a memory of these (task, row) pairs holds; give the pictures and their pixels."""
    record = made("olss", tasks=len(stream))
    record.config["stream"] = stream.config
    record.save(folder / "seed-0")
    np.savez(folder / "seed-0" / "memory.npz", rows=np.array(rows, np.int64).reshape(-1, 2))
    (folder / "out").mkdir()
    (group,) = collect([folder]).groups
    pictures = draw_images(group, folder / "out")
    if not pictures:
        return [], None
    embedded = Image.open(io.BytesIO(base64.b64decode(pictures[0]["source"].split(",")[1])))
    enlarged = Image.open(folder / "out" / pictures[0]["file"])
    factor = enlarged.width // embedded.width
    assert factor > 1
    assert np.array_equal(np.asarray(enlarged)[::factor, ::factor], np.asarray(embedded))
    return pictures, np.asarray(embedded.convert("L"), np.float64) / 255


def tiles(image, shape, tasks):
    """Cut a picture into its images, (tasks, kept and gone, examples, height, width)."""
    height, width = shape
    side = EXAMPLES * (width + GAP)
    found = np.empty((tasks, 2, EXAMPLES, height, width))
    for t, s, e in np.ndindex(found.shape[:3]):
        top, left = t * (height + GAP), s * (side + 2 * GAP) + e * (width + GAP)
        found[t, s, e] = image[top : top + height, left : left + width]
    return 1 - found


def test_left_are_the_rows_held_and_right_are_others(tmp_path):
    stream = rotated("digits", tasks=2, train_rows=50)
    held = [(task, row) for task in range(2) for row in range(3, 3 + EXAMPLES)]
    pictures, image = drawn(tmp_path, held, stream)
    assert [p["label"] for p in pictures] == ["olss"]
    found = tiles(image, (8, 8), 2)
    for number, task in enumerate(stream):
        X = task.X.astype(np.float64)
        kept = {x.tobytes() for x in X[3 : 3 + EXAMPLES]}
        gone = {x.tobytes() for x in np.delete(X, range(3, 3 + EXAMPLES), axis=0)}
        shown = [{np.rint(task.scale * x).tobytes() for x in side} for side in found[number]]
        assert shown[0] == kept
        assert shown[1] <= gone


def test_permuted_images_are_put_back_in_order(tmp_path):
    stream = permuted("digits", tasks=3, seed=4)
    _, image = drawn(tmp_path, [(2, row) for row in range(EXAMPLES)], stream)
    data = load_dataset("digits")
    originals = {x.astype(np.float64).tobytes() for x in data.X}
    found = tiles(image, (8, 8), 3)
    assert {np.rint(data.scale * x).tobytes() for x in found[2, 0]} <= originals


def test_long_streams_show_some_tasks(tmp_path):
    stream = rotated("digits", tasks=9, train_rows=30)
    pictures, image = drawn(tmp_path, [(0, 0), (8, 1)], stream)
    assert "tasks 1, 4, 6, 9" in pictures[0]["alt"]
    assert image.shape[0] % TASKS == 0


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "no such data"},
        {"name": "arrays"},
        {"dataset": "cifar100", "name": "incremental"},
    ],
)
def test_without_data_there_are_no_pictures(tmp_path, monkeypatch, change):
    monkeypatch.setenv("OLSS_DATA", str(tmp_path))
    monkeypatch.setenv("OLSS_CACHE", str(tmp_path))
    stream = rotated("digits", tasks=2, train_rows=50)
    stream._config |= change
    assert drawn(tmp_path / "runs", [(0, 1)], stream)[0] == []


def test_a_damaged_or_empty_memory_file_gives_no_picture(tmp_path):
    stream = rotated("digits", tasks=2, train_rows=50)
    assert drawn(tmp_path, np.empty((0, 2)), stream)[0] == []
    (tmp_path / "seed-0" / "memory.npz").write_bytes(b"not an array")
    (group,) = collect([tmp_path]).groups
    assert draw_images(group, tmp_path) == []
