"""Reports: what records say, as a page, figures, tables and checked claims."""

from __future__ import annotations

from olss.lab.report.page import write_report

__all__ = ["write_report"]
