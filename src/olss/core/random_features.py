"""Random features: a fixed nonlinear map after which a linear model is a nonlinear one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import InputError

__all__ = ["KINDS", "RandomFeatures", "same_map"]

KINDS = ("relu", "cosine")


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """Rows x as f(x W / sqrt(d) + b), drawn once and never changed.

    Parameters
    ----------
    weight : (d, k) array
    bias : (k,) array
    kind : "relu" or "cosine"
        max(0, .) with normal W and b, or sqrt(2/k) cos(.) with normal W and b uniform on a circle:
        inner products of the latter approach exp(-|x - z|^2 / (2 d)) (Rahimi & Recht 2007).
    """

    weight: NDArray[Any]
    bias: NDArray[Any]
    kind: str

    @classmethod
    def draw(cls, columns: int, features: int, kind: str, seed: int) -> RandomFeatures:
        """Draw a map; the same arguments give the same map on every machine."""
        if kind not in KINDS:
            raise InputError(f"kind of random features must be one of {KINDS}, found {kind!r}.")
        rng = np.random.default_rng(seed)
        weight = rng.standard_normal((columns, features)) / np.sqrt(max(columns, 1))
        if kind == "relu":
            return cls(weight, rng.standard_normal(features), kind)
        return cls(weight, rng.uniform(0, 2 * np.pi, features), kind)

    def __call__(self, X: NDArray[Any]) -> NDArray[Any]:
        """Map rows (n, d) to (n, k)."""
        Z: NDArray[Any] = X @ self.weight.astype(X.dtype, copy=False)
        Z += self.bias.astype(X.dtype, copy=False)
        if self.kind == "relu":
            np.maximum(Z, 0, out=Z)
            return Z
        np.cos(Z, out=Z)
        Z *= np.sqrt(2 / max(len(self.bias), 1)).astype(Z.dtype)
        return Z


def same_map(a: RandomFeatures | None, b: RandomFeatures | None) -> bool:
    """Whether two maps, or none, are the same."""
    if a is None or b is None:
        return a is b
    return a.kind == b.kind and np.array_equal(a.weight, b.weight)
