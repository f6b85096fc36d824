from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pytest

from olss.lab.report.collect import collect
from olss.lab.report.summary import (
    claim_table,
    describe_winner,
    stream_tables,
    summarize,
    to_csv,
    to_latex,
    to_markdown,
)
from tests.lab.report.made import METHODS, made, saved


def group_of(folder, averages, **options):
    """Save one-task records whose averages are given for each label and seed."""
    for label, by_seed in averages.items():
        for seed, average in enumerate(by_seed):
            record = made("sgd", seed, tasks=1, accuracy=[[average]], **options)
            recipe = "joint" if label == "joint" else "sgd"
            record.config["learner"] |= {"label": label, "recipe": recipe}
            record.save(folder / label / f"seed-{seed}")
    return collect([folder]).groups[0]


def test_the_lead_is_over_the_next_best_and_the_upper_line_is_out_of_the_contest(tmp_path):
    scores = {"a": [0.80, 0.82, 0.81, 0.81], "b": [0.70, 0.72, 0.712, 0.71], "joint": [0.9] * 4}
    # 81.0, s.d. 0.816, t(3) = 3.18; paired differences 10.0, 10.0, 9.8 and 10.0, s.d. 0.1.
    assert describe_winner(group_of(tmp_path, scores)) == (
        "Permuted digits, 1 task: a ends highest, 81.0 ± 1.3 % over all tasks, "
        "10.0 ± 0.2 points above b."
    )


def test_few_seeds_are_shown_with_their_range(tmp_path):
    scores = {"a": [0.80, 0.82, 0.81], "b": [0.70, 0.72, 0.712]}
    assert describe_winner(group_of(tmp_path, scores)) == (
        "Permuted digits, 1 task: a ends highest, 81.0 (80.0–82.0) % over all tasks, "
        "9.9 (9.8–10.0) points above b."
    )


def test_what_seeds_cannot_tell_is_said(tmp_path):
    close = group_of(tmp_path / "two", {"a": [0.80, 0.82], "b": [0.81, 0.80]})
    assert describe_winner(close).endswith("above b, which 2 seeds cannot tell from chance.")
    single = group_of(tmp_path / "one", {"a": [0.8], "b": [0.7]})
    assert describe_winner(single).endswith(
        "10.0 points above b (too few seeds to say whether that is chance)."
    )


def test_a_lead_that_other_seeds_made_is_no_lead(tmp_path):
    # By all seeds a has 70.0 and b 65.0, by the two that both have b leads by ten points.
    said = describe_winner(group_of(tmp_path, {"a": [0.5, 0.6, 1.0], "b": [0.6, 0.7]}))
    assert said == (
        "Permuted digits, 1 task: a ends highest, 70.0 (50.0–100.0) % over all tasks, "
        "but 10.0 points below b on the 2 seeds both have."
    )


def test_one_method_has_nobody_to_beat(tmp_path):
    said = describe_winner(group_of(tmp_path, {"a": [0.5]}, metric="r2"))
    assert said == "Permuted digits, 1 task: a ends at 0.500 R² over all tasks."


def test_everything_is_plain_json_and_as_computed(content):
    json.dumps(content, allow_nan=False)
    stream = content["streams"][0]
    assert [m["recipe"] for m in stream["methods"]] == [*list(METHODS)[:-1], "olss"]
    gem = stream["methods"][2]
    runs = [made("gem", seed) for seed in range(3)]
    expected = np.mean([run.average_accuracy for run in runs], axis=0)
    assert gem["curves"]["average"]["mean"] == pytest.approx(expected, abs=1e-5)
    expected = np.mean([run.accuracy[:, 0] for run in runs], axis=0)
    assert gem["curves"]["first"]["mean"] == pytest.approx(expected, abs=1e-5)
    expected = np.mean([run.accuracy[-1] for run in runs], axis=0)
    assert gem["curves"]["final"]["mean"] == pytest.approx(expected, abs=1e-5)
    assert gem["memory_rows"][-1] == [256] * 8
    assert gem["values"]["ratio"]["mean"] == pytest.approx(40, rel=0.02)


def test_a_method_looks_the_same_on_every_stream(content):
    looks = [
        {m["label"]: (m["colour"], m["dash"]) for m in s["methods"]} for s in content["streams"]
    ]
    assert looks[0] == looks[1]


def test_settings_all_share_are_protocol_and_others_are_the_methods(tmp_path):
    saved(tmp_path, "sgd", 0)
    other = made("ewc")
    other.config["training"]["lr"] = 0.3
    other.save(tmp_path / "ewc")
    (stream,) = summarize(collect([tmp_path]))["streams"]
    assert "5 epochs" in stream["protocol_words"]
    assert not any("learning rate" in words for words in stream["protocol_words"])
    assert "lr 0.1" in stream["methods"][0]["settings"]
    assert "lr 0.3" in stream["methods"][1]["settings"]


def test_every_training_setting_that_differs_is_the_methods_own(tmp_path):
    saved(tmp_path, "sgd", 0)
    saved(tmp_path, "er", 0)
    for method, training in {
        "ewc": {"loss": "logit-adjusted", "tau": 1.0, "augment": "flip"},
        "olss": {"average_steps": 100, "precision": "bfloat16"},
    }.items():
        record = made(method)
        record.config["training"] |= training | {"mirrored": False}
        record.save(tmp_path / method)
    (stream,) = summarize(collect([tmp_path]))["streams"]
    told = {method["label"]: method["settings"] for method in stream["methods"]}
    assert "loss logit-adjusted, augment flip, tau 1" in told["ewc"]
    assert "average steps 100, precision bfloat16" in told["olss"]
    assert "mirrored" not in told["ewc"]
    assert told["sgd"] == "regime task"


def test_the_protocol_says_rows_and_steps_of_the_configuration_and_no_other_words(tmp_path):
    record = made("sgd", protocol="as in the paper of 2017")
    steps = [{"name": "label_noise", "share": 0.2, "seed": 0}]
    record.config["stream"] |= {"train_rows": 1000, "test_rows": 500, "steps": steps}
    record.save(tmp_path)
    (stream,) = summarize(collect([tmp_path]))["streams"]
    for words in ("1,000 training rows a task", "500 test rows a task", "label noise share 0.2"):
        assert words in stream["protocol_words"]
    assert "2017" not in " ".join(stream["protocol_words"])


@pytest.fixture(scope="module")
def tables(content):
    return {table.name: table for table in stream_tables(content["streams"][0])}


def test_csv_has_the_numbers_of_the_records(tables):
    rows = list(csv.DictReader(io.StringIO(to_csv(tables["results"]))))
    gem = next(row for row in rows if row["method"] == "gem")
    finals = [made("gem", seed).average_accuracy[-1] for seed in range(3)]
    assert float(gem["average mean"]) == pytest.approx(sum(finals) / 3, abs=1e-6)
    assert gem["average count"] == "3"


def test_every_table_names_its_protocol(tables):
    for table in tables.values():
        for words in ("8 tasks", "5 epochs", "batches of 20", "all classes seen so far compete"):
            assert words in table.note
        assert "5 epochs" in to_latex(table)
        assert "5 epochs" in to_markdown(table)
    assert any("size 1,000" in row[-1] for row in tables["settings"].rows)


def test_latex_is_well_formed(tables, content):
    for table in [*tables.values(), claim_table(content)]:
        text = to_latex(table)
        rows = text.split("\\midrule\n")[1].split("\\bottomrule")[0].strip().split("\n")
        assert len(rows) == len(table.rows)
        columns = len(table.columns)
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {columns - 1}
        assert all(row.endswith(r"\\") for row in rows)
        assert not re.search(r"(?<!\\)[%#_]", text)
        assert text.isascii()


def test_markdown_has_one_line_a_method_and_the_best_in_bold(tables):
    text = to_markdown(tables["results"])
    assert sum(line.startswith("| ") for line in text.splitlines()) == 2 + len(METHODS)
    best = next(line for line in text.splitlines() if "olss-balanced" in line)
    assert best.split(" | ")[2].startswith("**")


def test_ratio_of_sgd_to_itself_is_one(tables):
    sgd = tables["time"].rows[0]
    assert sgd[tables["time"].columns.index("Ratio to SGD")] == "1.00"


def test_missing_seeds_are_seen_in_the_table(content):
    table = stream_tables(content["streams"][1])[0]
    ewc = next(row for row in table.rows if row[0] == "ewc")
    assert ewc[1] == "2 (1 missing)"
