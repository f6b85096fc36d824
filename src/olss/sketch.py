"""The sketch: a constant-size training set of everything seen so far."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import dense_array, is_masked, to_numpy
from olss.diagnostics.certificate import Certificate, certify, certify_target
from olss.diagnostics.describe import Description, UnusualRow, find_unusual_rows, render_html
from olss.diagnostics.drift import Drift, drift_of
from olss.diagnostics.estimates import (
    Estimate,
    Estimates,
    add_known_counts,
    code_groups,
    estimate,
    typical_error,
)
from olss.diagnostics.linear_models import (
    LinearModel,
    MomentsView,
    fit_linear_model,
    view_moments,
)
from olss.diagnostics.monitor import Monitor, create_monitor
from olss.diagnostics.select import (
    chosen_rows,
    group_labels,
    known_totals,
    numbers_of,
    rows_at,
)
from olss.errors import InputError
from olss.memory import engine, sketch_file
from olss.memory.config import Config
from olss.memory.encoder import Encoder, read_target
from olss.memory.holdout import is_held_out, take_side
from olss.memory.intake import is_missing
from olss.memory.kept_rows import KeptRows
from olss.memory.policies import Policy, resolve_policy
from olss.memory.pool import Choice, Pool
from olss.memory.rows import (
    EXTRA,
    Array,
    Floats,
    Indices,
    RowStore,
    take,
)
from olss.memory.state import State, create_generator
from olss.memory.strata import class_keys, count_rows, value_key
from olss.statistics import (
    StatisticEstimate,
    StatisticEstimates,
    adjust_for_units,
    bind_metric,
    evaluate,
    evaluate_groups,
    takes_target,
)
from olss.tables.class_labels import class_labels
from olss.util import checks
from olss.util.files import is_address, read_tag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Sketch", "config_of", "state_of"]

Change = Callable[..., State]
FEW_ROWS = 16  # an update of so few rows is buffered at little cost
FRAMES = ("pandas", "polars", "arrow")


class _Few:
    """Updates of a few rows each, not looked at any further yet."""

    def __init__(self) -> None:
        self.parts: list[tuple[NDArray[Any], NDArray[Any] | None, int]] = []
        self.room: int | None = None  # rows that may wait, once it is known

    @property
    def count(self) -> int:
        """Rows in all parts: each part comes with the count up to it."""
        return self.parts[-1][2] if self.parts else 0

    def concat(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return all rows and their targets."""
        targets = [y for _, y, _ in self.parts if y is not None]
        rows = np.concatenate([rows for rows, _, _ in self.parts])
        return rows, np.concatenate(targets) if targets else None


class Sketch(KeptRows):
    """A constant-size training set of everything seen so far.

    Pass it data as it arrives, arrays or tables; it keeps at most `size` rows, chosen by a policy.
    Train any model on ``sketch.X, sketch.y``.

    Parameters
    ----------
    size : int or "task"
        Rows to keep. ``"task"``: as many as the latest update has, as in the paper, where each
        update is one task. ``sketch.size`` may be changed between updates.
    policy : str, Policy or callable
        Which rows stay.

        - ``"weighted"``: by leverage in everything seen, unbiased for it.
        - ``"balanced"``: the same number of rows for each task and class, and of each those that
          represent it best; ``"balanced-leverage"`` and ``"balanced-random"`` choose inside a
          class by leverage and at random.
        - ``"reservoir"``: a uniform sample of everything seen.
        - ``"paper"``: Algorithm 1 of the paper; old tasks fade.
        - ``"recent"``: the last rows.
        - or a custom one; see `olss.memory.policies`.
    scores : {"auto", "exact", "ridge", "sketched", "target", "target-number"} or float
        The leverage scores, for policies that use any. ``"ridge"`` chooses a ridge that leaves an
        effective dimension of about size/20; a number is a ridge of that value; ``"sketched"`` is
        faster and approximate. ``"auto"`` is exact for ``"paper"`` and wherever the sketch has at
        least twice as many rows as features, else ridge: without one, all rows of a small sketch
        score alike. ``"target"``, for ``"weighted"``: half of the leverage is replaced by residual
        scores, how badly a model of the target predicts a row (see
        `olss.core.residual_scores`): better rows for linear and logistic models of that one
        target, if there are five to ten or more rows for each scored column, worse ones for
        anything else. The model is logistic if `y` is a class, else linear; ``"target-number"``
        makes it linear for counts and grades, too.
    features : callable, optional
        Feature map: rows are scored by ``features(X)``, an array (n, k), instead of X; for
        instance a network's last hidden layer. It is called with at most 4,096 rows at a time, and
        again at each update for the rows held, because networks change.
    half_life : float, str or timedelta, optional
        Decay: after this many rows a row counts half; with `time`, after this long ("30d", "12h",
        or a number in the units of the column, seconds for dates). For ``"weighted"`` and
        ``"reservoir"``. Weights, moments and estimates are those of the decayed stream.
    window : int, str or timedelta, optional
        Forget everything older than this many rows, or this long. Moments, and with them the
        certificate and exact models, leave it in sixteenths: they are those of the window and up to
        a sixteenth of it more.
    time : str, optional
        The column with the time of each row: of the table, or in `extra`.
    columns : sequence of str, or mapping of str to str, optional
        Tables: the columns to score; all are kept. Or how some columns are used, ``{"id": "ignore",
        "rating": "number", "zip": "category"}``, the target included ("number" or "category"); the
        first rows decide the others. See `olss.tables.encoder` for how dates, strings and missing
        values are encoded.
    exclude : sequence of str, optional
        Tables: the columns not to score.
    intercept : bool
        Tables: whether rows are scored with a constant added, so that the origin of a column does
        not matter.
    new_columns : {"error", "keep", "ignore"}
        Tables: what to do with columns that earlier tables did not have. Kept columns are missing
        in earlier rows, and are not scored.
    missing_target : {"error", "drop", "keep"}
        What to do with rows whose target is missing.
    strata : str or sequence of str, optional
        Columns whose values, or combinations of values, are strata: each keeps its share of the
        rows, however rare it is. ``"y"`` is the target, or name it; or columns of the table, in
        `extra`, or ``"task"``. For ``"weighted"`` and ``"reservoir"``. Weights and estimates stay
        unbiased, and the count of rows seen of each stratum is exact. Missing values form their own
        stratum; numbers that are not integers need `bins`. With more strata than rows, strata keep
        a row by chance, and a warning is issued.
    strata_share : float
        The share of the rows that is divided evenly among strata; the others are chosen as without
        strata. 1 is a stratified sample.
    min_rows : int
        Least number of rows to keep of each stratum, on average, or all of a smaller one:
        `strata_share` is raised as far as necessary.
    bins : int, or mapping of str to int or sequence of float, optional
        Cut numeric strata columns into so many bins, at quantiles of the first rows, or at given
        edges: ``{"amount": [10, 100, 1_000]}``.
    holdout : float, optional
        Share of `size`, and of the stream, that is set aside for evaluation: see `holdout` and
        `evaluate`. A hash of its contents, without the target, decides on which side a row is, so
        the side is the same in every update, file, run and machine. ``sketch.X``, the moments and
        `linear_model` exclude the rows held out; `estimate`, counts of strata and classes, `drift`
        and saved files include them, and the weights of both sides together stand for everything
        seen. The hold-out is a uniform sample of its side, or with strata a stratified one,
        whatever the policy.
    group : str, optional
        With `holdout`: a column, of the table or in `extra`, whose equal values are on the same
        side, such as ``"customer"``. A row without a value is its own group. Also name one where
        rows take few distinct values, because identical rows are on the same side.
    keep_index : bool
        pandas frames: whether to keep the index, as columns.
    moments : bool, optional
        Whether to keep the Gram matrix of everything seen, which `error` needs. By default it is
        kept if the policy scores by it: ``"weighted"`` without a feature map. With a feature map,
        ``True`` declares that the map is frozen; certificate and exact models are then those of its
        features.
    replicates : int
        How many columns of replicate weights, ``olss_rep_001`` and so on, `save` writes beside the
        rows, for standard errors in other programs; see `replicate_weights`.
    glm : {"logistic", "poisson"}, optional
        Whether to follow a logistic model of classes, or a Poisson model of counts, through the
        stream: each update refits it to the kept and some of the new rows, and adds up gradient
        and curvature of the new ones (`olss.core.gradient_trace`). `linear_model` is then much
        closer to the fit to all rows than a fit to the kept rows alone; updates take two to five
        times as long. Set it before the first row; it is not supported with window=.
    near_duplicates : float, optional
        Merge near-duplicates, such as embeddings of nearly the same text: a new row whose cosine
        with a held row is at least this is not kept; its weight is added to that of the held row.
        Rows of different tasks, targets or strata are not merged.
    pad : tuple of int, optional
        Arrays: the largest row shape that will come; smaller rows are zero-padded at the end of
        each dimension. Without it all rows must have the same shape.
    pad_y : tuple of int, optional
        The same for the rows of `y`.
    seed : int, numpy.random.Generator or None
        Seed of the random numbers. The same seed and data give the same bytes with the same BLAS
        and number of threads; sums in another order round differently, which may change a row after
        many updates.

    Attributes
    ----------
    X, y, task, weight, index : arrays of len(sketch) rows
        The rows kept and, aligned with them, their targets (or None), tasks, weights (how many of
        the rows seen each stands for), and positions in the stream, counted from 0. Rows are in the
        order in which they came. X is a read-only array; tensors and the other arrays are copies.
        If tables came in, X is a frame of the same kind, and y a column.
    extra : dict of str to array
        The extra columns.
    seen : int
        Rows seen so far.

    Examples
    --------
    >>> import numpy as np, olss
    >>> rng = np.random.default_rng(0)
    >>> sketch = olss.Sketch(size=100, seed=0)
    >>> for task in range(3):
    ...     X = rng.standard_normal((1_000, 5)) + task
    ...     _ = sketch.update(X, y=X[:, 0] > task, task=task)
    >>> sketch
    Sketch(size=100, policy='weighted': 100 rows of 3,000 seen, 3 tasks)
    >>> sketch.X.shape, sketch.y.shape
    ((100, 5), (100,))

    A table of any columns:

    >>> table = {"carrier": ["UA", "AA", None, "UA"], "delay": [3.0, None, 7.0, 8.0]}
    >>> olss.Sketch(size=3, policy="recent").update(table).X
    {'carrier': ['AA', None, 'UA'], 'delay': [None, 7.0, 8.0]}
    """

    def __init__(
        self,
        size: int | Literal["task"],
        policy: str | Policy | Callable[[Pool, np.random.Generator], Choice] = "weighted",
        *,
        scores: str | float = "auto",
        features: Callable[[Array], Array] | None = None,
        half_life: float | str | timedelta | None = None,
        window: float | str | timedelta | None = None,
        time: str | None = None,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        exclude: Sequence[str] = (),
        intercept: bool = False,
        new_columns: str = "error",
        missing_target: str = "error",
        strata: str | Sequence[str] | None = None,
        strata_share: float = 0.5,
        min_rows: int = 0,
        bins: int | Mapping[str, int | Sequence[float]] | None = None,
        holdout: float | None = None,
        group: str | None = None,
        keep_index: bool = False,
        moments: bool | None = None,
        replicates: int = 0,
        glm: str | None = None,
        near_duplicates: float | None = None,
        pad: tuple[int, ...] | None = None,
        pad_y: tuple[int, ...] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "seed")}
        config = Config.create(**given)
        encoder = Encoder(features=config.features, intercept=config.intercept)
        self._start(config, State(create_generator(seed), encoder=encoder))

    @classmethod
    def _of(cls, config: Config, state: State) -> Self:
        sketch = cls.__new__(cls)
        sketch._start(config, state)
        return sketch

    def _start(self, config: Config, state: State) -> None:
        self._config = config
        # The state, and the few rows buffered since; replaced in one step.
        self._now = (state, _Few())
        self._reset_caches()

    def _reset_caches(self) -> None:
        self._tags: dict[str, str] = {}  # of objects in buckets that this sketch is a version of
        self._lock = threading.RLock()
        # The state it was made from, with no rows pending, and with the rows of each side.
        self._view: tuple[State, State, State, State] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_config": self._config, "_now": self._now}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset_caches()

    def __copy__(self) -> Self:
        return self.copy()

    def __repr__(self) -> str:
        tasks = len(np.unique(self.task)) if len(self) else 0
        return (
            f"Sketch(size={self.size!r}, policy={self.policy.name!r}: {len(self):,} rows of "
            f"{self.seen:,} seen, {tasks} task{'' if tasks == 1 else 's'})"
        )

    @property
    def _buffered(self) -> State:
        """The state as it is, with pending rows."""
        with self._lock:
            state, few = self._now
            if few.parts:
                self._now = (engine.update(self._config, state, *few.concat()), _Few())
            return self._now[0]

    @property
    def _state(self) -> State:
        """The state as users see it: pending rows are included, and stay pending.

        Looking changes nothing: rows that wait are drawn from here with a copy of the generator,
        and will be drawn from again, with those that come until then.
        """
        state = self._buffered
        view = self._view
        if view is None or view[0] is not state:
            flushed = engine.flush(self._config, state)
            train, out = (take_side(self._config, flushed, held_out=side) for side in (False, True))
            view = self._view = (state, flushed, train, out)
        return view[1]

    def _side(self, *, held_out: bool) -> State:
        """Return the state with the rows to train on, or with those held out."""
        flushed, view = self._state, self._view
        if view is not None and view[1] is flushed:  # no other thread has updated the sketch
            return view[3 if held_out else 2]
        return take_side(self._config, flushed, held_out=held_out)

    def _kept(self) -> State:
        return self._side(held_out=False)

    def _change(self, change: Change, *arguments: Any) -> None:
        """Replace the state by ``change(config, state, *arguments)``, or leave it as it is."""
        before = after = None
        try:
            with self._lock:
                _ = self._buffered
                before = self._now
                after = (change(self._config, before[0], *arguments), _Few())
                self._now = after
        except BaseException:
            with self._lock:  # an interrupt may come right after that step
                if after is not None and self._now is after and before is not None:
                    self._now = before
            raise

    @property
    def size(self) -> int | Literal["task"]:
        """Rows to keep, or "task"; set to less than are held, the policy is asked which stay."""
        return self._config.size

    @size.setter
    def size(self, size: int | Literal["task"]) -> None:
        config = self._config.replace(size=size)
        if config.size == self._config.size:
            return
        self._reconfigure(config, lambda state: engine.shrink(config, state))

    @property
    def policy(self) -> Policy:
        """Which rows stay."""
        return self._config.policy

    @property
    def features(self) -> Callable[[Array], Array] | None:
        """The feature map; may be set, to continue a loaded sketch with a custom one.

        With ``moments=True`` it must be the function that the sketch began with.
        """
        return self._config.features

    @features.setter
    def features(self, features: Callable[[Array], Array] | None) -> None:
        if self._config.moments and self.seen and (features is None) != (self.features is None):
            raise InputError(
                "features cannot be set or removed once moments are kept of other columns; begin a "
                "new sketch."
            )
        self._reconfigure(
            self._config.replace(features=features),
            lambda state: state.replace(encoder=replace(state.encoder, features=features)),
        )

    def _reconfigure(self, config: Config, change: Callable[[State], State]) -> None:
        with self._lock:
            state = change(engine.flush(self._config, self._buffered))
            self._now, self._config = (state, _Few()), config

    @property
    def scores(self) -> str | float:
        """The leverage scores used."""
        return self._config.scores

    @property
    def holdout(self) -> KeptRows:
        """The rows held out: ``X``, ``y``, ``weight``, ``index`` and so on, as of a sketch.

        A weight is the number of rows on that side of the stream that a row stands for.

        Examples
        --------
        >>> X = np.random.default_rng(0).standard_normal((10_000, 2))
        >>> sketch = Sketch(500, "reservoir", holdout=0.2, seed=0).update(X, y=X[:, 0] > 1)
        >>> len(sketch), len(sketch.holdout), np.intersect1d(sketch.index, sketch.holdout.index)
        (400, 100, array([], dtype=int64))
        >>> round(sketch.weight.sum() + sketch.holdout.weight.sum())
        10000
        """
        self._check_holdout("holdout")
        return KeptRows(self._side(held_out=True))

    def evaluate(
        self,
        model: Any,
        metric: str | Callable[..., float],
        *,
        replicates: int = 200,
        seed: int = 0,
    ) -> StatisticEstimate:
        """Return the score of a model over everything seen, with an interval, by the hold-out.

        The interval is for the score on all rows seen, had none been used to fit the model. It
        accounts for groups, and identical rows, being held out together. It says nothing about
        another model, fitted to other rows.

        Parameters
        ----------
        model : estimator, or callable
            An object with ``predict``, or a function of rows ``X`` that returns predictions.
        metric : str or callable
            The name of a scorer of scikit-learn, such as ``"average_precision"`` or
            ``"neg_log_loss"``, for its estimators; or a function
            ``metric(y, predictions, sample_weight=...)``, as those in ``sklearn.metrics`` are.
        replicates, seed : int
            How many replicate weights, and the seed of their random numbers.

        Returns
        -------
        StatisticEstimate
            With ``value``, ``se`` and ``interval(level=0.95)``.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((20_000, 3))
        >>> y = X[:, 0] + rng.standard_normal(20_000) > 0
        >>> sketch = Sketch(size=2_000, holdout=0.25, seed=0).update(X, y)
        >>> def accuracy(y, predicted, sample_weight):
        ...     return np.average(y == predicted, weights=sample_weight)
        >>> found = sketch.evaluate(lambda X: X[:, 0] > 0, accuracy)
        >>> low, high = found.interval()
        >>> bool(low < accuracy(y, X[:, 0] > 0, None) < high)
        True
        """
        self._check_holdout("evaluate")
        state = self._side(held_out=True)
        count = checks.integer("replicates", replicates, minimum=2)
        if "y" not in state.rows or not len(state.rows):
            raise InputError("evaluate needs rows held out that have a target y; found none.")
        weights = engine.holdout_weights(self._config, state, count, checks.seed(seed))
        there = np.flatnonzero(~is_missing(state.rows["y"]))
        out, weights = state.rows.take(there), weights[there]
        rows = KeptRows(state.replace(rows=out))
        score = bind_metric(model, metric, rows.X, np.asarray(rows.y))
        weight, all_rows = out["weight"], np.ones(len(out), dtype=bool)
        if np.isnan(np.asarray(score(weight), dtype=np.float64)).any():
            raise InputError(
                f"metric {getattr(metric, '__name__', metric)!r} returned NaN for the {len(out)} "
                "rows held out; some metrics need all classes among them. Use a larger holdout= or "
                "size, or strata='y' for a rare class."
            )
        found = evaluate(lambda _, w: score(w), rows.X, None, weight, weights, all_rows)
        units = np.unique(out["key"], return_inverse=True)[1]
        return adjust_for_units(found, weight, weights, units)

    def _check_holdout(self, question: str) -> None:
        if self._config.holdout is None:
            raise InputError(
                f"{question} needs a hold-out, which is set aside from the first row on; create "
                "the sketch with holdout=0.2."
            )

    def _check_both_sides(self, values: Any, by: Any, where: Any, calibrate: bool = False) -> None:
        """Raise `InputError` for what is not said of the rows of both sides."""
        if self._config.holdout is None:
            return
        if calibrate:
            raise InputError(
                "calibrate is not supported with holdout=: the known totals are those of one side."
            )
        for name, given, kinds in (
            ("values", values, str),
            ("by", by, str | tuple),
            ("where", where, Mapping),
        ):
            if given is not None and not (callable(given) or isinstance(given, kinds)):
                raise InputError(
                    f"{name} must be given by column names with holdout=, because it also applies "
                    f"to the rows held out; found {type(given).__name__}."
                )

    @property
    def seen(self) -> int:
        """Rows seen so far."""
        state, few = self._now
        return state.seen + few.count

    def update(
        self,
        rows: Any,
        y: Any = None,
        task: Any = None,
        weight: Any = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Self:
        """Ingest rows, and keep what the policy chooses of them and of the rows held.

        A failed call leaves the sketch unchanged. Several threads may update one sketch; they wait
        for each other. Small updates are buffered until about a thousand rows have come and are
        then sampled together; buffered rows are part of everything the sketch returns.

        Parameters
        ----------
        rows : array (n, ...), or a table
            NumPy, torch or SciPy sparse rows of any real dtype, kept as they are: uint8 images stay
            uint8, tensors stay on their device, NaN stays NaN. Or a pandas or polars frame, a
            pyarrow table, a mapping of columns, or anything with ``__arrow_c_stream__``; later
            tables may have their columns in another order.
        y : array (n,) or (n, ...), or a column's name, optional
            Labels (numbers or strings), one-hot rows, or real targets of any shape. Of a table: the
            name of the target column, or a column, or a frame of one.
        task : int, str or array (n,) of them, optional
            The task the rows belong to. By default that of the last update, 0 at the start; so a
            stream without tasks is one task. ``"auto"``: a new task, numbered one higher, begins
            where an update brings rows unlike those held of the current task (see `novelty`).
            Under ``"weighted"`` and ``"reservoir"``, one in a thousand updates that bring nothing
            new is mistaken for a new task; under ``"paper"`` fewer, under ``"balanced"`` some more.
        weight : float or array (n,), optional
            How much each row counts, 1 by default: for rows with counts, or rows that are already a
            sample or a sketch of others.
        extra : mapping of str to array (n, ...), optional
            Extra columns to keep with the rows: identifiers, times.

        Returns
        -------
        Sketch
            The sketch itself.
        """
        if task is None and weight is None and extra is None and self._buffer_few(rows, y):
            return self
        self._change(engine.update, rows, y, task, weight, extra)
        return self

    def _buffer_few(self, rows: Any, y: Any) -> bool:
        """Buffer a few rows that are just like those pending, at little cost, if they are."""
        if type(rows) is not np.ndarray or is_masked(y):
            return False
        with self._lock:
            state, few = self._now
            if not state.pending:
                return False
            template = state.pending[0]
            if few.room is None:
                has_extra = any(name.startswith(EXTRA) for name in template)
                few.room = 0 if has_extra else engine.buffer_room(state, template)
            target = None if y is None else np.array(y)
            fits = few.count + len(rows) < few.room if rows.ndim else False
            if not (fits and _is_like(rows, template["X"]) and _is_like(target, template.get("y"))):
                return False
            if target is not None and len(target) != len(rows):
                return False
            few.parts.append((rows.copy(), target, few.count + len(rows)))
            return True

    def flush(self) -> Self:
        """Sample the buffered rows now instead of together with later ones.

        Between two small updates, the rows a sketch returns may differ by more than the new ones,
        because buffered rows are sampled again. After `flush`, rows that are not held are gone. Use
        it if you store something for each row.
        """
        self._change(engine.flush)
        return self

    def merge(self, other: Sketch) -> Self:
        """Merge another sketch, so that this one is a sketch of both histories.

        The rows of the other sketch count as coming after those of this one: their `index`
        continues from `seen`. Sketches to be merged should have different seeds. The other sketch
        is not changed. Rows are sampled by the scores of this sketch; with ``scores="target"``, by
        a model of the rows of both.

        The encoding of a table's columns is fitted to the first rows. If the other sketch began
        with other rows, and has since seen strings or missing values that only the encoding of this
        one distinguishes, the common Gram matrix is unknown and is dropped, with a warning: `error`
        and ``calibrate=True`` are not available afterwards. Weights and other estimates remain
        valid.

        ``"paper"`` and ``"recent"`` do not record how many rows a row stands for, so their sketches
        cannot be merged.
        """
        if not isinstance(other, Sketch):
            raise InputError(f"other must be a Sketch, found {type(other).__name__}.")
        if self.policy != other.policy:
            raise InputError(
                f"other must have the same policy, found {self.policy.name!r} and "
                f"{other.policy.name!r}."
            )
        if not self.policy.mergeable:
            raise InputError(
                f"policy {self.policy.name!r} does not record how many rows each row stands for, "
                "so its sketches cannot be merged; use 'weighted', 'reservoir' or 'balanced'."
            )
        mine, theirs = self._config, other._config
        for name, a, b in (
            ("half_life", mine.half_life, theirs.half_life),
            ("window", mine.window, theirs.window),
            ("time", mine.time, theirs.time),
            ("strata", mine.strata, theirs.strata),
            ("holdout", mine.holdout, theirs.holdout),
            ("group", mine.group, theirs.group),
        ):
            if a != b:
                raise InputError(f"other must have the same {name}, found {a!r} and {b!r}.")
        their_state = other._state  # before this one is locked: two may merge each other
        self._change(engine.merge, their_state)
        return self

    def remove(self, index: Any = None, *, where: Any = None) -> int:
        """Remove rows for good; their memory is overwritten.

        The other rows and their weights stay as they are. Under ``"weighted"`` and ``"reservoir"``
        they remain an unbiased sketch of all rows seen but those removed. The removed rows are
        subtracted from the moments; rows of the same person that were dropped earlier are still in
        them, as part of a sum.

        Parameters
        ----------
        index : int or array of int, optional
            Positions in the stream, as in ``sketch.index``. Those of rows that are no longer held
            are skipped.
        where : mapping of str to value, or boolean array, optional
            Instead: a column (of the table, in `extra`, or "task") and the value, or the list of
            values, or a range such as ``("<", 5)``, of rows to remove; several columns must all
            match. Or which rows to remove.

        Returns
        -------
        int
            Number of rows removed. Arrays taken from the sketch before show zeros in their place.
            If an interrupt comes while their memory is overwritten, the rows are removed
            nevertheless.

        Examples
        --------
        >>> sketch = Sketch(size=10).update(np.eye(3), extra={"person": ["ann", "bob", "ann"]})
        >>> sketch.remove(where={"person": "ann"})
        2
        """
        if (index is None) == (where is None):
            raise InputError("remove needs either index or where.")
        self._check_both_sides(None, None, where)
        removed: Indices = np.zeros(0, dtype=np.int64)
        replaced: list[RowStore] = []

        def without(config: Config, state: State) -> State:
            nonlocal removed, replaced
            flushed = engine.flush(config, state)
            gone = chosen_rows(flushed, where) if index is None else rows_at(flushed, index)
            if not gone.any():
                return state
            removed = flushed.rows["index"][gone]
            replaced = [state.rows, flushed.rows, *state.waiting]
            if self._view is not None:
                replaced += [part.rows for part in self._view[1:]]
            return engine.remove(config, flushed, gone)

        with self._lock:
            self._change(without)
            self._view = None
            for store in {id(store): store for store in replaced if len(store)}.values():
                store.wipe(np.flatnonzero(np.isin(store["index"], removed)))
        return len(removed)

    def copy(self) -> Self:
        """Return an independent copy; it shares only the policy and the feature map."""
        state = self._buffered
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        other._start(
            self._config,
            state.replace(
                rows=state.rows.take(np.arange(len(state.rows))),
                candidates=tuple(part.take(np.arange(len(part))) for part in state.candidates),
                pending=tuple(part.take(np.arange(len(part))) for part in state.pending),
            ),
        )
        return other

    def batches(
        self, size: int, *, shuffle: bool = True, seed: int | np.random.Generator | None = None
    ) -> Iterator[tuple[Array, Array | None]]:
        """Yield copies of the rows as (X, y) batches of `size`, each row once.

        Parameters
        ----------
        size : int
            Rows a batch; the last one may be smaller.
        shuffle : bool
            Whether to shuffle, rather than keep the order of ``sketch.X``.
        seed : int or numpy.random.Generator, optional
            For the order. The sketch's own random numbers are not used.
        """
        size = checks.integer("size", size)
        state = self._kept()
        rows, table = state.rows, state.table
        order = np.arange(len(rows))
        if shuffle:
            np.random.default_rng(seed).shuffle(order)
        for start in range(0, len(rows), size):
            at = order[start : start + size]
            X, y = take(rows["X"], at), take(rows["y"], at) if "y" in rows else None
            if table is not None:
                X, y = table.frame(X), None if y is None else table.column(y)
            yield X, y

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketch to one Parquet file, whole or not at all.

        pandas, polars and DuckDB open it as a table of X (a list per row), y, olss_task,
        olss_weight, olss_index and the extra columns. `load` reads it and continues byte for byte
        as if the sketch had never been saved. A custom policy or feature map is not saved.

        An object in a bucket (``s3://...``) that this sketch was loaded from, or saved to before,
        is not overwritten if someone else has written it since; `OlssError` is raised then.
        """
        with self._lock:
            content = self._config, self._state, self._buffered
            if isinstance(path, str) and is_address(path):
                tag = self._tags.get(path)
                self._tags[path] = sketch_file.write_object(path, *content, tag)
            else:
                sketch_file.write(path, *content)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        policy: str | Policy | Callable[[Pool, np.random.Generator], Choice] | None = None,
        features: Callable[[Array], Array] | None = None,
        device: Any = None,
        frame: Literal["pandas", "polars", "arrow"] | None = None,
    ) -> Self:
        """Read a sketch that `save` or `olss.compress` wrote.

        Parameters
        ----------
        path : path
        policy, features : callable, optional
            The custom policy or feature map the sketch was created with. Without it the rows can be
            read, but not updated.
        device : torch device, optional
            Where to put tensors; the host by default.
        frame : {"pandas", "polars", "arrow"}, optional
            The kind of frame that rows are returned as. By default the kind that came in; for
            files made by `olss.compress` pandas, where it is installed, else Arrow.
        """
        custom = None if policy is None else resolve_policy(policy)
        # Before reading: what is written meanwhile is noticed when saving.
        tag = read_tag(path) if isinstance(path, str) and is_address(path) else None
        config, state = sketch_file.read(path, custom, features, device)
        sketch = cls._of(config, _with_library(state, frame))
        if tag is not None:
            sketch._tags[str(path)] = tag
        return sketch

    def describe(self) -> Description:
        """Return what is held: rows per task and class, weights, what is scored, memory.

        It prints as text, and shows as a table in a notebook.

        Examples
        --------
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> Sketch(size=4, policy="reservoir", seed=0).update(X, y=list("aabbab")).describe()
        4 rows of 6 seen
        weights 1.5 to 1.5, mean 1.5; worth 4 rows of equal weight
        scored: nothing; the policy needs no scores
        memory: rows 240 B
        task  rows  stand for  a  b
           0     4          6  2  2
        """
        state = self._held()
        return Description.of(self._config, state, _classes(state))

    def plot(self) -> Figure:
        """Return a matplotlib figure: rows by task and class, weights, and the stream.

        For each stretch of the stream it shows the rows kept, and what they stand for, as shares of
        the rows seen there. Save it with ``figure.savefig("sketch.png")``; a notebook shows it.
        """
        from olss.diagnostics.describe import plot_sketch

        described = self.describe() if len(self) else None
        return plot_sketch(self._kept(), described, self.policy.mergeable)

    def _repr_html_(self) -> str:
        return render_html(repr(self), self.describe() if len(self) else None)

    def error(self) -> Certificate:
        """Return how far the sketch is from everything seen, and what that guarantees.

        The Gram matrix of the rows held, weighted, is compared with that of everything seen, which
        a sketch keeps where its policy scores by it, or with ``moments=True``. For tables it is
        that of the encoded columns and a constant. Policies without weights are compared up to a
        scale. If the target's products with the columns are known, `target_relative` is the error
        with the target as a further column, so that its least squares fit is covered. Policies that
        know inclusion probabilities also report how far totals and counts of groups are typically
        off, and what size would halve that.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> sketch = Sketch(size=500, seed=0).update(rng.standard_normal((20_000, 5)))
        >>> 0 < sketch.error().relative < 0.3
        True
        """
        state = self._held()
        if state.moments is None:
            raise InputError(
                "error needs the moments of everything seen, which this sketch does not have. "
                "Create it with moments=True (with features=, only if the map never changes); "
                "merging with a sketch that encoded its columns differently drops them, too."
            )
        up_to_scale = not self.policy.mergeable
        X, weight, encoder = state.rows["X"], state.rows["weight"], state.encoder
        blocks = encoder.rows(X, weight, find_nan=True)
        found = certify(state.moments, [blocks], up_to_scale=up_to_scale, names=encoder.labels)
        found = replace(
            found,
            typical=typical_error(self._config, self._state),
            is_window=self._config.window is not None,
        )
        target = read_target(state.rows.get("y"), is_class=bool(state.has_classes))
        if target is None or math.isinf(found.relative):
            return found
        name = "y" if state.table is None else str(state.table.target)
        blocks = encoder.rows(X, weight, find_nan=True)
        error = certify_target(state.moments, blocks, target, up_to_scale=up_to_scale)
        return replace(found, target=name, target_relative=error)

    def linear_model(
        self,
        target: str | int | None = None,
        kind: str = "auto",
        ridge: float | Literal["auto"] = "auto",
    ) -> LinearModel:
        """Return a linear model of everything seen.

        The kinds "ridge", "least-squares", "discriminant" and "ridge-classifier" need no rows: they
        are functions of the moments, and equal the fit to all rows up to rounding. "logistic" and
        "poisson" are fitted to the kept rows, weighted, and corrected by the moments of all rows; a
        correction that makes the loss of the kept rows worse than chance allows is not used, and
        the model's `note` says so.

        Parameters
        ----------
        target : str or int, optional
            What to predict: by default the sketch's target; or a scored column of a table by its
            name, of an array by its number, from all others.
        kind : {"auto", "ridge", "least-squares", "discriminant", "ridge-classifier", "logistic", \
"poisson"}
            "auto" is "ridge" for numbers and "logistic" for classes. Three classes or more are
            modelled one against the rest by "logistic".
        ridge : float or "auto"
            The penalty on the squared coefficients, never on the intercept: of an array's columns
            as they are, of a table's divided by their spread. "auto" is chosen by generalised
            cross-validation for "ridge" and "ridge-classifier", is 0 for "discriminant", and 1 for
            "logistic" and "poisson".

        Notes
        -----
        Rows without a target (``missing_target="keep"``) are not in the model. Missing values count
        as they are scored: filled with the median of the first rows, with an indicator where there
        were any. Needs moments, as `error` does, of up to 4,096 columns, or of more if the
        environment variable OLSS_GRAM_MB, 128 by default, allows a larger Gram matrix.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((10_000, 3))
        >>> y = 2 + X @ np.array([1.0, 0.0, -3.0]) + rng.standard_normal(10_000)
        >>> model = Sketch(size=50, seed=0).update(X, y).linear_model()
        >>> model.exact, round(model.r2, 2), round(model.coefficients["column 2"], 1)
        (True, 0.91, -3.0)
        """
        return fit_linear_model(self._config, self._held(), target, kind, ridge)

    @property
    def moments(self) -> MomentsView:
        """Means, covariances, correlations and principal components of everything seen, exactly.

        Examples
        --------
        >>> X = np.random.default_rng(0).standard_normal((5_000, 2)) + [1.0, 2.0]
        >>> moments = Sketch(size=50, seed=0).update(X).moments
        >>> bool(np.isclose(moments.mean["column 1"], X[:, 1].mean()))
        True
        >>> bool(np.allclose(moments.covariance(), np.cov(X, rowvar=False)))
        True
        """
        return view_moments(self._held())

    @overload
    def estimate(
        self,
        values: Any = ...,
        by: Any = ...,
        where: Any = ...,
        *,
        calibrate: bool = ...,
        statistic: None = ...,
    ) -> Estimate | Estimates: ...

    @overload
    def estimate(
        self,
        values: None = ...,
        by: Any = ...,
        where: Any = ...,
        *,
        statistic: Callable[..., Any],
        replicates: int = ...,
        seed: int = ...,
    ) -> StatisticEstimate | StatisticEstimates: ...

    def estimate(
        self,
        values: Any = None,
        by: Any = None,
        where: Any = None,
        *,
        calibrate: bool = False,
        statistic: Callable[..., Any] | None = None,
        replicates: int = 200,
        seed: int = 0,
    ) -> Estimate | Estimates | StatisticEstimate | StatisticEstimates:
        """Return estimates of everything seen, with standard errors and intervals.

        Without `statistic` these are counts, totals and means: an `Estimate`, or `Estimates` by
        group. With `statistic` it is whatever that function computes: a `StatisticEstimate` with
        ``value``, ``se`` and ``interval(level=0.95)``, or `StatisticEstimates`.

        Estimates are unbiased, and right within the intervals, under ``"weighted"`` and
        ``"reservoir"``; the inclusion probabilities of other policies are not known.

        Parameters
        ----------
        values : str, array (len,) or callable, optional
            What is summed: a column's name, one number for each row held, or a function of
            ``sketch.X`` that returns them. Without it rows are counted.
        by : str, tuple of str or array (len,), optional
            A column's name, or several, each combination of whose values is a group, or one label
            for each row held: an estimate for each group.
        where : mapping of str to value, or boolean array, optional
            The rows that count, as for `remove`.
        calibrate : bool
            Whether to use the exactly known totals of the scored columns of a table. It helps if
            values are correlated with those columns, and hurts small groups. Not available after
            `remove`: rows dropped before are still in those totals.
        statistic : callable, optional
            A function of (rows, weights), or of (rows, y, weights), that returns a number, an array
            of numbers or a dict of these. It gets the rows kept, or those of a group: as a frame
            with all columns (``sketch.frame``) or, if it takes y, as ``sketch.X`` and ``sketch.y``.
            `olss.statistics` has ``quantile``, ``median``, ``ratio``, ``difference`` and
            ``correlation``. It is called `replicates` times with other weights for each group, and
            must be deterministic.
        replicates, seed : int
            How many replicate weights, and the seed of their random numbers.

        Notes
        -----
        After `remove`, and with a window, counts and totals are those of the rows left; it is not
        known how many rows that were not held are gone. Their standard errors are those of
        independent sampling, an upper bound: for counts of most rows 1.5 to 10 times too large, for
        counts and totals of half of the rows 1 to 1.5 times; means are right. The same holds for
        counts of most rows after the size was changed: rows from before and after were sampled
        separately but count as one sample.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> x = rng.exponential(size=(10_000, 2))
        >>> sketch = Sketch(size=500, seed=0).update(x, extra={"late": x[:, 0] > 3})
        >>> found = sketch.estimate(values=lambda X: X[:, 1], where={"late": True})
        >>> bool(abs(found.total - x[x[:, 0] > 3, 1].sum()) < 5 * found.total_se)
        True
        >>> slope = lambda X, w: np.polyfit(X[:, 0], X[:, 1], 1, w=np.sqrt(w))[0]
        >>> found = sketch.estimate(statistic=slope)
        >>> low, high = found.interval()
        >>> bool(low < np.polyfit(*x.T, 1)[0] < high)
        True
        """
        state = self._sample("estimate")
        if statistic is not None:
            if values is not None or calibrate:
                raise InputError(
                    f"{'calibrate' if calibrate else 'values'} is not supported with statistic, "
                    "which is given all columns of the rows and the weights."
                )
            return self._estimate_statistic(state, statistic, by, where, replicates, seed)
        self._check_both_sides(values, by, where, calibrate)
        if callable(values):
            values = values(KeptRows(state).X)
        elif isinstance(values, str):
            values = numbers_of(state, values, "values")
        design = engine.sampling_design(self._config, state)
        found = estimate(
            design.weight,
            values,
            groups=group_labels(state, by),
            where=None if where is None else chosen_rows(state, where),
            pi=design.pi,
            strata=design.strata,
            known_strata=design.known_strata,
            blocks=design.blocks,
            calibrate=known_totals(state) if calibrate else None,
            complete=design.complete,
        )
        counts_rows = values is None and not calibrate
        return add_known_counts(found, self._config, state, by, where) if counts_rows else found

    def _estimate_statistic(
        self,
        state: State,
        statistic: Callable[..., Any],
        by: Any,
        where: Any,
        replicates: int,
        seed: int,
    ) -> StatisticEstimate | StatisticEstimates:
        if not callable(statistic):
            raise InputError(
                "statistic must be a function of (rows, weights), such as "
                f"olss.statistics.median('delay'), found {statistic!r}."
            )
        count = checks.integer("replicates", replicates, minimum=2)
        weights = engine.replicate_weights(self._config, state, count, checks.seed(seed))
        design = engine.sampling_design(self._config, state)
        inside = chosen_rows(state, where)
        if not inside.any():
            raise InputError("where: no row kept matches, so there is nothing to compute.")

        def take_rows(at: Indices) -> tuple[Any, Any]:
            some = state.rows.take(at)
            rows, y = some["X"], some.get("y")
            if state.table is not None:
                if not takes_target(statistic):
                    return state.table.frame(sketch_file.to_table(state.replace(rows=some))), None
                rows, y = state.table.frame(rows), None if y is None else state.table.column(y)
            return rows, y

        drawn = design.pi < 1
        if by is None:
            at = np.flatnonzero(inside)
            return evaluate(statistic, *take_rows(at), design.weight[at], weights[at], drawn[at])
        names, code = code_groups(group_labels(state, by), inside)
        return evaluate_groups(statistic, take_rows, design.weight, weights, drawn, names, code)

    def replicate_weights(self, count: int = 80, *, seed: int = 0) -> Floats:
        """Return replicate weights, (len, count), that vary as a repeated sample would.

        Compute a statistic with `weight`, then with each column; four times the mean squared
        difference is its variance: ``se = 2 * np.sqrt(np.mean((each - value) ** 2))``. `estimate`
        does that for a function; with `replicates` in a file, any other program can. All weights
        are positive, and the same seed gives the same numbers.

        Examples
        --------
        >>> X = np.random.default_rng(0).standard_normal((10_000, 2))
        >>> sketch = Sketch(size=500, seed=0).update(X)
        >>> value = sketch.weight @ sketch.X[:, 0]
        >>> each = sketch.replicate_weights(200).T @ sketch.X[:, 0]
        >>> se = 2 * np.sqrt(np.mean((each - value) ** 2))
        >>> bool(0.7 < se / sketch.estimate(lambda X: X[:, 0]).total_se < 1.3)
        True
        """
        state = self._sample("replicate_weights")
        weights = engine.replicate_weights(
            self._config, state, checks.integer("count", count), checks.seed(seed)
        )
        return weights[~is_held_out(self._config, state.rows)]

    def drift(
        self,
        rows: Any,
        *,
        columns: Sequence[str | int] | None = None,
        alpha: float = 0.01,
        seed: int | None = 0,
    ) -> Drift:
        """Return how rows differ from those remembered; true in an ``if`` if that is an alarm.

        The answer has three parts: whether there is a difference at all (``p``, by a test that is
        exact for exchangeable rows), how large it is (``effect``, and for each column ``shift``
        and ``spread``, with intervals), and whether it is larger than usual (``usual_p``, by how
        much past batches differed from what was remembered when they came). An alarm needs a
        difference, ``p <= alpha``, that is larger than usual, ``usual_p <= alpha``. Before eight
        batches have been compared, it needs an effect of at least 0.2 standard deviations instead.

        A batch is an update (small updates count together, about a thousand rows) or, under
        `olss.compress`, a file, of at least twenty rows. With ``features=`` no history of batches
        is kept.

        Parameters
        ----------
        rows : array (n, ...) or table
            Rows as for `update`; a target may be among the columns of a table, or not. Columns
            that the sketch does not score are not compared.
        columns : sequence of str or int, optional
            The columns to compare. By default all but dates, the time, and counters: columns that
            only grow from the first row remembered to the last, as years and many identifiers do.
        alpha : float
            The share of batches without a change that may raise an alarm.
        seed : int, optional
            Seed of the permutation test.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> sketch = Sketch(size=500, seed=0).update(rng.standard_normal((5_000, 3)))
        >>> bool(sketch.drift(rng.standard_normal((200, 3)))), bool(
        ...     sketch.drift(rng.standard_normal((200, 3)) + 1)
        ... )
        (False, True)
        """
        state = self._sample("drift")
        return drift_of(self._config, state, rows, columns=columns, alpha=alpha, seed=seed)

    def monitor(self, alpha: float = 0.01, *, seed: int | None = 0) -> Monitor:
        """Return a drift alarm that may be checked after every batch.

        `drift` at ``alpha=0.01`` raises one false alarm in a hundred batches on average. A monitor
        raises one in a hundred *lifetimes*: however many batches it sees, the probability of any
        false alarm is at most `alpha`, as long as rows are exchangeable with those remembered when
        it was created. Rows in the order of time seldom are; for these, use `drift`, which knows
        what differences are usual. Under ``"weighted"`` the rows compared with are thinned to equal
        weights, and the bound holds approximately (in a simulation, alarms were rarer than stated).

        Parameters
        ----------
        alpha : float between 0 and 1
            The probability of a false alarm in a lifetime.
        seed : int, optional
            Seed for the choice of rows to compare with and for ties.

        Returns
        -------
        Monitor
            ``monitor.update(rows)`` is true in an ``if`` from the first alarm on. ``monitor.save``
            and ``olss.Monitor.load`` keep it between nightly jobs. Later updates of the sketch do
            not affect it.
        """
        return create_monitor(self._config, self._sample("monitor"), alpha, seed)

    def novelty(self, rows: Any, task: int | str | None = None) -> Floats:
        """Return how unlike the remembered rows each row is, from 0 to 1.

        It is the share of remembered rows that are less novel than the row, by ridge leverage
        against the sketch's weighted Gram matrix, where each remembered row is compared with the
        others (see `olss.memory.novelty`). Rows like those remembered have values uniform in [0,
        1]: one in a hundred is above 0.99. With m rows remembered, values are accurate to about
        1/sqrt(m). That holds under ``"weighted"`` and ``"reservoir"``, whose inclusion
        probabilities are known; other policies raise `InputError`.

        Parameters
        ----------
        rows : array (n, ...)
            Rows as for `update`.
        task : int or str, optional
            Compare with the rows held of this task instead of with all.

        Examples
        --------
        A drift alarm: more rows in the highest 5% than chance allows.

        >>> rng = np.random.default_rng(0)
        >>> sketch = Sketch(size=500, seed=0).update(rng.standard_normal((5_000, 10)))
        >>> def drifts(X):
        ...     return np.mean(sketch.novelty(X) > 0.95) > 0.05 + 4 * np.sqrt(0.05 / len(X))
        >>> bool(drifts(rng.standard_normal((200, 10))))
        False
        >>> bool(drifts(rng.standard_normal((200, 10)) * 1.5))
        True
        """
        state = self._sample("novelty")
        X = engine.read_new(self._config, state, rows)
        encoder = engine.comparison_encoder(self._config, state)
        return engine.fit_novelty(state, task, encoder).novelty(encoder.encode(X))

    def unusual(self, n: int = 10) -> list[UnusualRow]:
        """Return the n rows kept that stand out most in everything seen, by leverage.

        Examples
        --------
        >>> X = np.random.default_rng(0).standard_normal((1_000, 3))
        >>> X[7, 2] = 50.0
        >>> (first,) = Sketch(100, seed=0).update(X).unusual(1)
        >>> first.parts[0][0], first.leverage > 0.5
        ('column 2', True)
        """
        return find_unusual_rows(self._config, self._held(), checks.integer("n", n))

    def _sample(self, question: str) -> State:
        """Return the state, if its rows can answer for everything seen, or raise `InputError`."""
        if not self.policy.knows_probabilities:
            raise InputError(
                f"{question} needs known inclusion probabilities, which policy "
                f"{self.policy.name!r} does not have; use 'weighted' or 'reservoir'."
            )
        self._held()
        return self._state


def _is_like(new: NDArray[Any] | None, held: Array | None) -> bool:
    """Return whether a few rows need no further check, being just like those held."""
    if new is None or held is None:
        return new is held
    if type(held) is not np.ndarray or new.dtype != held.dtype or new.dtype.kind not in "biuf":
        return False
    few = 0 < len(new) <= FEW_ROWS if new.ndim else False
    # The sum of squares is the fastest look at all numbers.
    return few and new.shape[1:] == held.shape[1:] and math.isfinite(np.vdot(new, new))


def _classes(state: State) -> NDArray[Any] | None:
    return class_labels([state.rows["y"]]) if state.has_classes else None


def _with_library(state: State, frame: str | None) -> State:
    """Return the state with frames of the library asked for, by default that which came in."""
    if frame is not None:
        checks.choice("frame", frame, FRAMES)
    elif state.files and importlib.util.find_spec("pandas"):
        frame = "pandas"
    kind = state.table
    if kind is None or frame is None:
        return state
    library = "pyarrow" if frame == "arrow" else frame
    if library == kind.rows.library or (state.files and kind.rows.library != "pyarrow"):
        return state
    rows = kind.rows.to_library(library, state.rows.get("X"))
    y = None if kind.y is None else kind.y.to_library(library, state.rows.get("y"))
    return state.replace(table=replace(kind, rows=rows, y=y))


def create_sketch(config: Config, state: State) -> Sketch:
    """Return a sketch of rows that other modules have sampled; pandas frames, if installed."""
    frame = "pandas" if importlib.util.find_spec("pandas") else None
    return Sketch._of(config, _with_library(state, frame))


def correct_priors(
    proba: Any,
    sketch: Sketch,
    *,
    classes: Any = None,
    fitted: Literal["rows", "weight"] | Sequence[float] | NDArray[Any] = "rows",
) -> Floats:
    """Return probabilities that refer to the class frequencies of everything seen.

    A model fitted to the rows of a sketch takes over their class frequencies, which policies and
    strata change on purpose. With s_k the frequency of class k in what the model was fitted to and
    pi_k that in everything seen, which a sketch counts exactly, p_k becomes proportional to
    p_k pi_k / s_k (Saerens, Latinne & Decaestecker 2002). That is exact if the rows of each class
    are a random sample of that class, as with ``"reservoir"`` and strata; leverage takes more
    rows from the edges of a class, and probabilities are then right only so far.

    Parameters
    ----------
    proba : array (n, k), or (n,) for the second of two classes
        Probabilities of a model.
    sketch : Sketch
        Whose rows the model was fitted to, and whose target is a class.
    classes : array (k,), optional
        The class of each column, as a scikit-learn model's ``classes_``. By default all classes
        among the rows held, sorted.
    fitted : "rows", "weight" or array (k,)
        What the model was fitted with: the rows held, each counting one; with
        ``sample_weight=sketch.weight``; or the share of each class, such as equal shares for a
        model with balanced class weights.

    Returns
    -------
    array of the shape of `proba`
        With a half-life, class frequencies are those of the decayed stream; with a window, they are
        estimated from the weights of the rows held.

    Examples
    --------
    One row in a hundred is of class 1, and half of the rows kept are.

    >>> X, y = np.arange(20_000.0)[:, None], np.arange(20_000) % 100 == 0
    >>> sketch = Sketch(200, strata="y", strata_share=1.0, seed=0).update(X, y.astype(int))
    >>> correct_priors([[0.5, 0.5]], sketch).round(4)
    array([[0.99, 0.01]])
    """
    if not isinstance(sketch, Sketch):
        raise InputError(f"sketch must be an olss.Sketch, found {type(sketch).__name__}.")
    ratio = prior_ratio(sketch._held(), classes, fitted)
    p = np.asarray(to_numpy(dense_array(proba, "proba")), dtype=np.float64)
    binary = p.ndim == 1 and len(ratio) == 2
    if not (binary or (p.ndim == 2 and p.shape[1] == len(ratio))):
        raise InputError(
            f"proba must have a column for each of the {len(ratio)} classes, found shape "
            f"{p.shape}; name the classes of its columns with classes=."
        )
    if not ((p >= 0) & (p <= 1 + 1e-6)).all():
        raise InputError(
            f"proba must hold probabilities, from 0 to 1, found {p.min():g} to {p.max():g}."
        )
    columns = np.column_stack([1 - p, p]) if binary else p
    corrected = apply_priors(columns, ratio)
    return corrected[:, 1] if binary else corrected


def apply_priors(proba: Floats, ratio: Floats) -> Floats:
    """Return p_k ratio_k, (n, k), scaled to sum to 1; rows that would vanish stay as they are."""
    scaled = proba * ratio
    total = scaled.sum(axis=1, keepdims=True)
    return np.where(total > 0, scaled / np.where(total > 0, total, 1), proba)


def prior_ratio(state: State, classes: Any, fitted: Any) -> Floats:
    """Return pi_k / s_k for each class: frequencies in everything seen over those of the fit."""
    if not state.has_classes:
        raise InputError("correct_priors needs a sketch whose target y is a class.")
    rows = state.rows
    codes, keys = class_keys(rows["y"])
    held = count_rows((codes, keys), np.ones(len(rows)))
    stands_for = count_rows((codes, keys), rows["weight"])
    seen = stands_for if state.class_counts is None else state.class_counts
    if classes is None:
        known = [json.loads(key)[0] for key in keys]
        names = sorted(value for value in known if value is not None)
    else:
        names = [value_key(value) for value in to_numpy(dense_array(classes, "classes")).tolist()]
    wanted = [json.dumps([name]) for name in names]
    unknown = [name for name, key in zip(names, wanted, strict=True) if key not in seen]
    if unknown:
        raise InputError(
            f"classes must be classes the sketch has seen, found {unknown[:3]!r}. "
            f"It has seen {', '.join(repr(json.loads(key)[0]) for key in list(seen)[:10])}."
        )
    if isinstance(fitted, str):
        counts = {"rows": held, "weight": stands_for}[
            checks.choice("fitted", fitted, ["rows", "weight"])
        ]
        shares = np.array([counts.get(key, 0.0) for key in wanted])
    else:
        shares = np.asarray(fitted, dtype=np.float64)
        if shares.shape != (len(wanted),) or not (shares >= 0).all():
            raise InputError(
                f"fitted must be 'rows', 'weight' or the share of each of the {len(wanted)} "
                f"classes, found {fitted!r}."
            )
    there = shares > 0  # a class that the model was not fitted to keeps its probability, zero
    pi = np.where(there, [seen[key] for key in wanted], 0.0)
    ratio: Floats = pi / pi.sum() / np.where(there, shares / shares.sum(), 1.0)
    return ratio


def state_of(sketch: Sketch) -> State:
    """Return what a sketch holds, no rows pending, for other modules to look at."""
    return sketch._state


def config_of(sketch: Sketch) -> Config:
    """Return the settings of a sketch."""
    return sketch._config
