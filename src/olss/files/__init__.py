"""Sketches of files larger than memory."""

from olss.files.compress import compress
from olss.files.forget import forget
from olss.files.inspect import inspect

__all__ = ["compress", "forget", "inspect"]
