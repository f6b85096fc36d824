"""The memory for files larger than the machine's."""

from olss.files.compress import compress
from olss.files.forget import forget
from olss.files.inspection import inspect

__all__ = ["compress", "forget", "inspect"]
