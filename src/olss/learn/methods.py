"""Named methods: the parts each is composed of, which combine, and custom parts by name."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
from torch.nn import Module

from olss.errors import InputError
from olss.learn.analytic import AnalyticLearner, AnyLearner
from olss.learn.buffers import (
    Buffer,
    FullBuffer,
    HerdingBuffer,
    PolicyBuffer,
    ReplayStrategy,
    RingBuffer,
)
from olss.learn.features import map_settings
from olss.learn.heads import HEADS, Head
from olss.learn.learner import Learner, Parts
from olss.learn.losses import LOSSES, IcarlLoss, Loss
from olss.learn.nets import describe_net
from olss.learn.regularizers import (
    AGem,
    Distillation,
    Ewc,
    Gem,
    OnlineEwc,
    Projection,
    Regularizer,
    Si,
)
from olss.learn.training import Augmentation, Training
from olss.streams.stream import hash_arrays
from olss.util.checks import suggest

__all__ = ["recipe", "recipe_names"]

Maker = Callable[..., Any]


@dataclass(frozen=True)
class Composition:
    """What a method contributes. `lends`: its buffer gives way to another method's."""

    buffer: type[Buffer] | None = None
    lends: bool = False
    regime: str = "task"
    regularizer: type[Regularizer] | None = None
    projection: type[Projection] | None = None
    restart: bool = False
    defaults: dict[str, Any] = field(default_factory=dict)


RESERVOIR = {"policy": "reservoir", "size": 2_000}
BALANCED = {"policy": "balanced-random", "size": 2_000, "take_in": "before"}
ER = Composition(buffer=PolicyBuffer, regime="replay", defaults=RESERVOIR)

METHODS = {
    "sgd": Composition(),
    "ewc": Composition(regularizer=Ewc),
    "online-ewc": Composition(regularizer=OnlineEwc),
    "si": Composition(regularizer=Si),
    "gem": Composition(buffer=RingBuffer, lends=True, projection=Gem),
    "a-gem": Composition(buffer=RingBuffer, lends=True, projection=AGem),
    "icarl": Composition(
        buffer=HerdingBuffer,
        regime="union",
        defaults={"head": "nearest-mean", "loss": "icarl"},
    ),
    "er": ER,
    "er-ace": replace(ER, defaults=BALANCED | {"loss": "er-ace"}),
    "der": replace(ER, lends=True, regularizer=Distillation, defaults=RESERVOIR | {"beta": 0.0}),
    "der++": replace(ER, lends=True, regularizer=Distillation, defaults=RESERVOIR | {"beta": 0.5}),
    "gdumb": Composition(
        buffer=PolicyBuffer,
        regime="sketch",
        restart=True,
        defaults={"policy": "balanced", "size": 2_000},
    ),
    "joint": Composition(buffer=FullBuffer, regime="sketch"),
    "olss-replay": replace(
        ER,
        defaults=BALANCED
        | {"loss": "logit-adjusted", "batch": 10, "average_steps": 100}
        | {"head": "product", "head_layers": "stages"},
    ),
    # Alone it has no net: see `_make_analytic`.
    "analytic": Composition(defaults={"head": "ensemble"}),
    "olss": Composition(
        buffer=PolicyBuffer, regime="sketch", defaults={"policy": "paper", "size": "task"}
    ),
}

# What a custom part is built on.
BASES: dict[str, type] = {"loss": Loss, "head": Head, "regularizer": Regularizer}
# What Avalanche, Mammoth and papers call recipes and settings, for error messages.
ELSEWHERE = {
    "naive": "sgd", "finetune": "sgd", "replay": "er", "experience-replay": "er",
    "cumulative": "joint", "derpp": "der++", "slda": "analytic", "streaminglda": "analytic",
    "learning_rate": "lr", "batch_size": "batch", "train_mb_size": "batch", "n_epochs": "epochs",
    "train_epochs": "epochs", "mem_size": "size", "memory_size": "size", "buffer_size": "size",
    "minibatch_size": "replay_rows", "batch_size_mem": "replay_rows", "storage_policy": "policy",
    "ewc_lambda": "ewc_strength", "e_lambda": "ewc_strength", "si_lambda": "si_strength",
    "patterns_per_exp": "gem_rows", "patterns_per_experience": "gem_rows",
    "memory_strength": "gem_margin", "model": "net", "criterion": "loss",
}  # fmt: skip


def recipe_names() -> list[str]:
    """Return the names of the methods."""
    return list(METHODS)


def recipe(
    recipe: str | Sequence[str] | None = None, *, name: str | None = None, **settings: Any
) -> AnyLearner:
    """Make a learner from the name of a method.

    Parameters
    ----------
    recipe : str or list of str
        - ``sgd``: the net alone.
        - ``ewc``: a penalty by Fisher information for each past task (`ewc_strength`,
          `fisher_rows`, `fisher`).
        - ``online-ewc``: one such penalty for all past tasks, which fades (and `ewc_decay`).
        - ``si``: a penalty by path integrals (`si_strength`, `si_damping`).
        - ``gem``: gradients projected so that no past task suffers (`gem_rows` kept of each task,
          `gem_margin`).
        - ``a-gem``: gradients projected so that past tasks do not suffer on average
          (`gem_rows`, and `reference_rows` of them in each step).
        - ``icarl``: herded exemplars (`size` in total), distillation, nearest mean.
        - ``er``: replay from a reservoir (`size`).
        - ``er-ace``: replay in which new rows push no old class down; the buffer is balanced and
          holds rows of the current task.
        - ``der``: replay towards the outputs stored with the rows (`alpha`).
        - ``der++``: the same, and towards their labels (`alpha`, `beta`).
        - ``gdumb``: a class-balanced buffer, and a net trained from scratch on it.
        - ``joint``: training on everything so far, the upper bound.
        - ``olss-replay``: recommended where tasks bring new classes: replay from a balanced buffer
          that holds the current task, in steps of 10 new and 10 replayed rows, logit adjustment,
          weights averaged over 100 steps, predictions by the net's softmax times a discriminant
          of the rows of the buffer; with few rows of a class choose `head`="transported".
        - ``analytic``: frozen features and a linear model solved from the moments of everything
          seen: no row is stored, nothing is forgotten (`features`, `classifier`, `ridge`,
          `half_life`, `mirrored`: see `AnalyticLearner`). Settings that train a net are ignored.
        - ``["analytic", "olss-replay"]``: both at once, their probabilities multiplied
          (`centres`, `net_weight`): the most accurate where tasks bring new classes of images.
        - ``olss``: the paper's Algorithm 1; `policy`, `size`, `scores`, `features`, and
          `regime` with `share` choose another buffer or training set.
        - ``["olss", "ewc"]`` or ``"olss+ewc"``: both. OLSS is a buffer, so methods that need one
          (``gem``, ``der++``) use its rows instead of their own.
    name : str, optional
        What reports call the learner; by default its recipe. As in experiment files, a name
        without a recipe is both.
    **settings
        Of the parts, as named above, and of the training: see `Training`. `loss`, `head`,
        `policy`, `net` and `regularizer` also take a custom part, a class or function or its
        name as ``"module:Name"``; the settings of its constructor become the recipe's.

    Examples
    --------
    >>> recipe("olss+ewc", net="mlp-100-100", lr=0.1, size=2_000, ewc_strength=10.0)
    Learner('olss+ewc', not started)
    >>> recipe("olss", policy="weighted", name="weighted OLSS")
    Learner('weighted OLSS', not started)
    >>> recipe("icral")
    Traceback (most recent call last):
    olss.errors.InputError: There is no recipe 'icral'. Did you mean 'icarl'?
    """
    if name is not None and not (isinstance(name, str) and name.isprintable() and name.strip()):
        raise InputError(f"name must be a string of printable characters, found {name!r}.")
    names = _split_names(name if recipe is None else recipe, name)
    _check_combination(names)
    if names == ["analytic"]:
        return _make_analytic(name, settings)
    joined = "+".join(names)
    methods = [METHODS[method] for method in names]
    owner = _buffer_owner(methods)
    # The defaults of the method whose buffer is used override those of the others, but for the
    # head, which is all that the analytic learner brings.
    values: dict[str, Any] = {"loss": "cross-entropy", "head": "seen", "regularizer": None}
    values["regime"] = owner.regime if owner else "task"
    for method in sorted(methods, key=lambda m: (m is METHODS["analytic"], m is owner)):
        values |= method.defaults
    values |= settings

    makers: dict[str, Maker] = {
        "training": Training,
        "loss": find_part("loss", values["loss"], LOSSES),
        "head": find_part("head", values["head"], HEADS),
        "augmentation": Augmentation,
        "buffer": owner.buffer if owner and owner.buffer else Buffer,
        "replay": ReplayStrategy,
        "projection": next((m.projection for m in methods if m.projection), Projection),
    }
    regularizers: list[Maker] = [m.regularizer for m in methods if m.regularizer]
    if values["regularizer"] is not None:
        regularizers.append(find_part("regularizer", values["regularizer"], {}))

    known = {key: values[key] for key in ("loss", "head", "regularizer")}
    order = ("training", "loss", "head", "augmentation", "buffer", "replay")
    for maker in (*(makers[part] for part in order), *regularizers, makers["projection"]):
        known |= _settings_of(maker)
    if makers["buffer"] is not PolicyBuffer:
        for key in _settings_of(ReplayStrategy):
            del known[key]  # the method fixes them
    _check_settings(joined, settings, values, known)
    parts = _make_parts(makers, regularizers, values, any(m.restart for m in methods))
    _check_parts(joined, parts, values)

    plain = {k: _as_json(values.get(k, default)) for k, default in known.items() if k != "net"}
    if values["regularizer"] is None:
        del plain["regularizer"]
    of_training = {"loss", "head"}.union(*(_settings_of(makers[part]) for part in order[:4]))
    training = {key: plain.pop(key) for key in list(plain) if key in of_training}
    config = {
        "learner": {"recipe": joined, **plain, **({"label": name} if name else {})},
        "net": describe_net(values.get("net", parts.training.net)),
        "training": training,
    }
    return Learner(name or joined, parts, config)


def _split_names(recipe: Any, name: str | None) -> list[str]:
    """Return the methods that a list or a string such as ``"olss+der++"`` names."""
    # A plus joins if a name follows it, unlike the last two of "der++".
    names = re.split(r"\s*\+\s*(?=\w)", recipe.strip()) if isinstance(recipe, str) else recipe
    if not isinstance(names, list | tuple):
        raise InputError(f"recipe must be a name or a list of names, found {recipe!r}.")
    for method in names or [""]:
        if not isinstance(method, str) or method not in METHODS:
            more = " With a name of your own, set recipe, too." if method == name else ""
            raise InputError(
                f"There is no recipe {method!r}. {_suggest(str(method), METHODS)}{more}"
            )
    return list(names)


def _suggest(name: str, known: Iterable[str]) -> str:
    """Return which of the names is meant, where another library calls it otherwise."""
    ours = ELSEWHERE.get(name.casefold())
    return f"Did you mean {ours!r}?" if ours in set(known) else suggest(name, known)


def _check_combination(names: list[str]) -> None:
    """Raise with the reason if the methods do not combine."""

    def refuse(reason: str) -> None:
        raise InputError(f"recipe {'+'.join(names)!r} is not a combination: {reason}")

    both = set(names)
    if len(names) == 1:
        return
    if len(both) < len(names):
        refuse("a method is named twice.")
    for alone, reason in (
        ("sgd", "sgd is the net alone, so there is nothing to add; leave it out."),
        ("joint", "joint trains on all data of all tasks, so there is nothing to protect."),
        ("gdumb", "gdumb trains a new net for each task, so there is nothing to protect."),
    ):
        if alone in both:
            refuse(reason)
    for pair, what in (
        ({"ewc", "online-ewc"}, "two forms of one penalty"),
        ({"gem", "a-gem"}, "two forms of one projection"),
        ({"der", "der++"}, "two forms of one distillation"),
        ({"er", "der"}, "both replay: der is er with stored outputs"),
        ({"er", "der++"}, "both replay: der++ is er with stored outputs"),
        ({"icarl", "der"}, "two ways to distill"),
        ({"icarl", "der++"}, "two ways to distill"),
    ):
        if pair <= both:
            refuse(f"{what}; choose one.")
    if "analytic" in both and not any(METHODS[n].buffer for n in names):
        refuse("analytic multiplies its answers with those of replay; add olss-replay or er.")
    owners = [n for n in names if METHODS[n].buffer and not METHODS[n].lends]
    if len(owners) > 1:
        hint = " For replay from the sketch use olss with regime='replay'." if "er" in both else ""
        refuse(f"{' and '.join(owners)} each bring a buffer; choose one.{hint}")


def _buffer_owner(methods: list[Composition]) -> Composition | None:
    """Return the method whose buffer is used: one that insists, else one that trains on it."""
    having = [method for method in methods if method.buffer]
    return min(having, key=lambda method: (method.lends, method.regime == "task"), default=None)


def _check_settings(
    joined: str, settings: Iterable[str], values: Mapping[str, Any], known: Mapping[str, Any]
) -> None:
    """Raise if a setting is unknown, or one without a default is missing."""
    for key in settings:
        if key in known:
            continue
        users = [name for name, method in METHODS.items() if key in _settings_brought(method)]
        if users:
            raise InputError(
                f"recipe {joined!r} has no setting {key!r}; these recipes have it: "
                f"{', '.join(users)}."
            )
        raise InputError(f"recipe {joined!r} has no setting {key!r}. {_suggest(key, known)}")
    for key, default in known.items():
        if default is inspect.Parameter.empty and key not in values:
            raise InputError(
                f"recipe {joined!r} needs the setting {key!r}; it has no default."
                + _describe_custom(values, key)
            )


def _describe_custom(values: Mapping[str, Any], key: str) -> str:
    """Return what a custom part should be, if it is a function with a parameter of that name."""
    for setting, base in BASES.items():
        given = values.get(setting)
        if inspect.isroutine(given) and key in _settings_of(given):
            return f" {_what_part(setting, base)}, found {given!r}."
    return ""


def _what_part(setting: str, base: type) -> str:
    name = f"{base.__module__}.{base.__name__}"
    return f"{setting} must be a subclass of {name}, or a function that returns one"


def _make_parts(
    makers: Mapping[str, Maker], regularizers: list[Maker], values: dict[str, Any], restart: bool
) -> Parts:
    given = dict(values)
    for key, ours in (("loss", LOSSES), ("head", HEADS)):
        if given[key] not in ours:
            del given[key]  # a custom part built on ours does not go by one of our names
    for key in ("net", "policy"):
        if isinstance(given.get(key), str) and ":" in given[key]:
            given[key] = import_name(key, given[key])

    def make(maker: Maker) -> Any:
        return maker(**{key: given[key] for key in _settings_of(maker) if key in given})

    made = {part: make(maker) for part, maker in makers.items()}
    return Parts(**made, regularizers=[make(maker) for maker in regularizers], restart=restart)


def ignored_settings(recipe: str) -> set[str]:
    """Return the settings a recipe leaves alone: those that train a net, if it has none."""
    if recipe != "analytic":
        return set()
    trained = {key for part in (Training, Augmentation) for key in _settings_of(part)}
    return trained - _analytic_settings().keys()


def _analytic_settings() -> dict[str, Any]:
    known = {**_settings_of(AnalyticLearner), **map_settings()}
    return {key: value for key, value in known.items() if key not in ("name", "config")}


def _make_analytic(name: str | None, settings: dict[str, Any]) -> AnalyticLearner:
    """Make the analytic learner; settings of `Training` shared by an experiment are left out."""
    known = _analytic_settings()
    asked = [key for key in settings if key not in ignored_settings("analytic")]
    _check_settings("analytic", asked, settings, known)
    used = {key: value for key, value in settings.items() if key in known}
    features = used.get("features", "auto")
    if isinstance(features, str) and ":" in features:
        features = used["features"] = import_name("features", features)
    values = {k: _as_json(used.get(k, known[k])) for k in known if k != "images"}
    if isinstance(features, Module):
        values["features"] = describe_net(features)
    images = used.get("images")
    values["images"] = None if images is None else hash_arrays(np.asarray(images))
    of_training = ("loss", "mirrored", "precision", "threads")
    config = {
        "learner": {
            "recipe": "analytic",
            **{k: v for k, v in values.items() if k not in of_training},
        }
        | ({"label": name} if name else {}),
        "net": None,
        "training": {key: values[key] for key in of_training},
    }
    return AnalyticLearner(name or "analytic", config, **used)


def _check_parts(joined: str, parts: Parts, values: Mapping[str, Any]) -> None:
    """Raise if the parts do not fit together."""
    made = [("loss", parts.loss), ("head", parts.head)]
    made += [("regularizer", regularizer) for regularizer in parts.regularizers]
    for setting, part in made:
        if not isinstance(part, BASES[setting]):
            what = _what_part(setting, BASES[setting])
            raise InputError(f"{what}, found {values[setting]!r}.")
    head, loss, regime = values["head"], values["loss"], parts.replay.regime
    if parts.head.needs_buffer and type(parts.buffer) is Buffer:
        raise InputError(f"head={head!r} needs a buffer, and recipe {joined!r} has none.")
    if parts.head.needs_buffer and parts.loss.regression:
        raise InputError(f"head={head!r} requires classes, found loss={loss!r} for regression.")
    distills = any(isinstance(r, Distillation) for r in parts.regularizers)
    if isinstance(parts.loss, IcarlLoss) and distills:
        raise InputError(f"loss='icarl' and recipe {joined!r} are two ways to distill; choose one.")
    if parts.loss.separates_replayed and regime not in ("task", "replay"):
        raise InputError(
            f"loss={loss!r} requires regime='replay', which keeps new and replayed rows apart, "
            f"found regime={regime!r}."
        )


def _settings_of(maker: Maker) -> dict[str, Any]:
    """Return the settings a part takes with their defaults; custom ones may have none."""
    parameters = inspect.signature(maker).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {p.name: p.default for p in named}


def _settings_brought(method: Composition) -> set[str]:
    parts: list[type | None] = [method.buffer, method.regularizer, method.projection]
    parts += [ReplayStrategy] if method.buffer is PolicyBuffer else []
    return {key for part in parts if part for key in _settings_of(part)}


def find_part(setting: str, value: Any, known: Mapping[str, Maker]) -> Maker:
    """Return what makes a part: one of those known by name, ``"module:Name"``, or itself.

    Examples
    --------
    >>> find_part("loss", "olss.learn.losses:IcarlLoss", LOSSES)
    <class 'olss.learn.losses.IcarlLoss'>
    """
    if isinstance(value, str) and value in known:
        return known[value]
    if isinstance(value, str) and ":" in value:
        value = import_name(setting, value)
    if not callable(value):
        raise InputError(
            f"{setting}: there is no {value!r}. {suggest(str(value), known)} "
            "A custom one is given as 'module:Name'."
        )
    base = BASES[setting]
    other_class = isinstance(value, type) and not issubclass(value, base)
    if other_class or isinstance(value, base | Module):  # or an instance, not what makes one
        raise InputError(f"{_what_part(setting, base)}, found {value!r}.")
    found: Maker = value
    return found


def import_name(setting: str, value: str) -> Any:
    """Import ``module:Name``, also from the current directory."""
    module, _, name = value.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise InputError(f"{setting}={value!r}: the module cannot be imported: {error}.") from error
    except AttributeError as error:
        raise InputError(f"{setting}={value!r}: the module {module} has no {name!r}.") from error


def _as_json(value: Any) -> Any:
    """Return a setting as JSON; a custom part by its name and a checksum of its code.

    Numbers and strings that a function closes over count as code.
    """
    if value is None or isinstance(value, (bool, int, float, str, list, dict)):
        return value
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "item"):
        return value.item()
    named = value if hasattr(value, "__qualname__") else type(value)
    part = {"function": str(named.__qualname__)}
    cells = getattr(value, "__closure__", None) or ()
    around = [cell.cell_contents for cell in cells]
    around += getattr(value, "__defaults__", None) or ()
    plain = [each for each in around if isinstance(each, bool | int | float | str | None)]
    try:
        code = inspect.getsource(named) + repr(plain)
    except (OSError, TypeError):  # compiled code, or typed at a prompt
        return part
    return part | {"code": hashlib.sha256(code.encode()).hexdigest()[:12]}
