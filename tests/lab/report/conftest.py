import json

import pytest

from olss.lab.report import write_report
from tests.lab.report.made import METHODS, saved


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two streams of all methods with three seeds; one seed missing, one half-finished."""
    folder = tmp_path_factory.mktemp("runs")
    for stream in ("permuted", "rotated"):
        for method in METHODS:
            for seed in range(3):
                if (stream, method, seed) != ("rotated", "ewc", 2):
                    saved(folder, method, seed, stream=stream)
    saved(folder, "gem", 3, stream="rotated", done=5)
    return folder


@pytest.fixture(scope="session")
def report(runs, tmp_path_factory):
    """A written report of `runs`; gives its folder."""
    out = tmp_path_factory.mktemp("report")
    write_report([runs], out)
    return out


@pytest.fixture(scope="session")
def content(report):
    return json.loads((report / "report.json").read_text(encoding="utf-8"))
