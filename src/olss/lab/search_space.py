"""Search spaces: which values of which settings are tried, and how."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from olss.errors import InputError
from olss.lab.toml_tables import check_keys, seed_list, table_of
from olss.util.checks import nearest, number

__all__ = ["PAPER_GRID", "TuneSpec", "checked_space", "tune_spec"]

PAPER_GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
RANGE = ("low", "high", "log", "step")


@dataclass(frozen=True)
class TuneSpec:
    """How settings are chosen.

    Attributes
    ----------
    method : str
        "grid", "random" or "tpe".
    trials : int
        For random and tpe: how many for each learner.
    tasks : int or None
        Only the first tasks of the stream.
    share : float
        Part of the training rows held out to score on.
    seeds : tuple of int
        A trial's score is the mean over these.
    prune : bool
        Stop trials that are worse than the median of the others at the same task.
    space : dict
        Setting -> list of values, or a table with low, high and, if need be, log or step.
    """

    method: str = "grid"
    trials: int = 20
    tasks: int | None = None
    share: float = 0.1
    seeds: tuple[int, ...] = (0,)
    prune: bool = True
    space: dict[str, Any] = field(default_factory=lambda: {"lr": list(PAPER_GRID)})


def tune_spec(table: dict[str, Any], source: str) -> TuneSpec:
    """Read the [tune] table of an experiment file."""
    check_keys(table, {item.name for item in fields(TuneSpec)}, f"[tune] of {source}")
    if "space" in table:
        space = table_of(table["space"], "tune.space", source)
        table["space"] = checked_space(space, source)
    if "seeds" in table:
        table["seeds"] = seed_list(table["seeds"])
    spec = TuneSpec(**table)
    number("tune.share", spec.share, above=0, below=1)
    if spec.method not in ("grid", "random", "tpe"):
        raise InputError(f"tune.method must be grid, random or tpe, found {spec.method!r}.")
    for key in ("trials", "tasks"):
        value = getattr(spec, key)
        if value is not None and (type(value) is not int or value < 1):
            raise InputError(f"tune.{key} must be a positive whole number, found {value!r}.")
    if type(spec.prune) is not bool:
        raise InputError(f"tune.prune must be true or false, found {spec.prune!r}.")
    return spec


def checked_space(space: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the space back if each setting has a list of values or a range.

    Examples
    --------
    >>> checked_space({"lr": [0.1, 0.3], "ewc_strength": {"low": 1, "high": 100, "log": True}}, "")
    {'lr': [0.1, 0.3], 'ewc_strength': {'low': 1, 'high': 100, 'log': True}}
    """
    for key, values in space.items():
        if isinstance(values, list) and values:
            continue
        if not isinstance(values, dict):
            raise InputError(
                f"the space of {key} in {where} must be a list of values or a table with low and "
                f"high, found {values!r}."
            )
        for name in values:
            if name not in RANGE:
                raise InputError(f"the range of {key} has no {name!r}. {nearest(name, RANGE)}")
        low, high = values.get("low"), values.get("high")
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (low, high))
        if not numbers or not low < high:  # type: ignore[operator]
            raise InputError(
                f"the range of {key} must have low below high, found {low!r} and {high!r}."
            )
        if type(values.get("log", False)) is not bool:
            raise InputError(f"log of {key} must be true or false, found {values['log']!r}.")
        if values.get("log") and not low > 0:  # type: ignore[operator]
            raise InputError(f"the range of {key} with log must begin above 0, found {low!r}.")
        step = values.get("step")
        if step is not None:
            number(f"the step of {key}", step, above=0)
            if values.get("log"):
                raise InputError(f"the range of {key} has log or step, not both; leave one out.")
    return space
