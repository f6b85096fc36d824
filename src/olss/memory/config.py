"""Every setting of a sketch, declared once: type, default, check and help text.

`olss.Sketch`, `olss.compress`, the command line, the saved JSON and the scikit-learn estimators
all take their settings from here, so that none of them can miss one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from olss.errors import InputError
from olss.util import checks

if TYPE_CHECKING:  # the command line reads the settings, and must start quickly
    from olss.memory.policies import Policy
    from olss.memory.rows import Array

COLUMN_KINDS = ("ignore", "number", "category")
SCORES = ("auto", "exact", "ridge", "sketched", "target", "target-number")

Check = Callable[[str, Any], Any]


def _setting(default: Any, check: Check, help: str, metavar: str = "") -> Any:
    """Declare a setting; None is allowed if it is the default."""
    metadata = {"check": check, "help": help, "metavar": metavar}
    return field(default=default, metadata=metadata)


def _check_size(name: str, value: Any) -> int | str:
    if isinstance(value, str) and value == "task":
        return value
    return checks.integer(name, value, alternative=" or 'task'")


def _check_policy(name: str, value: Any) -> Policy:
    from olss.memory.policies import resolve_policy

    return resolve_policy(value)


def _check_scores(name: str, value: Any) -> str | float:
    if isinstance(value, str) and value in SCORES:
        return value
    if isinstance(value, str) or value is None:
        raise InputError(
            f"scores must be one of {', '.join(map(repr, SCORES))}, or a number (the ridge), "
            f"found {value!r}."
        )
    return checks.number("scores, as a ridge,", value, minimum=0)


def _check_callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise InputError(f"{name} must be a function of rows, found {value!r}.")
    return value


def _check_names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} must be a list of column names, found {value!r}.")
    return tuple(str(checks.optional_column(name, entry)) for entry in value)


def _check_columns(name: str, value: Any) -> tuple[str, ...] | dict[str, str]:
    if not isinstance(value, Mapping):
        return _check_names(name, value)
    for column, kind in value.items():
        checks.optional_column(name, column)
        checks.choice(f"{name}[{column!r}]", kind, COLUMN_KINDS)
    return dict(value)


def _check_strata(name: str, value: Any) -> tuple[str, ...]:
    names = _check_names(name, [value] if isinstance(value, str) else value)
    if not names or len(set(names)) < len(names):
        raise InputError(f"{name} must name one column or several different ones, found {value!r}.")
    return names


def _check_bins(name: str, value: Any) -> int | dict[str, Any]:
    if not isinstance(value, Mapping):
        return checks.integer(name, value, minimum=2, alternative=" or a mapping of columns")
    return {str(column): _check_edges(f"{name}[{column!r}]", e) for column, e in value.items()}


def _check_edges(name: str, value: Any) -> int | tuple[float, ...]:
    """Return a number of bins, or the edges between them, ascending."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return checks.integer(name, value, minimum=2, alternative=" or a list of edges")
    edges = tuple(checks.number(name, edge) for edge in value)
    if not edges or any(b <= a for a, b in pairwise(edges)):
        raise InputError(f"{name} must be the edges between bins, ascending, found {value!r}.")
    return edges


def _check_holdout(name: str, value: Any) -> float:
    share = checks.number(name, value)
    if not 0 < share < 1:
        raise InputError(f"{name} must be a share, above 0 and below 1, found {value!r}.")
    return share


def _check_cosine(name: str, value: Any) -> float:
    return checks.number(name, value, above=0, maximum=1)


def _check_shape(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"{name} must be the shape of a row, such as (28, 28), found {value!r}.")
    return tuple(checks.integer(name, size) for size in value)


def _check_duration(name: str, value: Any) -> float:
    return checks.duration(name, value)[0]


def _one_of(*allowed: str) -> Check:
    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise InputError(
                f"{name} must be one of {', '.join(map(repr, allowed))}, found {value!r}."
            )
        return str(value)

    return check


@dataclass(frozen=True)
class Config:
    """The settings of a sketch; `olss.Sketch` documents them.

    Examples
    --------
    >>> Config.create(size=100, half_life="2d", time="day").half_life
    172800.0
    >>> Config.create(size=0)
    Traceback (most recent call last):
    olss.errors.InputError: size must be a positive integer or 'task', found 0.
    """

    size: int | Literal["task"] = _setting(MISSING, _check_size, "Rows to keep.")
    policy: Policy = _setting(
        "weighted",
        _check_policy,
        "Which rows are kept: weighted, reservoir, balanced, paper, recent.",
        "NAME",
    )
    scores: str | float = _setting(
        "auto",
        _check_scores,
        "Leverage scores: auto, exact, ridge, sketched, or a number, the ridge.",
        "NAME|RIDGE",
    )
    features: Callable[[Array], Array] | None = _setting(
        None, _check_callable, "Feature map: rows are scored by it."
    )
    half_life: float | None = _setting(
        None,
        _check_duration,
        "Rows count half after this many rows or, with --time, after this long (30d, 12h).",
        "ROWS|TIME",
    )
    window: float | None = _setting(
        None,
        _check_duration,
        "Forget everything older than this many rows, or this long.",
        "ROWS|TIME",
    )
    time: str | None = _setting(
        None, checks.optional_column, "Column with the time of each row.", "COL"
    )
    columns: tuple[str, ...] | dict[str, str] | None = _setting(
        None,
        _check_columns,
        "Columns to score (all are kept), or what some are: id=ignore,r=number,zip=category.",
        "A,B,...",
    )
    exclude: tuple[str, ...] = _setting(
        (), _check_names, "Columns not to score; all are kept.", "A,B,..."
    )
    intercept: bool = _setting(False, checks.boolean, "Score rows with a constant added.")
    new_columns: str = _setting(
        "error",
        _one_of("error", "keep", "ignore"),
        "Columns that earlier tables did not have: error, keep or ignore.",
        "WHAT",
    )
    missing_target: str = _setting(
        "error",
        _one_of("error", "drop", "keep"),
        "Rows without a target: error, drop or keep.",
        "WHAT",
    )
    strata: tuple[str, ...] | None = _setting(
        None,
        _check_strata,
        "Columns whose values, or combinations of values, each keep their share of the rows.",
        "A,B,...",
    )
    strata_share: float = _setting(
        0.5, checks.fraction, "Share of the rows that is divided evenly among strata.", "SHARE"
    )
    min_rows: int = _setting(
        0, partial(checks.integer, minimum=0), "Rows to keep of each stratum at least.", "ROWS"
    )
    bins: int | dict[str, int | tuple[float, ...]] | None = _setting(
        None, _check_bins, "Cut strata columns of numbers into so many bins.", "BINS"
    )
    holdout: float | None = _setting(
        None, _check_holdout, "Share of the rows that is set aside for judging models.", "SHARE"
    )
    group: str | None = _setting(
        None,
        checks.optional_column,
        "Column whose equal values are on the same side: customer, patient, machine.",
        "COL",
    )
    keep_index: bool = _setting(False, checks.boolean, "Keep the index of pandas frames.")
    moments: bool | None = _setting(
        None,
        checks.boolean,
        "Keep the moments of everything seen, which the certificate and exact models need.",
    )
    replicates: int = _setting(
        0,
        partial(checks.integer, minimum=0, maximum=999),
        "Columns of replicate weights in the file, for error bars in SQL and R; 80 is usual.",
        "N",
    )
    glm: str | None = _setting(
        None,
        _one_of("logistic", "poisson"),
        "Follow the gradient of a logistic or poisson model of the target.",
        "KIND",
    )
    near_duplicates: float | None = _setting(
        None,
        _check_cosine,
        "Merge rows whose cosine with a row held is at least this, such as 0.95 of embeddings.",
        "COS",
    )
    pad: tuple[int, ...] | None = _setting(
        None, _check_shape, "Largest row shape of arrays; smaller rows are zero-padded."
    )
    pad_y: tuple[int, ...] | None = _setting(None, _check_shape, "The same for the rows of y.")
    uses_dates: bool = field(default=False, metadata={"derived": True})

    @classmethod
    def create(cls, **given: Any) -> Config:
        """Return checked settings, or raise `InputError`."""
        given = {setting.name: setting.default for setting in settings()} | given
        return cls(**_check(given))._check_combination(given)

    def replace(self, **given: Any) -> Config:
        """Return these settings with some changed, all of them checked."""
        return replace(self, **_check(given))._check_combination(given)

    @cached_property
    def uses_target(self) -> bool:
        """Whether the scores use the target."""
        return self.scores in ("target", "target-number")

    @cached_property
    def leverage(self) -> str | float:
        """How leverage is scored."""
        return "auto" if self.uses_target else self.scores

    def target_is_class(self, name: str | None) -> bool | None:
        """Return whether `columns` says that the target is a class; None if it says nothing."""
        kind = self.columns.get(name or "") if isinstance(self.columns, dict) else None
        return None if kind not in ("number", "category") else kind == "category"

    @cached_property
    def forgets(self) -> bool:
        """Whether the age of a row matters."""
        return self.half_life is not None or self.window is not None

    def _check_combination(self, given: dict[str, Any]) -> Config:
        spans = {k: given[k] for k in ("half_life", "window") if given.get(k) is not None}
        timed = {k: value for k, value in spans.items() if checks.duration(k, value)[1]}
        if timed and self.time is None:
            name, value = next(iter(timed.items()))
            raise InputError(
                f"{name}={value!r} is a length of time and needs the time of each row: name its "
                f"column with time=, or give {name} as a number of rows."
            )
        if self.uses_target and self.policy.leverage_scope != "seen":
            raise InputError(
                f"scores={self.scores!r} needs the policy 'weighted', found {self.policy.name!r}."
            )
        if self.half_life is not None and not self.policy.supports_decay:
            raise InputError(
                f"half_life needs the policy 'weighted' or 'reservoir', found {self.policy.name!r}."
            )
        if self.time is not None and not self.forgets:
            raise InputError(
                f"time={self.time!r} is used by half_life or window; give one of them."
            )
        if self.replicates and not self.policy.knows_probabilities:
            raise InputError(
                "replicates needs known inclusion probabilities, which policy "
                f"{self.policy.name!r} does not have; use 'weighted' or 'reservoir'."
            )
        if self.near_duplicates is not None and self.window is not None:
            raise InputError("near_duplicates is not supported with window=; use half_life=.")
        self._check_strata()
        self._check_sides()
        if self.glm is not None:
            if self.window is not None:
                raise InputError(f"glm={self.glm!r} is not supported with window=; use half_life=.")
            if self.moments is False:
                raise InputError(f"glm={self.glm!r} needs moments, found moments=False.")
            if self.features is not None and not self.moments:
                raise InputError(
                    f"glm={self.glm!r} with features= needs moments=True, which says that the map "
                    "never changes."
                )
            if not self.policy.mergeable:
                raise InputError(
                    f"glm needs a policy that records what a row stands for, such as 'weighted', "
                    f"found {self.policy.name!r}."
                )
        if spans and "uses_dates" not in given:
            return replace(self, uses_dates=bool(timed))
        return self

    def _check_strata(self) -> None:
        if self.strata is None:
            for name, value in (("min_rows", self.min_rows or None), ("bins", self.bins)):
                if value is not None:
                    raise InputError(f"{name}={value!r} needs strata=, the columns of the strata.")
            return
        if not self.policy.supports_strata:
            raise InputError(
                f"strata needs the policy 'weighted' or 'reservoir', found {self.policy.name!r}."
            )
        if self.size != "task" and self.min_rows > self.size:
            raise InputError(f"min_rows must be at most size={self.size}, found {self.min_rows}.")
        for name in self.bins if isinstance(self.bins, dict) else ():
            checks.column("bins", name, self.strata)

    def _check_sides(self) -> None:
        if self.holdout is None:
            if self.group is not None:
                raise InputError(f"group={self.group!r} needs holdout=, the share of the hold-out.")
            return
        if self.size == "task" or self.size < 2:
            raise InputError(
                f"holdout needs a size of at least 2 rows, for both sides, found {self.size!r}."
            )


def settings() -> Iterator[Field[Any]]:
    """Yield the declared settings, in order; `metadata` has check, help and metavar."""
    return (entry for entry in fields(Config) if not entry.metadata.get("derived"))


def _check(given: dict[str, Any]) -> dict[str, Any]:
    known = {entry.name: entry for entry in fields(Config)}
    checked = {}
    for name, value in given.items():
        setting = known[checks.choice("settings", name, known)]
        if value is MISSING:
            raise InputError(f"{name} must be given.")
        check = setting.metadata.get("check")
        optional = value is None is setting.default
        checked[name] = value if check is None or optional else check(name, value)
    return checked
