"""Feature maps against plain loops, for images of many shapes."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from olss.errors import DataError, InputError
from olss.learn.features import Given, Patches, Random, make_features


def images(n=30, shape=(3, 16, 16), seed=0):
    """Return smooth images: noise, blurred."""
    rng = np.random.default_rng(seed)
    noise = torch.tensor(rng.standard_normal((n, *shape)), dtype=torch.float32)
    wide = noise if noise.dim() == 4 else noise[:, None]
    smooth = torch.nn.functional.avg_pool2d(wide, 3, 1, 1)
    return smooth.reshape(noise.shape) * 0.2 + 0.5


def by_loops(map_, image):
    """Return the features of an image (height, width, channels), patch by patch."""
    state = {name: value.double().numpy() for name, value in map_.state.items()}
    size, softening = int(state["settings"][0]), state["settings"][1]

    def respond(patch):
        patch = (patch - patch.mean()) / np.sqrt(patch.var() + softening)
        return patch @ state["filters"][:-1] + state["filters"][-1]

    z = each_patch(image.astype(float), size, respond)
    layers = [z]
    if map_.layers == 2:
        seen = z[..., :50]
        maps = np.concatenate([np.maximum(sign * seen - map_.threshold, 0) for sign in (1, -1)], -1)
        rows, columns = (3 * (places // 3) for places in maps.shape[:2])
        maps = maps[:rows, :columns].reshape(rows // 3, 3, columns // 3, 3, -1).mean(axis=(1, 3))

        def respond_again(patch):
            offset = patch - state["second_mean"]
            return offset / (np.linalg.norm(offset) + 1e-3) @ state["second"]

        layers.append(each_patch(np.sqrt(maps), 3, respond_again))
    return np.concatenate([pool_by_loops(map_, z) for z in layers])


def each_patch(image, size, respond):
    rows, columns = (places - size + 1 for places in image.shape[:2])
    return np.array(
        [
            [respond(image[i : i + size, j : j + size].ravel()) for j in range(columns)]
            for i in range(rows)
        ]
    )


def pool_by_loops(map_, z):
    """Return the roots of rectified responses averaged over cells."""
    rows, columns = z.shape[:2]
    found = []
    for sign in (1, -1):
        rectified = np.maximum(sign * z - map_.threshold, 0)
        for a in range(map_.cells):
            for b in range(map_.cells):
                weight = np.outer(tents(rows, map_.cells, a), tents(columns, map_.cells, b))
                cell = (rectified * weight[:, :, None]).sum(axis=(0, 1)) / weight.sum()
                found.append(cell**map_.power)
    return np.concatenate(found)


def tents(places, cells, cell):
    """Return weights of places: 1 at the centre of a cell, 0 from its neighbour's centre on."""
    centres = (np.arange(cells) + 0.5) / cells
    return np.interp((np.arange(places) + 0.5) / places, centres, np.eye(cells)[cell])


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 12, 15), (14, 14), (4, 11, 9)])
@pytest.mark.parametrize("cells", [2, 3])
def test_patches_are_what_loops_find(shape, cells):
    X = images(shape=shape)
    map_ = Patches(centres=7, cells=cells)
    map_.fit(X, seed=1)
    found = map_(X)
    assert found.shape == (30, 2 * 7 * cells**2)
    for k in (0, 17, 29):
        image = X[k].numpy()
        image = image[None] if image.ndim == 2 else image
        assert_allclose(found[k], by_loops(map_, image.transpose(1, 2, 0)), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("shape", [(3, 32, 32), (28, 28)])
def test_two_layers_of_patches_are_what_loops_find(shape):
    X = images(shape=shape)
    map_ = Patches(centres=60, layers=2)
    map_.fit(X, seed=1)
    found = map_(X)
    assert found.shape == (30, 2 * 60 * 4 * 2)
    single = Patches(centres=60)
    single.fit(X, seed=1)
    assert found[:, : found.shape[1] // 2].equal(single(X))
    for k in (0, 29):
        image = X[k].numpy()
        image = image[None] if image.ndim == 2 else image
        assert_allclose(found[k], by_loops(map_, image.transpose(1, 2, 0)), rtol=1e-3, atol=1e-4)


def test_images_too_small_for_two_layers_are_refused_with_a_remedy():
    with pytest.raises(DataError, match=r"17 pixels.*layers=1"):
        Patches(centres=5, layers=2, patch=6).fit(images(shape=(3, 16, 20)), 0)
    Patches(centres=5, layers=2, patch=6).fit(images(shape=(3, 17, 17)), 0)


def test_half_precision_is_within_a_percent():
    X = images(shape=(3, 32, 32))
    single, half = Patches(centres=50), Patches(centres=50, precision="bfloat16")
    single.fit(X, 0)
    half.fit(X, 0)
    a, b = single(X), half(X)
    assert (a - b).norm() < 0.01 * a.norm()


@pytest.mark.parametrize("layers", [1, 2])
def test_blocks_do_not_matter(layers, monkeypatch):
    X = images(shape=(3, 20, 20))
    map_ = Patches(centres=20, layers=layers)
    map_.fit(X, 0)
    whole = map_(X)
    monkeypatch.setattr("olss.learn.features.BUFFER_BYTES", 20_000)
    assert_allclose(map_(X), whole, atol=1e-5)


def test_scale_and_brightness_do_not_matter():
    X = images()
    a, b = Patches(centres=20), Patches(centres=20)
    a.fit(X, 0)
    b.fit(256 * X, 0)  # a power of two: k-means would make more of a rounding
    assert_allclose(a(X), b(256 * X), atol=1e-5)
    assert_allclose(a(X), b(256 * X + 1000), atol=2e-3)


def test_whitened_responses_have_about_unit_variance():
    X = images(200)
    map_ = Patches(centres=30, threshold=0.0, power=1)
    map_.fit(X, 0)
    # Half of a normal variable of unit variance has mean 0.4.
    assert 0.15 < float(map_(X).mean()) < 0.8


def test_large_images_are_reduced():
    X = images(6, (3, 96, 96))
    map_ = Patches(centres=5)
    map_.fit(X, 0)
    reduced = torch.nn.functional.avg_pool2d(X, 3)
    assert_allclose(map_(X), map_(reduced), atol=1e-6)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("layers", [1, 2])
def test_few_images_do(rows, layers):
    X = images(rows, (3, 20, 20))
    map_ = Patches(centres=50, layers=layers)
    map_.fit(X, 0)
    assert map_(X).isfinite().all()


def test_given_images_make_the_dictionary():
    X = images()
    a, b = Patches(centres=9, images=X.numpy()), Patches(centres=9)
    a.fit(images(seed=5), 0)
    b.fit(X, 0)
    assert a.state["filters"].equal(b.state["filters"])


def test_a_seed_and_a_state_make_the_same_map():
    X = images(shape=(3, 20, 20))
    makers = (
        lambda: Patches(centres=9),
        lambda: Patches(centres=9, layers=2),
        lambda: Random(12),
        lambda: Random(12, "cosine"),
    )
    for make in makers:
        kind, again = make(), make()
        kind.fit(X, 3)
        first = kind(X)
        again.fit(X, 3)
        assert again(X).equal(first)
        again.fit(images(shape=(3, 20, 20), seed=8), 4)
        assert not again(X).equal(first)
        again.state = kind.state
        assert again(X).equal(first)


def test_random_features_do_not_depend_on_units():
    X = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    a, b = Random(20), Random(20)
    a.fit(X, 0)
    b.fit(X * torch.arange(1, 9) + 100, 0)
    assert_allclose(a(X), b(X * torch.arange(1, 9) + 100), atol=1e-3)


def test_a_column_constant_at_first_does_no_harm():
    X = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    X[:, 2] = 5.0
    map_ = Random(20)
    map_.fit(X, 0)
    X[:, 2] = 6.0
    assert map_(X).abs().max() < 50


def test_frozen_nets_and_functions():
    X = images()
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.9), torch.nn.Linear(768, 4))
    found = make_features(net, (3, 16, 16), {})(X)
    assert found.shape == (30, 4)
    assert not found.requires_grad
    assert found.equal(make_features(net, (3, 16, 16), {})(X))  # without dropout
    means = make_features(lambda x: x.mean((2, 3)).numpy(), (3, 16, 16), {})
    assert isinstance(means, Given)
    assert means(X).shape == (30, 3)
    with pytest.raises(InputError, match="features"):
        make_features(lambda x: x.mean(), (3, 16, 16), {})(X)


def test_auto_goes_by_the_shape():
    assert isinstance(make_features("auto", (3, 32, 32), {}), Patches)
    assert isinstance(make_features("auto", (28, 28), {}), Patches)
    assert isinstance(make_features("auto", (784,), {}), Random)
    assert isinstance(make_features("auto", (3, 2), {}), Random)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: make_features("patch", (8, 8), {}), "features"),
        (lambda: make_features(3, (8, 8), {}), "features"),
        (lambda: make_features("random", (8,), {"centres": 3}), "centres"),
        (lambda: make_features("patches", (8, 8), {"centers": 3}), "centres"),
        (lambda: make_features(torch.nn.Flatten(), (8, 8), {"centres": 3}), "centres"),
        (lambda: Patches(centres=0), "centres"),
        (lambda: Patches(layers=3), "layers"),
        (lambda: Patches(precision="half"), "precision"),
        (lambda: Random(kind="tanh"), "kind"),
    ],
)
def test_wrong_settings_are_named(call, name):
    with pytest.raises(InputError, match=name):
        call()


@pytest.mark.parametrize("features", ["auto", "patches"])
def test_images_with_channels_last_are_refused_with_a_remedy(features):
    with pytest.raises(DataError, match="transpose"):
        make_features(features, (32, 32, 3), {})


def test_rows_that_are_no_images_are_refused():
    map_ = Patches(centres=3)
    with pytest.raises(DataError, match="X"):
        map_.fit(torch.randn(5, 7), 0)
    with pytest.raises(DataError, match="X"):
        map_.fit(torch.ones(5, 16, 16), 0)
    with pytest.raises(DataError, match="X"):
        map_.fit(torch.randn(5, 3, 3), 0)
    map_.fit(images(), 0)
    with pytest.raises(DataError, match="X"):
        map_(images(shape=(1, 16, 16)))
