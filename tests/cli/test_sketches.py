"""`olss estimate`, `olss forget`, and what `olss inspect` has learnt, as typed."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from olss import Sketch
from olss.cli import app
from olss.files import compress


def call(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def frame(rows=4_000, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "carrier": rng.choice(["UA", "AA", "B6"], rows, p=[0.6, 0.399, 0.001]),
            "delay": rng.exponential(10, rows),
            "seats": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(50, 300, rows)),
            "stops": rng.integers(0, 3, rows),
            "a=b": rng.integers(0, 2, rows),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows) // 500, "D"),
        }
    )


@pytest.fixture
def out(tmp_path):
    path = tmp_path / "out.parquet"
    compress(frame(), into=path, size=600, seed=0)
    return path


def cells(output):
    return [re.split(r"  +", line.strip()) for line in output.strip().splitlines()]


def test_numbers_are_those_of_the_sketch(out):
    result = call("estimate", out, "--count", "--mean", "seats", "--total", "delay", "--level", 0.8)
    assert result.exit_code == 0, result.output
    head, count, mean, total, note = cells(result.output)
    assert head == ["estimate", "80%", "from rows kept"]
    sketch = Sketch.load(out)
    for line, title, found, what in (
        (count, "count", sketch.estimate(), "count"),
        (mean, "mean seats", sketch.estimate("seats"), "mean"),
        (total, "total delay", sketch.estimate("delay"), "total"),
    ):
        assert line[0] == title
        number = float(line[1].replace(",", ""))
        assert number == pytest.approx(getattr(found, what), rel=1e-3)
        if what == "count":
            assert line[2] == "exact"
            continue
        ends = [float(end.replace(",", "")) for end in line[2].split(" to ")]
        assert ends == pytest.approx(list(found.interval(what, 0.8)), rel=1e-3)
        assert line[3] == f"{found.rows:,}"
    assert note[0].startswith("seats: ")
    assert "no value" in note[0]
    assert cells(call("estimate", out).output)[1][0] == "count"


def test_groups_and_conditions(out):
    result = call("estimate", out, "--mean", "delay", "--by", "carrier", "--where", "stops=1")
    head, *lines = cells(result.output)
    assert head == ["carrier", "rows kept", "mean delay", "95%"]
    assert [line[0] for line in lines] == sorted(line[0] for line in lines)
    days = cells(call("estimate", out, "--by", "seats").output)[1:-1]
    numbers = [float(line[0]) for line in days if line[0] != "(missing)"]
    assert len(numbers) == 49
    assert numbers == sorted(numbers)
    found = Sketch.load(out).estimate("delay", by="carrier", where={"stops": 1})
    for line in lines:
        assert int(line[1]) == found[line[0]].rows
        assert (line[3] == "too few rows") == found[line[0]].too_few
    either = call("estimate", out, "--where", "carrier=AA", "--where", "carrier=UA")
    both = Sketch.load(out).estimate(where={"carrier": ["AA", "UA"]})
    assert cells(either.output)[1][-1] == f"{both.rows:,}"
    missing = call("estimate", out, "--where", "seats=").output
    gaps = np.isnan(Sketch.load(out).frame["seats"]).sum()
    assert cells(missing)[1][-1] == str(gaps)


@pytest.mark.parametrize("by", ["day", "stops", "seats", "a=b"])
def test_groups_of_any_type_with_gaps(out, by):
    result = call("estimate", out, "--mean", "delay", "--by", by, "--where", "carrier=UA")
    assert result.exit_code == 0, result.output
    lines = cells(result.output)[1:]
    assert not any("no value" in line for line in lines)
    assert any(line[0] == "(missing)" for line in lines) == (by == "seats")


def test_many_groups_are_cut_and_calibration_is_passed_on(out):
    result = call("estimate", out, "--count", "--by", "delay")
    assert len(result.output.splitlines()) == 52
    assert "the 50 largest of 600 groups" in result.output
    calibrated = call("estimate", out, "--total", "delay", "--calibrate").output
    total = float(cells(calibrated)[1][1].replace(",", ""))
    assert total == pytest.approx(frame()["delay"].sum(), rel=2e-3)  # a scored column: known


def test_forget(out, tmp_path):
    before = len(Sketch.load(out))
    result = call("forget", out, "--where", "carrier=AA", "--where", "a=b=1")
    assert result.exit_code == 0, result.output
    kept = Sketch.load(out).frame
    assert f"{before - len(kept):,} rows removed" in result.output
    assert "subtracted from the Gram matrix" in result.output
    assert not ((kept["carrier"] == "AA") & (kept["a=b"] == 1)).any()
    assert (kept["carrier"] == "AA").any()
    frame(500, 1).to_csv(tmp_path / "more.csv", index=False)
    assert call("compress", tmp_path / "more.csv", "--into", out).exit_code == 0
    assert Sketch.load(out).seen == 4_500


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["estimate", "OUT", "--mean", "dely"], "--mean: there is no column 'dely'. Did you mean"),
        (["estimate", "OUT", "--mean", "carrier"], "must hold numbers"),
        (["estimate", "OUT", "--by", "carier"], "--by: there is no column 'carier'. Did you mean"),
        (["estimate", "OUT", "--where", "stops=many"], "is no such value"),
        (["estimate", "OUT", "--where", "stops"], "must be COL=VALUE"),
        (["estimate", "OUT", "--where", "stops<many"], "is no such value"),
        (["estimate", "OUT", "--where", "day>"], "'day' >"),
        (["estimate", "OUT", "--where", "stops=1", "--where", "stops>1"], "'stops'"),
        (["estimate", "OUT", "--level", "2"], "level must be"),
        (["estimate", "none.parquet"], "there is no sketch file"),
        (["forget", "OUT", "--where", "nobody=1"], "there is no column 'nobody'"),
        (["forget", "none.parquet", "--where", "a=1"], "there is no sketch file"),
        (["inspect", "OUT", "other.csv"], "takes one file"),
        (["inspect", "OUT", "--html", "page.txt"], "must end in .html"),
        (["inspect", "OUT", "--html", "no/such/page.html"], "there is no folder"),
        (["inspect", "OUT", "--against", "none.csv"], "no such file"),
        (["compress", "x.csv", "--into", "out.csv", "--size", "5"], "into must end in .parquet"),
    ],
)
def test_errors_are_one_plain_line(out, args, words):
    before = out.read_bytes()
    result = call(*[str(out) if arg == "OUT" else arg for arg in args])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert len(result.output.splitlines()) == 1
    assert words in result.output
    assert out.read_bytes() == before


def test_ranges_choose_rows(out):
    kept = Sketch.load(out).frame
    early = kept["day"] < "2026-01-04"
    both = early & (kept["day"] >= "2026-01-02") & (kept["delay"] > 3)
    conditions = ["--where", "day<2026-01-04", "--where", "day >= 2026-01-02", "--where", "delay>3"]
    assert cells(call("estimate", out, *conditions).output)[1][-1] == f"{both.sum():,}"
    named = call("estimate", out, "--where", "a=b<=0").output
    assert cells(named)[1][-1] == f"{(kept['a=b'] <= 0).sum():,}"
    result = call("forget", out, "--where", "day<2026-01-04")
    assert result.exit_code == 0, result.output
    assert len(Sketch.load(out)) == (~early).sum()


def test_a_dry_run_changes_nothing(out):
    before, carriers = out.read_bytes(), Sketch.load(out).frame["carrier"]
    result = call("forget", out, "--where", "carrier=AA", "--dry-run")
    assert result.exit_code == 0
    assert f"{(carriers == 'AA').sum()} rows would be removed" in result.output
    assert out.read_bytes() == before


def test_most_rows_go_only_if_that_is_confirmed(out):
    before = out.read_bytes()
    result = call("forget", out, "--where", "delay>=0")
    assert result.exit_code == 2
    assert "--yes" in result.output
    assert out.read_bytes() == before
    assert call("forget", out, "--where", "delay>=0", "--dry-run").exit_code == 0
    result = call("forget", out, "--where", "day>2026-01-01", "--yes")
    assert result.exit_code == 0
    assert (Sketch.load(out).frame["day"] <= "2026-01-01").all()


def test_rows_to_forget_must_be_named(out):
    assert call("forget", out).exit_code == 2


def test_other_policies_say_why_nothing_is_estimated(tmp_path):
    path = tmp_path / "p.parquet"
    compress(frame(), into=path, size=300, policy="paper", seed=0)
    result = call("estimate", path)
    assert result.exit_code == 1
    assert "use 'weighted' or 'reservoir'" in result.output


def test_escape_codes_of_names_do_not_reach_the_terminal(tmp_path):
    hostile = "x\x1b[2J"
    path = tmp_path / "s.parquet"
    data = {hostile: np.arange(50.0), "who": np.array(["a\x1b[31m", "b"] * 25)}
    Sketch(40, seed=0).update(data).save(path)
    for args in (
        ["inspect", path],
        ["estimate", path, "--mean", hostile, "--by", "who"],
        ["estimate", path, "--mean", "y\x1b[2J"],
        ["forget", path, "--where", "who=a\x1b[31m"],
    ):
        result = call(*args)
        assert "\x1b" not in result.output
        assert "\\x1b[" in result.output


def test_half_life_window_and_spectrum_of_compress(tmp_path):
    frame().to_parquet(tmp_path / "a.parquet")
    out = tmp_path / "h.parquet"
    options = ["--into", out, "--size", 300, "--seed", 0, "--fresh"]
    result = call(
        "compress", tmp_path / "a.parquet", *options, "--half-life", "2d", "--time", "day"
    )
    assert result.exit_code == 0, result.output
    assert Sketch.load(out)._config.half_life == 2 * 86_400
    assert "Rows count by their age" in call("estimate", out).output
    age = (frame()["day"].max() - frame()["day"]).dt.days
    found = Sketch.load(out).estimate()
    assert found.count == pytest.approx((0.5 ** (age / 2)).sum())  # known, not estimated
    call("compress", tmp_path / "a.parquet", *options, "--window", "1000", "--policy", "reservoir")
    assert Sketch.load(out).index.min() >= 3_000
    call("compress", tmp_path / "a.parquet", *options, "--policy", "balanced", "--moments")
    assert Sketch.load(out).error().relative > 0
    assert call("compress", tmp_path / "a.parquet", *options, "--half-life", "soon").exit_code == 1


def test_several_new_files_by_a_pattern_of_the_shell(out, tmp_path):
    new = [tmp_path / f"{name}.csv" for name in "ab"]
    for seed, path in enumerate(new):
        frame(300, 7 + seed).to_csv(path, index=False)
    result = call("inspect", out, "--against", *new)
    assert result.exit_code == 0, result.output  # all of the first day, but dates are left out
    assert "600 new rows" in result.output
    assert "left out: day (date or time)" in result.output


def test_every_help_has_examples():
    for command in ("compress", "inspect", "estimate", "forget"):
        shown = call(command, "--help").output
        assert "Examples" in shown
        assert f"olss {command} " in shown


def test_groups_by_several_columns(out):
    result = call("estimate", out, "--count", "--by", "carrier", "--by", "stops")
    head, *lines = cells(result.output)
    assert head[:3] == ["carrier", "stops", "rows kept"]
    assert sum(int(line[2]) for line in lines) == len(Sketch.load(out))


def test_estimates_as_json(out):
    result = call("estimate", out, "--mean", "delay", "--count", "--by", "day", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    sketch = Sketch.load(out)
    days = sketch.estimate("delay", by="day")
    means = [line for line in found["estimates"] if line["what"] == "mean"]
    assert [line["value"] for line in means] == pytest.approx(list(days.mean))
    assert [line["low"] for line in means] == pytest.approx(list(days.interval("mean")[0]))
    assert means[0]["group"] == {"day": "2026-01-01 00:00:00"}
    assert means[0]["column"] == "delay"
    (one,) = json.loads(call("estimate", out, "--json").output)["estimates"]
    assert one == one | {"what": "count", "column": None, "group": {}, "missing": 0}
    few = json.loads(
        call("estimate", out, "--where", "stops=1", "--where", "carrier=B6", "--json").output
    )
    assert few["estimates"][0]["low"] is None  # too few rows


def test_a_group_that_is_known_exactly_is_never_too_small(out):
    lines = cells(call("estimate", out, "--by", "carrier").output)[1:]
    truth = frame()["carrier"].value_counts()
    assert [line[0] for line in lines] == ["AA", "B6", "UA"]
    assert [int(line[2].replace(",", "")) for line in lines] == [truth[line[0]] for line in lines]
    assert {line[3] for line in lines} == {"exact"}


def test_an_inspection_as_json(out, tmp_path):
    frame(seed=5).to_csv(tmp_path / "same.csv", index=False)
    result = call("inspect", out, "--json", "--against", tmp_path / "same.csv")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    sketch = Sketch.load(out)
    assert (found["rows"], found["seen"], found["policy"]) == (600, 4_000, "weighted")
    assert found["error"]["relative"] == pytest.approx(sketch.error().relative)
    assert found["drift"]["alarm"] is False
    assert found["drift"]["p"] > 0.01
    assert found["drift"]["effect_interval"][0] == 0
    assert (found["drift"]["usual_p"], found["drift"]["past"]) == (None, 0)
    assert found["drift"]["left_out"] == {"day": "date or time"}
    assert sum(task["rows"] for task in found["tasks"]) == 600
    assert found["files"][0]["rows"] == 4_000
    assert found["unusual"][0]["index"] in sketch.index
    assert {column["name"] for column in found["columns"]} == set(frame(10).columns)


def test_the_exit_code_tells_of_drift(out, tmp_path):
    frame(seed=5).assign(delay=99.0).to_csv(tmp_path / "new.csv", index=False)
    result = call("inspect", out, "--against", tmp_path / "new.csv")
    assert result.exit_code == 4
    assert "drift alarm: " in result.output
    assert "Exit codes" in call("inspect", "--help").output


def test_the_most_unusual_rows_are_in_the_text(tmp_path):
    data = frame().assign(delay=np.where(np.arange(4_000) == 1_234, 1e6, 5.0))
    compress(data, into=tmp_path / "out.parquet", size=600, seed=0)
    text = call("inspect", tmp_path / "out.parquet").output
    lines = text[text.index("the most unusual rows") :].splitlines()
    assert "row 1,234" in lines[1]
    assert "delay 1e+06" in lines[1]


def test_a_monitor_for_a_nightly_job(out, tmp_path):
    state = tmp_path / "monitor.json"
    codes = []
    for night in range(8):
        new = frame(300, 20 + night)
        new["delay"] += 25.0 * (night >= 4)
        new.to_csv(tmp_path / "new.csv", index=False)
        result = call("inspect", out, "--against", tmp_path / "new.csv", "--monitor", state)
        codes.append(result.exit_code)
    assert codes[:4] == [0] * 4
    assert codes[-1] == 4
    assert "monitor: drift alarm at batch" in result.output
    result = call("inspect", out, "--json", "--against", tmp_path / "new.csv", "--monitor", state)
    assert json.loads(result.output)["monitor"]["batches"] == 9
    assert call("inspect", out, "--monitor", state).exit_code == 1


def test_fit_prints_the_model_of_all_rows_and_writes_it(tmp_path):
    table, path = frame(), tmp_path / "out.parquet"
    compress(table, into=path, size=200, target="delay", seed=0)
    result = call(
        "fit", path, "--target", "seats", "--kind", "least-squares", "--json", tmp_path / "m.json"
    )
    assert result.exit_code == 0
    assert "stops" in result.output
    assert "exact" in result.output
    model = json.loads((tmp_path / "m.json").read_text())
    assert model["target"] == "seats"
    assert model["kind"] == "least-squares"
    assert len(model["coef"][0]) == len(model["columns"])
    assert "ridge model of 'delay'" in call("fit", path).output
    assert call("fit", path, "--ridge", "much").exit_code == 1
    assert call("fit", path, "--target", "nothing").exit_code == 1
    baseline = call("inspect", path, "--html", tmp_path / "page.html").output
    assert "exact linear model of 'delay'" in baseline
    assert "exact linear model of" in (tmp_path / "page.html").read_text()
    found = json.loads(call("inspect", path, "--json").output)
    assert found["baseline"]["r2"] == pytest.approx(Sketch.load(path).linear_model().r2)
