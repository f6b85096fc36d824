"""What the README shows runs, and what it links to is there."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def months(count=3, rows=3000):
    """Make tables with text, dates and gaps."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    for month in range(1, count + 1):
        carrier = rng.choice(["UA", "AA", "B6"], rows)
        temperature = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(10, 5, rows))
        yield pd.DataFrame(
            {
                "day": pd.Timestamp(2026, month, 1) + pd.to_timedelta(np.arange(rows) % 28, "D"),
                "carrier": carrier,
                "temperature": temperature,
                "delay": rng.exponential(10, rows) + 5 * (carrier == "B6"),
            }
        )


def test_the_first_example_runs(capsys):
    pytest.importorskip("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    encode = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["carrier"]), ("passthrough", ["temperature"])
    )
    model = make_pipeline(encode, HistGradientBoostingRegressor(max_iter=5))
    names = {"months": list(months()), "model": model}
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    exec(code, names)
    assert len(names["sketch"]) == 2000
    assert names["sketch"].seen == 9000
    told = capsys.readouterr().out
    assert "Rows for a relative error of" in told
    assert "B6" in told


def test_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert len(links) > 10
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_commands_it_names_exist():
    from typer.testing import CliRunner

    from olss.cli import app

    commands = set(re.findall(r"^olss (\w+)", README, flags=re.M))
    assert {"compress", "inspect", "run", "report"} <= commands
    for command in commands | {"demo", "data", "tune", "list"}:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command
    experiments = re.findall(r"experiments/[\w-]+\.toml", README)
    assert experiments
    assert all((ROOT / path).exists() for path in experiments)
