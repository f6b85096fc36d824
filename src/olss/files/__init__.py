"""Files larger than memory, compressed to a small table that stands for all of them."""

from olss.files.compress import compress
from olss.files.inspection import inspect

__all__ = ["compress", "inspect"]
