"""A constant-size training set of everything seen so far."""

from olss.errors import DataError, FormatError, InputError, OlssError, OlssWarning

__version__ = "0.1.0"
__all__ = ["DataError", "FormatError", "InputError", "OlssError", "OlssWarning"]
