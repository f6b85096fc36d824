"""One net and memory under every head, on validation rows of the first tasks.

    python experiments/class_incremental_heads.py
    python experiments/class_incremental_heads.py --tasks 6 --rows 1250 --epochs 2 \
        --precision bfloat16 --average-steps 100
    python experiments/class_incremental_heads.py --tasks 20 --rows 2500 --epochs 2 \
        --precision bfloat16 --average-steps 100 --mirrored

Prints the average over tasks so far, in percent, after each task; about six minutes on one core,
a quarter of an hour for all twenty tasks. Needs CIFAR-100. The tables of docs/class-incremental.md
that chose the recipe are from the first command (their falling rate fell in a line, not in a
cosine), from the second, with other numbers of steps to average over, and from the third, with and
without the mirror images, and with 500 rows.
"""

from __future__ import annotations

import argparse
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import normalize

from olss.learn import heads, recipe
from olss.learn.heads import Head
from olss.learn.model import score_answers
from olss.streams import incremental


def by_leverage(name: str, power: float) -> Head:
    """Return a head whose rows count by a power of their leverage among remembered features.

    Classes go on counting alike.
    """

    class Weighted(heads.HEADS[name]):  # type: ignore[misc]
        def learn(self, model: object, hidden: Tensor, outputs: Tensor, labels: Tensor) -> None:
            rows = normalize(hidden)
            gram = rows.T @ rows
            gram.diagonal().add_(1e-3 * gram.diagonal().mean())
            weight = (rows * torch.linalg.solve(gram, rows.T).T).sum(1) ** power
            totals = torch.zeros(labels.max() + 1).to(weight).index_add_(0, labels, weight)
            weight = weight / totals[labels] / (totals > 0).sum()
            with patch.object(heads, "class_weights", lambda labels: weight):
                super().learn(model, hidden, outputs, labels)

    return Weighted()


COMPARED = {name: heads.HEADS[name]() for name in ("seen", "nearest-mean", "ridge", "discriminant")}
COMPARED |= {name: heads.HEADS[name]() for name in ("logistic", "weight-aligned", "bias-corrected")}
COMPARED["discriminant 0.3"] = heads.HEADS["discriminant"](shrinkage=0.3)
COMPARED["product"] = heads.HEADS["product"]()
COMPARED["discriminant, stages"] = heads.HEADS["discriminant"](head_layers="stages")
COMPARED["product, stages"] = heads.HEADS["product"](head_layers="stages")
COMPARED |= {
    f"{name}, leverage^{power}": by_leverage(name, power)
    for name in ("ridge", "discriminant", "logistic")
    for power in (1, -1)
}


def main() -> None:
    """Train once, and let each head answer after each task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=0.06)
    parser.add_argument("--schedule", default="constant")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--average-steps", type=int, default=0)
    parser.add_argument("--mirrored", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stream = incremental("cifar100", tasks=20).validation(0.1)
    learner = recipe(
        "olss-replay", net="resnet18-20", size=options.rows, lr=options.rate,
        schedule=options.schedule, batch=10, replay_rows=10, epochs=options.epochs,
        precision=options.precision, average_steps=options.average_steps, augment="crop-flip",
        mirrored=options.mirrored,
        input_mean=[0.5071, 0.4865, 0.4409], input_std=[0.2673, 0.2564, 0.2762],
    )  # fmt: skip
    learner.start(stream.classes)
    print("tasks", *COMPARED, sep="\t")
    for number in range(options.tasks):
        learner.fit_task(stream[number])
        scores = [accuracy(learner, head, stream, number + 1) for head in COMPARED.values()]
        print(number + 1, *(f"{100 * score:.1f}" for score in scores), sep="\t", flush=True)


def accuracy(learner: object, head: Head, stream: object, tasks: int) -> float:
    """Return the mean over the first tasks of the accuracy of a head."""
    model = learner.model
    head.fit(model, learner.buffer.held)
    found = []
    for number in range(tasks):
        task = stream[number]
        answers = head(model, model.tensor(task.X_test), None)
        targets = model.tensor(model.targets(task.y_test))
        found.append(score_answers(answers, targets, model.regression))
    return sum(found) / tasks


if __name__ == "__main__":
    main()
