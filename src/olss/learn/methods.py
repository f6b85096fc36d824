"""Named learners: which parts each method is made of, and which of them fit together."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from olss.errors import InputError
from olss.learn.buffers import Buffer, FullBuffer, HerdingBuffer, PolicyBuffer, RingBuffer
from olss.learn.components import part_named, part_of_ones_own
from olss.learn.heads import HEADS
from olss.learn.learner import Learner, Parts
from olss.learn.losses import LOSSES, IcarlLoss
from olss.learn.nets import describe
from olss.learn.projections import AGem, Gem, Projection
from olss.learn.regularizers import Distillation, Ewc, OnlineEwc, Regularizer, Si
from olss.learn.replay import ReplayStrategy
from olss.learn.training import Augmentation, Training
from olss.util.checks import suggest

__all__ = ["recipe", "recipe_names"]


@dataclass(frozen=True)
class Ingredient:
    """What a method brings. `lends`: its memory gives way to another method's."""

    memory: type[Buffer] | None = None
    lends: bool = False
    regime: str = "task"
    penalty: type[Regularizer] | None = None
    projection: type[Projection] | None = None
    restart: bool = False
    defaults: dict[str, Any] = field(default_factory=dict)


RESERVOIR = {"policy": "reservoir", "size": 2_000}
BALANCED = {"policy": "balanced-random", "size": 2_000, "take_in": "before"}

INGREDIENTS = {
    "sgd": Ingredient(),
    "ewc": Ingredient(penalty=Ewc),
    "online-ewc": Ingredient(penalty=OnlineEwc),
    "si": Ingredient(penalty=Si),
    "gem": Ingredient(memory=RingBuffer, lends=True, projection=Gem),
    "a-gem": Ingredient(memory=RingBuffer, lends=True, projection=AGem),
    "icarl": Ingredient(
        memory=HerdingBuffer,
        regime="union",
        defaults={"head": "nearest-mean", "loss": "icarl"},
    ),
    "er": Ingredient(memory=PolicyBuffer, regime="replay", defaults=RESERVOIR),
    "er-ace": Ingredient(
        memory=PolicyBuffer, regime="replay", defaults=BALANCED | {"loss": "er-ace"}
    ),
    "der": Ingredient(
        memory=PolicyBuffer,
        lends=True,
        regime="replay",
        penalty=Distillation,
        defaults=RESERVOIR | {"beta": 0.0},
    ),
    "der++": Ingredient(
        memory=PolicyBuffer,
        lends=True,
        regime="replay",
        penalty=Distillation,
        defaults=RESERVOIR | {"beta": 0.5},
    ),
    "gdumb": Ingredient(
        memory=PolicyBuffer,
        regime="sketch",
        restart=True,
        defaults={"policy": "balanced", "size": 2_000},
    ),
    "joint": Ingredient(memory=FullBuffer, regime="sketch"),
    "olss-replay": Ingredient(
        memory=PolicyBuffer,
        regime="replay",
        defaults=BALANCED
        | {"loss": "logit-adjusted", "batch": 10, "average_steps": 100}
        | {"head": "product", "head_layers": "stages"},
    ),
    "olss": Ingredient(
        memory=PolicyBuffer, regime="sketch", defaults={"policy": "paper", "size": "task"}
    ),
}


def recipe_names() -> list[str]:
    """Return the names of the methods."""
    return list(INGREDIENTS)


def recipe(name: str | Sequence[str], **settings: Any) -> Learner:
    """Make a learner by name.

    Parameters
    ----------
    name : str or list of str
        - ``sgd``: the net alone.
        - ``ewc``, ``online-ewc``: a penalty by Fisher information (`ewc_strength`,
          `fisher_rows`, `fisher`, `ewc_decay`).
        - ``si``: a penalty by path integrals (`si_strength`, `si_damping`).
        - ``gem``, ``a-gem``: gradients projected so that past tasks do not suffer
          (`gem_rows` remembered of each task, `gem_margin`, `reference_rows`).
        - ``icarl``: herded exemplars (`size` in all), distillation, nearest mean.
        - ``er``: replay from a reservoir (`size`).
        - ``er-ace``: replay in which new rows push no old class down; the memory is balanced and
          holds rows of the current task.
        - ``der``, ``der++``: replay with stored outputs (`alpha`, `beta`).
        - ``gdumb``: a class-balanced memory, and a net trained from scratch on it.
        - ``joint``: trains on everything so far, the upper bound.
        - ``olss-replay``: recommended where tasks bring classes: replay from a balanced memory
          that holds the current task, in steps of 10 new and 10 remembered rows, logit
          adjustment, weights averaged over 100 steps, answers by the net's softmax times a
          discriminant of the remembered rows.
        - ``olss``: the paper's Algorithm 1; `policy`, `size`, `scores`, `features`, and
          `regime` with `share` choose another memory or training set.
        - ``["olss", "ewc"]`` or ``"olss+ewc"``: both. OLSS is a memory, so methods that need one
          (``gem``, ``der++``) use its rows instead of their own.
    **settings
        Of the parts, as named above, and of the training: see `Training`. `loss`, `head`,
        `policy`, `net` and `regularizer` also take a part of your own, a class or function or its
        name as ``"module:Name"``; the settings of its constructor become the recipe's.

    Examples
    --------
    >>> recipe("olss+ewc", net="mlp-100-100", lr=0.1, size=2_000, ewc_strength=10.0)
    Learner('olss+ewc', not started)
    >>> recipe("icral")
    Traceback (most recent call last):
    olss.errors.InputError: there is no recipe 'icral'. Did you mean 'icarl'?
    """
    names = _names(name)
    _check_fit(names)
    chosen = [INGREDIENTS[part] for part in names]
    lender = _memory_lender(chosen)
    # The defaults of the method whose memory is used come before those of the others.
    values = {"loss": "cross-entropy", "head": "seen", "regularizer": None}
    values["regime"] = lender.regime if lender else "task"
    for ingredient in sorted(chosen, key=lambda i: i is lender):
        values |= ingredient.defaults
    values |= settings

    loss_type = part_named("loss", values["loss"], LOSSES)
    answer_type = part_named("head", values["head"], HEADS)
    memory_type = lender.memory if lender and lender.memory else Buffer
    penalty_types: list[Any] = [i.penalty for i in chosen if i.penalty]
    if values["regularizer"] is not None:
        penalty_types.append(part_named("regularizer", values["regularizer"], {}))
    projection_type = next((i.projection for i in chosen if i.projection), Projection)
    trained = [Training, loss_type, answer_type, Augmentation]
    parts = [*trained, memory_type, ReplayStrategy, *penalty_types, projection_type]

    own = {key: values[key] for key in ("loss", "head", "regularizer")}
    known = own | {key: value for part in parts for key, value in _settings_of(part).items()}
    if memory_type is not PolicyBuffer:
        for key in _settings_of(ReplayStrategy):
            del known[key]  # theirs is fixed
    for key in settings:
        if key not in known:
            raise InputError(_unknown(names, key, known))

    for key, default in known.items():
        if default is inspect.Parameter.empty and key not in values:
            raise InputError(
                f"recipe {'+'.join(names)!r} needs the setting {key!r}; it has no default."
            )

    # A part of one's own, built on ours, does not go by one of our names.
    given = dict(values)
    for key, ours in (("loss", LOSSES), ("head", HEADS)):
        if given[key] not in ours:
            del given[key]

    def make(part: Callable[..., Any]) -> Any:
        return part(**{key: given[key] for key in _settings_of(part) if key in given})

    joined = "+".join(names)
    made = Parts(
        training=make(Training),
        loss=make(loss_type),
        head=make(answer_type),
        augmentation=make(Augmentation),
        buffer=make(memory_type),
        replay=make(ReplayStrategy),
        regularizers=[make(penalty) for penalty in penalty_types],
        projection=make(projection_type),
        restart=any(i.restart for i in chosen),
    )
    if made.head.needs_memory and memory_type is Buffer:
        raise InputError(f"head={values['head']!r} needs remembered rows, and {joined!r} has none.")
    if made.head.needs_memory and made.loss.regression:
        raise InputError(f"head={values['head']!r} is for classes, found a loss for numbers.")
    if isinstance(made.loss, IcarlLoss) and any(
        isinstance(p, Distillation) for p in made.regularizers
    ):
        raise InputError(f"loss='icarl' and {joined!r} are two ways to distil; choose one.")
    if made.loss.parts_rows and made.replay.regime not in ("task", "replay"):
        raise InputError(
            f"loss={values['loss']!r} needs new and remembered rows apart (regime='replay'), found "
            f"regime={made.replay.regime!r}, which trains on both as one."
        )
    plain = {
        key: _plain(values.get(key, default)) for key, default in known.items() if key != "net"
    }
    if values["regularizer"] is None:
        del plain["regularizer"]
    of_training = {"loss", "head"}.union(*(_settings_of(part) for part in trained))
    training = {key: plain.pop(key) for key in list(plain) if key in of_training}
    net = describe(made.training.net)
    config = {"learner": {"recipe": joined, **plain}, "net": net, "training": training}
    return Learner(joined, made, config)


def _names(name: str | Sequence[str]) -> list[str]:
    """Return the methods a list or a text such as ``"olss+der++"`` names."""
    # A plus joins if a name follows it: the last two of "der++" do not.
    joined = re.split(r"\s*\+\s*(?=\w)", name.strip()) if isinstance(name, str) else name
    if not isinstance(joined, list | tuple):
        raise InputError(f"a recipe is a name or a list of names, found {name!r}.")
    names = list(joined) or [""]
    for part in names:
        if not isinstance(part, str) or part not in INGREDIENTS:
            raise InputError(f"there is no recipe {part!r}. {suggest(str(part), INGREDIENTS)}")
    return names


def _check_fit(names: list[str]) -> None:
    """Raise with the reason if the methods do not go together."""

    def refuse(reason: str) -> None:
        raise InputError(f"{'+'.join(names)!r} makes no sense: {reason}")

    both = set(names)
    if len(names) == 1:
        return
    if len(both) < len(names):
        refuse("a method is named twice.")
    if "sgd" in both:
        refuse("sgd is the net alone, so there is nothing to add; leave it out.")
    if "joint" in both:
        refuse("joint trains on all data of all tasks, so there is nothing to protect.")
    if "gdumb" in both:
        refuse("gdumb trains a new net for each task, so there is nothing to protect.")
    for pair, what in (
        ({"ewc", "online-ewc"}, "two forms of one penalty"),
        ({"gem", "a-gem"}, "two forms of one projection"),
        ({"der", "der++"}, "two forms of one distillation"),
        ({"er", "der"}, "both replay: der is er with stored outputs"),
        ({"er", "der++"}, "both replay: der++ is er with stored outputs"),
        ({"icarl", "der"}, "two ways to distil"),
        ({"icarl", "der++"}, "two ways to distil"),
    ):
        if pair <= both:
            refuse(f"{what}; choose one.")
    owners = [n for n in names if INGREDIENTS[n].memory and not INGREDIENTS[n].lends]
    if len(owners) > 1:
        hint = " For replay from the sketch take olss with regime='replay'." if "er" in both else ""
        refuse(f"{' and '.join(owners)} each bring a memory; choose one.{hint}")


def _memory_lender(chosen: list[Ingredient]) -> Ingredient | None:
    """Return the ingredient whose memory is used: an owner, else one that also trains on it."""
    having = [i for i in chosen if i.memory]
    return min(having, key=lambda i: (i.lends, i.regime == "task"), default=None)


def _settings_of(part: Callable[..., Any]) -> dict[str, Any]:
    """Return the settings a part takes with their defaults; one's own may have none."""
    parameters = inspect.signature(part).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {p.name: p.default for p in named}


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it."""
    if value is None or isinstance(value, (bool, int, float, str, list, dict)):
        return value
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "item"):
        return value.item()
    return part_of_ones_own(value)


def _unknown(names: Sequence[str], setting: str, known: Iterable[str]) -> str:
    name = "+".join(names)
    users = [other for other, i in INGREDIENTS.items() if setting in _settings_brought(i)]
    if users:
        return f"recipe {name!r} has no use for {setting!r}, a setting of {', '.join(users)}."
    return f"recipe {name!r} takes no setting {setting!r}. {suggest(setting, known)}"


def _settings_brought(ingredient: Ingredient) -> set[str]:
    parts: list[type | None] = [ingredient.memory, ingredient.penalty, ingredient.projection]
    parts += [ReplayStrategy] if ingredient.memory is PolicyBuffer else []
    return {key for part in parts if part for key in _settings_of(part)}
