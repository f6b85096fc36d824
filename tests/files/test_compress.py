from __future__ import annotations

import os
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import olss.tables.readers
from olss import leverage_scores
from olss.core.sampling import inclusion_probabilities
from olss.errors import DataError, FormatError, InputError
from olss.files import compress, inspect
from olss.files.chunks import partition_pieces
from olss.files.page import write_page
from olss.memory.policies import POLICIES
from olss.sketch import Sketch
from olss.tables.readers import RowGroup
from tests.repeated import repeated


def make(n=3000, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": rng.standard_normal(n) + shift,
            "b": rng.standard_t(3, n).astype(np.float32),
            "kind": rng.choice(["x", "y"], n),
            "note": [f"row {seed} {i}" for i in range(n)],
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), "min"),
            "label": rng.choice(["no", "yes"], n, p=[0.9, 0.1]),
        }
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for day in range(3):
        make(seed=day).to_parquet(tmp_path / "in" / f"day{day}.parquet", row_group_size=700)
    return tmp_path


def out(folder):
    return pd.read_parquet(folder / "out.parquet")


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_are_those_of_the_files_with_their_origin(folder, policy):
    compress(folder / "in", into=folder / "out.parquet", size=200, policy=policy, target="label")
    kept = out(folder)
    assert len(kept) == 200
    assert list(kept.columns)[:6] == list(make(1).columns)
    own = [name for name in kept.columns[6:] if name != "olss_priority"]
    assert own == ["olss_task", "olss_weight", "olss_index", "olss_source", "olss_row"]
    types = pq.read_schema(folder / "out.parquet").types
    assert types[:6] == pq.read_schema(folder / "in" / "day0.parquet").types
    for source, rows in kept.groupby("olss_source"):
        whole = pd.read_parquet(source)
        same = whole.iloc[rows["olss_row"]].reset_index(drop=True)
        pd.testing.assert_frame_equal(rows[same.columns].reset_index(drop=True), same)
    assert not kept.duplicated(["olss_source", "olss_row"]).any()


@pytest.mark.parametrize("size", [9, 10, 19, 20])
@pytest.mark.parametrize("policy", ["reservoir", "weighted"])
def test_rows_carry_their_own_index_where_hardly_any_is_left_out(tmp_path, policy, size):
    # By a threshold just above one all rows of a chunk may stay, in another order.
    path = tmp_path / "out.parquet"
    for rows in range(size + 1, 2 * size + 3):
        pq.write_table(pa.table({"i": np.arange(rows)}), tmp_path / "in.parquet")
        compress(tmp_path / "in.parquet", into=path, size=size, policy=policy, fresh=True)
        kept = pq.read_table(path)
        assert kept["i"].to_pylist() == kept["olss_index"].to_pylist()


@pytest.mark.parametrize("policy", ["weighted", "reservoir", "balanced"])
def test_weights_stand_for_everything_also_after_going_on(folder, policy):
    for day in range(3):
        path = folder / "in" / f"day{day}.parquet"
        compress(path, into=folder / "out.parquet", size=400, policy=policy, seed=day)
    kept = out(folder)
    assert kept["olss_weight"].sum() == pytest.approx(9000, rel=0.03)
    by_task = kept.groupby("olss_task")["olss_weight"].sum()
    # Three standard errors and more: a task's 133 rows or so give its total to 5% at worst.
    assert np.all(np.abs(by_task / 3000 - 1) < 0.15)
    assert len(kept) == 400


@repeated(100, 600)
def test_probabilities_are_those_of_one_draw_by_exact_scores(tmp_path, repetitions):
    rng = np.random.default_rng(0)
    A = rng.standard_t(3, (120, 3))
    for part in range(3):
        table = pa.table({name: A[part * 40 : part * 40 + 40, i] for i, name in enumerate("abc")})
        pq.write_table(table, tmp_path / f"p{part}.parquet", row_group_size=13)
    score = 0.75 * leverage_scores(A) / 3 + 0.25 / 120
    pi = inclusion_probabilities(score, 30)
    counts, exact = np.zeros(120), []
    for seed in range(repetitions):
        compress(tmp_path.glob("p*"), into=tmp_path / "o.parquet", size=30, seed=seed, fresh=True)
        kept = pd.read_parquet(tmp_path / "o.parquet")
        part = kept["olss_source"].str.extract(r"p(\d)\.")[0].astype(int)
        rows = (part * 40 + kept["olss_row"]).to_numpy()
        counts[rows] += 1
        exact.append(np.allclose(kept["olss_weight"], 1 / pi[rows], rtol=1e-6))
    # Seldom, thinning picks a row for a whole interval and for what is left after it.
    assert np.mean(exact) > 0.9
    error = np.sqrt(pi * (1 - pi) / repetitions)
    assert np.all(np.abs(counts / repetitions - pi) < 5 * error + 1e-9)


def test_the_same_seed_gives_the_same_rows_and_another_one_others(folder):
    def run(seed, name):
        compress(folder / "in", into=folder / name, size=100, seed=seed)
        return pd.read_parquet(folder / name)

    pd.testing.assert_frame_equal(run(1, "a.parquet"), run(1, "b.parquet"))
    assert not run(1, "c.parquet")["note"].equals(run(2, "d.parquet")["note"])


def test_pandas_polars_and_duckdb_open_it(folder):
    compress(folder / "in", into=folder / "out.parquet", size=100)
    path = str(folder / "out.parquet")
    total = out(folder)["olss_weight"].sum()
    assert pl.read_parquet(path)["olss_weight"].sum() == pytest.approx(total)
    found = duckdb.sql(f"select sum(olss_weight) from '{path}'").fetchall()
    assert found[0][0] == pytest.approx(total)


def test_going_on_takes_new_files_alone(folder):
    into = folder / "out.parquet"
    compress(folder / "in" / "day0.parquet", into=into, size=100, seed=0)
    summary = compress(folder / "in", into=into)
    assert (summary.new, summary.seen, summary.rows) == (6000, 9000, 100)
    assert "1 file already ingested, 2 new" in str(summary)
    before = into.read_bytes()
    summary = compress(folder / "in", into=into)
    assert summary.new == 0
    assert "nothing new" in str(summary)
    assert into.read_bytes() == before


def test_a_copy_of_a_file_and_a_changed_file_are_noticed(folder):
    into = folder / "out.parquet"
    first = folder / "in" / "day0.parquet"
    compress(first, into=into, size=100)
    (folder / "copy.parquet").write_bytes(first.read_bytes())
    assert compress(folder / "copy.parquet", into=into).new == 0
    make(seed=9).to_parquet(first)
    summary = compress(first, into=into)
    assert summary.new == 3000
    assert "has changed since it was ingested" in str(summary)


def test_the_size_can_change_on_the_way(folder):
    into = folder / "out.parquet"
    first, second, third = sorted((folder / "in").iterdir())
    compress(first, into=into, size=300, seed=0)
    compress(second, into=into, size=50)
    assert len(out(folder)) == 50
    compress(third, into=into, size=500)
    assert len(out(folder)) == 500
    # Fifty rows with weights of 60 to 240 gave the total of the first two files to 8% or so.
    assert out(folder)["olss_weight"].sum() == pytest.approx(9000, rel=0.25)


def test_paper_forgets_slowly_and_has_no_weights(folder):
    into = folder / "out.parquet"
    for day in range(3):
        compress(folder / "in" / f"day{day}.parquet", into=into, size=300, policy="paper")
    kept = out(folder)
    assert set(kept["olss_weight"]) == {1.0}
    shares = kept["olss_task"].str[-9:].value_counts()
    assert shares["2.parquet"] > 200
    assert shares.get("0.parquet", 0) < 30


def test_a_column_says_the_task_and_a_target_balances(folder):
    into = folder / "out.parquet"
    options = {"policy": "balanced", "task": "kind", "target": "label"}
    compress(folder / "in", into=into, size=100, **options)
    counts = out(folder).groupby(["olss_task", "label"]).size()
    assert set(counts) == {25}


@pytest.mark.parametrize("policy", ["weighted", "reservoir", "balanced"])
@pytest.mark.parametrize("dtype", ["Int64", "float64"])
def test_tasks_are_numbers_or_text_and_a_gap_among_numbers_is_told(tmp_path, policy, dtype):
    into, gap = tmp_path / "out.parquet", make(500, seed=1).assign(site=1).astype({"site": dtype})
    options = {"policy": policy, "task": "site", "size": 50}
    compress(make(500).assign(site=0), into=into, **options)
    before = into.read_bytes()
    gap.loc[3, "site"] = None
    with pytest.raises(DataError, match="task column 'site'"):
        compress(gap, into=into)
    with pytest.raises(InputError, match="task"):
        compress(gap.assign(site=np.linspace(0, 1, 500)), into=into)
    assert into.read_bytes() == before
    text = gap.assign(site=gap["site"].astype("string"))
    compress(text, into=tmp_path / "text.parquet", **options | {"size": 500})
    assert "(missing)" in set(pd.read_parquet(tmp_path / "text.parquet")["olss_task"])


def test_size_above_the_data_keeps_all_and_says_so(folder):
    summary = compress(folder / "in", into=folder / "out.parquet", size=10**6)
    assert "rows seen are kept" in str(summary)
    assert len(out(folder)) == 9000
    assert set(out(folder)["olss_weight"]) == {1.0}


def test_the_summary_says_what_was_done_with_each_column(folder):
    make().assign(same=3).to_parquet(folder / "one.parquet")
    text = str(compress(folder / "one.parquet", into=folder / "out.parquet", size=100))
    for words in ("a      number", "one-hot (2 values", "passthrough (text, 3,000", "when   date"):
        assert words in text
    assert "same   passthrough (constant)" in text


def test_arrays_with_targets(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, (500, 4, 4)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", X=X, y=rng.integers(0, 5, 500))
    compress(tmp_path / "a.npz", into=tmp_path / "out.parquet", size=50, target="y")
    kept = out(tmp_path)
    stacked = np.stack(kept["X"].to_list()).reshape(-1, 4, 4)
    np.testing.assert_array_equal(stacked, X[kept["olss_row"]])
    assert inspect(tmp_path / "out.parquet").description.classes == [0, 1, 2, 3, 4]


BAD = {
    "size": ({"size": 0}, "size must be"),
    "policy": ({"policy": "best"}, "policy must be one of .* found 'best'"),
    "scores": ({"scores": "good"}, "scores must be .* found 'good'"),
    "ridge": ({"scores": -1.0}, "scores, as a ridge, must be"),
    "seed": ({"seed": -1}, "seed must be"),
    "target": ({"target": "price"}, "target: there is no column 'price'"),
    "task": ({"task": "price"}, "task: there is no column 'price'"),
    "columns": ({"columns": ["price"]}, "columns: there is no column 'price'"),
    "exclude": ({"exclude": ["price"]}, "exclude: there is no column 'price'"),
    "workers": ({"workers": 0}, "workers must be"),
    "both": ({"workers": 1, "scheduler": "x"}, "workers"),
    "text": ({"columns": ["note"]}, "No column can be scored"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_named(folder, name):
    options, message = BAD[name]
    with pytest.raises(InputError, match=message):
        compress(folder / "in", **{"into": folder / "out.parquet", "size": 100, **options})
    assert not (folder / "out.parquet").exists()


def test_where_the_result_cannot_be(folder):
    with pytest.raises(InputError, match="into must be a file, found the folder"):
        compress(folder / "in", into=folder, size=10)
    with pytest.raises(InputError, match="there is no folder"):
        compress(folder / "in", into=folder / "none" / "out.parquet", size=10)
    with pytest.raises(InputError, match="size"):
        compress(folder / "in", into=folder / "out.parquet")


def test_settings_cannot_change_on_the_way(folder):
    into = folder / "out.parquet"
    compress(folder / "in" / "day0.parquet", into=into, size=100)
    with pytest.raises(InputError, match=r"policy was 'weighted' when .* found 'paper'"):
        compress(folder / "in", into=into, policy="paper")
    compress(folder / "in", into=into, policy="paper", size=50, fresh=True)
    assert "policy paper" in str(inspect(into))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not a complete Parquet file"), (b"PAR1 and so on", "not a complete Parquet file")],
)
def test_what_is_not_a_sketch_is_left_alone(folder, content, message):
    into = folder / "out.parquet"
    into.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        compress(folder / "in", into=into, size=10)
    assert into.read_bytes() == content
    make().to_parquet(into)
    with pytest.raises(FormatError, match="but not a sketch"):
        compress(folder / "in", into=into, size=10)
    compress(folder / "in", into=into, size=10, fresh=True)
    assert len(out(folder)) == 10


def damaged(folder):
    path = folder / "in" / "day1.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=700, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(2).column(0)
    data = bytearray(path.read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    data[middle : middle + 16] = bytes(16)
    path.write_bytes(data)
    (folder / "in" / "empty.csv").write_bytes(b"")


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_bad_row_groups_and_files_are_skipped_only_on_request(folder, policy):
    into = folder / "out.parquet"
    compress(folder / "in" / "day0.parquet", into=into, size=100, policy=policy)
    before = into.read_bytes()
    damaged(folder)
    with pytest.raises((FormatError, DataError), match=r"day1\.parquet, row group 2|empty\.csv"):
        compress(folder / "in", into=into)
    assert into.read_bytes() == before
    summary = compress(folder / "in", into=into, skip_bad=True)
    assert summary.new == 6000 - 700
    assert "row group 2" in str(summary)
    assert "empty.csv" in str(summary)
    assert out(folder)["olss_weight"].sum() == pytest.approx(9000 - 700, rel=0.15)


def test_infinite_values_and_changed_columns_leave_the_result_intact(folder):
    into = folder / "out.parquet"
    compress(folder / "in", into=into, size=100)
    before = into.read_bytes()
    bad = make()
    bad.loc[1234, "a"] = np.inf
    bad.to_parquet(folder / "bad.parquet")
    with pytest.raises(DataError, match=r"bad\.parquet.* column 'a' holds an infinite .* row 1234"):
        compress(folder / "bad.parquet", into=into)
    make().drop(columns="b").to_parquet(folder / "other.parquet")
    with pytest.raises(DataError, match=r"other\.parquet lacks the column 'b'"):
        compress(folder / "other.parquet", into=into)
    assert into.read_bytes() == before
    assert sorted(p.name for p in folder.iterdir()) == [
        "bad.parquet",
        "in",
        "other.parquet",
        "out.parquet",
    ]


@pytest.mark.parametrize("policy", ["weighted", "reservoir", "balanced"])
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_missing_target_is_refused_as_by_a_sketch(folder, policy, skip_bad):
    into = folder / "out.parquet"
    options = {"into": into, "target": "label", "policy": policy, "skip_bad": skip_bad}
    compress(folder / "in", size=100, **options)
    before = into.read_bytes()
    make(seed=7).to_csv(folder / "good.csv", index=False)
    bad = make(seed=8)
    bad.loc[5:9, "label"] = None
    bad.to_csv(folder / "bad.csv", index=False)
    place = r"bad\.csv, rows 0 to 2,999: "
    with pytest.raises(DataError, match=f"{place}target 'label' has 5 missing"):
        compress([folder / "good.csv", folder / "bad.csv"], **options)
    assert into.read_bytes() == before


def test_interrupted_or_without_space_the_result_is_as_before(folder, monkeypatch):
    into = folder / "out.parquet"
    compress(folder / "in" / "day0.parquet", into=into, size=100)
    before = into.read_bytes()

    def stop(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compress(folder / "in", into=into, progress=stop)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        compress(folder / "in", into=into)
    assert into.read_bytes() == before
    assert sorted(p.name for p in folder.iterdir()) == ["in", "out.parquet"]


def test_progress_goes_from_nothing_to_all(folder):
    seen = []
    into = folder / "out.parquet"
    compress(folder / "in", into=into, size=100, progress=lambda *step: seen.append(step))
    assert [step[1] for step in seen] == sorted(step[1] for step in seen)
    assert seen[-1][1] == seen[-1][2]
    assert [seen[0][0], seen[-1][0]] == ["measuring", "sampling"]


def test_the_result_among_its_own_inputs_is_passed_over(folder):
    into = folder / "in" / "out.parquet"
    compress(folder / "in", into=into, size=100)
    assert compress(folder / "in", into=into).new == 0


def test_a_compressed_table_as_input_is_refused(folder):
    compress(folder / "in", into=folder / "out.parquet", size=100)
    with pytest.raises(InputError, match="olss_"):
        compress(folder / "out.parquet", into=folder / "again.parquet", size=10)


def test_one_pass_for_reservoir_and_two_for_leverage(folder, monkeypatch):
    read = []
    original = olss.tables.readers.RowGroup.read

    def counted(piece, schema, *options):
        for start, batch in original(piece, schema, *options):
            read.append(batch.num_rows)
            yield start, batch

    monkeypatch.setattr(olss.tables.readers.RowGroup, "read", counted)
    compress(folder / "in", into=folder / "a.parquet", size=100, policy="reservoir")
    assert sum(read) == 9000
    read.clear()
    compress(folder / "in", into=folder / "b.parquet", size=100)
    # Twice, and sample rows of at most 16 pieces to begin with.
    assert 18_000 <= sum(read) <= 27_000


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_a_month_with_a_gap_or_of_another_format_goes_on(tmp_path, policy):
    first = pd.DataFrame({"n": np.arange(40), "kind": ["a", "b"] * 20, "note": [None] * 40})
    first.to_parquet(tmp_path / "1.parquet")
    into = tmp_path / "out.parquet"
    compress(tmp_path / "1.parquet", into=into, size=200, policy=policy, seed=0)
    second = pd.DataFrame(
        {"kind": pd.Categorical(["a"] * 20), "n": [0.5, None] * 10, "note": "x"}, index=range(20)
    )
    second.to_parquet(tmp_path / "2.parquet")
    second.to_json(tmp_path / "3.jsonl", orient="records", lines=True)
    compress([tmp_path / "2.parquet", tmp_path / "3.jsonl"], into=into)
    expected = pd.concat(
        [part.astype({"kind": "str", "note": "str"}) for part in (first, second, second)]
    )
    kept = out(tmp_path)[["n", "kind", "note"]]
    pd.testing.assert_frame_equal(kept, expected[["n", "kind", "note"]].reset_index(drop=True))


def test_another_file_of_the_same_name_size_and_time_is_taken_in(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "today.npy", np.random.default_rng(ord(name)).random((50, 3)))
        os.utime(tmp_path / name / "today.npy", (1.7e9, 1.7e9))
    new = []
    for name in ("a", "a", "b"):
        monkeypatch.chdir(tmp_path / name)
        new.append(compress("today.npy", into=tmp_path / "out.parquet", size=20, seed=0).new)
    assert new == [50, 0, 50]


def test_codes_with_leading_zeros_in_csv_files_stay_text(tmp_path):
    (tmp_path / "1.csv").write_text("zip,n,x\n00001,1,0.5\n10115,2,0.25\n")
    (tmp_path / "2.csv").write_text("zip,n,x\n00017,3,0.5\n00018,4,0.25\n")
    (tmp_path / "3.csv").write_text("zip,n,x\n00019,5.5,0.5\n00020,6,0.25\n")
    for name in "123":
        out = tmp_path / "out.parquet"
        compress(tmp_path / f"{name}.csv", into=out, size=9, policy="reservoir", seed=0)
    table = pd.read_parquet(tmp_path / "out.parquet").sort_values("n")
    assert table["zip"].tolist() == ["00001", "10115", "00017", "00018", "00019", "00020"]
    assert table["n"].tolist() == [1, 2, 3, 4, 5.5, 6]


LATIN = os.fsdecode(b"caf\xe9")  # a name that is not UTF-8


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are any bytes on Linux alone")
def test_names_of_files_need_not_be_utf_8(tmp_path):
    frame, into = make(60)[["a", "kind"]], tmp_path / f"{LATIN}.sketch.parquet"
    frame.to_csv(tmp_path / f"{LATIN}.csv", index=False)
    (tmp_path / f"{LATIN}.parquet").write_bytes(frame.iloc[:40].to_parquet())
    with (tmp_path / f"{LATIN}.arrow").open("wb") as file:
        frame.iloc[:30].to_feather(file, compression="uncompressed")
    for kind, rows in {"csv": 60, "parquet": 40, "arrow": 30}.items():
        path = tmp_path / f"{LATIN}.{kind}"
        assert compress(path, into=into, size=20, seed=0).new == rows
        assert compress(path, into=into).new == 0
    found = inspect(into, against=tmp_path / f"{LATIN}.csv")
    write_page(found, tmp_path / f"{LATIN}.html")
    assert [line["address"] for line in found.files] == [
        f"{tmp_path}/caf\\xe9.{kind}" for kind in ("csv", "parquet", "arrow")
    ]
    assert set(found.sketch.task) <= {line["address"] for line in found.files}


def test_a_path_with_a_nul_is_refused(tmp_path):
    make(60).to_csv(tmp_path / "day.csv")
    with pytest.raises(InputError, match="path"):
        compress(tmp_path / "day.csv", into=f"{tmp_path}/a\0b.parquet", size=20)
    with pytest.raises(InputError, match="path"):
        Sketch(9).update(np.eye(3)).save(f"{tmp_path}/a\0b.parquet")


def monthly(folder, *, gap=False, extra=False):
    """Two files; in the second a target may be missing, and a column may be new."""
    rng = np.random.default_rng(0)
    for month in range(2):
        frame = pd.DataFrame({"x": rng.standard_normal(300), "y": rng.standard_normal(300)})
        if gap and month:
            frame.loc[[3, 7], "y"] = None
        if extra and month:
            frame["new"] = np.arange(300)
        frame.to_parquet(folder / f"{month}.parquet", index=False)
    return [folder / "0.parquet", folder / "1.parquet"]


@pytest.mark.parametrize("policy", ["weighted", "reservoir", "balanced"])
def test_rows_without_target_are_refused_dropped_or_kept(policy, tmp_path):
    inputs, out = monthly(tmp_path, gap=True), tmp_path / "out.parquet"
    options = {"into": out, "size": 1_000, "target": "y", "policy": policy}
    with pytest.raises(DataError, match="target"):
        compress(inputs, **options)
    assert not out.exists()
    assert compress(inputs, missing_target="drop", **options).seen == 598
    dropped = Sketch.load(out)
    assert dropped.y.notna().all()
    assert dropped.weight.sum() == pytest.approx(598)
    assert sorted(dropped.index) == list(range(598))
    rows = dropped.frame[dropped.frame["olss_source"].astype(str).str.endswith("1.parquet")]
    assert not {3, 7} & set(rows["olss_row"])
    assert compress(inputs, missing_target="keep", fresh=True, **options).seen == 600
    assert Sketch.load(out).y.isna().sum() == 2


@pytest.mark.parametrize("runs", [1, 2])
def test_new_columns_are_refused_kept_or_ignored(runs, tmp_path):
    inputs, out = monthly(tmp_path, extra=True), tmp_path / "out.parquet"
    groups = [inputs] if runs == 1 else [[inputs[0]], [inputs[1]]]

    def run(**options):
        out.unlink(missing_ok=True)
        for group in groups:
            compress(group, into=out, size=1_000, target="y", **options)
        return Sketch.load(out).X

    with pytest.raises(DataError, match="new_columns"):
        run()
    assert list(run(new_columns="ignore")) == ["x"]
    kept = run(new_columns="keep")
    assert list(kept) == ["x", "new"]
    assert kept["new"].isna().sum() == 300


@pytest.mark.parametrize(("pieces", "size"), [(16, 62_500_000), (17, 20_000_000), (3, 1_000_000)])
def test_threads_get_about_the_same_share_of_the_input(pieces, size):
    groups = [RowGroup(None, k, k, 0, 1, size) for k in range(pieces)]
    partitions = partition_pieces(groups)
    assert [piece for part in partitions for piece in part.pieces] == groups
    assert [part.number for part in partitions] == list(range(len(partitions)))
    lengths = [len(part.pieces) for part in partitions]
    assert max(lengths) - min(lengths) <= 1
    assert len(partitions) == max(1, min(8, round(pieces * size / 32_000_000)))


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
@pytest.mark.parametrize("heavy", [1, 30, 2_000])
def test_a_sample_is_full_however_unequal_rows_are(policy, heavy, tmp_path, monkeypatch):
    monkeypatch.setattr("olss.files.chunks.SMALL_BYTES", 1)
    X = np.random.default_rng(0).standard_normal((4_000, 3)) * 1e-3
    X[:heavy] *= 1e6
    for part in range(4):
        np.save(tmp_path / f"{part}.npy", X[part::4])
    for seed in range(5):
        settings = {"size": 40, "policy": policy, "seed": seed, "fresh": True}
        summary = compress(tmp_path / "*.npy", into=tmp_path / "out.parquet", **settings)
        assert summary.rows == 40
