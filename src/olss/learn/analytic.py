"""The analytic learner: frozen features, and the moments of everything seen. It cannot forget.

What answers is a linear discriminant (for classes) or a ridge regression, solved from moments of
all rows ever seen: whatever the order of the tasks, it equals training on everything at once, and
no row is stored. The idea is that of ACIL (Zhuang et al. 2022) and RanPAC (McDonnell et al. 2023),
here with features that need no pretrained net.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from olss.core.linear_fit import choose_ridge, fit_discriminant, solve_ridge
from olss.core.moments import Moments, fade, one_hot, place_classes
from olss.errors import DataError, InputError
from olss.learn.buffers import Buffer
from olss.learn.checkpoint import read_state, save_learner, write_state
from olss.learn.features import FeatureMap, Given, make_features
from olss.learn.learner import Learner, TaskCost
from olss.learn.model import (
    COMPETING,
    check_numbers,
    check_rows,
    score_answers,
    strip_prefix,
    unique_labels,
)
from olss.learn.training import Seeds, check_images
from olss.util import checks

__all__ = ["AnalyticLearner", "AnyLearner"]

Floats = NDArray[np.float64]

BLOCK = 1_000  # rows whose features are held at a time, or half as many as there are features
SCORED_BYTES = 500_000_000  # of features of rows scored before, which later tasks are scored on too
LEAST_RIDGE = 1e-6  # of the mean square: single precision knows no less
CLASSIFIERS = ("discriminant", "ridge")
LOSSES = ("cross-entropy", "l2")


class AnalyticLearner:
    """A linear model on frozen features, from the moments of everything seen; made by `recipe`.

    Parameters
    ----------
    name, config :
        As of `Learner`.
    features : str, nn.Module or callable
        "auto", "patches", "random", "raw", a frozen net or a function; in `recipe` also its name
        as ``"module:Name"``. See `olss.learn.features`.
    classifier : str
        "discriminant", or "ridge": regression to one-hot classes.
    ridge : float or "auto"
        Added to the diagonal of the scatter matrix, relative to its mean; "auto" chooses it by
        generalised cross-validation when the rows seen have doubled.
    loss : str
        "cross-entropy" for classes, "l2" for numbers.
    mirrored : bool
        Whether the features of an image are the mean of its own and those of its mirror image.
    half_life : float, optional
        Rows after which a row counts half.
    precision : str
        "float32", or "bfloat16": of the responses of patches.
    threads : int, optional
        As in `Training`.
    **settings
        Of the feature map: `centres`, `cells`, `patch`, `threshold`, `power`, `images`; `width`,
        `kind`.

    Attributes
    ----------
    name, config :
        As of `Learner`.
    buffer : Buffer
        Holds nothing.
    tasks : int
        Tasks learned.
    classes : array or None
        All labels so far.
    moments : Moments or None
        Of the features, in float32 (float64 for features that are given).

    Examples
    --------
    >>> from olss.learn import recipe, run
    >>> from olss.streams import incremental
    >>> record = run(incremental("digits", tasks=5), recipe("analytic", centres=50))
    >>> bool(record.accuracy[-1].mean() > 0.95), int(record.stored_examples[-1])
    (True, 0)
    """

    def __init__(
        self,
        name: str = "analytic",
        config: dict[str, Any] | None = None,
        *,
        features: Any = "auto",
        classifier: str = "discriminant",
        ridge: float | Literal["auto"] = "auto",
        loss: str = "cross-entropy",
        mirrored: bool = False,
        half_life: float | None = None,
        precision: str = "float32",
        threads: int | None = None,
        **settings: Any,
    ) -> None:
        self.features = features
        self.classifier = checks.choice("classifier", classifier, CLASSIFIERS)
        self.ridge = ridge if ridge == "auto" else checks.number("ridge", ridge, above=0)
        self.loss = checks.choice("loss", loss, LOSSES)
        self.mirrored = checks.boolean("mirrored", mirrored)
        fade(half_life, 1)
        self.half_life = half_life
        self.precision = checks.choice("precision", precision, ("float32", "bfloat16"))
        self.threads = None if threads is None else checks.integer("threads", threads)
        self.settings = settings
        for shape in ((32, 32), (4,)) if features == "auto" else ((32, 32),):
            self._make_map(shape)  # says what is wrong with the settings
        self.name, self.config = name, config or {}
        self.buffer = Buffer()
        self.moments: Moments | None = None

    def __repr__(self) -> str:
        done = f"{self.tasks} tasks learned" if self.moments else "not started"
        return f"AnalyticLearner({self.name!r}, {done})"

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted, not classes."""
        return self.loss != "cross-entropy"

    @property
    def protocol(self) -> str:
        """Which classes compete, in words."""
        return "" if self.regression else COMPETING["seen"]

    @property
    def stored_bytes(self) -> int:
        """Bytes kept for later tasks: moments, and what the feature map learned."""
        if self.moments is None:
            return 0
        return self.moments.nbytes + sum(value.nbytes for value in self._map.state.values())

    def start(self, classes: Any = None, seed: int = 0, device: str = "cpu") -> AnalyticLearner:
        """Begin afresh: forget everything learned.

        Parameters
        ----------
        classes : array-like, optional
            Labels that will come; none needs to be named.
        seed : int
            Of the feature map.
        device : str
            Where features are computed.
        """
        self.seeds, self.device = Seeds(seed), torch.device(device)
        self.buffer.start(self.seeds, self.device)
        self.classes: NDArray[Any] | None = None
        if classes is not None and not self.regression:
            self.classes = unique_labels(classes, "classes")
        self.moments, self.tasks = None, 0
        self.shape: tuple[int, ...] = ()
        self._ridge, self._ridge_weight = 0.0, 0.0
        self._coef: tuple[Tensor, Tensor] | None = None
        self._scored: dict[bytes, list[tuple[slice, NDArray[Any]]]] = {}
        return self

    # ------------------------------------------------------------------ learning

    def fit_task(self, task: Any) -> TaskCost:
        """Learn a task: anything with `X`, `y` and, if need be, `scale` and `weight` of rows.

        After an error the learner is as it was before the call.
        """
        if not hasattr(self, "seeds"):
            self.start()
        cost = TaskCost()
        with self._undone_on_error():
            X, y = self._check_batch(task.X, task.y)
            weight = _weights(getattr(task, "weight", None), len(y))
            if self.moments is None:
                self._open(X, y, float(getattr(task, "scale", 1.0)))
            cost.end_phase("select")
            factor, fading = fade(self.half_life, len(y))
            moments = self._require_moments()
            moments = moments.scale(factor) if factor != 1 else moments
            self._hold(self._with(moments, X, y, weight * fading))
            self.tasks += 1
        cost.end_phase("train")
        cost.row_passes = len(y) * (2 if self.mirrored else 1)
        return cost

    def forget(self, X: Any, y: Any, weight: Any = None) -> None:
        """Subtract rows that were learned, exactly.

        Parameters
        ----------
        X, y : array
            As they were learned.
        weight : array (n,), optional
            As they were learned; needed with `half_life`, where it is what rows weigh by now.
        """
        if self.half_life is not None and weight is None:
            raise InputError(
                "weight must be given with half_life: what the rows weigh by now, "
                "0.5 ** (age / half_life), age being the rows seen since."
            )
        seen, known = self._require_moments(), self.classes
        with self._undone_on_error():
            rows, y = self._check_batch(X, y)
            if self.classes is not None and len(self.classes) > len(np.asarray(known)):
                strange = np.setdiff1d(self.classes, np.asarray(known))
                raise InputError(f"y must hold classes that were seen, found {strange[:3]}.")
            gone = Moments.empty(seen.columns, seen.targets, seen.scatter.dtype)
            self._hold(seen.subtract(self._with(gone, rows, y, _weights(weight, len(y)))))

    def merge(self, other: AnalyticLearner) -> None:
        """Learn everything another learner with the same feature map has seen."""
        moments, theirs = self._require_moments(), other._require_moments()
        mine, state = self._map.state, other._map.state
        if mine.keys() != state.keys() or not all(mine[k].equal(state[k]) for k in mine):
            raise InputError(
                "other must have the same feature map: give both the same images, or start one "
                "from a copy of the other."
            )
        with self._undone_on_error():
            if self.classes is not None and other.classes is not None:
                every = np.union1d(self.classes, other.classes)
                moments = moments.arrange_targets(place_classes(self.classes, every))
                theirs = theirs.arrange_targets(place_classes(other.classes, every))
                self.classes = every
            self._hold(moments.merge(theirs))

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _open(self, X: Tensor, y: NDArray[Any], scale: float) -> None:
        """Fix the feature map by the first rows."""
        self.shape, self.scale = tuple(X.shape[1:]), scale
        if self.mirrored:
            check_images("mirrored=True", self.shape)
        self._map = self._make_map(self.shape)
        self._map.fit(self._floats(X), self.seeds.number("features"))
        width = self._map(self._floats(X[:1])).shape[1]
        targets = y.shape[1] if self.regression else self._count
        self.moments = Moments.empty(width, targets, self._dtype)

    def _with(self, moments: Moments, X: Tensor, y: NDArray[Any], weight: Floats) -> Moments:
        if not self.regression:
            assert self.classes is not None
            y = one_hot(y, len(self.classes))
        for part, features in self._features(X):
            moments = moments.update(features, y[part], weight[part])
        return moments

    def _hold(self, moments: Moments) -> None:
        self.moments, self._coef = moments, None
        if not moments.weight:
            self._ridge, self._ridge_weight = 0.0, 0.0
        elif self.ridge == "auto" and moments.weight >= 2 * self._ridge_weight:
            start = self._ridge or None
            self._ridge, self._ridge_weight = choose_ridge(moments, start=start), moments.weight

    def _features(self, X: Tensor) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield rows and their features, a block at a time."""
        assert self.moments is not None
        each = max(BLOCK, self.moments.columns // 2)
        for start in range(0, len(X), each):
            part = slice(start, min(start + each, len(X)))
            rows = self._floats(X[part])
            features = self._map(rows)
            if self.mirrored:
                features = (features + self._map(rows.flip(-1))) / 2
            yield part, features.cpu().numpy().astype(self._dtype)

    def _floats(self, X: Tensor) -> Tensor:
        return X.float() / self.scale if self.scale != 1 else X.float()

    @property
    def _dtype(self) -> Any:
        return np.float64 if isinstance(self._map, Given) else np.float32

    # ------------------------------------------------------------------ answering

    def predict(self, X: Any, task: int | None = None) -> NDArray[Any]:
        """Predict for rows, on the scale of those learned; `task` is not needed.

        Returns
        -------
        array (n,)
            Labels; with loss="l2" numbers, (n,) or (n, targets).
        """
        answers = self._answers(X)
        if self.regression:
            values: NDArray[Any] = answers.numpy()
            return values[:, 0] if self._flat_targets else values
        assert self.classes is not None
        labels: NDArray[Any] = self.classes[answers.argmax(1).numpy()]
        return labels

    def decide(self, X: Any) -> NDArray[np.float32]:
        """Return the score of each class, (n, classes): log posteriors but for a common term.

        With classifier="ridge" the regression on one-hot classes. A class that has no rows scores
        minus infinity.
        """
        return np.asarray(self._answers(X).numpy())

    def score(self, X: Any, y: Any, task: int | None = None) -> float:
        """Return the accuracy on rows, or R squared; `task` is not needed.

        Features of the rows are kept for the next time, up to 500 MB: tasks are scored again and
        again, and features do not change.
        """
        answers = self._answers(X, remember=True)
        return score_answers(answers, self._targets(y), self.regression)

    def score_ahead(self, task: Any) -> tuple[float, float]:
        """Score a task not yet learned: now, and as a learner that answers zero to everything."""
        targets = self._targets(task.y_test)
        outputs = targets.shape[1] if self.regression else max(self._count, 1)
        first = score_answers(torch.zeros(len(targets), outputs), targets, self.regression)
        return self.score(task.X_test, task.y_test) if self.moments else first, first

    @torch.no_grad()
    def _answers(self, X: Any, remember: bool = False) -> Tensor:
        moments = self._require_moments()
        rows = self._rows(X, "")
        coef, intercept = self._solve_head()
        found = torch.zeros((len(rows), moments.targets), dtype=coef.dtype)
        blocks = self._cache_features(rows) if remember else self._features(rows)
        for part, features in blocks:
            found[part] = torch.from_numpy(features) @ coef + intercept
        return found

    def _cache_features(self, X: Tensor) -> list[tuple[slice, NDArray[Any]]]:
        """Return features of rows that are asked about task after task: they never change."""
        key = hashlib.sha256(X.cpu().numpy().tobytes()).digest()
        if key not in self._scored:
            blocks = list(self._features(X))
            held = sum(f.nbytes for known in self._scored.values() for _, f in known)
            if held + sum(f.nbytes for _, f in blocks) > SCORED_BYTES:
                return blocks
            self._scored[key] = blocks
        return self._scored[key]

    def _solve_head(self) -> tuple[Tensor, Tensor]:
        """Return coefficients and intercepts; those of classes without rows are minus infinity."""
        if self._coef is not None:
            return self._coef
        moments = self._require_moments()
        if not moments.weight:
            raise InputError("The learner has forgotten every row: call fit_task first.")
        mean_square = float(moments.scatter.diagonal().mean())
        ridge = self._ridge if self.ridge == "auto" else float(self.ridge) * mean_square
        ridge = max(ridge, LEAST_RIDGE * mean_square)
        if self.regression or self.classifier == "ridge":
            coef, intercept = solve_ridge(moments, ridge)
            if not self.regression:
                intercept = np.where(moments.target_mean > 0, intercept, -np.inf)
        else:
            fit = fit_discriminant(moments, ridge=ridge)
            coef, intercept = fit.coef, fit.intercept
        solved = (torch.from_numpy(values.astype(self._dtype)) for values in (coef, intercept))
        self._coef = next(solved), next(solved)
        return self._coef

    # ------------------------------------------------------------------ checks

    def _require_moments(self) -> Moments:
        if self.moments is None:
            raise InputError("The learner has learned nothing yet: call fit_task first.")
        return self.moments

    @property
    def _count(self) -> int:
        return 0 if self.classes is None else len(self.classes)

    def _rows(self, X: Any, part: str) -> Tensor:
        rows = check_rows(X, self.device, part)
        if self.shape and tuple(rows.shape[1:]) != self.shape:
            raise DataError(
                f"X{part} must hold rows of shape {self.shape}, found {tuple(rows.shape[1:])}."
            )
        return rows

    def _check_batch(self, X: Any, y: Any) -> tuple[Tensor, NDArray[Any]]:
        """Return rows and targets: floats (n, targets), or numbers of classes, which may be new."""
        rows, y = self._rows(X, ""), np.asarray(y)
        if y.ndim == 0 or len(rows) == 0 or len(rows) != len(y):
            raise DataError(
                "X and y must have the same number of rows, at least one; found "
                f"{len(rows)} and {y.shape}."
            )
        if self.regression:
            self._flat_targets = y.ndim == 1
            return rows, check_numbers(y).astype(np.float64)
        if y.ndim != 1 or (y.dtype.kind == "f" and (y % 1 != 0).any()):
            raise DataError(
                f"y must hold one label a row, found {y.dtype} of shape {y.shape}. For numbers to "
                "predict choose loss='l2'."
            )
        found = unique_labels(y)
        before = found[:0] if self.classes is None else self.classes
        every = np.union1d(before, found)
        if self.moments is not None and len(every) > len(before):
            self.moments = self.moments.arrange_targets(place_classes(before, every))
        self.classes = every
        return rows, np.searchsorted(every, y)

    def _targets(self, y: Any) -> Tensor:
        """Return targets to score answers by; a label never seen is no answer's number."""
        if self.regression:
            return torch.from_numpy(check_numbers(y))
        y, classes = np.asarray(y), np.asarray(() if self.classes is None else self.classes)
        codes = np.full(len(y), -1)
        known = np.isin(y, classes)
        codes[known] = np.searchsorted(classes, y[known])
        return torch.from_numpy(codes)

    def _make_map(self, shape: tuple[int, ...]) -> FeatureMap:
        return make_features(self.features, shape, self.settings, self.precision)

    # ------------------------------------------------------------------ on disk

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue later into a directory, whole or not at all."""
        self._require_moments()
        save_learner(path, self._write)

    def _write(self, folder: Path) -> None:
        moments = self._require_moments()
        tensors = {f"map.{name}": value for name, value in self._map.state.items()}
        arrays = moments.to_arrays()
        tensors |= {f"moments.{k}": torch.from_numpy(v) for k, v in arrays.items()}
        state = {
            "config": self.config,
            "seed": self.seeds.seed,
            "tasks": self.tasks,
            "shape": list(self.shape),
            "scale": self.scale,
            "flat_targets": getattr(self, "_flat_targets", True),
            "classes": None if self.classes is None else self.classes.tolist(),
            "ridge": [self._ridge, self._ridge_weight],
        }
        write_state(folder, state, tensors)

    def load(self, path: str | os.PathLike[str], device: str = "cpu") -> AnalyticLearner:
        """Become what a learner of the same recipe was when it was saved.

        Raises
        ------
        DamagedCheckpointError
            If a file is missing or is not as it was written.
        """
        folder = Path(path)
        state, tensors = read_state(folder, self.config, device)
        self.start(state["classes"], state["seed"], device)
        self.tasks, self.shape, self.scale = state["tasks"], tuple(state["shape"]), state["scale"]
        self._flat_targets = state["flat_targets"]
        self._ridge, self._ridge_weight = state["ridge"]
        self._map = self._make_map(self.shape)
        self._map.state = strip_prefix("map.", tensors)
        arrays = {k: v.cpu().numpy() for k, v in strip_prefix("moments.", tensors).items()}
        self.moments = Moments.from_arrays(arrays)
        return self


AnyLearner = Learner | AnalyticLearner


def _weights(weight: Any, rows: int) -> Floats:
    return np.ones(rows) if weight is None else np.asarray(weight, np.float64)
