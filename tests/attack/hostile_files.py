"""Files damaged or made with intent, through `compress`, `inspect` and `Sketch.load`.

A file of somebody else's without checksums may say something else once bits are flipped, and what
is read of it is then right. A file that olss wrote must be refused, or give exactly what it held.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq

import olss
from olss.files import compress, inspect
from olss.streams import from_files
from tests.attack.runner import judge

BOUNDED = True
ROWS, SIZE = 300, 40
SCRAPS = (None, -1, 0, 1, 2**63, 10**400, 0.5, "", "x" * 50, [], {}, [None], True, "<U100000000")

Bytes = bytes
Rng = np.random.Generator


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "a": rng.standard_normal(ROWS),
            "b": rng.integers(0, 9, ROWS),
            "word": rng.choice(["red", "green", "blue"], ROWS),
            "day": np.arange(ROWS).astype("datetime64[D]"),
            "label": rng.integers(0, 3, ROWS),
        }
    )


def inputs(folder: Path) -> dict[str, Path]:
    """Write the same rows in every format."""
    rows, made = table(), {}
    for ending in ("parquet", "csv", "csv.gz", "arrow", "npy", "npz", "jsonl", "orc"):
        made[ending] = folder / f"in.{ending}"
    pq.write_table(rows, made["parquet"], write_page_checksum=True)
    pyarrow.csv.write_csv(rows, made["csv"])
    made["csv.gz"].write_bytes(gzip.compress(made["csv"].read_bytes()))
    pyarrow.feather.write_feather(rows, str(made["arrow"]), compression="uncompressed")
    numbers = np.column_stack([rows["a"].to_numpy(), rows["b"].to_numpy()])
    np.save(made["npy"], numbers)
    np.savez(made["npz"], X=numbers, y=rows["label"].to_numpy())
    lines = (json.dumps(row, default=str) for row in rows.to_pylist())
    made["jsonl"].write_text("\n".join(lines))
    pyarrow.orc.write_table(rows, made["orc"])
    return made


class Attack:
    """Trials with damaged files."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.inputs = inputs(folder)
        self.results: dict[str, Path] = {}
        for policy in ("weighted", "balanced", "reservoir"):
            path = self.results[policy] = folder / f"result-{policy}.parquet"
            compress(
                self.inputs["parquet"], into=path, size=SIZE, target="label", policy=policy, seed=0
            )
        self.sketches = {"arrays": folder / "arrays.parquet", "classes": folder / "classes.parquet"}
        rng = np.random.default_rng(1)
        X, y = rng.standard_normal((ROWS, 4)), rng.integers(0, 3, ROWS)
        olss.Sketch(SIZE, seed=0).update(X, y, task=1).update(X + 1, y, task=2).save(
            self.sketches["arrays"]
        )
        olss.Sketch(SIZE, "balanced", seed=0).update(X, y).save(self.sketches["classes"])
        self.entries: list[Callable[[Rng], tuple[str, str]]] = [
            self.an_input,
            self.a_result,
            self.a_result_gone_on_with,
            self.a_sketch,
            self.a_stream,
        ]

    def trial(self, number: int) -> tuple[str, str]:
        rng = np.random.default_rng([self.seed, number])
        entry = self.entries[number % len(self.entries)]
        verdict, note = entry(rng)
        return verdict, f"{entry.__name__}: {note}"

    def an_input(self, rng: Rng) -> tuple[str, str]:
        ending = str(rng.choice(list(self.inputs)))
        raw = self.inputs[ending].read_bytes()
        how, raw = crafted(ending, rng) if rng.random() < 0.2 else damaged(raw, self.others(), rng)
        bad, out = self.folder / f"bad.{ending}", self.folder / "out.parquet"
        bad.write_bytes(raw)
        out.unlink(missing_ok=True)
        target = "label" if ending not in ("npy", "npz") and rng.random() < 0.5 else None
        try:
            summary = compress(bad, into=out, size=SIZE, target=target, seed=0)
        except Exception as error:
            verdict, note = judge(error)
            if out.exists():
                return "torn", f"{ending}, {how}: an error, and yet a result: {note}"
            return verdict, f"{ending}, {how}: {note}"
        held = pq.read_table(out)
        weight = held["olss_weight"].to_numpy()
        if held.num_rows != min(SIZE, summary.seen) or not (weight >= 0).all():
            return "silent", f"{ending}, {how}: {held.num_rows} rows of {summary.seen}"
        return "fine", how

    def a_stream(self, rng: Rng) -> tuple[str, str]:
        ending = str(rng.choice([name for name in self.inputs if name != "npy"]))
        raw = self.inputs[ending].read_bytes()
        how, raw = crafted(ending, rng) if rng.random() < 0.2 else damaged(raw, self.others(), rng)
        bad = self.folder / f"stream.{ending}"
        bad.write_bytes(raw)
        options = {} if ending == "npz" else {"target": "label", "features": ["a", "b"]}
        try:
            for task in from_files(bad, **options):
                if not np.isfinite(task.X.astype(float)).all():
                    return "silent", f"{ending}, {how}: numbers that are not finite"
        except Exception as error:
            verdict, note = judge(error)
            return verdict, f"{ending}, {how}: {note}"
        return "fine", how

    def a_result(self, rng: Rng) -> tuple[str, str]:
        path = self.results[str(rng.choice(list(self.results)))]
        wanted = str(inspect(path))
        bad = self.folder / "bad" / path.name  # the same name, which the text tells
        bad.parent.mkdir(exist_ok=True)
        how = self.damage_ours(path, bad, rng)
        try:
            found = str(inspect(bad))
        except Exception as error:
            verdict, note = judge(error)
            return verdict, f"{how}: {note}"
        same = found.replace(str(bad), "") == wanted.replace(str(path), "")
        return ("fine" if same else "silent"), how

    def a_result_gone_on_with(self, rng: Rng) -> tuple[str, str]:
        path = self.results[str(rng.choice(list(self.results)))]
        good, bad = self.folder / "good.parquet", self.folder / "bad.parquet"
        good.write_bytes(path.read_bytes())
        how = self.damage_ours(path, bad, rng)
        before = bad.read_bytes()
        # A file beside the first: rows of the same columns that were not taken in yet.
        more = self.folder / "more.parquet"
        if not more.exists():
            pq.write_table(table().slice(0, 100), more)
        compress(more, into=good)
        try:
            compress(more, into=bad)
        except Exception as error:
            verdict, note = judge(error)
            if bad.read_bytes() != before:
                return "torn", f"{how}: an error, and yet another file: {note}"
            return verdict, f"{how}: {note}"
        return ("fine" if rows_of(good) == rows_of(bad) else "silent"), how

    def a_sketch(self, rng: Rng) -> tuple[str, str]:
        path = self.sketches[str(rng.choice(list(self.sketches)))]
        bad = self.folder / "bad-sketch.parquet"
        how = self.damage_ours(path, bad, rng)
        try:
            found = gone_on(olss.Sketch.load(bad))
        except Exception as error:
            verdict, note = judge(error)
            return verdict, f"{how}: {note}"
        return ("fine" if found == gone_on(olss.Sketch.load(path)) else "silent"), how

    def damage_ours(self, path: Path, bad: Path, rng: Rng) -> str:
        """Write a damaged copy of a file of ours; return how it was damaged."""
        if rng.random() < 0.4:
            return edited_metadata(path, bad, rng)
        how, raw = damaged(path.read_bytes(), self.others(), rng)
        bad.write_bytes(raw)
        return how

    def others(self) -> list[Path]:
        return [*self.inputs.values(), *self.results.values()]


def gone_on(sketch: olss.Sketch) -> str:
    """Return a sum of what a sketch holds, and of what it holds after another update."""
    state = hashlib.sha256()
    rng = np.random.default_rng(5)
    for _ in range(2):
        for part in (sketch.X, sketch.y, sketch.task, sketch.weight, sketch.index):
            state.update(np.ascontiguousarray(part).tobytes())
        state.update(str(sketch.seen).encode())
        sketch.update(rng.standard_normal((50, 4)), rng.integers(0, 3, 50), task=3)
    return state.hexdigest()


def rows_of(path: Path) -> pa.Table:
    """Return the rows of a result without the address they came from."""
    return pq.read_table(path).replace_schema_metadata(None)


def damaged(raw: Bytes, others: list[Path], rng: Rng) -> tuple[str, Bytes]:
    """Return how bytes were damaged, and what came of it."""
    how = str(rng.choice(["flip", "flips", "cut", "splice", "insert", "zeros", "tail"]))
    content = bytearray(raw)
    place, end = sorted(rng.integers(0, len(raw), 2).tolist())
    if how in ("flip", "flips"):
        for bit in rng.integers(0, 8 * len(raw), 1 if how == "flip" else 20).tolist():
            content[bit // 8] ^= 1 << bit % 8
    elif how == "cut":
        del content[place:]
    elif how == "splice":
        other = rng.choice(np.array([str(path) for path in others]))
        content[place:end] = Path(str(other)).read_bytes()[: end - place]
    elif how == "insert":
        content[place:place] = rng.bytes(int(rng.integers(1, 100)))
    elif how == "zeros":
        content[place:end] = bytes(end - place)
    else:
        content[-min(12, len(content)) :] = rng.bytes(12)
    return how, bytes(content)


def crafted(ending: str, rng: Rng) -> tuple[str, Bytes]:
    """Return a file made with intent: bombs, absurd types and shapes, nothing at all."""
    makers: dict[str, list[Callable[[], Bytes]]] = {
        "npy": [
            lambda: npy("<U100000000", (300,)),
            lambda: npy("<f8", (10**15, 2)),
            lambda: npy("<f8", (-1, 2)),
            lambda: npy("|O", (3,)),
            lambda: npy("<f8", ()),
            lambda: npy("<c16", (3, 2)),
        ],
        "npz": [bomb, lambda: bomb("X.npy", b"\x93NUMPY\x01\x00"), lambda: bomb("../../X.npy")],
        "csv": [lambda: b"a,a\n1,2\n", lambda: b'"' * 9999, lambda: b"\xff\xfe" + b"a,b\n1,2\n"],
        "csv.gz": [lambda: gzip.compress(bytes(30_000_000)), lambda: gzip.compress(b"a\n")],
        "jsonl": [lambda: b'{"a":' * 10_000, lambda: b'{"a": 1e999}\n', lambda: b"[1, 2]\n"],
    }
    choices = [*makers.get(ending, []), lambda: b"", lambda: rng.bytes(200)]
    chosen = int(rng.integers(len(choices)))
    return f"crafted {chosen}", choices[chosen]()


def npy(dtype: str, shape: tuple[int, ...]) -> Bytes:
    """Return the head of an array file that claims more than follows."""
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)


def bomb(name: str = "X.npy", start: Bytes = b"") -> Bytes:
    """Return an archive of a few kilobytes that unpacks to 200 megabytes."""
    stored = io.BytesIO()
    deflated = zipfile.ZIP_DEFLATED
    with (
        zipfile.ZipFile(stored, "w", deflated, compresslevel=1) as archive,
        archive.open(name, "w") as file,
    ):
        file.write(start)
        for _ in range(20):
            file.write(bytes(10_000_000))
    return stored.getvalue()


def edited_metadata(path: Path, bad: Path, rng: Rng) -> str:
    """Write a copy with one value in the metadata changed, dropped or blown up; return how."""
    file = pq.read_table(path)
    metadata = dict(file.schema.metadata or {})
    key = [key for key in sorted(metadata) if b"ARROW" not in key]
    chosen = key[int(rng.integers(len(key)))]
    try:
        content = json.loads(metadata[chosen])
        told = edit(content, rng)
        metadata[chosen] = json.dumps(content).encode()
    except (ValueError, TypeError):
        told = "bytes"
        bits = bytearray(metadata[chosen] or b"\0")
        bits[int(rng.integers(len(bits)))] ^= 1 << int(rng.integers(8))
        metadata[chosen] = bytes(bits)
    if rng.random() < 0.05:
        metadata[chosen] = zlib.compress(bytes(20_000_000))
        told = "a bomb"
    pq.write_table(file.replace_schema_metadata(metadata), bad)
    return f"metadata {chosen.decode()}: {told}"


def edit(content: Any, rng: Rng) -> str:
    """Change one entry somewhere in a tree of JSON, in place; return where."""
    way = ""
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not keys:
            raise TypeError("nothing to edit")
        key = keys[int(rng.integers(len(keys)))]
        way += f"/{key}"
        if isinstance(content[key], dict | list) and content[key] and rng.random() < 0.8:
            content = content[key]
            continue
        if rng.random() < 0.2:
            del content[key]
            return f"{way} dropped"
        scrap = SCRAPS[int(rng.integers(len(SCRAPS)))]
        if rng.random() < 0.3 and isinstance(content[key], int | float):
            scrap = content[key] + 1
        content[key] = scrap
        return f"{way} = {str(scrap)[:30]}"
