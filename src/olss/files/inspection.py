"""What a compressed table holds."""

from __future__ import annotations

from typing import Any

__all__ = ["inspect"]


def inspect(path: Any) -> Any:
    """Describe a compressed table."""
    raise NotImplementedError
