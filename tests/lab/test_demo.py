from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from olss.errors import MissingExtraError
from olss.lab.demo import _summarize, demo, demo_experiments, draw_demo
from olss.lab.executors import Event
from olss.lab.report.collect import collect
from olss.lab.report.summary import summarize
from olss.lab.runner import ExperimentProgress
from olss.lab.single_run import check
from olss.streams.record import Record

SCORES = {"sgd": 0.2, "olss": 0.8, "reservoir": 0.85, "balanced": 0.9, "joint": 0.95}


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


@pytest.mark.parametrize("module", ["torch", "sklearn", "matplotlib"])
def test_a_missing_package_is_named_before_anything_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    out = io.StringIO()
    with pytest.raises(MissingExtraError, match="pip install"):
        demo(tmp_path / "demo", Console(file=out))
    assert not out.getvalue()
    assert not (tmp_path / "demo").exists()


def test_its_experiments_are_sound() -> None:
    for experiment in demo_experiments():
        assert check(experiment.run_specs()) == 10
        assert len(experiment.run_specs()) == 15
        assert experiment.stream["dataset"] == "digits"  # no download


def test_its_words_are_those_of_the_numbers() -> None:
    by_stream = {}
    for experiment, lower in zip(demo_experiments("0-1"), (0.0, 0.1), strict=True):
        specs = experiment.run_specs()
        progress = by_stream[experiment.name] = ExperimentProgress(specs)
        for spec in specs:
            score = SCORES[spec.label] - lower + 0.01 * spec.seed
            config = {"learner": {"label": spec.label}}
            record = Record(accuracy=[[score]], tasks=["a"], config=config)
            progress.update(Event("done", spec, record))
    said = _summarize(by_stream)
    assert max(map(len, said.splitlines())) <= 80
    said = said.replace("\n", " ")
    assert "(rotated and permuted) at the end: sgd 20.5 and 10.5 %" in said
    assert "olss 80.5 and 70.5 %" in said
    assert "reservoir 85.5 and 75.5 %" in said
    assert "balanced 90.5 and 80.5 %" in said
    assert "everything 95.5 and 85.5 %" in said
    # Each is a number of its stream's table, too.
    for progress, number in zip(by_stream.values(), ("80.5", "70.5"), strict=True):
        out = io.StringIO()
        Console(file=out, width=80).print(progress.table(now=False))
        assert number in out.getvalue()


def test_the_picture_shows_means_and_single_seeds_of_each_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))

    def save(label: str, seed: int, score: float) -> None:
        stream = {"name": "rotated", "seed": seed}
        learner = {"label": label, "recipe": "olss", "policy": "paper"}
        record = Record(
            accuracy=np.where(np.tri(3, dtype=bool), score, np.nan) - 0.1 * np.eye(3)[0],
            tasks=["a", "b", "c"], seed=seed, config={"learner": learner, "stream": stream},
        )  # fmt: skip
        record.save(tmp_path / label / f"seed-{seed}")

    save("olss", 0, 0.5)
    save("olss", 1, 0.7)
    save("other", 0, 0.9)
    draw_demo(summarize(collect([tmp_path]))["streams"], tmp_path / "one.png")
    left, right = figures[0].axes
    # Task 1 is 10 points lower; over the three tasks so far that is a third of it at the end.
    drawn = [line.get_ydata().round(1).tolist() for line in left.lines]
    assert drawn == [[50.0, 55.0, 56.7], [40.0, 45.0, 46.7], [60.0, 65.0, 66.7], [80.0, 85.0, 86.7]]
    assert [line.get_ydata()[-1].round(1) for line in right.lines] == [50.0, 40.0, 60.0, 80.0]
    assert [text.get_text() for text in left.texts] == ["olss", "other"]
    assert left.texts[0].get_color() == left.lines[0].get_color()
