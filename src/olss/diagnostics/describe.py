"""What a sketch holds, as text, HTML and figure: rows by task and class, and the most unusual."""

from __future__ import annotations

import os
import textwrap
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import is_sparse, to_numpy
from olss.core.frequent_directions import DirectionsFactor
from olss.core.gram import Factor
from olss.core.leverage import Projected
from olss.diagnostics.select import known_counts
from olss.errors import InputError, MissingExtraError, OlssWarning
from olss.memory.config import Config
from olss.memory.engine import target_kind
from olss.memory.rows import take
from olss.memory.state import State
from olss.tables.columns import Passthrough
from olss.util.text import align_columns, format_bytes, html_environment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

WIDTH = 12  # classes shown as columns
TASKS = 40  # tasks shown as lines
COLUMNS = 12  # columns named of those scored, and of those not
LINE = 92  # letters
# For a notebook: only alignment and bars are styled, so that it suits any theme.
TEMPLATE = """\
{% set style = "padding:1px 10px;border:0;background:none;text-align:" %}
<div>
{% if title %}<div style="font-weight:600;font-family:monospace">{{ title }}</div>{% endif %}
{% if rows %}
<div style="max-width:60em;line-height:1.5">
{% for line in summary %}<div>{{ line }}</div>{% endfor %}
</div>
<table><thead><tr>
{% for name in head %}
<th scope="col" style="{{ style }}{{ "left" if loop.first else "right" }};">{{ name }}</th>
{% if loop.first %}<th style="{{ style }}left;"></th>{% endif %}
{% endfor %}
</tr></thead><tbody>
{% for share, cells in rows %}
<tr>
{% for cell in cells %}
<td style="{{ style }}{{ "left" if loop.first else "right" }};">{{ cell }}</td>
{% if loop.first %}<td style="{{ style }}left;width:8em;"><span style="display:block;height:.75em;\
border-radius:2px;min-width:2px;background:#0072B2;width:{{ share }}%"></span></td>{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody></table>
{% endif %}
</div>
"""


@dataclass(frozen=True)
class Description:
    """Rows per task and class, and weights, of a sketch; its `str` is a table to read.

    Attributes
    ----------
    rows, seen : int
        Rows held and rows seen.
    tasks : list
        The tasks that have rows in the sketch.
    classes : list or None
        The classes that have, or None if rows have no class.
    counts : (len(tasks), len(classes) or 1) int array
        Rows held per task and class.
    task_weight : (len(tasks),) array
        Rows seen of each task: exact where tasks are files, else the sum of weights, an estimate.
    task_end : (len(tasks),) int array
        Position in the stream of the last row held of each task.
    weight : tuple of three floats
        Smallest, mean and largest weight.
    effective_rows : float
        How many rows of equal weight tell as much: (sum w)^2 / sum w^2.
    scored : str
        What scores are taken of, in words.
    columns : list of (name, use, reason)
        Of tables: what each column is used for.
    row_bytes, moments_bytes : int
        Memory of the rows held, and of the moments of everything seen.
    """

    rows: int
    seen: int
    tasks: list[Any]
    classes: list[Any] | None
    counts: NDArray[np.int64]
    task_weight: NDArray[np.float64]
    task_end: NDArray[np.int64]
    weight: tuple[float, float, float]
    effective_rows: float
    scored: str
    columns: list[tuple[str, str, str]]
    row_bytes: int
    moments_bytes: int

    @classmethod
    def of(
        cls,
        config: Config,
        state: State,
        classes: NDArray[Any] | None,
    ) -> Description:
        """Return the description of a state with rows, whose classes are given."""
        task, weight = state.rows["task"], state.rows["weight"]
        columns = _column_uses(state)
        tasks, i = np.unique(task, return_inverse=True)
        labels, j = np.unique(
            np.zeros(len(task)) if classes is None else classes, return_inverse=True
        )
        counts = np.zeros((len(tasks), len(labels)), dtype=np.int64)
        np.add.at(counts, (i, j), 1)
        names, weights = tasks.tolist(), np.bincount(i, weight).tolist()
        known = known_counts(config, state, "task")
        ends = np.zeros(len(tasks), dtype=np.int64)
        np.maximum.at(ends, i, state.rows["index"])
        return cls(
            rows=len(task),
            seen=state.seen,
            tasks=names,
            classes=None if classes is None else labels.tolist(),
            counts=counts,
            task_weight=np.array([known.get(t, w) for t, w in zip(names, weights, strict=True)]),
            task_end=ends,
            weight=(float(weight.min()), float(weight.mean()), float(weight.max())),
            effective_rows=float(weight.sum() ** 2 / (weight**2).sum()),
            scored=_describe_scored(config, state, columns) + _describe_target(config, state),
            columns=columns,
            row_bytes=state.rows.nbytes,
            moments_bytes=0 if state.buckets is None else state.buckets.nbytes,
        )

    @property
    def memory(self) -> str:
        """Bytes held, as text."""
        text = f"memory: rows {format_bytes({'mean': self.row_bytes})}"
        if self.moments_bytes:
            text += f", moments {format_bytes({'mean': self.moments_bytes})}"
        return text

    @property
    def summary(self) -> list[str]:
        """What a sketch holds beside its rows by task, a line each."""
        low, mean, high = self.weight
        lines = [
            f"{self.rows:,} rows of {self.seen:,} seen",
            f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; "
            f"worth {self.effective_rows:,.0f} rows of equal weight",
            f"scored: {self.scored}",
            self.memory,
        ]
        if len(self.tasks) > TASKS:
            lines.append(f"the newest {TASKS} of {len(self.tasks):,} tasks:")
        return lines

    def __str__(self) -> str:
        lines = [textwrap.fill(line, LINE, subsequent_indent="  ") for line in self.summary]
        return "\n".join(lines + align_columns(self.table()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return what a notebook shows: small, whatever the theme, whatever the names."""
        return render_html("", self)

    def table(self) -> list[list[str]]:
        """Return rows by task and class as cells to read, after a line of titles."""
        shown = [] if self.classes is None else self.classes[:WIDTH]
        more = ["..."] if self.classes is not None and len(self.classes) > WIDTH else []
        lines = [["task", "rows", "stand for", *map(str, shown), *more]]
        for i in self.newest_tasks(TASKS):
            counts = self.counts[i]
            by_class = [f"{count:,}" for count in counts[: len(shown)]]
            weight = f"{self.task_weight[i]:,.0f}"
            lines.append([str(self.tasks[i]), f"{counts.sum():,}", weight, *by_class, *more])
        return lines

    def newest_tasks(self, count: int) -> list[int]:
        """Return the places in `tasks` of those whose rows came last, in the order of `tasks`."""
        return find_largest(self.task_end, count)


def render_html(title: str, found: Description | None) -> str:
    """Return a title and a description as HTML, for notebooks."""
    shown: dict[str, Any] = {"title": title}
    if found is not None:
        head, *lines = found.table()
        kept = found.counts.sum(axis=1)
        shares = [f"{100 * kept[i] / kept.max():.1f}" for i in found.newest_tasks(TASKS)]
        shown |= {
            "summary": found.summary,
            "head": head,
            "rows": [*zip(shares, lines, strict=True)],
        }
    return html_environment().from_string(TEMPLATE).render(shown)


def _column_uses(state: State) -> list[tuple[str, str, str]]:
    """Return (name, use, reason) for each column of a table; nothing while nothing is scored."""
    encoder = state.encoder
    if encoder.plan is None:
        return []
    if state.moments is None or not encoder.plan.width:
        return encoder.plan.uses(np.ones(encoder.plan.width, dtype=bool))
    return encoder.plan.uses(encoder.varying(state.moments))


def find_largest(values: NDArray[Any], count: int) -> list[int]:
    """Return the places of the `count` largest values, in their order.

    Examples
    --------
    >>> find_largest(np.array([5, 1, 7]), 2)
    [0, 2]
    """
    return sorted(np.argsort(-values, kind="stable")[:count].tolist())


def short_names(names: list[str]) -> list[str]:
    """Return names without their folder, if all are in the same."""
    if len(names) == 1:
        return [os.path.basename(names[0]) or names[0]]
    folders = {name.rpartition("/")[0] for name in names}
    if len(folders) > 1:
        return names
    return [name.rpartition("/")[2] for name in names]


def _describe_scored(config: Config, state: State, columns: list[tuple[str, str, str]]) -> str:
    """Return what is scored, as text."""
    if config.features is not None:
        return "features(X)"
    if not config.policy.uses_features and state.moments is None:
        return "nothing; the policy needs no scores"
    if state.table is None:
        width = int(np.prod(state.rows["X"].shape[1:]))
        filled = ", missing values filled" if state.encoder.missing is not None else ""
        return f"rows as they are, {width:,} number{'' if width == 1 else 's'} each{filled}"
    used = [f"{name} ({use})" for name, use, _ in columns if use != Passthrough.use]
    carried = [name for name, use, _ in columns if use == Passthrough.use]
    text = _join_some(used) or "no column"
    return f"{text}; kept but not scored: {_join_some(carried)}" if carried else text


def _describe_target(config: Config, state: State) -> str:
    target = target_kind(config, state)
    if target is None:
        return ""
    model = "logistic" if target == "class" else "linear"
    return f"; and the errors of a {model} model of the target"


def _join_some(names: list[str]) -> str:
    more = f" and {len(names) - COLUMNS:,} more" if len(names) > COLUMNS else ""
    return ", ".join(names[:COLUMNS]) + more


class Stretches(NamedTuple):
    """Shares of stretches of the stream; each kind sums to 1.

    Attributes
    ----------
    edges : (k + 1,) array
        Positions in the stream.
    seen, kept, stands : (k,) arrays
        Of the rows seen, of the rows kept, of what these stand for by their weights.
    """

    edges: Floats
    seen: Floats
    kept: Floats
    stands: Floats


def along_stream(state: State, stretches: int = 50) -> Stretches:
    """Return shares of stretches of equal length, of which there are as many as rows at most.

    They begin with the stream or, if no row of its first twentieth is held (as with a window or a
    half-life), with the first row held.
    """
    first = int(state.rows["index"].min())
    start = first if 20 * first > state.seen else 0
    edges = np.round(np.linspace(start, state.seen, min(stretches, state.seen - start) + 1))
    place = np.searchsorted(edges, state.rows["index"], side="right") - 1
    count = len(edges) - 1
    kept = np.bincount(place, minlength=count) / len(state.rows)
    stands = np.bincount(place, state.rows["weight"], minlength=count) / state.rows["weight"].sum()
    return Stretches(edges, np.diff(edges) / (state.seen - start), kept, stands)


@dataclass(frozen=True)
class UnusualRow:
    """A row that stands out.

    Attributes
    ----------
    row : int
        Its place among the rows kept.
    leverage : float
        In everything seen, from 0 to 1: at 1, no other row has anything in its direction.
    times : float
        How many times the mean of everything seen that is.
    parts : list of (name, float)
        What columns have of its leverage, as shares that sum to 1, the largest first.
    """

    row: int
    leverage: float
    times: float
    parts: list[tuple[str, float]]


def find_unusual_rows(config: Config, state: State, most: int = 10) -> list[UnusualRow]:
    """Return the rows kept that have the highest leverage in everything seen.

    The leverage of a row is h = z' M z, with M the inverse of the Gram matrix of everything seen
    and z the encoded row. Its terms z_j (M z)_j sum to h: those of a column are its part in it.
    For tables z is the distance from the column's median, in units of its spread, and a constant;
    so a column in which a row is ordinary has no part.
    """
    if state.moments is None:
        raise InputError("unusual rows need the moments of everything seen: use moments=True.")
    scores = "exact" if config.scores == "sketched" else config.leverage
    size = len(state.rows) if config.size == "task" else config.size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OlssWarning)  # few rows, many columns: all stand out
        scorer = state.encoder.scorer(state.moments, scores, size, 0)
        leverage, _ = scorer(state.rows["X"])
    top = np.argsort(-leverage, kind="stable")[:most]
    encoded = state.encoder.encode(take(state.rows["X"], top))
    Z = encoded.toarray() if is_sparse(encoded) else to_numpy(encoded)
    Z = Z.reshape(len(top), -1).astype(np.float64)
    parts = Z * _solve(scorer.factor, Z)
    names = _column_names(state, Z.shape[1])
    mean = scorer.dimension / max(scorer.total, 1e-300)
    return [
        UnusualRow(int(row), float(leverage[row]), float(leverage[row] / mean), _shares(names, own))
        for row, own in zip(top, parts, strict=True)
    ]


def _solve(factor: Any, Z: Floats) -> Floats:
    """Return M z for each row z."""
    if isinstance(factor, Projected):
        factor = factor.factor
    if isinstance(factor, DirectionsFactor):
        inside = Z @ factor.V
        solved: Floats = (inside / (factor.s + factor.ridge)) @ factor.V.T
        return solved + (Z - inside @ factor.V.T) / factor.ridge if factor.ridge else solved
    assert isinstance(factor, Factor)
    return np.asarray((Z @ factor.W) @ factor.W.T)


def _column_names(state: State, width: int) -> list[str]:
    """Return the column behind each encoded number."""
    if state.encoder.plan is not None:
        return [*state.encoder.plan.owners(), "(constant)"]
    shape = state.rows["X"].shape[1:]
    if len(shape) > 1 and int(np.prod(shape)) == width:
        return [f"column {tuple(map(int, np.unravel_index(j, shape)))}" for j in range(width)]
    return [f"column {j}" for j in range(width)]


def _shares(names: list[str], parts: Floats) -> list[tuple[str, float]]:
    total = float(parts.sum())
    by_name: dict[str, float] = {}
    for name, part in zip(names, parts.tolist(), strict=True):
        by_name[name] = by_name.get(name, 0.0) + (part / total if total > 0 else 0.0)
    return sorted(by_name.items(), key=lambda pair: -pair[1])


BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#6b6b6b"
# Okabe and Ito (2008), yellow darkened: distinct with all common colour deficiencies.
CLASSES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#C9B800", "#6b6b6b")
BARS = 40  # bars drawn; with more, tasks are gathered


def plot_sketch(state: State, described: Description | None, stands: bool) -> Figure:
    """Return the figure of `Sketch.plot`; `stands`: whether weights say what rows stand for."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "lab", "plot()") from error
    if described is None:
        raise InputError("the sketch is empty: there is nothing to plot yet.")
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    tasks, weights, stream = figure.subplots(1, 3, gridspec_kw={"width_ratios": (4, 3, 4)})
    _draw_tasks(tasks, described.tasks, described.counts, described.classes)
    _draw_weights(weights, state.rows["weight"])
    _draw_stream(stream, state, stands)
    for axes in (tasks, weights, stream):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(10)
    figure.suptitle(f"{len(state.rows):,} rows kept of {state.seen:,} seen", fontsize=11)
    return figure


def _draw_tasks(axes: Axes, tasks: list[Any], counts: Any, classes: list[Any] | None) -> None:
    """Draw rows by task, each class on top of the one before."""
    if len(tasks) > BARS:
        counts = np.array([part.sum(axis=0) for part in np.array_split(counts, BARS)])
    place, bottom = np.arange(len(counts)), np.zeros(len(counts))
    shown = counts.shape[1] if classes is None else min(len(classes), len(CLASSES))
    for k in range(shown):
        last = classes is not None and k == shown - 1 < len(classes) - 1
        height = counts[:, k:].sum(axis=1) if last else counts[:, k]
        name = None if classes is None else "others" if last else _shorten_name(classes[k])
        axes.bar(place, height, bottom=bottom, color=CLASSES[k], label=name, width=0.85)
        bottom = bottom + height
    if len(tasks) <= 12:
        names = [_shorten_name(name) for name in short_names([str(task) for task in tasks])]
        axes.set_xticks(place, names, fontsize=8)
        if max(map(len, names)) > 3:
            axes.tick_params(axis="x", rotation=90)
    if classes is not None:
        axes.margins(y=0.3)  # room for the legend
        axes.legend(fontsize=7, frameon=False, ncols=4, title="class", title_fontsize=7)
    axes.set(title="rows kept by task", xlabel="task" if len(tasks) <= BARS else "tasks, in order")


def _draw_weights(axes: Axes, weight: Any) -> None:
    low, high = float(weight.min()), float(weight.max())
    if high <= low * (1 + 1e-9):
        axes.bar([0], [len(weight)], color=BLUE, width=0.4)
        axes.set_xticks([0], [f"{low:.4g}"])
        axes.set_xlim(-1, 1)
    else:
        axes.hist(weight, bins=np.unique(np.geomspace(low, high, 25)).tolist(), color=BLUE)
        axes.set_xscale("log")
    axes.set(title="rows kept by weight", xlabel="rows seen that a row stands for")


def _draw_stream(axes: Axes, state: State, stands: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    found = along_stream(state)
    axes.stairs(
        found.kept / found.seen, found.edges, fill=True, color=BLUE, alpha=0.35, label="kept"
    )
    if stands:
        axes.stairs(found.stands / found.seen, found.edges, color=VERMILLION, label="stands for")
    axes.axhline(1, color=GREY, linestyle="--", linewidth=1, label="seen")
    axes.set(title="along the stream, relative to what was seen", xlabel="row of the stream")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.margins(y=0.25)  # room for the legend
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="upper left")


def _shorten_name(value: Any) -> str:
    """Return a name short enough for an axis; a dollar sign would start a formula."""
    text = str(value)
    text = text if len(text) <= 16 else f"…{text[-15:]}"
    return text.replace("$", r"\$")
