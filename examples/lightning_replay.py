"""The same memory in a Lightning trainer: the loader is an ordinary DataLoader.

    python examples/lightning_replay.py        (needs: pip install lightning)

Ends with a table: accuracy on each of three rotations after the last one has been learned.
"""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from olss import Sketch
from olss.adapters.torch import replay_loader
from olss.streams import rotated

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message=".*num_workers.*|.*logging interval.*|.*LeafSpec.*")
torch.set_num_threads(1)
stream = rotated("digits", tasks=3, seed=0)


def scaled(x):
    return x.flatten() / stream.scale


class Net(lightning.LightningModule):
    """Two layers; a batch brings rows, labels, and what each row counts in the loss."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))

    def training_step(self, batch, _):
        """Weigh each row's loss."""
        X, y, weight = batch
        return (weight * cross_entropy(self.net(X), y, reduction="none")).mean()

    def configure_optimizers(self):
        """Take plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(remembered):
    """Go through the stream, one `Trainer.fit` a task."""
    lightning.seed_everything(0, verbose=False)
    model, sketch = Net(), Sketch(size=300, policy="weighted", seed=0)
    for number, task in enumerate(stream):
        loader = replay_loader(
            (task.X, task.y),
            sketch,
            batch_size=40,
            replay_fraction=remembered,
            transform=scaled,
            weights="loss",
            seed=number,
        )
        trainer = lightning.Trainer(
            max_epochs=3,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, loader)
        sketch.update(task.X, task.y, task=number)
    return model.net


@torch.no_grad()
def accuracy(net, task):
    X = torch.from_numpy(task.X_test).flatten(1) / stream.scale
    return (net(X).argmax(dim=1).numpy() == task.y_test).mean()


print(f"{'after the last task, %':24s}" + "".join(f"{name:>14s}" for name in stream.names))
for title, remembered in (("no memory", 0.0), ("300 rows, half a batch", 0.5)):
    net = train(remembered)
    print(f"{title:24s}" + "".join(f"{100 * accuracy(net, task):14.1f}" for task in stream))
