from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from olss.adapters.torch import SketchDataset, SketchStream, replay_loader
from olss.errors import DataError, InputError
from olss.sketch import Sketch

# On a machine with one core torch warns of two.
two_workers = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker:UserWarning")

# Current rows are negative, remembered ones positive, and each row tells its label.
PAST = np.arange(1, 41, dtype=np.float32)
NOW = -np.arange(1, 101, dtype=np.float32)


def remembering(size=40, kind=np.asarray, **options):
    rows = kind(np.column_stack([PAST, PAST]))
    return Sketch(size, seed=0, **options).update(rows, kind(PAST.astype(np.int64)))


def weighing():
    """Return a sketch of eight rows of different weights."""
    rows, weight = np.column_stack([PAST, PAST])[:8], np.arange(1, 9)
    return Sketch(8, seed=0).update(rows, PAST[:8].astype(np.int64), weight=weight)


def now(kind=np.asarray):
    return kind(np.column_stack([NOW, NOW])), kind(NOW.astype(np.int64))


def check_aligned(X, y):
    np.testing.assert_array_equal(X[:, 0].numpy(), y.numpy())
    np.testing.assert_array_equal(X[:, 1].numpy(), y.numpy())


def labels(loader):
    return [batch[1].numpy() for batch in loader]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
class TestDataset:
    def test_gives_each_row_once(self, kind):
        loader = DataLoader(SketchDataset(remembering(kind=kind)), batch_size=7, shuffle=True)
        found = []
        for X, y in loader:
            check_aligned(X, y)
            found += y.tolist()
        assert sorted(found) == PAST.tolist()

    def test_rows_are_copies_and_the_data_set_follows_the_sketch(self, kind):
        sketch = remembering(kind=kind, policy="recent")
        dataset = SketchDataset(sketch)
        x, _ = dataset[-1]
        before = x.clone()
        sketch.update(*now(kind))
        assert torch.equal(x, before)
        assert all(y < 0 for _, y in dataset)

    def test_transform_and_weights(self, kind):
        dataset = SketchDataset(remembering(10, kind), transform=lambda x: x / 2, weights=True)
        X, y, weight = next(iter(DataLoader(dataset, batch_size=10)))
        check_aligned(2 * X, y)
        assert weight.dtype == torch.float32
        assert weight.mean().item() == pytest.approx(1)


def test_weights_can_go_into_pytorchs_own_sampler():
    sketch = remembering(10)
    sampler = WeightedRandomSampler(sketch.weight, num_samples=25)
    loader = DataLoader(SketchDataset(sketch), batch_size=10, sampler=sampler)
    assert [len(y) for _, y in loader] == [10, 10, 5]


def test_rows_without_targets():
    dataset = SketchDataset(Sketch(5).update(np.eye(3, dtype=np.float32)))
    assert next(iter(DataLoader(dataset, batch_size=3))).shape == (3, 3)
    with pytest.raises(IndexError):
        dataset[3]


def frequencies(draw, sketch, draws):
    """Share of the draws each row of the sketch got, by slot."""
    slot = {int(y): i for i, y in enumerate(sketch.y)}
    return np.bincount([slot[int(y)] for y in draw], minlength=len(sketch)) / draws


@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream_draws_rows_alike_or_by_weight(weighted):
    sketch = weighing()
    rows = iter(SketchStream(sketch, weighted=weighted, seed=0))
    draws = 8_000
    found = frequencies((next(rows)[1] for _ in range(draws)), sketch, draws)
    expected = sketch.weight / sketch.weight.sum() if weighted else np.full(8, 1 / 8)
    error = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(found - expected) < 4.5 * error).all()


def test_a_stream_of_an_empty_sketch_says_so():
    with pytest.raises(InputError, match="the sketch is empty"):
        next(iter(SketchStream(Sketch(5))))


@two_workers
def test_workers_of_a_stream_draw_different_rows():
    loader = DataLoader(
        SketchStream(remembering()),
        batch_size=20,
        num_workers=2,
        generator=torch.Generator().manual_seed(0),
    )
    batches = iter(loader)
    assert next(batches)[1].tolist() != next(batches)[1].tolist()


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize(("remembered", "own"), [(0.5, 10), (0.25, 15), (0.0, 20), (0.99, 1)])
def test_batches_mix_as_stated_and_each_current_row_comes_once(kind, remembered, own):
    loader = replay_loader(
        now(kind), remembering(kind=kind), batch_size=20, replay_fraction=remembered, seed=0
    )
    batches = list(loader)
    assert len(loader) == len(batches) == -(-100 // own)
    for X, y in batches:
        check_aligned(X, y)
    for _, y in batches[:-1]:
        assert (y < 0).sum() == own
        assert len(y) == 20
    last = batches[-1][1]
    assert (last > 0).sum() == round((20 - own) * int((last < 0).sum()) / own)
    current = torch.cat([y[y < 0] for _, y in batches])
    assert sorted(current.tolist()) == sorted(NOW.tolist())


def test_remembered_rows_take_turns():
    loader = replay_loader(now(), remembering(), batch_size=20, seed=0)
    past = np.concatenate([y[y > 0] for epoch in range(2) for y in labels(loader)])
    assert len(past) == 200
    assert (np.bincount(past.astype(int))[1:] == 5).all()


def test_weights_as_sampler():
    sketch = weighing()
    loader = replay_loader(now(), sketch, batch_size=20, weights="sampler", seed=0)
    past = [y for epoch in range(60) for batch in labels(loader) for y in batch if y > 0]
    expected = sketch.weight / sketch.weight.sum()
    error = np.sqrt(expected * (1 - expected) / len(past))
    assert (np.abs(frequencies(past, sketch, len(past)) - expected) < 4.5 * error).all()


def test_weights_for_the_loss_are_those_of_the_rows():
    sketch = weighing()
    scaled = dict(zip(sketch.y.tolist(), sketch.weight / 4.5, strict=True))
    for _, y, weight in replay_loader(now(), sketch, batch_size=20, weights="loss", seed=0):
        expected = [scaled.get(label, 1.0) for label in y.tolist()]
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-6)


def test_an_empty_sketch_leaves_whole_batches_to_current_rows():
    sketch = Sketch(30, seed=0)
    loader = replay_loader(now(), sketch, batch_size=20, seed=0)
    assert [len(y) for y in labels(loader)] == [20] * 5
    sketch.update(*now())
    assert len(loader) == len(labels(loader)) == 10


@two_workers
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_do_not_depend_on_the_number_of_workers(workers):
    alone = replay_loader(now(), remembering(), batch_size=20, seed=3)
    many = replay_loader(now(), remembering(), batch_size=20, seed=3, num_workers=workers)
    other = replay_loader(now(), remembering(), batch_size=20, seed=4)
    first = labels(alone)
    for a, b in zip(first, labels(many), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(first, labels(other), strict=True))
    assert any((a != b).any() for a, b in zip(first, labels(alone), strict=True))


def test_a_data_set_applies_its_own_transform():
    pixels = np.arange(1, 7, dtype=np.uint8)[:, None] * 10
    sketch = Sketch(6, seed=0).update(pixels, np.arange(6))
    rows = TensorDataset(torch.rand(8, 1), torch.arange(8))
    loader = replay_loader(rows, sketch, 4, transform=lambda x: x / 255, seed=0)
    for X, y in loader:
        assert X.dtype == torch.float32
        assert X.max() <= 1
        assert len(X) == len(y) == 4
    with pytest.raises(DataError, match=r"torch.float32 and \(1,\) of torch.uint8; a transform"):
        list(replay_loader(rows, sketch, 4))


def test_order_without_shuffle():
    loader = replay_loader(now(), remembering(), batch_size=20, shuffle=False)
    current = np.concatenate([y[y < 0] for y in labels(loader)])
    np.testing.assert_array_equal(current, NOW)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"replay_fraction": 1.0}, "replay_fraction must be"),
        ({"batch_size": 1}, "replay_fraction=0.5 of batch_size=1"),
        ({"batch_size": 1, "replay_fraction": 0.9}, "replay_fraction=0.9 of batch_size=1"),
        ({"replay_fraction": 0.04}, "replay_fraction=0.04 of batch_size=10"),
        ({"weights": "both"}, "weights: there is no 'both'"),
        ({"current": np.eye(2)}, r"current must be \(X, y\) or a Dataset, found ndarray"),
        ({"current": (np.eye(2), [1])}, "same length, found 2 and 1"),
        ({"sketch": [1, 2]}, "sketch must be an olss.Sketch, found list"),
    ],
)
def test_bad_arguments(change, words):
    arguments = {"current": now(), "sketch": remembering(), "batch_size": 10}
    with pytest.raises(InputError, match=words):
        replay_loader(**arguments | change)


def test_rows_that_cannot_be_tensors_or_do_not_fit():
    text = Sketch(5).update(np.eye(3, dtype=np.float32), ["a", "b", "c"])
    with pytest.raises(DataError, match="y must hold numbers to become a tensor, found <U1"):
        SketchDataset(text)[0]
    with pytest.raises(DataError, match="both have y, or neither"):
        list(replay_loader((now()[0], None), remembering(), 10))
    with pytest.raises(DataError, match=r"found shape \(3,\)"):
        list(replay_loader((np.ones((4, 3), np.float32), np.ones(4, int)), remembering(), 10))


def test_replay_keeps_what_training_alone_forgets():
    """Two blobs of opposite labels in two places: a small net, an own loop."""
    rng = np.random.default_rng(0)

    def task(centre):
        X = rng.standard_normal((400, 2)).astype(np.float32) + np.float32(centre)
        return X, (X[:, 1] > centre[1]).astype(np.int64) ^ (centre[0] > 0)

    tasks = [task((-4, -4)), task((4, 4))]

    def first_task_accuracy(remembered, seed=0):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        sketch = Sketch(100, seed=seed)
        for number, rows in enumerate(tasks):
            loader = replay_loader(rows, sketch, 40, replay_fraction=remembered, seed=number)
            for _ in range(15):
                for X, y in loader:
                    optimiser.zero_grad()
                    torch.nn.functional.cross_entropy(net(X), y).backward()
                    optimiser.step()
            sketch.update(*rows, task=number)
        X, y = tasks[0]
        return (net(torch.from_numpy(X)).argmax(dim=1).numpy() == y).mean()

    alone, with_replay = (
        [first_task_accuracy(share, seed) for seed in range(4)] for share in (0.0, 0.5)
    )
    # Single runs with replay are between 0.65 and 0.95.
    assert np.mean(alone) < 0.7
    assert np.mean(with_replay) > np.mean(alone) + 0.1
