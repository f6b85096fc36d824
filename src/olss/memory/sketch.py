"""The online memory: a constant-size training set of everything seen so far."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import dense_array, to_numpy
from olss.errors import InputError
from olss.memory import sketch_file
from olss.memory.absorbing import settled
from olss.memory.certificate import Certificate, certify
from olss.memory.description import Description
from olss.memory.drift import Drift, drift
from olss.memory.estimates import Estimate, Estimates, estimate
from olss.memory.numbers import Numbers
from olss.memory.own_columns import EXTRA
from olss.memory.policies import name_of, named, says
from olss.memory.pool import Floats, Policy, strata_of
from olss.memory.selecting import chosen_rows, known_totals, labels_of, numbers_of
from olss.memory.settings import checked_settings
from olss.memory.spectrum import Spectrum
from olss.memory.state import BLURRED, State, new_generator
from olss.memory.state_holder import StateHolder
from olss.memory.store import Array, Indices, RowStore, take
from olss.memory.target_classes import classes_of
from olss.util import checks
from olss.util.text import escape_html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Sketch"]


class Sketch(StateHolder):
    """A constant-size training set of everything seen so far.

    Give it the data as they come, arrays or tables; it keeps at most `size` rows of them, chosen by
    a policy. Train any model on ``sketch.X, sketch.y``.

    Parameters
    ----------
    size : int or "task"
        Rows to keep. ``"task"``: as many as the update just given has, the paper's setting, where
        each update is one task. ``sketch.size`` may be set between updates; a size that grows
        keeps what there is.
    policy : str or callable
        Which rows stay.

        - ``"weighted"``: by leverage in everything seen, unbiased for it.
        - ``"balanced"``: the same number of rows for each task and class, in each those that
          look most like all of it; ``"balanced-leverage"`` and ``"balanced-random"`` choose
          inside by leverage and at random.
        - ``"reservoir"``: a uniform sample of everything seen.
        - ``"paper"``: the paper's Algorithm 1; old tasks fade.
        - ``"recent"``: the last rows.
        - or your own; see `olss.memory.policies`.
    scores : {"auto", "exact", "ridge", "sketched", "target", "target-number"} or float
        The leverage scores used by policies that use any. ``"ridge"`` chooses a ridge that leaves
        an effective dimension of about size/20; a number is a ridge of that value;
        ``"sketched"`` is faster and approximate. ``"auto"`` is exact for ``"paper"`` and wherever
        the sketch has at least twice as many rows as features, else ridge: without one, all rows
        of a small sketch score alike. ``"target"``, for ``"weighted"``: leverage, and for the other
        half how wrong a model of the target is about a row (see `olss.memory.surprise`): better
        rows for linear and logistic models of that one target, if there are five to ten or more
        for each scored column, worse ones for anything else.
        The model is logistic if `y` says a class, else linear; ``"target-number"`` makes it linear
        for counts and grades, too.
    features : callable, optional
        Scores are taken of ``features(X)``, an array (n, k), instead of X: a network's last hidden
        layer, for instance. It is called with at most 4,096 rows at a time, and at each update
        again for the rows held, since networks change.
    half_life : float, str or timedelta, optional
        Forget at a chosen rate: after so many rows, a row counts half; with `time`, after so long
        ("30d", "12h", or a number in the units of the column, seconds for dates). For
        ``"weighted"`` and ``"reservoir"``. Weights, spectrum and estimates are then those of the
        decayed stream.
    last : int, str or timedelta, optional
        Forget all at once what is older than so many rows, or than so long.
    time : str, optional
        The column that says the time of each row: of the table, or in `extra`.
    columns, exclude : sequence of str, optional
        Of tables: the columns to score, the columns not to. All are kept. See `olss.tables.encoder`
        for what is made of dates, text and missing values.
    intercept : bool
        Of tables: whether rows are scored with a constant added, so that it does not matter where
        the zero of a column is.
    new_columns : bool
        Of tables: whether an update may bring columns that none before had. They are missing in
        the rows held, and are not scored.
    keep_index : bool
        Of pandas frames: whether the index is kept, as columns.
    spectrum : bool, optional
        Whether to keep what `error` needs, a matrix of the scored columns. By default it is kept
        where the policy scores by it: ``"weighted"`` without a feature map.
    pad : tuple of int, optional
        Of arrays: the largest row shape to come; smaller rows are filled up with zeros at the end
        of each dimension. Without it all rows must have one shape.
    pad_y : tuple of int, optional
        The same for the rows of `y`.
    seed : int, numpy.random.Generator or None
        Where the randomness comes from. The same seed and data, looked at after the same updates,
        give the same bytes, with the same BLAS and number of threads: sums in another order
        round otherwise, and over very many draws by leverage that might change a row.

    Attributes
    ----------
    X, y, task, weight, index : arrays of len(sketch) rows
        The rows kept and, aligned with them: their targets (None if there are none), their tasks,
        how many of the rows seen each stands for, and their positions in the stream, counted from
        0. Rows are in the order they came in. An update makes new arrays: those you hold stay as
        they are. If tables came in, X is a frame of their kind, and y a column of theirs.
    extra : dict of str to array
        The other columns that ride along.
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

    A table of any columns, its target by name:

    >>> table = {"carrier": ["UA", "AA", None, "UA"], "delay": [3.0, None, 7.0, 8.0]}
    >>> olss.Sketch(size=3, policy="recent").update(table, y="carrier").X
    Traceback (most recent call last):
    olss.errors.DataError: the target 'carrier' is missing in 1 of 4 rows; drop these rows, or fill
    the gaps, first.
    >>> olss.Sketch(size=3, policy="recent").update(table).X
    {'carrier': ['AA', None, 'UA'], 'delay': [None, 7.0, 8.0]}
    """

    def __init__(
        self,
        size: int | Literal["task"],
        policy: str | Policy = "weighted",
        *,
        scores: str | float = "auto",
        features: Callable[[Array], Array] | None = None,
        half_life: Any = None,
        last: Any = None,
        time: str | None = None,
        columns: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        intercept: bool = False,
        new_columns: bool = False,
        keep_index: bool = False,
        spectrum: bool | None = None,
        pad: tuple[int, ...] | None = None,
        pad_y: tuple[int, ...] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        self._settings = checked_settings(
            size=size,
            policy=named(policy),
            scores=scores,
            features=features,
            half_life=half_life,
            last=last,
            time=time,
            columns=columns,
            exclude=exclude,
            intercept=intercept,
            new_columns=new_columns,
            keep_index=keep_index,
            spectrum=spectrum,
            pad=pad,
            pad_y=pad_y,
        )
        # What the sketch holds, and rows that came singly since: replaced whole, in one step.
        self._now = (
            State(new_generator(seed), numbers=Numbers(features=features, intercept=intercept)),
            (),
        )
        self._forget_what_was_worked_out()

    def __len__(self) -> int:
        return len(self._settled.rows)

    def __repr__(self) -> str:
        tasks = len(np.unique(self.task)) if len(self) else 0
        return (
            f"Sketch(size={self.size!r}, policy={_title(self.policy)!r}: {len(self):,} rows of "
            f"{self.seen:,} seen, {tasks} task{'' if tasks == 1 else 's'})"
        )

    @property
    def size(self) -> int | Literal["task"]:
        """Rows to keep, or "task"; what came before it is set is kept to the size before."""
        return self._settings.size

    @size.setter
    def size(self, size: int | Literal["task"]) -> None:
        settings = checked_settings(self._settings, size=size)
        with self._lock:
            _ = self._settled
            self._settings = settings

    @property
    def policy(self) -> Policy:
        """Which rows stay."""
        return self._settings.policy

    @property
    def features(self) -> Callable[[Array], Array] | None:
        """What scores are taken of; may be set, to go on with a map of one's own."""
        return self._settings.features

    @features.setter
    def features(self, features: Callable[[Array], Array] | None) -> None:
        settings = checked_settings(self._settings, features=features)
        with self._lock:
            state = self._settled
            numbers = replace(state.numbers, features=features)
            self._now, self._settings = (state.with_(numbers=numbers), ()), settings

    @property
    def scores(self) -> str | float:
        """The leverage scores used."""
        return self._settings.scores

    @property
    def X(self) -> Any:  # noqa: N802
        """The rows kept, (len, ...), or a frame."""
        state = self._settled
        return self._column("X") if state.table is None else state.table.frame(state.rows["X"])

    @property
    def y(self) -> Any:
        """Their targets, or None."""
        state = self._settled
        if state.table is None or "y" not in state.rows:
            return state.rows.get("y")
        return state.table.column(state.rows["y"])

    @property
    def task(self) -> NDArray[Any]:
        """Their tasks."""
        tasks: NDArray[Any] = self._column("task")
        return tasks

    @property
    def weight(self) -> NDArray[np.float64]:
        """How many of the rows seen each stands for."""
        weights: NDArray[np.float64] = self._column("weight")
        return weights

    @property
    def index(self) -> Indices:
        """Their positions in the stream."""
        indices: Indices = self._column("index")
        return indices

    @property
    def extra(self) -> dict[str, Array]:
        """The other columns that ride along."""
        rows = self._settled.rows
        return {name.removeprefix(EXTRA): rows[name] for name in rows if name.startswith(EXTRA)}

    @property
    def seen(self) -> int:
        """Rows seen so far."""
        state, singles = self._now
        return state.seen + sum(len(rows) for rows, _ in singles)

    def update(
        self,
        rows: Any,
        y: Any = None,
        task: Any = None,
        weight: Any = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Self:
        """Take in rows and keep what the policy chooses of them and of the rows held.

        If it raises, whatever and whenever, the sketch is as it was before. Several threads may
        update one sketch: they wait for each other. Rows that come a few at a time wait inside
        until about a thousand have come, or until the sketch is looked at, and are then drawn
        from together.

        Parameters
        ----------
        rows : array (n, ...), or a table
            NumPy, torch or SciPy sparse rows of any real dtype, kept as they are: uint8 images
            stay uint8, tensors stay on their device, NaN stays NaN. Or a pandas or polars frame, a
            pyarrow table, a mapping of columns, anything with ``__arrow_c_stream__``, of any
            columns; later tables may have them in another order.
        y : array (n,) or (n, ...), or a column's name, optional
            Labels (numbers or text), one-hot rows, or real targets of any shape. Of a table: the
            name of the column to be predicted, or a column, or a frame of one.
        task : int, str or array (n,) of them, optional
            The task the rows belong to. Not given: that of the last update, 0 at the start; so a
            stream without tasks is one task. ``"auto"``: a new task, numbered one higher, begins
            where an update brings rows unlike those held of the current task (see `novelty`).
            Under ``"weighted"`` and ``"reservoir"``, one in a thousand updates that bring nothing
            new is taken for a new task; under ``"paper"`` fewer, under ``"balanced"`` some more.
        weight : float or array (n,), optional
            What each row counts for, 1 if not given: rows that were counted, or are a sample or a
            sketch of others already.
        extra : mapping of str to array (n, ...), optional
            Columns that ride along with the rows: identifiers, times.

        Returns
        -------
        Sketch
            Itself.
        """
        if task is None and weight is None and extra is None and self._took_single(rows, y):
            return self
        self._change(lambda state: self._updated(state, rows, y, task, weight, extra))
        return self

    def merge(self, other: Sketch) -> Self:
        """Take in another sketch, so that this one is a sketch of both histories.

        The other's history counts as coming after this one's: its `index` goes on from `seen`.
        Sketches to be merged should have different seeds. The other sketch stays as it is.

        Rows are drawn by the scores of this sketch, whatever those of the other were; with
        ``scores="target"``, by a model of the rows of both.

        What columns of a table are worth as numbers, the first rows decide: if the other began
        with others and has since seen texts, or gaps, that this one tells apart and it does not,
        `error` and ``calibrate=True`` are refused afterwards. Weights and other estimates are
        right in any case.

        Not every policy can do it: ``"paper"`` and ``"recent"`` keep no account of what a row
        stands for, so rows of two histories cannot be weighed against each other.
        """
        if not isinstance(other, Sketch):
            raise InputError(f"other must be a Sketch, found {type(other).__name__}.")
        if self.policy != other.policy:
            raise InputError(
                f"sketches of different policies do not merge, found {_title(self.policy)!r} and "
                f"{_title(other.policy)!r}."
            )
        if not says(self.policy, "mergeable"):
            raise InputError(
                f"policy {_title(self.policy)!r} does not say how many rows each row stands for, "
                "so two of its sketches cannot be merged; use 'weighted', 'reservoir' or "
                "'balanced'."
            )
        for name in ("half_life", "last", "time"):
            mine, its = getattr(self._settings, name), getattr(other._settings, name)
            if mine != its:
                raise InputError(
                    f"sketches that forget differently do not merge, found {name}={mine!r} and "
                    f"{its!r}."
                )
        theirs = other._settled  # before this one is held: two may merge each other
        self._change(lambda state: self._merged(state, theirs))
        return self

    def remove(self, index: Any = None, *, where: Any = None) -> int:
        """Forget rows for good; their memory is overwritten.

        The other rows and their weights stay as they are. Under ``"weighted"`` and
        ``"reservoir"`` they remain an unbiased sketch of all rows seen but those removed. Of the
        spectrum, the removed rows' own part is taken off; what earlier draws dropped of the same
        person is in it still, as part of a sum.

        Parameters
        ----------
        index : int or array of int, optional
            Positions in the stream, as in ``sketch.index``. Those of rows not held are passed
            over: the sketch has forgotten them already.
        where : mapping of str to value, or boolean array, optional
            Instead: a column (of the table, in `extra`, or "task") and the value, or the list of
            values, by which rows go; several columns must all match. Or which rows go.

        Returns
        -------
        int
            Rows removed. Arrays taken from the sketch before show zeros in their place.

        Examples
        --------
        >>> sketch = Sketch(size=10).update(np.eye(3), extra={"person": ["ann", "bob", "ann"]})
        >>> sketch.remove(where={"person": "ann"})
        2
        """
        if (index is None) == (where is None):
            raise InputError("give either index, positions in the stream, or where.")
        removed = 0

        def without(state: State) -> State:
            nonlocal removed
            state = settled(self._settings, state)
            gone = chosen_rows(state, where) if index is None else _at(state, index)
            removed = int(gone.sum())
            return _without(state, gone)

        self._change(without)
        return removed

    def novelty(self, rows: Any, task: int | str | None = None) -> Floats:
        """Return how unlike everything remembered rows are, from 0 to 1.

        It is the share of remembered rows that are less novel than this row, by ridge leverage
        against the sketch's weighted Gram matrix, each remembered row being judged by the others
        (see `olss.memory.novelty`). Rows like those remembered have values uniform in [0, 1]: one
        in a hundred is above 0.99. With m rows remembered, the values are right to about 1/sqrt(m).
        That holds where it is known with which probability a row was kept, under ``"weighted"``
        and ``"reservoir"``; other policies raise `InputError`.

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
        state = self._held
        self._require_probabilities("novelty")
        X = self._like_before(state, rows)
        numbers = self._compared(state)
        return self._familiar_rows(state, task, numbers).novelty(numbers.of(X))

    def describe(self) -> Description:
        """Return what is held: rows per task and class, weights, what is scored, memory.

        It is a text to read, and in a notebook a table to look at.

        Examples
        --------
        >>> X = np.arange(12.0).reshape(6, 2)
        >>> Sketch(size=4, policy="reservoir", seed=0).update(X, y=list("aabbab")).describe()
        4 rows of 6 seen
        weights 1.5 to 1.5, mean 1.5; worth 4 rows of equal weight
        scored: nothing, the policy asks for no scores
        memory: rows 240 B; 6 rows had waited until now
        task  rows  stand for  a  b
           0     4          6  2  2
        """
        waiting = self._state.waiting_rows
        state = self._held
        return Description.of(self._settings, state, _classes(state), waiting)

    def plot(self) -> Figure:
        """Return a matplotlib figure: rows by task and class, weights, and the stream.

        Along the stream it shows what is kept of each stretch, and what those rows stand for, in
        parts of what was seen there. Save it with ``figure.savefig("sketch.png")``; a notebook
        shows it.
        """
        from olss.memory.sketch_plot import plot_sketch

        described = self.describe() if len(self) else None
        return plot_sketch(self._settled, described, bool(says(self.policy, "mergeable")))

    def _repr_html_(self) -> str:
        title = (
            f'<div style="font-weight:600;font-family:monospace">{escape_html(repr(self))}</div>'
        )
        return f"<div>{title}{self.describe()._repr_html_() if len(self) else ''}</div>"

    def error(self) -> Certificate:
        """Return how far the sketch is from everything seen, and what that promises.

        The Gram matrix of the rows held, weighted, is compared with that of everything seen, which
        a sketch keeps where its policy scores by it, or with ``spectrum=True``. Of tables it is
        that of the numbers their columns make, and a constant. Policies without weights are
        compared up to a scale.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> sketch = Sketch(size=500, seed=0).update(rng.standard_normal((20_000, 5)))
        >>> 0 < sketch.error().relative < 0.3
        True
        """
        state = self._held
        if state.spectrum is None:
            raise InputError(
                "this sketch keeps no spectrum of everything seen, so its error is not known: make "
                "it with spectrum=True (not to be had of features, nor with a window)."
            )
        if state.blurred:
            raise InputError(f"the error of this sketch is not known. {BLURRED}")
        return certify(
            state.spectrum,
            [state.numbers.rows(state.rows["X"], state.rows["weight"], careful=True)],
            up_to_scale=not says(self.policy, "mergeable"),
            names=state.numbers.labels,
        )

    def estimate(
        self, values: Any = None, by: Any = None, where: Any = None, *, calibrate: bool = False
    ) -> Estimate | Estimates:
        """Return counts, totals and means of everything seen, with standard errors and intervals.

        They are unbiased, and right within the intervals, under ``"weighted"`` and
        ``"reservoir"``; other policies do not know with which probability a row was kept, and
        raise `InputError`.

        Parameters
        ----------
        values : str, array (len,) or callable, optional
            What is summed: a column's name, one number a row held, or a function of ``sketch.X``
            that gives that. Without it rows are counted.
        by : str, tuple of str or array (len,), optional
            A column's name, several, each combination of whose values is a group, or one label a
            row held: an estimate for each group.
        where : mapping of str to value, or boolean array, optional
            The rows that count, as for `remove`.
        calibrate : bool
            Whether to make use of what is known exactly: the totals of the scored columns, which
            the spectrum of a table has. It helps where values go with those columns, and hurts
            small groups. Not after `remove`: rows dropped before are in those totals still.

        Notes
        -----
        After `remove`, and with a window (`last`), counts and totals are those of the rows left:
        how many rows are gone that were not held is not known. Their standard errors are those of
        rows drawn independently of each other, an upper bound. For counts of most rows it is 1.5
        to 10 times too large, for counts and totals of half of the rows 1 to 1.5 times; means are
        right. So it is for counts of most rows after the size was changed on the way: rows from
        before and after were drawn apart, and are taken for one draw.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> x = rng.exponential(size=(10_000, 2))
        >>> sketch = Sketch(size=500, seed=0).update(x, extra={"late": x[:, 0] > 3})
        >>> found = sketch.estimate(values=lambda X: X[:, 1], where={"late": True})
        >>> bool(abs(found.total - x[x[:, 0] > 3, 1].sum()) < 5 * found.total_se)
        True
        """
        state = self._held
        self._require_probabilities("estimate")
        rows = state.rows
        if callable(values):
            values = values(self.X)
        elif isinstance(values, str):
            values = numbers_of(state, values, "values")
        names = (by,) if isinstance(by, str) else by if isinstance(by, tuple) else ()
        groups = {name: labels_of(state, name, "by") for name in names} or by
        apart = says(self.policy, "scored") is not None  # draws by scores keep strata apart
        return estimate(
            rows["weight"],
            values,
            groups=groups,
            where=None if where is None else chosen_rows(state, where),
            pi=np.minimum(rows["base"] / rows["weight"], 1.0),
            strata=strata_of(rows["task"], _classes(state)) if apart else None,
            calibrate=known_totals(state) if calibrate else None,
            complete=not state.removed and self._settings.last is None,
        )

    def drift(self, rows: Any, *, false_alarms: float = 0.01, seed: int | None = 0) -> Drift:
        """Return whether rows are unlike those remembered; true in an ``if`` when they are.

        The rows held stand for everything seen under ``"weighted"`` and ``"reservoir"``; other
        policies do not know with which probability a row was kept, and raise `InputError`.

        Parameters
        ----------
        rows : array (n, ...) or table
            Rows as for `update`; a target may be among the columns of a table, or not.
        false_alarms : float
            The share of batches without a change that may raise an alarm.
        seed : int, optional
            Of the permutations the answer rests on.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> sketch = Sketch(size=500, seed=0).update(rng.standard_normal((5_000, 3)))
        >>> bool(sketch.drift(rng.standard_normal((200, 3)))), bool(
        ...     sketch.drift(rng.standard_normal((200, 3)) + 1)
        ... )
        (False, True)
        """
        state = self._held
        self._require_probabilities("drift")
        X = self._like_before(state, rows)
        numbers = self._compared(state)
        return drift(
            numbers.of(state.rows["X"]),
            state.rows["weight"],
            numbers.of(X),
            names=numbers.labels,
            false_alarms=false_alarms,
            seed=seed,
        )

    @property
    def frame(self) -> Any:
        """Everything that is kept, of a sketch of tables, as one frame of the kind that came in."""
        state = self._settled
        if state.table is None:
            raise InputError(
                "frame is for sketches of tables; this one holds "
                + ("nothing yet." if "X" not in state.rows else "arrays: see X, y and extra.")
            )
        return state.table.frame(sketch_file.table_of(state))

    def batches(
        self, size: int, *, shuffle: bool = True, seed: int | np.random.Generator | None = None
    ) -> Iterator[tuple[Array, Array | None]]:
        """Yield copies of the rows as (X, y) batches of `size`, each row once.

        Parameters
        ----------
        size : int
            Rows a batch; the last one may be smaller.
        shuffle : bool
            Whether in random order, rather than in that of ``sketch.X``.
        seed : int or numpy.random.Generator, optional
            For the order. The sketch's own randomness is not touched.
        """
        size = checks.integer("size", size)
        state = self._settled
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

    def copy(self) -> Self:
        """Return an independent copy; it shares only the policy and the feature map."""
        other = copy.copy(self)
        state, singles = self._now
        rows = state.rows.take(np.arange(len(state.rows)))
        other._now = (state.with_(rows=rows), singles)
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketch into one Parquet file, whole or not at all.

        pandas, polars and DuckDB open it as a table of X (a list per row), y, olss_task,
        olss_weight, olss_index and the columns that ride along. `load` reads it and goes on byte
        for byte as if nothing had been in between. A policy or feature map of your own is not
        saved.
        """
        sketch_file.write(path, self._settled, self._settings)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        policy: str | Policy | None = None,
        features: Callable[[Array], Array] | None = None,
        device: Any = None,
    ) -> Self:
        """Read a sketch that `save` wrote.

        Parameters
        ----------
        path : path
        policy, features : callable, optional
            What the sketch was made with, if that was your own. The rows can be read without;
            an update then says what is missing.
        device : torch device, optional
            Where to put tensors; the host by default.
        """
        own = None if policy is None else named(policy)
        state, settings = sketch_file.read(path, own, features, device)
        sketch = cls.__new__(cls)
        sketch._settings, sketch._now = settings, (state, ())
        sketch._forget_what_was_worked_out()
        return sketch

    @property
    def _held(self) -> State:
        """The state, which has rows."""
        state = self._settled
        if not len(state.rows):
            raise InputError(_empty(state))
        return state

    def _require_probabilities(self, question: str) -> None:
        """Raise `InputError` if the rows held are no sample of known inclusion probabilities."""
        if not says(self.policy, "knows_probabilities"):
            raise InputError(
                f"{question} needs the probability with which each row was kept, which policy "
                f"{_title(self.policy)!r} does not know; use 'weighted' or 'reservoir'."
            )

    def _column(self, name: str) -> Any:
        state = self._settled
        if name not in state.rows:
            raise InputError(_empty(state))
        return state.rows[name]


def _empty(state: State) -> str:
    """Say why there are no rows, and what to do."""
    if not state.seen:
        return "the sketch is empty: give it rows with update(rows, y) first."
    return (
        f"the sketch holds none of the {state.seen:,} rows seen: all were removed. New rows fill "
        "it again, by update(rows, y) or, for a file, olss compress."
    )


def _classes(state: State) -> NDArray[Any] | None:
    return classes_of([state.rows["y"]]) if state.classes else None


def _at(state: State, index: Any) -> NDArray[np.bool_]:
    """Return which rows held are at these positions of the stream."""
    positions = np.atleast_1d(to_numpy(dense_array(index, "index")))
    if positions.size and positions.dtype.kind not in "iu":
        raise InputError(f"index must be whole numbers, found {index!r}.")
    if positions.size and not (positions.min() >= 0 and positions.max() < state.seen):
        raise InputError(
            f"index must be positions in the stream, 0 to {state.seen - 1}, found {index!r}."
        )
    if not len(state.rows):
        return np.zeros(0, dtype=bool)
    return np.isin(state.rows["index"], positions)


def _without(state: State, gone: NDArray[np.bool_]) -> State:
    """Return the state without some rows, and have these overwritten once it is let go of."""
    if not gone.any():
        return state
    there, rest = np.flatnonzero(gone), state.rows.take(np.flatnonzero(~gone))
    spectrum = state.spectrum
    if spectrum is not None:
        spectrum = _spectrum_without(state, state.rows.take(there), rest)
    state.rows.forget(there)
    return state.with_(rows=rest, spectrum=spectrum, removed=state.removed + len(there))


def _spectrum_without(state: State, removed: RowStore, rest: RowStore) -> Spectrum:
    """Return the spectrum of everything seen but some rows; that of the rest, if all are held."""
    assert state.spectrum is not None
    numbers = state.numbers
    left = state.spectrum.minus(numbers.rows(removed["X"], removed["base"], careful=True))
    all_held = left.rows == len(rest) and np.array_equal(rest["weight"], rest["base"])
    return numbers.added(Spectrum(), rest["X"], rest["base"]) if left.lost and all_held else left


def _title(policy: Policy) -> str:
    return name_of(policy) or str(getattr(policy, "__name__", type(policy).__name__))
