"""Multiply the answers of frozen features and of replay, to see whether it pays at equal bytes.

Both learn nine tenths of the training rows of incremental CIFAR-100, 20 x 5 classes. Their
probabilities are multiplied, those of replay to a power that is the best of a few on the other
tenth; all are then scored on the test rows, with which nothing was chosen.

    python experiments/analytic_and_replay.py --centres 200 472 639 800

Writes a line for each number of centres into experiments/results/analytic/with-replay.csv. Replay
takes a quarter of an hour on one core and is kept in runs/analytic-and-replay; 800 centres take
four minutes. Needs CIFAR-100.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from olss.learn import recipe, run
from olss.streams import incremental

ROOT = Path(__file__).resolve().parent
NET_BYTES = 4 * 1_109_240  # of the slim ResNet-18
POWERS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5, 2.0)


def main() -> None:
    """Learn with both, choose the power, and score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--centres", type=int, nargs="+", default=[200])
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--into", type=Path, default=ROOT / "results/analytic/with-replay.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stream = incremental("cifar100", tasks=20, seed=options.seed)
    learned = stream.validation(0.1)
    parts = {"validation": learned, "test": stream}
    X = {part: np.concatenate([task.X_test for task in tasks]) for part, tasks in parts.items()}
    y = {part: np.concatenate([task.y_test for task in tasks]) for part, tasks in parts.items()}

    replay = _learn_by_replay(learned, options)
    net = {part: _replay_scores(replay, rows) for part, rows in X.items()}
    replay_bytes = replay.stored_bytes + NET_BYTES
    for centres in options.centres:
        learner = recipe("analytic", centres=centres, mirrored=True, precision="bfloat16")
        learner.start(stream.classes, options.seed)
        for task in learned:
            learner.fit_task(task)
        frozen = {part: _normalize(learner.decide(rows)) for part, rows in X.items()}

        def right(part: str, power: float, frozen: dict[str, Any] = frozen) -> float:
            answers = (frozen[part] + power * net[part]).argmax(1)
            return 100 * float(np.mean(np.asarray(stream.classes)[answers] == y[part]))

        power = max(POWERS, key=lambda power: right("validation", power))
        alone = 100 * float(np.mean(np.asarray(stream.classes)[net["test"].argmax(1)] == y["test"]))
        row = {
            "seed": options.seed, "centres": centres, "rows": options.rows, "power": power,
            "analytic_bytes": learner.stored_bytes, "replay_bytes": replay_bytes,
            "analytic": f"{right('test', 0.0):.2f}", "replay": f"{alone:.2f}",
            "product": f"{right('test', power):.2f}",
            "analytic_validation": f"{right('validation', 0.0):.2f}",
            "product_validation": f"{right('validation', power):.2f}",
        }  # fmt: skip
        print(row, flush=True)
        _write(options.into, row)


def _learn_by_replay(stream: Any, options: argparse.Namespace) -> Any:
    """Return `olss-replay` as in class-incremental.toml, learned or read."""
    learner = recipe(
        "olss-replay", name=f"olss-replay-rows-{options.rows}", net="resnet18-20",
        size=options.rows, lr=0.06, batch=10, replay_rows=10, epochs=2, precision="bfloat16",
        augment="crop-flip", mirrored=True, threads=1,
        input_mean=[0.5071, 0.4865, 0.4409], input_std=[0.2673, 0.2564, 0.2762],
    )  # fmt: skip
    folder = Path(f"runs/analytic-and-replay/rows-{options.rows}/seed-{options.seed}")
    if (folder / "state.json").exists():
        return learner.load(folder)
    run(stream, learner, options.seed, checkpoint=folder.with_suffix(".checkpoint"))
    learner.save(folder)
    return learner


def _replay_scores(learner: Any, X: NDArray[Any]) -> NDArray[np.float64]:
    """Return the logarithms of probabilities, the outputs of the net times its discriminant."""
    model = learner.model
    blocks = [
        learner.parts.head(model, model.tensor(X[i : i + 1_000]), None)
        for i in range(0, len(X), 1_000)
    ]
    return _normalize(torch.cat(blocks).double().numpy())


def _normalize(scores: NDArray[Any]) -> NDArray[np.float64]:
    scores = scores.astype(np.float64)
    shifted = scores - scores.max(1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return found


def _write(path: Path, row: dict[str, Any]) -> None:
    """Add a line, in place of an earlier one of the same settings."""
    key = ("seed", "centres", "rows")
    lines = []
    if path.exists():
        with path.open(encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    lines = [line for line in lines if any(line[k] != str(row[k]) for k in key)]
    lines = sorted([*lines, row], key=lambda line: tuple(int(line[k]) for k in key))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
