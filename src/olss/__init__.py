"""A constant-size training set of everything seen so far."""

from olss.errors import DataError, FormatError, InputError, OlssError, OlssWarning
from olss.gram import Gram
from olss.leverage import leverage_scores

__version__ = "0.1.0"
__all__ = [
    "DataError",
    "FormatError",
    "Gram",
    "InputError",
    "OlssError",
    "OlssWarning",
    "leverage_scores",
]
