"""The answers by name."""

from __future__ import annotations

from collections.abc import Callable

from olss.learn.answers import Answer
from olss.learn.feature_heads import Discriminant, Logistic, NearestMean, Product, Ridge
from olss.learn.heads import COMPETING
from olss.learn.output_heads import BiasCorrected, WeightAligned

__all__ = ["ANSWERS"]

ANSWERS: dict[str, Callable[..., Answer]] = {
    **dict.fromkeys(COMPETING, Answer),
    "nearest-mean": NearestMean,
    "ridge": Ridge,
    "discriminant": Discriminant,
    "product": Product,
    "logistic": Logistic,
    "weight-aligned": WeightAligned,
    "bias-corrected": BiasCorrected,
}
