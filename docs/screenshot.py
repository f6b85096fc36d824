"""Make images/report.png, the top of a report: ``python -m docs.screenshot``. Needs Chromium."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.browser import Browser, find_chromium

from olss.lab.report import write_report

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "experiments/results/paper/paper-permuted-mnist"

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = write_report([RUNS], Path(folder) / "report")
        with Browser(find_chromium(), Path(folder) / "profile", patience=120) as browser:
            browser.open(page, width=1240, height=1230)
            browser.screenshot(ROOT / "docs/images/report.png", whole=False)
