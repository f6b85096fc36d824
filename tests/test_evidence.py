"""The tables of the documentation are those of the results in the repository."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from olss.streams.record import Record

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"<!-- table (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(ROOT)
    importlib.import_module("experiments.evidence.__main__")
    return importlib.import_module("experiments.evidence")


def test_every_table_is_made_from_the_results(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, str] = {}
    whole: dict[str, str] = {}
    monkeypatch.setattr(evidence.pages, "fill", made.__setitem__)
    monkeypatch.setattr(evidence.pages, "write", whole.__setitem__)
    monkeypatch.setattr(evidence.pages, "draw", lambda *args: None)
    evidence.__main__.make()
    pages = [path.read_text(encoding="utf-8") for path in evidence.pages.PAGES]
    places = {name: text for page in pages for name, text in PLACE.findall(page)}
    assert places
    for name, text in places.items():
        assert text.strip() == made.get(name, "").strip(), (
            f"run python -m experiments.evidence: table {name}"
        )
    assert "experiments/REPRODUCED.md" in whole
    for name, text in whole.items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, f"run it again: {name}"


def test_committed_figures_are_those_the_results_make(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    committed = evidence.pages.RESULTS
    folders = {path.name for path in committed.iterdir() if path.is_dir()}
    for folder in folders:
        (tmp_path / "results" / folder).mkdir(parents=True)
    (tmp_path / "docs" / "images").mkdir(parents=True)
    for writes in ("fill", "write"):
        monkeypatch.setattr(evidence.pages, writes, lambda *args: None)
    monkeypatch.setattr(evidence.pages, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence.pages, "ROOT", tmp_path)
    evidence.__main__.make()
    drawn = sorted((tmp_path / "results").glob("*/*.svg"))
    assert {path.stem for path in drawn} >= {"headline", "paper", "policies", "methods", "noise"}
    for path in drawn:
        there = committed / path.relative_to(tmp_path / "results")
        assert _looks(path) == _looks(there), f"run python -m experiments.evidence: {path.stem}"
        assert (tmp_path / "docs/images" / f"{path.stem}.png").stat().st_size > 10_000


def _looks(path: Path) -> tuple[list[str], list[str]]:
    """Return the words of a figure and its colours: neither depends on the fonts of a machine."""
    svg = path.read_text(encoding="utf-8")
    return re.findall(r">([^<>]+)</text>", svg), re.findall(r"stroke: (#[0-9a-f]{6})", svg)


def test_gathering_keeps_what_was_gathered_before(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    averages: dict[int, float] = {}

    def load(folder: Path) -> Record:
        return Record(accuracy=[[0.5]], seed=int(folder.name[5:]), config={"stream": {}})

    monkeypatch.setattr(evidence.gather, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence.gather.Record, "load", load)
    monkeypatch.setattr(
        evidence.gather,
        "_line",
        lambda name, record: {"seed": record.seed, "average": averages[record.seed]},
    )
    for averages in ({0: 50.0, 1: 50.0}, {1: 60.0, 2: 60.0}):
        runs = tmp_path / f"runs of {sorted(averages)}"
        for seed in averages:
            for experiment in ("noise-none", "digits-noise-none"):
                (runs / experiment / "paper" / f"seed-{seed}").mkdir(parents=True)
                (runs / experiment / "paper" / f"seed-{seed}" / "record.json").touch()
        evidence.gather.gather(runs)
    assert (tmp_path / "results/noise/runs.csv").read_text() == (
        "seed,average\n0,50.0\n1,60.0\n2,60.0\n"
    )


def class_incremental_run(
    folder: Path, seed: int, final: float, held: int, cpu: float, passes: int = 10_000
) -> None:
    record = Record(
        accuracy=[[0.9, float("nan")], [final, final + 0.2]],
        seed=seed,
        stored_examples=[held, held],
        row_passes=[passes // 2, passes],
        tasks=["one", "two"],
        config={"stream": {}, "training": {"threads": 1}},
        task_cpu_seconds={"select": [1, 1], "train": [cpu, cpu], "evaluate": [5, 5]},
    )
    record.save(folder / f"seed-{seed}")


def test_the_summary_of_class_incremental_runs(
    evidence: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = importlib.import_module("experiments.evidence.class_incremental")
    monkeypatch.setattr(part, "FOLDER", tmp_path)
    pages: dict[str, str] = {}
    monkeypatch.setattr(evidence.pages, "fill", pages.__setitem__)
    monkeypatch.setattr(evidence.pages, "draw", lambda *args: args[-1]())
    for seed in (0, 1):
        class_incremental_run(tmp_path / "er", seed, 0.2 + 0.1 * seed, 2_500, cpu=199)
        class_incremental_run(tmp_path / "sgd", seed, 0.0, 0, cpu=99)
    class_incremental_run(tmp_path / "er-rows-500", 0, 0.1, 500, cpu=99)
    class_incremental_run(tmp_path / "er-passes-20000", 0, 0.5, 2_500, cpu=399, passes=20_000)
    part.make()
    lines = (tmp_path / "summary.csv").read_text().splitlines()
    assert lines[0] == "method,rows,row_passes,seeds,average,ci,task1,newest,seconds_ratio"
    # Averages 30 and 40: t(1) = 12.706 times sd / sqrt(2) = 5.
    assert lines[1] == "er,2500,10000,2,35.00,63.53,25.00,45.00,2.00"
    assert lines[2] == "er,2500,20000,1,60.00,,50.00,70.00,4.00"
    assert lines[3] == "er,500,10000,1,20.00,,10.00,30.00,1.00"
    assert lines[4] == "sgd,0,10000,2,10.00,0.00,0.00,20.00,1.00"
    # Those with more row passes do not compete, and stand apart.
    assert (
        "**ER 35.0 (30.0–40.0)**, SGD 10.0; with 20,000 row passes ER 60.0."
        in (pages["class-incremental-line"])
    )
    first, *_, last = pages["class-incremental"].splitlines()[4:]
    assert first.startswith("| ER | 2,500 | 20,000 | 1 | 60.0 |")
    assert last.startswith("| SGD | 0 | 10,000 | 2 | 10.0 |")


def test_probabilities_of_rare_classes_are_corrected_and_judged(
    evidence: ModuleType,
) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")
    models = importlib.import_module("experiments.rare_classes.models")
    # Bayes' rule by counting: 1 in 100 seen, 1 in 2 fitted; an odds of 3 becomes 3 / 99.
    assert models.correct(np.array([0.75]), 0.5, 0.01) == pytest.approx([3 / 102])
    y = (np.arange(1_000) % 100 == 0).astype(int)
    assert models.measure(y, np.full(1_000, 0.01))["calibration"] == pytest.approx(0)
    assert models.measure(y, np.zeros(1_000))["calibration"] == pytest.approx(1)
    right = models.measure(y, y.astype(float))
    assert (right["average_precision"], right["auc"], right["calibration"]) == (1, 1, 0)
