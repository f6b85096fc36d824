"""Your own PyTorch loop with a memory: two lines more, and the first task is not forgotten.

    python examples/torch_loop.py

Ends with a table: accuracy on each of five rotations after the last one has been learned.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from olss import Sketch
from olss.adapters.torch import replay_loader
from olss.streams import rotated

stream = rotated("digits", tasks=5, seed=0)


def inputs(X):
    """Images as bytes, which is how the memory keeps them, to rows for the net."""
    return X.flatten(1) / stream.scale


def train(remembered):
    """Go through the stream; `remembered` is the memory's part of each batch."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    sketch = Sketch(size=300, policy="balanced", seed=0)
    for number, task in enumerate(stream):
        loader = replay_loader(
            (task.X, task.y), sketch, batch_size=40, replay_fraction=remembered, seed=number
        )
        for _epoch in range(5):
            for X, y in loader:
                optimiser.zero_grad()
                cross_entropy(net(inputs(X)), y).backward()
                optimiser.step()
        sketch.update(task.X, task.y, task=number)
    return net


@torch.no_grad()
def accuracy(net, task):
    X = torch.from_numpy(task.X_test)
    return (net(inputs(X)).argmax(dim=1).numpy() == task.y_test).mean()


torch.set_num_threads(1)
print(f"{'after the last task, %':24s}" + "".join(f"{name:>14s}" for name in stream.names))
for title, remembered in (("no memory", 0.0), ("300 rows, half a batch", 0.5)):
    net = train(remembered)
    print(f"{title:24s}" + "".join(f"{100 * accuracy(net, task):14.1f}" for task in stream))
