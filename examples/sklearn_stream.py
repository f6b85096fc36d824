"""Tables with text and gaps come month by month; a pipeline learns on, and may keep 1,000 rows.

    python examples/sklearn_stream.py

The rows are made up: rides of a bicycle hire, and whether the rider came late. Each month another
town begins, and the towns differ. Ends with a table: the area under the ROC curve on all towns so
far. The plain way to keep 1,000 rows, a uniform sample in pandas, is among the lines. Balanced rows
do not say how often riders of a town are late; their weights do.
"""

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from olss.adapters.sklearn import ContinualClassifier

SIZE, MONTHS = 1_000, 6
TOWNS = ["Aachen", "Bonn", "Celle", "Dresden", "Erfurt", "Fulda"]
WEATHER = np.array(["sun", "rain", "wind"])


def rides(month, rows, seed):
    """Make a month's rows: nine in ten in its own town; rain delays, in some towns the sun."""
    rng = np.random.default_rng([month, seed])
    town = np.where(rng.random(rows) < 0.9, month, rng.integers(0, month + 1, rows))
    weather, hills = rng.integers(0, 3, rows), rng.gamma(2, 40, rows)
    slow = (weather == np.where(town % 2, 0, 1)) * 2.0 + hills / 60 * np.where(town % 3, 1, -1)
    late = rng.random(rows) < 1 / (1 + np.exp(1.5 - slow))
    frame = pd.DataFrame(
        {
            "town": np.array(TOWNS)[town],
            "weather": pd.Series(WEATHER[weather]).where(rng.random(rows) > 0.1),  # or not known
            "hills": np.where(rng.random(rows) > 0.1, hills, np.nan),
            "start": pd.Timestamp(2026, month + 1, 1)
            + pd.to_timedelta(rng.integers(0, 28 * 24 * 60, rows), unit="min"),
        }
    )
    return frame, pd.Series(np.where(late, "late", "in time"), name="came")


texts = OneHotEncoder(handle_unknown="ignore")  # a gap is one more value
linear = make_pipeline(
    make_column_transformer(
        (texts, ["town", "weather"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["hills"]),
    ),
    LogisticRegression(),
)
boosted = make_pipeline(
    make_column_transformer(
        (texts, ["town", "weather"]),
        ("passthrough", ["hills"]),  # boosting takes gaps as they are
        sparse_threshold=0,
    ),
    HistGradientBoostingClassifier(max_iter=40, random_state=0),
)
months = [rides(month, 3_000, seed=0) for month in range(MONTHS)]
tests = [rides(month, 1_000, seed=1) for month in range(MONTHS)]


def joined(parts):
    frames, targets = zip(*parts, strict=True)
    return pd.concat(frames, ignore_index=True), pd.concat(targets, ignore_index=True)


def in_pandas(parts):
    """Return a uniform sample of all rows so far, as a reservoir would hold."""
    X, y = joined(parts)
    kept = X.sample(SIZE, random_state=0).index
    return X.loc[kept], y[kept]


def area(model, month):
    """Return the area under the ROC curve on all months so far."""
    X, y = joined(tests[: month + 1])
    return roc_auc_score(y == "late", model.predict_proba(X)[:, list(model.classes_).index("late")])


def learn_on(estimator, policy, **settings):
    """Yield the model after each month: this is all there is to do."""
    model = ContinualClassifier(estimator, size=SIZE, policy=policy, random_state=0, **settings)
    for month, (X, y) in enumerate(months):
        yield model.partial_fit(X, y, task=TOWNS[month])


def fit_anew(estimator, rows):
    for month in range(MONTHS):
        yield clone(estimator).fit(*rows(months[: month + 1]))


print("area under the ROC curve on all months so far, %")
print(f"{'trained on':41s}" + "".join(f"{month + 1:>7d}" for month in range(MONTHS)))
for name, estimator in {"logistic": linear, "boosted": boosted}.items():
    ways = {
        "the newest month": fit_anew(estimator, lambda parts: parts[-1]),
        f"{SIZE:,} rows, sampled in pandas": fit_anew(estimator, in_pandas),
        f"{SIZE:,} rows, weighted": learn_on(estimator, "weighted"),
        f"{SIZE:,} rows, balanced": learn_on(estimator, "balanced"),
        f"{SIZE:,} rows, balanced, weights": learn_on(estimator, "balanced", use_weights=True),
        "all rows so far": fit_anew(estimator, joined),
    }
    for way, models in ways.items():
        areas = [area(model, month) for month, model in enumerate(models)]
        print(f"{name + ', ' + way:41s}" + "".join(f"{100 * value:7.1f}" for value in areas))
