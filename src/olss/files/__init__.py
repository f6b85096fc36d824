"""Files larger than memory, compressed to a small table that stands for all of them."""

from olss.files.compressing import compress
from olss.files.inspection import inspect

__all__ = ["compress", "inspect"]
