"""Frozen feature maps: fitted once, on the first rows or on given images, and never changed.

A linear model on frozen features, solved from moments, cannot forget; see `olss.learn.analytic`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from olss.core.kernels import RandomFeatures
from olss.errors import DataError, InputError
from olss.util import checks

__all__ = ["FeatureMap", "Given", "Patches", "Random", "make_features", "map_settings"]

SMALL_IMAGE = 6  # pixels below which rows are no images
# Of the second layer: centres of the first that it sees, places averaged, patch, directions kept.
SEEN, AVERAGED, SECOND_PATCH, DIRECTIONS = 50, 3, 3, 200
BUFFER_BYTES = 4_000_000  # responses worked on at a time: they stay in the processor's cache
BLOCK = 1_000  # rows a net or function is asked for at a time


class FeatureMap:
    """What turns rows, floats of any shape, into vectors; one class for each kind of map."""

    def fit(self, X: Tensor, seed: int) -> None:
        """Fit the map to the first rows, once."""

    def __call__(self, X: Tensor) -> Tensor:
        """Return float32 features (n, k) of rows (n, ...)."""
        raise NotImplementedError

    @property
    def state(self) -> dict[str, Tensor]:
        """What was learned from the first rows."""
        return {}

    @state.setter
    def state(self, values: Mapping[str, Tensor]) -> None:
        raise NotImplementedError


class Patches(FeatureMap):
    """Responses of a dictionary of patches, pooled over the cells of an image.

    Patches are normalised for contrast and whitened, the dictionary is found by spherical k-means,
    responses are rectified on both sides and averaged over cells that fade into each other, and
    powers below 1 are taken: the single-layer net of Coates & Ng (2011, "The importance of encoding
    versus training with sparse coding and vector quantization"), with the k-means of Coates & Ng
    (2012).

    Parameters
    ----------
    centres : int
        Patches in the dictionary; there are 2 x centres x cells^2 features of each layer.
    cells : int
        Cells along each side of an image.
    patch : int, optional
        Pixels along each side of a patch; by default a quarter of the image's, from 3 to 6.
    threshold : float
        Responses smaller than this are zero; whitened responses have variance 1.
    power : float
        Of the averages: below 1 it makes the few large ones less so.
    images : array (n, height, width) or (n, channels, height, width), optional
        Unlabelled images to learn the dictionary from, on the scale of the rows; by default
        those of the first task.
    precision : "float32" or "bfloat16"
        Of the responses.
    layers : 1 or 2
        With 2, a second dictionary, of as many patches of the first one's responses: more accurate
        at equal numbers of features, up to a few thousand.

    Notes
    -----
    Images of 64 pixels or more are first reduced to between 32 and 63 by averaging. Constants are
    relative to the images' own contrast, so no scale of the pixels is assumed.
    """

    def __init__(
        self,
        centres: int = 200,
        cells: int = 2,
        patch: int | None = None,
        threshold: float = 0.25,
        power: float = 2 / 3,
        images: Any = None,
        precision: str = "float32",
        layers: int = 1,
    ) -> None:
        self.centres = checks.integer("centres", centres)
        self.layers = checks.integer("layers", layers, maximum=2)
        self.cells = checks.integer("cells", cells)
        self.patch = None if patch is None else checks.integer("patch", patch, minimum=2)
        self.threshold = checks.number("threshold", threshold, minimum=0)
        self.power = checks.number("power", power, above=0)
        self.images = images
        if precision not in ("float32", "bfloat16"):
            raise InputError(f"precision must be 'float32' or 'bfloat16', found {precision!r}.")
        self.precision = getattr(torch, precision)

    def fit(self, X: Tensor, seed: int) -> None:
        """Learn the dictionary from images."""
        X = X if self.images is None else torch.as_tensor(np.asarray(self.images)).to(X)
        images = _images(X)
        side = min(images.shape[1:3])
        self.size = self.patch or min(max(side // 4, 3), 6)
        if side < self.size + self.cells - 1:
            raise DataError(
                f"X must hold images of at least {self.size + self.cells - 1} pixels a side for "
                f"patch={self.size} and cells={self.cells}, found shape {tuple(X.shape[1:])}."
            )
        generator = torch.Generator().manual_seed(seed)
        patches = _sample(images, self.size, max(50 * self.centres, 20_000), generator)
        patches -= patches.mean(1, keepdim=True)
        spread = patches.square().mean(1)
        self.softening = float(spread.mean()) / 100
        clear = spread > self.softening  # blank ones say nothing
        if not clear.any():
            raise DataError("X must hold images that are not blank: every patch is constant.")
        patches = patches[clear] / (spread[clear, None] + self.softening).sqrt()
        mean = patches.mean(0)
        patches -= mean
        s, Q = torch.linalg.eigh((patches.T @ patches).double() / len(patches))
        # Directions that are rounding, the mean of a patch for one, stay shut.
        gain = torch.where(s > 1e-6 * s[-1], (s + 0.1 * s.mean()).rsqrt(), 0.0)
        whiten = ((Q * gain) @ Q.T).to(patches)
        dictionary = _spherical_kmeans(patches @ whiten, self.centres, generator)
        filters = dictionary @ whiten
        self._filters = torch.cat([filters, -(filters @ mean)[:, None]], 1).T.contiguous()
        if self.layers == 2:
            self._fit_second(images, generator)

    def _fit_second(self, images: Tensor, generator: torch.Generator) -> None:
        """Learn the dictionary of patches of maps."""
        seen = self._filters[:, :SEEN]
        maps = torch.cat([_to_maps(z) for _, z in self._responses(images, seen)])
        least = SECOND_PATCH + self.cells - 1
        if min(maps.shape[1:3]) < least:
            side = AVERAGED * least + self.size - 1
            raise DataError(
                f"X must hold images of at least {side} pixels a side for layers=2, found "
                f"{min(images.shape[1:3])}; layers=1 takes smaller ones."
            )
        patches = _sample(maps, SECOND_PATCH, max(50 * self.centres, 20_000), generator)
        self._second_mean = patches.mean(0)
        patches = _unit(patches - self._second_mean)
        s, Q = torch.linalg.eigh((patches.T @ patches).double() / len(patches))
        s, Q = s[-DIRECTIONS:], Q[:, -DIRECTIONS:]
        whiten = (Q * (s + 0.1 * s.mean()).rsqrt()).to(patches)
        self._second = whiten @ _spherical_kmeans(patches @ whiten, self.centres, generator).T

    def __call__(self, X: Tensor) -> Tensor:
        """Return float32 features (n, 2 x centres x cells^2 x layers) of images."""
        images = _images(X)
        if len(self._filters) != self.size**2 * images.shape[3] + 1:
            raise DataError(f"X must hold images as in the first task, found {tuple(X.shape[1:])}.")
        found = images.new_empty((len(images), self.layers, 2 * self.cells**2 * self.centres))
        for part, z in self._responses(images, self._filters):
            if self.layers == 2:
                found[part, 1] = self._pool_rectified(self._second_responses(z))
            found[part, 0] = self._pool_rectified(z)
        return found.clamp_(min=0).div_(2).pow_(self.power).flatten(1)

    def _responses(self, images: Tensor, filters: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield responses (m, rows, columns, k) of some images, those below the threshold zero."""
        n, height, width, channels = images.shape
        size, limit = self.size, self.threshold
        rows, columns = height - size + 1, width - size + 1
        filters = filters.to(images.device, self.precision)
        k = filters.shape[1]
        each = max(1, BUFFER_BYTES // (rows * columns * k * filters.element_size()))
        inputs = images.new_ones((each, rows, columns, size * size * channels + 1))
        for start in range(0, n, each):
            block = images[start : start + each]
            m = len(block)
            x = inputs[:m]
            patches, (mean, variance) = _patches(block, size), _contrast(block, size)
            inner = x[..., :-1].view(m, rows, columns, *patches.shape[3:])
            torch.sub(patches, mean, out=inner)
            inner *= (variance + self.softening).rsqrt()
            z = x.view(-1, x.shape[-1]).to(self.precision) @ filters
            z -= z.clamp(-limit, limit)
            yield slice(start, start + m), z.view(m, rows, columns, k)

    def _second_responses(self, z: Tensor) -> Tensor:
        """Return the responses of the second dictionary to those of the first."""
        patches = _patches(_to_maps(z[..., :SEEN]), SECOND_PATCH)
        m, rows, columns = patches.shape[:3]
        x = _unit(patches.reshape(m * rows * columns, -1) - self._second_mean.to(z.device))
        found: Tensor = x.to(z.dtype) @ self._second.to(z)
        found -= found.clamp(-self.threshold, self.threshold)
        return found.view(m, rows, columns, self.centres)

    def _pool_rectified(self, z: Tensor) -> Tensor:
        """Return twice the means of positive and of negative responses over cells; z is lost."""
        weights = [_cell_weights(places, self.cells).to(z.device) for places in z.shape[1:3]]
        total, size = _pool(z, *weights), _pool(z.abs_(), *weights)
        return torch.stack([size + total, size - total], 1).flatten(1)

    @property
    def state(self) -> dict[str, Tensor]:
        """The dictionaries, whitened, and the softening of contrast."""
        state = {
            "filters": self._filters,
            "settings": torch.tensor([self.size, self.softening], dtype=torch.float64),
        }
        if self.layers == 2:
            state |= {"second": self._second, "second_mean": self._second_mean}
        return state

    @state.setter
    def state(self, values: Mapping[str, Tensor]) -> None:
        self._filters = values["filters"]
        if self.layers == 2:
            self._second, self._second_mean = values["second"], values["second_mean"]
        self.size, self.softening = int(values["settings"][0]), float(values["settings"][1])


class Random(FeatureMap):
    """Random features of vectors, each column scaled by its spread in the first rows.

    Parameters
    ----------
    width : int
        Number of features.
    kind : "relu" or "cosine"
        See `olss.core.kernels`.
    """

    def __init__(self, width: int = 2_000, kind: str = "relu") -> None:
        self.width, self.kind = checks.integer("width", width), kind
        RandomFeatures.draw(1, 1, kind, 0)

    def fit(self, X: Tensor, seed: int) -> None:
        """Draw the map, and note the mean and spread of the columns."""
        rows = X.flatten(1)
        drawn = RandomFeatures.draw(rows.shape[1], self.width, self.kind, seed)
        self._mean = rows.mean(0)
        spread = rows.std(0, correction=0)
        # A column constant so far is scaled like the others: later rows may differ in it.
        typical = spread.square().mean().sqrt()
        self._gain = 1 / torch.where(spread > 1e-3 * typical, spread, typical.clamp(min=1e-12))
        self._weight = torch.as_tensor(drawn.weight).to(rows)
        self._bias = torch.as_tensor(drawn.bias).to(rows)

    def __call__(self, X: Tensor) -> Tensor:
        """Return float32 features (n, width)."""
        z = torch.addmm(self._bias, (X.flatten(1) - self._mean) * self._gain, self._weight)
        return z.relu_() if self.kind == "relu" else z.cos_().mul_(math.sqrt(2 / self.width))

    @property
    def state(self) -> dict[str, Tensor]:
        """The map, and the scale of the columns."""
        return {
            "mean": self._mean, "gain": self._gain, "weight": self._weight, "bias": self._bias,
        }  # fmt: skip

    @state.setter
    def state(self, values: Mapping[str, Tensor]) -> None:
        self._mean, self._gain = values["mean"], values["gain"]
        self._weight, self._bias = values["weight"], values["bias"]


class Given(FeatureMap):
    """A map that is given: a frozen net, or any function of rows.

    Parameters
    ----------
    function : callable
        From a tensor of rows (n, ...) to features (n, k), a tensor or an array.
    """

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        self.function = function

    @torch.no_grad()
    def __call__(self, X: Tensor) -> Tensor:
        """Return float32 features (n, k)."""
        if isinstance(self.function, nn.Module):
            self.function.eval()
        blocks = []
        for rows in torch.split(X, BLOCK):
            found = torch.as_tensor(self.function(rows)).to(X.device, torch.float32)
            if found.dim() < 2 or len(found) != len(rows):
                raise InputError(
                    f"features must give a vector for each of {len(rows)} rows, found shape "
                    f"{tuple(found.shape)}."
                )
            blocks.append(found.flatten(1))
        return torch.cat(blocks)

    @property
    def state(self) -> dict[str, Tensor]:
        """Nothing: the map is given again."""
        return {}

    @state.setter
    def state(self, values: Mapping[str, Tensor]) -> None:
        pass


KINDS: dict[str, type[FeatureMap]] = {"patches": Patches, "random": Random}


def map_settings(features: str = "auto") -> dict[str, Any]:
    """Return the settings of a kind of map, by default of all kinds, with their defaults."""
    kinds = KINDS.values() if features == "auto" else [KINDS[features]]
    parameters = [p for kind in kinds for p in inspect.signature(kind).parameters.values()]
    return {p.name: p.default for p in parameters if p.name != "precision"}


def make_features(
    features: Any, shape: tuple[int, ...], settings: Mapping[str, Any], precision: str = "float32"
) -> FeatureMap:
    """Make a feature map for rows of a shape.

    Parameters
    ----------
    features : str, nn.Module or callable
        "patches" (images), "random" (vectors), "raw" (the rows as they are), "auto" (patches for
        images, random for vectors), a frozen net or a function.
    shape : tuple of int
        Of a row.
    settings : mapping
        Of the map's constructor; with "auto" of either.
    precision : str
        Of the responses of patches.
    """
    if features in ("auto", "patches"):
        _check_channels_first(shape)
    if features == "auto":
        _check_settings("auto", settings, map_settings())
        image = len(shape) in (2, 3) and min(shape[-2:]) >= SMALL_IMAGE
        features = "patches" if image else "random"
        settings = {k: v for k, v in settings.items() if k in map_settings(features)}
    if features == "raw" or callable(features):
        _check_settings(features, settings, ())
        if isinstance(features, FeatureMap):
            return features
        return Given(_flatten if features == "raw" else features)
    if not isinstance(features, str) or features not in KINDS:
        raise InputError(
            "features must be 'auto', 'patches', 'random', 'raw', a function or net, or its "
            f"name as 'module:Name'; found {features!r}."
        )
    _check_settings(features, settings, map_settings(features))
    if features == "patches":
        settings = {**settings, "precision": precision}
    return KINDS[features](**settings)


def _check_settings(features: Any, settings: Iterable[str], known: Iterable[str]) -> None:
    """Raise if there is a setting that a map does not have."""
    for name in set(settings).difference(known):
        more = checks.suggest(name, known) if known else "It has none."
        raise InputError(f"features={features!r} has no setting {name!r}. {more}")


def _check_channels_first(shape: tuple[int, ...]) -> None:
    if len(shape) == 3 and shape[2] in (1, 3, 4) and min(shape[:2]) >= SMALL_IMAGE:
        raise DataError(
            f"X must hold images of shape (channels, height, width), found {shape}: "
            "X.transpose(0, 3, 1, 2) puts channels first."
        )


def _flatten(X: Tensor) -> Tensor:
    return X.flatten(1)


def _images(X: Tensor) -> Tensor:
    """Return images as float32 (n, height, width, channels), large ones reduced."""
    if X.dim() == 3:
        X = X[:, None]
    if X.dim() != 4:
        raise DataError(
            "X must hold images of shape (height, width) or (channels, height, width), found rows "
            f"of shape {tuple(X.shape[1:])}; features='random' takes vectors."
        )
    X = X.float()
    factor = min(X.shape[2:]) // 32
    if factor > 1:
        X = torch.nn.functional.avg_pool2d(X, factor)
    # Patches are centred later; without the mean of an image squares keep more digits.
    X = X - X.mean((1, 2, 3), keepdim=True)
    return X.permute(0, 2, 3, 1).contiguous()


def _patches(images: Tensor, size: int) -> Tensor:
    """Return all patches of (n, height, width, channels) as a view (n, rows, columns, ...)."""
    n, height, width, channels = images.shape
    row = width * channels
    shape = (n, height - size + 1, width - size + 1, size, size * channels)
    return images.as_strided(shape, (height * row, row, channels, row, 1))


def _contrast(images: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every patch, (n, rows, columns, 1, 1) each."""
    sums = torch.stack([images.mean(3), images.square().mean(3)], 1)
    mean, square = (
        torch.nn.functional.avg_pool2d(sums, size, 1).unsqueeze(-1).unsqueeze(-1).unbind(1)
    )
    return mean, (square - mean.square()).clamp_(min=0)


def _sample(images: Tensor, size: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw patches (count, values), all images and places alike."""
    patches = _patches(images, size)
    where = [torch.randint(limit, (count,), generator=generator) for limit in patches.shape[:3]]
    return patches[where[0], where[1], where[2]].flatten(1)


def _spherical_kmeans(X: Tensor, k: int, generator: torch.Generator, rounds: int = 10) -> Tensor:
    """Return k directions of length 1; each row belongs to the one it is most parallel to.

    The damped update of Coates & Ng (2012, "Learning feature representations with k-means").
    """
    D = torch.randn((k, X.shape[1]), generator=generator).to(X)
    D /= D.norm(dim=1, keepdim=True)
    for _ in range(rounds):
        sums = torch.zeros_like(D)
        for block in torch.split(X, max(1, BUFFER_BYTES // (4 * k))):
            z = block @ D.T
            best = z.abs().argmax(1)
            response = z.gather(1, best[:, None])
            sums.index_add_(0, best, response * block)
        D = D + sums
        D /= D.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return D


def _to_maps(z: Tensor) -> Tensor:
    """Return roots of rectified responses averaged over squares, (m, rows, columns, 2k)."""
    both = torch.cat([z.clamp(min=0), (-z).clamp(min=0)], -1).permute(0, 3, 1, 2).float()
    means: Tensor = torch.nn.functional.avg_pool2d(both, AVERAGED)
    return means.sqrt_().permute(0, 2, 3, 1).contiguous()


def _unit(rows: Tensor) -> Tensor:
    """Return rows of about length one; those near zero stay there."""
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / (length + 1e-3)


def _pool(z: Tensor, across: Tensor, along: Tensor) -> Tensor:
    """Return weighted means (n, cells, cells, k) of (n, rows, columns, k) over a grid of cells."""
    n, rows, columns, k = z.shape
    bands = (across.to(z.dtype) @ z.view(n, rows, columns * k)).float()
    return along @ bands.view(n, len(across), columns, k)


def _cell_weights(places: int, cells: int) -> Tensor:
    """Return the share (cells, places) of each place in the mean of each cell.

    Weights fall linearly from the centre of a cell to those of its neighbours, so that a small
    shift of an image changes its features little; outside the outermost centres they are constant.
    """
    at = (torch.arange(places) + 0.5) * cells / places - 0.5  # centres of cells are 0, 1, 2...
    at = at.clamp(0, cells - 1)
    weights = (1 - (at - torch.arange(cells)[:, None]).abs()).clamp(min=0)
    return weights / weights.sum(1, keepdim=True)
