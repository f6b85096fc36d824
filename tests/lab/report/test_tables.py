import csv
import io
import re

import pytest

from olss.lab.report.tables import claim_table, stream_tables, to_csv, to_latex, to_markdown
from tests.lab.report.made import METHODS, made


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
