from __future__ import annotations

import pytest
from typer.testing import CliRunner

from olss.cli import app
from olss.learn import recipe_names
from olss.memory.policies import POLICIES
from olss.streams import BUILDERS, STEPS, list_datasets

THERE = {
    "policies": list(POLICIES),
    "recipes": recipe_names(),
    "streams": [*BUILDERS, *STEPS],
    "datasets": [status.name for status in list_datasets()],
}


@pytest.mark.parametrize("kind", THERE)
def test_everything_there_is_has_a_line_with_words(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    result = CliRunner().invoke(app, ["list", kind])
    assert result.exit_code == 0
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert list(lines) == THERE[kind]
    assert all(len(words) >= 3 for words in lines.values())


def test_everything_is_listed_by_default() -> None:
    result = CliRunner().invoke(app, ["list"])
    assert result.exit_code == 0
    for kind, names in THERE.items():
        assert f"{kind.capitalize()}:" in result.output
        assert all(name in result.output for name in names)


def test_what_cannot_be_listed_is_named() -> None:
    result = CliRunner().invoke(app, ["list", "things"])
    assert result.exit_code == 2
    assert "policies" in result.stderr


def test_data_list_says_where_things_are() -> None:
    result = CliRunner().invoke(app, ["data", "list"])
    assert result.exit_code == 0
    assert "inside scikit-learn" in result.output
    assert "cifar100" in result.output


def test_data_get_of_what_is_there() -> None:
    result = CliRunner().invoke(app, ["data", "get", "digits"])
    assert result.exit_code == 0
    assert result.output.startswith("digits is in ")


def test_data_get_of_an_unknown_name_offers_the_nearest() -> None:
    result = CliRunner().invoke(app, ["data", "get", "minst"])
    assert result.exit_code == 1
    assert "Did you mean 'mnist'?" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
