from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from olss.lab.demo import STREAMS, _lesson, demo, demo_experiments
from olss.lab.demo_picture import draw_demo, spread
from olss.lab.executor import Event
from olss.lab.progress import ExperimentProgress
from olss.lab.single_run import check
from olss.streams.record import Record


def test_the_demo_from_beginning_to_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("olss.lab.demo.ROWS", 200)
    out = io.StringIO()
    assert demo(Path("olss-demo"), Console(file=out, width=80), seeds="0", tasks=2)
    told = out.getvalue()
    assert max(len(line.rstrip()) for line in told.splitlines()) <= 80
    for words in ("sgd", "olss", "reservoir", "balanced", "joint", "Rotated", "Permuted"):
        assert words in told
    assert "Picture  olss-demo/demo.png" in told
    assert "Page     olss-demo/report/index.html" in told
    assert (tmp_path / "olss-demo/report/index.html").stat().st_size > 10_000
    assert (tmp_path / "olss-demo/demo.png").read_bytes()[:4] == b"\x89PNG"
    assert len(list(tmp_path.glob("olss-demo/*/*/seed-0/record.json"))) == 10


def test_its_experiments_are_sound() -> None:
    for experiment in demo_experiments():
        assert check(experiment.run_specs()) == 10
        assert len(experiment.run_specs()) == 15
        assert experiment.stream["dataset"] == "digits"  # no download


def test_its_words_are_those_of_the_numbers() -> None:
    specs = demo_experiments("0")[0].run_specs()
    progress = ExperimentProgress(specs)
    for spec, score in zip(specs, (0.2, 0.8, 0.9, 0.95, 1.0), strict=True):
        config = {"learner": {"label": spec.label}}
        progress.take(Event("done", spec, Record(accuracy=[[score]], tasks=["a"], config=config)))
    said = _lesson({"rotated": progress})
    assert "sgd still reads 20.0 %" in said
    assert "olss 80.0 %" in said
    assert "a reservoir 90.0 %" in said
    assert "a balanced memory 95.0 %" in said
    assert "everything 100.0 %" in said


def test_the_picture_is_drawn_from_one_seed_too(tmp_path: Path) -> None:
    record = Record(
        accuracy=np.where(np.tri(3, dtype=bool), 0.5, np.nan),
        tasks=["a", "b", "c"],
        config={"learner": {"label": "olss"}},
    )
    draw_demo({"rotated": [record]}, STREAMS, tmp_path / "one.png")
    assert (tmp_path / "one.png").exists()


def test_labels_keep_their_order_and_distance() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        places = rng.uniform(0, 100, size=4)
        moved = spread(places, gap=7.0, high=101.0)
        assert np.array_equal(np.argsort(places), np.argsort(moved))
        assert np.diff(np.sort(moved)).min() >= 7 - 1e-9
        assert max(moved) <= 101
