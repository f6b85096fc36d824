"""What the README shows runs, and what it links to is there."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_first_example_runs():
    pytest.importorskip("sklearn")
    from sklearn.naive_bayes import GaussianNB

    rng = np.random.default_rng(0)
    days = [(rng.standard_normal((3000, 4)) + d, rng.integers(2, size=3000)) for d in range(3)]
    names = {"days": days, "model": GaussianNB()}
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    exec(code, names)
    assert len(names["sketch"]) == 2000
    assert names["sketch"].seen == 9000


def test_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_commands_it_names_exist():
    from typer.testing import CliRunner

    from olss.cli import app

    commands = set(re.findall(r"^olss (\w+)", README, flags=re.M))
    assert {"compress", "inspect", "run", "report"} <= commands
    for command in commands | {"demo", "data", "tune"}:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command
    experiments = re.findall(r"experiments/[\w-]+\.toml", README)
    assert experiments
    assert all((ROOT / path).exists() for path in experiments)
