"""What learning raises beyond the package's own errors."""

from __future__ import annotations

from olss.errors import OlssError

__all__ = ["DivergedError"]


class DivergedError(OlssError):
    """The loss is no longer a finite number."""
