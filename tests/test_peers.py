"""The comparison with other libraries measures what it says, on a small problem."""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, folder: Path) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    found = importlib.import_module("benchmarks.peers.__main__")
    found.problems.make("small", folder)
    return found


def job(folder: Path, method: str, **more: Any) -> dict[str, Any]:
    given = {"what": "measure", "problem": "small", "cores": 1, "gigabytes": 12, "limit": 60}
    return given | {"method": method, "data": str(folder)} | more


@pytest.mark.parametrize("method", ["olss reservoir", "pandas, three lines"])
def test_a_measurement_is_of_the_rows_kept(command: ModuleType, folder: Path, method: str) -> None:
    worker = importlib.import_module("benchmarks.peers.worker")
    answer = worker.measure(job(folder, method))
    assert answer["kept"] == 200
    assert answer == worker.measure(job(folder, method)) | {
        name: answer[name] for name in ("seconds", "processor", "megabytes")
    }  # the same seed, the same rows
    with np.load(folder / "small.npz") as held:
        X = held["X"].astype(np.float64)
    problem = command.problems.PROBLEMS["small"]
    source = command.problems.source_of(problem, folder, by_columns=False)
    kept = command.METHODS[method].keep(source, problem.size, 0).rows.astype(np.float64)
    assert {row.tobytes() for row in kept} <= {row.tobytes() for row in X}
    values = np.linalg.eigvalsh(X.T @ X - 100 * kept.T @ kept)  # each stands for 100 rows
    largest = np.linalg.svd(X, compute_uv=False)[0] ** 2
    assert answer["error"] == pytest.approx(np.abs(values).max() / largest, rel=1e-6)


def test_what_lasts_is_seen(
    command: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = importlib.import_module("benchmarks.peers.worker")
    monkeypatch.setattr(worker, "REPETITIONS", 3)

    def start(what: str, name: str, problem: str, cores: int) -> dict[str, Any]:
        answer: dict[str, Any] = worker.properties(job(folder, name))
        return answer

    found = {
        name: command.lasting(name, start)
        for name in ("olss reservoir", "olss paper", "pandas, three lines")
    }
    assert all(row["same"] and row["continued"] for row in found.values())
    assert {name for name, row in found.items() if row["merged"]} == {
        "olss reservoir",
        "pandas, three lines",
    }
    # The paper's draw prefers large rows and has no weights: totals come out far too large.
    assert found["olss paper"]["off"] > 100
    assert abs(found["olss reservoir"]["off"]) < 50


def test_a_failure_is_a_result(command: ModuleType, folder: Path) -> None:
    late = command.run(sys.executable, **job(folder, "olss weighted, exact", limit=0.01))
    assert late == {"reason": "not done in 0.01 seconds of processor time"}
    none = command.run(sys.executable, **job(folder, "river"))
    assert "river" in none["reason"]


def test_rows_of_an_earlier_run_stay(command: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "new" / "found.csv"
    for rows in ([("polars sample", 1), ("olss paper", 2)], [("olss paper", 3)]):
        given = [{"method": name, "z": z} for name, z in rows]
        command.write(path, given, ("method",), ("method", "z"))
    with path.open() as file:
        assert list(csv.reader(file)) == [
            ["method", "z"],
            ["olss paper", "3"],
            ["polars sample", "1"],
        ]


def test_the_best_round_counts_and_other_rows_are_noticed(command: ModuleType) -> None:
    rounds = [
        {"cores": 1, "seconds": 9, "processor": p, "megabytes": 5, "kept": 3, "error": 0.5,
         "rows": rows}
        for p, rows in ((4.0, "a"), (3.0, "b"))
    ]  # fmt: skip
    best = command._best(rounds, read=1.5)
    assert (best["ratio"], best["processor"], best["same"]) == (2.0, 3.0, False)
