"""Learners: nets, the parts of a learner, named recipes, and the run through a stream.

Names are imported when first used: `Record` does not need torch, everything else does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from olss.errors import MissingExtraError
from olss.util import lazy_getattr

if TYPE_CHECKING:
    from olss.errors import DivergedError
    from olss.learn.analytic import AnalyticLearner
    from olss.learn.evaluation import run
    from olss.learn.learner import Learner
    from olss.learn.methods import recipe, recipe_names
    from olss.streams.record import Record

__all__ = ["AnalyticLearner", "DivergedError", "Learner", "Record", "recipe", "recipe_names", "run"]

_find = lazy_getattr(
    __name__,
    {
        "AnalyticLearner": "olss.learn.analytic",
        "DivergedError": "olss.errors",
        "Learner": "olss.learn.learner",
        "Record": "olss.streams.record",
        "recipe": "olss.learn.methods",
        "recipe_names": "olss.learn.methods",
        "run": "olss.learn.evaluation",
    },
)


def __getattr__(name: str) -> Any:
    try:
        return _find(name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise MissingExtraError(str(error.name), "lab", "Learning") from error
