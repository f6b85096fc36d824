"""What happens inside, by Python's `logging` under the name ``olss``: silent unless asked for."""

from __future__ import annotations

import logging
import sys

__all__ = ["show_log"]


def show_log() -> None:
    """Write what is logged to stderr, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("olss")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
