"""What olss raises and warns with.

Every error names the argument, what was found and the remedy. All of them derive from
`OlssError`, so one ``except`` catches what olss says on purpose and nothing else.
"""

from __future__ import annotations

__all__ = [
    "DamagedCheckpointError",
    "DataError",
    "DivergedError",
    "FormatError",
    "InputError",
    "MissingExtraError",
    "OlssError",
    "OlssWarning",
]


class OlssError(Exception):
    """Anything olss raises on purpose."""


class InputError(OlssError, ValueError):
    """An argument is not what the function takes."""


class DataError(InputError):
    """The data cannot be used as they are: not finite, empty, of a wrong shape or kind."""


class FormatError(OlssError, ValueError):
    """A file is truncated, foreign, damaged or of a newer version."""


class DamagedCheckpointError(FormatError):
    """A checkpoint is damaged or incomplete."""


class DivergedError(OlssError):
    """The loss of a net in training is no longer a finite number."""


class MissingExtraError(OlssError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'olss[{extra}]'")


class OlssWarning(UserWarning):
    """Something works, but slowly or weakly; the message names the remedy."""
