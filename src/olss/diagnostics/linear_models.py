"""Linear models of everything seen, from the moments of a sketch and, where needed, its rows.

Least squares, ridge, discriminant and ridge classifier are functions of the moments: they equal the
fit to all rows, and need none (`olss.core.linear_fit`). Logistic and Poisson regression are not;
they are fitted to the kept rows, weighted, and corrected by sums over all rows
(`olss.core.corrected_glm`). Both speak of the scored columns as they are encoded: numbers with
missing values filled, strings as indicators.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import to_numpy
from olss.core.corrected_glm import Followed, GlmFit, fit_kept_rows
from olss.core.glm import Family, RowTerm
from olss.core.gram import column_limit
from olss.core.linear_fit import (
    PrincipalComponents,
    choose_ridge,
    find_components,
    fit_discriminant,
    fit_linear,
)
from olss.core.moments import Moments
from olss.errors import InputError, MissingExtraError
from olss.memory.config import Config
from olss.memory.encoder import Encoder, all_glm_rows, read_target
from olss.memory.engine import read_new
from olss.memory.rows import length_of, take
from olss.memory.state import State
from olss.tables.columns import Number, OneHot
from olss.util import checks, special
from olss.util.text import html_environment
from olss.util.threads import call_with_one_blas_thread

__all__ = ["KINDS", "LinearModel", "MomentsView", "fit_linear_model"]

Floats = NDArray[np.float64]
KINDS = (
    "auto",
    "ridge",
    "least-squares",
    "discriminant",
    "ridge-classifier",
    "logistic",
    "poisson",
)
NUMERIC = ("ridge", "least-squares", "poisson")
SHOWN = 12  # coefficients of a printed model
TEMPLATE = """\
<div><div><b>{{ title }}</b>, {{ note }}</div>
<table><tr>{% for cell in head %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for line in body %}<tr>{% for cell in line %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}
</table></div>
"""


@dataclass(frozen=True, eq=False)
class ModelDesign:
    """Centred moments of chosen columns, and what they are called.

    Attributes
    ----------
    moments : Moments
        Of x, the columns divided by their scales, and of the target.
    encoder : Encoder
    names : tuple of str
        Of x.
    places : (d,) int array
        Of x among the encoded columns.
    scale, offset : (d,) arrays
        An encoded number is (value / scale) - offset.
    target : str
    classes : tuple or None
    column : (k,) int array or None
        Where the target is a scored column: its places among the encoded ones.
    unit : (float, float)
        Scale and offset of that column, if it is a number.
    """

    moments: Moments
    encoder: Encoder
    names: tuple[str, ...]
    places: NDArray[np.intp]
    scale: Floats
    offset: Floats
    target: str = ""
    classes: tuple[Any, ...] | None = None
    column: NDArray[np.intp] | None = None
    unit: tuple[float, float] = (1.0, 0.0)

    def encode(self, X: Any, places: NDArray[np.intp]) -> Floats:
        """(n, k) some of the encoded columns of rows."""
        if not length_of(X):
            return np.zeros((0, len(places)))
        blocks = self.encoder.rows(X, find_nan=True)
        parts = []
        for _, block in blocks.read(np.dtype(np.float64)):
            dense = block.toarray() if blocks.sparse else to_numpy(block)
            parts.append(dense[:, places])
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear model of everything a sketch has seen; made by `olss.Sketch.linear_model`.

    Attributes
    ----------
    kind : str
        "ridge", "least-squares", "discriminant", "ridge-classifier", "logistic" or "poisson".
    target : str
        What it predicts.
    columns : tuple of str
        The encoded columns it predicts from.
    coef, intercept : (d, k), (k,) arrays
        In units of the columns; a number has one column k, classes one each, of two classes the
        logistic model has one, for the second.
    coef_error, intercept_error : arrays of these shapes, or None
        Standard errors; None for a discriminant and a ridge classifier. Of a model that is not
        exact, they include the error of sampling, as if the sample were not spread; of a spread one
        it is smaller.
    classes : tuple or None
    ridge : float
        The penalty, on encoded columns: those of a table are divided by their spread.
    r2 : float or None
        Of least squares and ridge: the share of variance explained in everything seen; of several
        numbers, or of the indicators of classes, of all together.
    deviance : float or None
        Of probabilities and counts: twice the mean log loss, estimated by the kept rows.
    rows : int
        Rows seen that have a target.
    exact : bool
        Whether it equals the fit to all rows up to rounding.
    note : str
        How it was fitted.
    """

    kind: str
    target: str
    columns: tuple[str, ...]
    coef: Floats
    intercept: Floats
    coef_error: Floats | None
    intercept_error: Floats | None
    classes: tuple[Any, ...] | None
    ridge: float
    r2: float | None
    deviance: float | None
    rows: int
    exact: bool
    note: str
    _design: ModelDesign = field(repr=False)
    _encoded: tuple[Floats, Floats] = field(repr=False)  # coefficients of encoded columns
    _config: Config = field(repr=False)
    _state: State = field(repr=False)

    @property
    def coefficients(self) -> dict[Any, Any]:
        """The coefficients by the name of their column; of several classes, by class and column."""
        return self._by_name(self.coef)

    @property
    def standard_errors(self) -> dict[Any, Any] | None:
        """The standard errors of `coefficients`, or None if there are none."""
        return None if self.coef_error is None else self._by_name(self.coef_error)

    def _by_name(self, values: Floats) -> dict[Any, Any]:
        columns = [dict(zip(self.columns, column.tolist(), strict=True)) for column in values.T]
        if len(columns) == 1:
            return columns[0]
        return dict(zip(self.classes or range(len(columns)), columns, strict=True))

    def decision_function(self, rows: Any) -> Floats:
        """(n, k) the linear functions of rows, given as to `olss.Sketch.update`."""
        coef, intercept = self._encoded
        plan, only = self._design.encoder.plan, None
        if plan is not None:
            only = {column.name for column in plan.used} - {self.target}
        X = read_new(self._config, self._state, rows, only)
        scores: Floats = self._design.encode(X, self._design.places) @ coef + intercept
        return scores

    def predict(self, rows: Any) -> NDArray[Any]:
        """Return the prediction for each row: a number, the mean count, or a class.

        Parameters
        ----------
        rows : array (n, ...) or table
            As for `olss.Sketch.update`; a target may be among the columns of a table, or not.
        """
        scores = self.decision_function(rows)
        if self.classes is None:
            values: Floats = np.exp(scores) if self.kind == "poisson" else scores
            return np.asarray(values[:, 0] if values.shape[1] == 1 else values)
        labels = np.array(self.classes)
        best = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        return np.asarray(labels[best])

    def predict_proba(self, rows: Any) -> Floats:
        """(n, classes) probabilities, in the order of `classes`."""
        if self.classes is None or self.kind == "ridge-classifier":
            raise InputError(
                f"predict_proba needs kind='logistic' or 'discriminant', found {self.kind!r}."
            )
        scores = self.decision_function(rows)
        if len(self.classes) == 1:
            return np.ones((len(scores), 1))
        return _probabilities(scores, self.kind)

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn estimator of encoded columns, for arrays.

        `LinearRegression` or `Ridge`, `LogisticRegression`, `LinearDiscriminantAnalysis`,
        `RidgeClassifier` or `PoissonRegressor`, with coefficients in units of the columns.
        """
        return _to_sklearn(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the model as JSON can hold it; of coefficients, a list for each class."""
        public = [entry.name for entry in fields(self) if not entry.name.startswith("_")]
        return {name: _to_json(getattr(self, name)) for name in public}

    def __str__(self) -> str:
        lines = [f"{self._title}, {self.note}"]
        head, *body = self._table()
        widths = [max(len(line[k]) for line in (head, *body)) for k in range(len(head))]
        for line in (head, *body):
            cells = [line[0].ljust(widths[0])] + [
                cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        more = len(self.columns) - SHOWN
        return "\n".join([*lines, f"and {more:,} more columns"] if more > 0 else lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *body = self._table()
        template = html_environment().from_string(TEMPLATE)
        return template.render(title=self._title, note=self.note, head=head, body=body)

    @property
    def _title(self) -> str:
        fit = f"R2 {self.r2:.4f}" if self.r2 is not None else ""
        if self.deviance is not None:
            fit = f"mean deviance {self.deviance:.4g}"
        ridge = f", ridge {self.ridge:.3g}" if self.ridge else ""
        fit = f", {fit}" if fit else ""
        what = repr(self.target)
        if self.classes and len(self.classes) == 2 and self.coef.shape[1] == 1:
            what += f" = {self.classes[1]!r}"  # whose log odds the coefficients add up to
        return f"{self.kind} model of {what}: {self.rows:,} rows{fit}{ridge}"

    def _table(self) -> list[list[str]]:
        """Return a head and a line for each of the largest coefficients, by their part."""
        several = self.coef.shape[1] > 1
        spread = np.sqrt(self._design.moments.scatter.diagonal().clip(0))
        part = (abs(self._encoded[0]) * spread[:, None]).max(axis=1, initial=0.0)
        order = np.argsort(-part, kind="stable")[:SHOWN]
        names = [str(label) for label in self.classes or ()] if several and self.classes else []
        names = names or [
            f"coefficient {k}" if several else "coefficient" for k in range(self.coef.shape[1])
        ]
        head, errors = ["column", *names], self.coef_error if not several else None
        lines = [[self.columns[j], *(f"{v:.5g}" for v in self.coef[j])] for j in order]
        last = ["(intercept)", *(f"{v:.5g}" for v in self.intercept)]
        if errors is not None and self.intercept_error is not None:
            head.append("std. error")
            for line, j in zip(lines, order, strict=True):
                line.append(f"{errors[j, 0]:.2g}")
            last.append(f"{self.intercept_error[0]:.2g}")
        return [head, *lines, last]


def fit_linear_model(
    config: Config,
    state: State,
    target: str | int | None = None,
    kind: str = "auto",
    ridge: float | str = "auto",
) -> LinearModel:
    """Fit a linear model to everything seen; see `olss.Sketch.linear_model`."""
    checks.choice("kind", kind, KINDS)
    if isinstance(ridge, str):
        checks.choice("ridge", ridge, ["auto"])
    else:
        ridge = checks.number("ridge", ridge, minimum=0)
    design = describe_design(state, target, numeric=kind in NUMERIC)
    if kind == "auto":
        kind = "ridge" if design.classes is None else "logistic"
    if (kind in NUMERIC) != (design.classes is None):
        what = "classes" if design.classes is not None else "a number"
        allowed = NUMERIC if design.classes is None else KINDS[3:6]
        raise InputError(
            f"kind={kind!r} does not fit the target {design.target!r}, which is {what}. Choose one "
            f"of: {', '.join(allowed)}."
        )
    if kind in ("logistic", "poisson"):
        return _fit_glm(config, state, design, kind, 1.0 if ridge == "auto" else float(ridge))
    return _fit_exactly(config, state, design, kind, ridge)


def describe_design(
    state: State, target: str | int | None = None, *, numeric: bool = False, own: bool = True
) -> ModelDesign:
    """Return moments of everything seen for a target, by default the sketch's own.

    With `numeric`, classes that are numbers are numbers; without `own` there is no target.
    """
    seen, encoder = state.moments, state.encoder
    if seen is None:
        raise InputError(
            "linear models and moments need the moments of everything seen, which this sketch does "
            "not know: it keeps none (create it with moments=True; with features=, that says the "
            "map never changes), or was merged with a sketch that encoded its columns differently."
        )
    if seen.total is None:
        raise InputError(
            f"linear models need a Gram matrix, which is kept for up to {column_limit():,} scored "
            f"columns, found {seen.columns:,}; choose columns with columns=, or set OLSS_GRAM_MB, "
            "the megabytes it may take, before the first row comes."
        )
    labels, scale, offset, owners = _labels(state, seen.columns)
    d = len(labels)
    everything = np.arange(d)
    name = "y" if state.table is None else state.table.target
    if not own:
        moments = seen.with_target(None).centre().select(everything, [])
        return ModelDesign(
            _shift_moments(moments, offset), encoder, labels, everything, scale, offset
        )
    if target is None or (name is not None and target == name):
        if seen.target is None:
            what = "it came without one" if "y" not in state.rows else "its products are not kept"
            raise InputError(
                f"target must name a scored column, for the sketch has no target of its own to "
                f"model ({what}); found {target!r}. Choose one of: {_join_names(owners)}."
            )
        known = seen
        if numeric and seen.target.classes is not None:
            numbers = seen.target.as_numbers()
            if numbers is not None:
                known = seen.with_target(numbers)
        assert known.target is not None
        moments = known.centre()
        moments = moments.select(everything, seen.columns + np.arange(moments.targets))
        return ModelDesign(
            _shift_moments(moments, offset),
            encoder,
            labels,
            everything,
            scale,
            offset,
            str(name),
            known.target.classes,
        )
    return _design_of_column(state, target, labels, scale, offset, owners)


def _design_of_column(
    state: State,
    target: str | int,
    labels: tuple[str, ...],
    scale: Floats,
    offset: Floats,
    owners: list[str],
) -> ModelDesign:
    """Return the moments with one of the scored columns as the target."""
    assert state.moments is not None
    plan = state.encoder.plan
    name = f"column {target}" if plan is None and not isinstance(target, str) else str(target)
    if name not in owners:
        raise InputError(
            f"target must be the sketch's own or a scored column, found {target!r}. Choose one of: "
            f"{_join_names(owners)}."
        )
    mine = np.flatnonzero([owner == name for owner in owners])
    others = np.flatnonzero([owner != name for owner in owners])
    column = None if plan is None else next(c for c in plan.used if c.name == name)
    classes: tuple[Any, ...] | None = None
    if isinstance(column, OneHot):
        classes = (*column.values, "others")
    elif column is None or isinstance(column, Number):
        mine = mine[:1]
    else:
        raise InputError(
            f"target {name!r} is scored as {column.use}, which is neither a number nor a class."
        )
    moments = state.moments.with_target(None).centre().select(others, mine)
    if classes is not None:
        there = np.flatnonzero(moments.target_mean > 1e-12)
        moments = moments.arrange_targets(there) if len(there) else moments
        classes, mine = tuple(classes[k] for k in there), mine[there]
    else:
        unit, origin = float(scale[mine[0]]), float(offset[mine[0]] * scale[mine[0]])
        moments = replace(
            moments,
            target_mean=moments.target_mean * unit + origin,
            cross=moments.cross * unit,
            target_scatter=moments.target_scatter * unit**2,
        )
    return ModelDesign(
        _shift_moments(moments, offset[others]),
        state.encoder,
        tuple(labels[j] for j in others),
        others,
        scale[others],
        offset[others],
        name,
        classes,
        mine,
        (float(scale[mine[0]]), float(offset[mine[0]])),
    )


def _labels(state: State, columns: int) -> tuple[tuple[str, ...], Floats, Floats, list[str]]:
    """Return names, scales, offsets and owners of the encoded columns but the constant."""
    plan, missing = state.encoder.plan, state.encoder.missing
    if plan is not None:
        scale = np.concatenate([column.scales for column in plan.used])
        return tuple(plan.labels()), scale, plan.offsets, plan.owners()
    marked = [] if missing is None else missing.marked.tolist()
    own = [f"column {j}" for j in range(columns - len(marked))]
    names = own + [f"column {j} is missing" for j in marked]
    owners = own + [f"column {j}" for j in marked]
    return tuple(names), np.ones(columns), np.zeros(columns), owners


def _shift_moments(moments: Moments, offset: Floats) -> Moments:
    """Return moments of columns in their own origin: with it, intercepts are those users expect."""
    return replace(moments, mean=moments.mean + offset)


def _fit_exactly(
    config: Config, state: State, design: ModelDesign, kind: str, ridge: float | str
) -> LinearModel:
    moments, r2 = design.moments, None
    errors: tuple[Floats | None, Floats | None] = (None, None)
    note = "exact: equal to the fit to all rows"
    if config.window is not None:
        note += " of the window and up to a sixteenth of it more"
    if design.classes is not None and len(design.classes) == 1:
        return _constant(config, state, design, kind)
    if kind == "discriminant":
        strength = 0.0 if ridge == "auto" else float(ridge)
        found = fit_discriminant(moments, ridge=strength)
        coef, intercept = found.coef, found.intercept
    else:
        if kind == "least-squares":
            if ridge not in ("auto", 0.0):
                raise InputError(f"ridge must be 0 for kind='least-squares', found {ridge!r}.")
            strength = 0.0
        else:
            strength = choose_ridge(moments) if ridge == "auto" else float(ridge)
        fit = fit_linear(moments, strength)
        coef, intercept = fit.coef, fit.intercept
        if design.classes is None:
            errors = (fit.coef_error, fit.intercept_error)
        about = moments.target_scatter.diagonal()
        if about.sum() > 0:
            r2 = float(np.nansum(fit.r2 * about) / about.sum())
    return _model(
        config, state, design, kind, coef, intercept, errors, strength, r2, None, True, note
    )


def _fit_glm(
    config: Config, state: State, design: ModelDesign, kind: str, ridge: float
) -> LinearModel:
    """Fit a logistic or Poisson model to the kept rows, corrected by sums over all."""
    if not config.policy.mergeable:
        raise InputError(
            f"kind={kind!r} needs rows that record how many rows each stands for, which policy "
            f"{config.policy.name!r} does not; use kind='discriminant' or 'ridge'."
        )
    if design.classes is not None and len(design.classes) == 1:
        return _constant(config, state, design, kind)
    X, y, weight, sampled = _kept_rows(state, design)
    family: Family = "poisson" if kind == "poisson" else "logistic"
    if family == "poisson" and y.min(initial=0.0) < 0:
        raise InputError(
            f"kind='poisson' needs counts, not negative; found {y.min():g} in {design.target!r}."
        )
    problems = [0]
    if design.classes is not None:
        problems = [1] if len(design.classes) == 2 else list(range(len(design.classes)))
    known = _known_gradient(state, design, family)
    fits: list[GlmFit] = []
    for k in problems:
        target = y[:, 0] if design.classes is None else (y[:, 0] == k).astype(np.float64)
        rows = RowTerm(X, target, weight, family)
        past = None if known is None else known[k]
        fit = partial(
            fit_kept_rows, design.moments, rows, ridge, target=k, sampled=sampled, followed=past
        )
        fits.append(call_with_one_blas_thread(fit, columns=design.moments.columns))
    whole = np.column_stack([fit.coef for fit in fits])
    error = np.column_stack([fit.error for fit in fits])
    coef, intercept = whole[:-1], whole[-1]
    done = sum(fit.corrected for fit in fits)
    how = "moments" if known is None else "exact gradient"
    note = f"fitted to {len(X):,} kept rows" + (
        f", corrected by the {how} of all rows" if done == len(fits) else ", weighted"
    )
    if 0 < done < len(fits):
        note += f"; {done} of {len(fits)} classes corrected by the {how} of all rows"
    if known is None and design.column is None and config.glm != kind:
        note += f"; a sketch with glm={kind!r} comes closer"
    deviance = _deviance(X @ coef + intercept, y, weight, kind)
    errors = (error[:-1], error[-1])
    return _model(
        config, state, design, kind, coef, intercept, errors, ridge, None, deviance, False, note
    )


def _known_gradient(state: State, design: ModelDesign, family: Family) -> list[Followed] | None:
    """Return what `fit_kept_rows` takes of the models followed so far, if any (`glm=`)."""
    trace = state.trace
    if trace is None or design.column is not None or trace.family != family:
        return None
    classes = (None,) if design.classes is None else design.classes
    kept = all_glm_rows(state.encoder, state.rows, classes, len(design.names))
    target = read_target(state.rows.get("y"), is_class=design.classes is not None)
    assert target is not None
    there = kept.take(np.flatnonzero(target.present))
    A = np.eye(len(design.names) + 1)
    A[:-1, -1] = design.offset
    return [past.transform(A) for past in trace.arrange(classes).follow(there)]


def _kept_rows(state: State, design: ModelDesign) -> tuple[Floats, Floats, Floats, Floats]:
    """Return columns, targets (n, 1), weights w and w (w - w0) of kept rows with a target."""
    rows = state.rows
    weight = rows["weight"]
    sampled = weight * (weight - rows["initial_weight"]).clip(0)
    if design.column is not None:
        y = design.encode(rows["X"], design.column)
        scale, offset = design.unit
        y = y.argmax(axis=1)[:, None] if design.classes is not None else (y + offset) * scale
        X = design.encode(rows["X"], design.places) + design.offset
        return X, y.astype(np.float64), weight, sampled
    target = read_target(rows.get("y"), is_class=design.classes is not None)
    if target is None or not target.present.any():
        raise InputError("no row kept has a target, so there is nothing to fit.")
    there = np.flatnonzero(target.present)
    y = target.values[there]
    if y.shape[1] != 1:
        raise InputError(f"kind='poisson' takes one number a row, found {y.shape[1]}.")
    if design.classes is not None and target.classes is not None:
        place = {label: k for k, label in enumerate(design.classes)}
        codes = np.array([place[label] for label in target.classes], dtype=np.float64)
        y = codes[y[:, 0].astype(np.int64)][:, None]
    X = design.encode(take(rows["X"], there), design.places) + design.offset
    return X, y, weight[there], sampled[there]


def _constant(config: Config, state: State, design: ModelDesign, kind: str) -> LinearModel:
    """Return the model of a target with one class only."""
    d = len(design.names)
    note = f"all rows are of class {design.classes[0] if design.classes else ''!r}"
    zero = np.zeros((d, 1))
    return _model(
        config, state, design, kind, zero, np.zeros(1), (None, None), 0.0, None, None, True, note
    )


def _model(
    config: Config,
    state: State,
    design: ModelDesign,
    kind: str,
    coef: Floats,
    intercept: Floats,
    errors: tuple[Floats | None, Floats | None],
    ridge: float,
    r2: float | None,
    deviance: float | None,
    exact: bool,
    note: str,
) -> LinearModel:
    """Return the model with coefficients in units of the columns."""
    by = design.scale[:, None]
    coef_error, intercept_error = errors
    return LinearModel(
        kind=kind,
        target=design.target,
        columns=design.names,
        coef=coef / by,
        intercept=intercept,
        coef_error=None if coef_error is None else coef_error / by,
        intercept_error=intercept_error,
        classes=design.classes,
        ridge=ridge,
        r2=r2,
        deviance=deviance,
        rows=round(design.moments.count),
        exact=exact,
        note=note,
        _design=design,
        _encoded=(coef, intercept + design.offset @ coef),
        _config=config,
        _state=state.replace(rows=state.rows.take(np.arange(0)), buckets=None, files=()),
    )


def _probabilities(scores: Floats, kind: str) -> Floats:
    """(n, classes) probabilities from linear functions of rows."""
    if kind == "discriminant":
        return np.asarray(special.softmax(scores, axis=1), np.float64)
    p = special.expit(scores)
    if p.shape[1] == 1:
        return np.column_stack([1 - p, p])
    total = p.sum(axis=1, keepdims=True)
    shares = np.where(total > 0, p / np.where(total > 0, total, 1.0), 1 / p.shape[1])
    return np.asarray(shares, np.float64)


def _deviance(scores: Floats, y: Floats, weight: Floats, kind: str) -> float:
    """Return twice the weighted mean log loss; of counts, relative to a saturated model."""
    if kind == "poisson":
        count, rate = y[:, 0], np.exp(scores[:, 0])
        loss = special.xlogy(count, count) - special.xlogy(count, rate) - count + rate
    else:
        p = _probabilities(scores, kind)
        loss = -np.log(np.maximum(p[np.arange(len(p)), y[:, 0].astype(np.int64)], 1e-300))
    return float(2 * (weight @ loss) / weight.sum())


def _to_sklearn(model: LinearModel) -> Any:
    try:
        from sklearn import linear_model as linear
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "sklearn", "LinearModel.to_sklearn") from error
    classes = model.classes
    made: dict[str, Any] = {
        "least-squares": linear.LinearRegression(),
        "ridge": linear.Ridge(alpha=model.ridge),
        "poisson": linear.PoissonRegressor(alpha=model.ridge / max(model.rows, 1)),
        "logistic": linear.LogisticRegression(C=1 / model.ridge if model.ridge else np.inf),
        "discriminant": LinearDiscriminantAnalysis(),
        "ridge-classifier": linear.RidgeClassifier(alpha=model.ridge),
    }
    estimator = made[model.kind]
    coef, intercept = model.coef, model.intercept
    if classes is not None:
        if len(classes) < 2:
            raise InputError("to_sklearn needs two classes or more, found one.")
        if model.kind == "logistic" and len(classes) > 2:
            raise InputError(
                "to_sklearn does not support logistic models of three classes or more: these are "
                "one against the rest, and scikit-learn's are not."
            )
        if len(classes) == 2 and coef.shape[1] == 2:
            coef, intercept = coef[:, 1:] - coef[:, :1], intercept[1:] - intercept[:1]
        estimator.classes_ = np.array(classes)
        if model.kind == "ridge-classifier":
            from sklearn.preprocessing import LabelBinarizer

            estimator._label_binarizer = LabelBinarizer(pos_label=1, neg_label=-1).fit(
                estimator.classes_
            )
    one = classes is None and coef.shape[1] == 1
    estimator.coef_ = coef[:, 0] if one else coef.T
    estimator.intercept_ = float(intercept[0]) if one else intercept
    estimator.n_features_in_ = len(coef)
    return estimator


@dataclass(frozen=True, eq=False)
class MomentsView:
    """Means, covariances and principal components of everything seen, of the encoded columns.

    Exact, in units of the columns; made by `olss.Sketch.moments`.

    Attributes
    ----------
    columns : tuple of str
    count : int
        Rows seen.
    weight : float
        The sum of their weights.
    """

    columns: tuple[str, ...]
    count: int
    weight: float
    _moments: Moments = field(repr=False)

    @property
    def mean(self) -> dict[str, float]:
        """The mean of each column."""
        return dict(zip(self.columns, self._moments.mean.tolist(), strict=True))

    def covariance(self, *names: str) -> Floats:
        """Return the covariance of the columns named, by default of all, divided by weight - 1."""
        return self._moments.covariance()[np.ix_(*2 * [self._places(names)])]

    def correlation(self, *names: str) -> Floats:
        """Return the correlation of the columns named, by default of all; NaN if constant."""
        return self._moments.correlation()[np.ix_(*2 * [self._places(names)])]

    def pca(self, k: int | None = None) -> PrincipalComponents:
        """Return the k leading principal components of the columns, by default all."""
        return find_components(self._moments, k)

    def _places(self, names: tuple[str, ...]) -> NDArray[np.intp]:
        place = {name: j for j, name in enumerate(self.columns)}
        for name in names:
            checks.column("names", name, self.columns)
        return np.array([place[name] for name in names or self.columns], dtype=np.intp)

    def __str__(self) -> str:
        lines = [f"moments of {self.count:,} rows, {len(self.columns):,} columns"]
        spread = np.sqrt(self._moments.scatter.diagonal() / max(self.weight - 1, 1)).tolist()
        width = max(map(len, self.columns), default=0)
        for name, mean, deviation in list(
            zip(self.columns, self._moments.mean, spread, strict=True)
        )[:SHOWN]:
            lines.append(f"{name:{width}}  mean {mean:12.6g}  std {deviation:12.6g}")
        more = len(self.columns) - SHOWN
        return "\n".join([*lines, f"and {more:,} more columns"] if more > 0 else lines)

    __repr__ = __str__


def view_moments(state: State) -> MomentsView:
    """Return the moments of everything seen, in units of the columns."""
    design = describe_design(state, own=False)
    assert state.moments is not None
    by, moments = design.scale, design.moments
    own = replace(
        moments,
        mean=moments.mean * by,
        scatter=moments.scatter * by[:, None] * by,
        noise=moments.noise * by**2,
    )
    return MomentsView(design.names, state.moments.rows, state.moments.weight, own)


def _join_names(owners: list[str]) -> str:
    names = list(dict.fromkeys(owners))
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _to_json(value: Any) -> Any:
    """Return arrays, transposed, and tuples as lists; None for numbers that are not finite."""
    if isinstance(value, np.ndarray):
        found = value.T.astype(object)
        found[~np.isfinite(value.T)] = None
        return found.tolist()
    return list(value) if isinstance(value, tuple) else value
