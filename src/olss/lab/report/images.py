"""Images that a memory keeps and images that it does not.

A finished run with a memory has ``memory.npz``: task and row, within the task's training rows, of
everything held. The images come from the stream that the record describes, if its data are here.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import OlssError
from olss.lab.report.collect import Group, Method
from olss.streams import Dataset, Stream, from_config, permuted
from olss.util.files import ARRAY_FILE_ERRORS, write_atomic

TASKS, EXAMPLES, GAP = 4, 8, 1


def draw_images(group: Group, folder: Path) -> list[dict[str, str]]:
    """Draw a picture for each method that has images in memory, into files and for the page."""
    streams: dict[str, Stream | None] = {}
    pictures: list[dict[str, str]] = []
    for method in group.methods:
        run = method.runs[0]
        held = _read_memory(run.folder / "memory.npz")
        if held is None:
            continue
        config = run.record.config["stream"]
        key = repr(config)
        if key not in streams:
            streams[key] = _load_stream(config)
        stream = streams[key]
        sheet = None if stream is None else _draw_sheet(stream, config, held)
        if sheet is None:
            continue
        tasks, image = sheet
        name = f"{group.slug}-images-{len(pictures) + 1}.png"
        # Files are enlarged by integer factors, so that viewers do not blur them.
        write_atomic(folder / name, _encode_png(image, max(1, round(900 / image.shape[1]))))
        pictures.append(_describe_picture(method, tasks, _encode_png(image, 1), name))
    return pictures


def _describe_picture(method: Method, tasks: list[int], png: bytes, name: str) -> dict[str, str]:
    rows = ", ".join(str(task + 1) for task in tasks)
    caption = (
        f"One row of images for each of the tasks {rows}: left of the line {EXAMPLES} that stayed, "
        f"right of it {EXAMPLES} that went, drawn at random from each; seed {method.runs[0].seed}, "
        "after the last task. Permuted images are shown put back in order."
    )
    return {
        "label": method.label,
        "alt": f"Images of tasks {rows}: left kept, right not kept by {method.label}",
        "caption": caption,
        "file": name,
        "source": "data:image/png;base64," + base64.b64encode(png).decode(),
    }


def _read_memory(path: Path) -> NDArray[np.int64] | None:
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            held = dict(file).get("rows", np.empty((0, 2), np.int64))
    except ARRAY_FILE_ERRORS:
        return None
    return held if held.ndim == 2 and held.shape[1] == 2 and len(held) else None


def _load_stream(config: dict[str, Any]) -> Stream | None:
    """Return the stream, or None if its data is not available: pictures are optional."""
    # The laboratory adds keys that `from_config` does not take.
    made_of = {k: v for k, v in config.items() if k not in ("title", "first_tasks")}
    try:
        return from_config(made_of)
    except (OlssError, OSError):
        return None


def _draw_sheet(
    stream: Stream, config: dict[str, Any], held: NDArray[np.int64]
) -> tuple[list[int], NDArray[Any]] | None:
    """Return the tasks shown and one image: a row for each task, kept ones left."""
    count = len(stream)
    tasks = np.unique(np.linspace(0, count - 1, min(TASKS, count)).round().astype(int)).tolist()
    # A generator of its own for each sheet: the same choice for every method.
    rng = np.random.default_rng(0)
    rows = []
    for number in tasks:
        task = stream[number]
        if task.X.ndim not in (3, 4):
            return None
        images = np.asarray(task.X, np.float64) / task.scale
        images = _undo_permutation(images, config, number)
        kept = np.zeros(len(images), bool)
        mine = held[held[:, 0] == number, 1]
        kept[mine[mine < len(images)]] = True
        sides = [images[_sample(np.flatnonzero(side), rng)] for side in (kept, ~kept)]
        rows.append([_draw_strip(side, images.shape[1:]) for side in sides])
    height = rows[0][0].shape[0]
    bar = np.full((height, 2 * GAP, 3), (0.84, 0.37, 0.0))
    return tasks, np.concatenate([np.concatenate([a, bar, b], axis=1) for a, b in rows])


def _undo_permutation(images: NDArray[Any], config: dict[str, Any], number: int) -> NDArray[Any]:
    """Undo a permutation of pixels, found by sending pixel numbers through the same stream."""
    if config.get("name") != "permuted":
        return images
    shape = images.shape[1:]
    pixels = np.arange(int(np.prod(shape))).reshape(1, *shape)
    label = np.zeros(1, np.int64)
    probe = permuted(
        Dataset("pixels", pixels, label, pixels, label), tasks=number + 1,
        permute_first=config.get("permute_first", True), seed=config.get("seed", 0),
    )  # fmt: skip
    order = probe[number].X[0].ravel()
    flat = np.empty((len(images), pixels.size))
    flat[:, order] = images.reshape(len(images), -1)
    return flat.reshape(images.shape)


def _sample(rows: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    return rng.permutation(rows)[:EXAMPLES]


def _draw_strip(images: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Put images side by side, white where there are too few; (height, width, 3)."""
    if len(shape) == 3:
        images = np.moveaxis(images, 1, -1)
        height, width = shape[1:]
    else:
        images = np.repeat(1 - images[..., None], 3, axis=-1)  # ink on paper
        height, width = shape
    strip = np.ones((height + GAP, EXAMPLES * (width + GAP), 3))
    for i, image in enumerate(images):
        left = i * (width + GAP)
        strip[:height, left : left + width] = image if image.shape[-1] == 3 else image[..., :1]
    return strip


def _encode_png(image: NDArray[np.float64], factor: int) -> bytes:
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    pixels = np.rint(255 * image.clip(0, 1)).astype(np.uint8)
    imsave(buffer, pixels.repeat(factor, 0).repeat(factor, 1), format="png")
    return buffer.getvalue()
