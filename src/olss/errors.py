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
    """An optional dependency is not installed; the message has the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install {_with_extra(package, extra)}")


class OlssWarning(UserWarning):
    """Something works, but slowly or weakly; the message names the remedy."""


def _with_extra(package: str, extra: str) -> str:
    """Return what to hand to pip for an extra of this olss, from wherever it was installed.

    Installers write down where a package came from if that was no index (``direct_url.json``,
    PEP 610). Without that, or if that place is gone, the packages of the extra are named.
    """
    import json
    import re
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        olss = distribution("olss")
        origin = json.loads(olss.read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return shlex.quote(package)
    address, version = origin.get("url", ""), origin.get("vcs_info")
    place = url2pathname(urlsplit(address).path)
    if not address or (address.startswith("file:") and not Path(place).exists()):
        of_extra = re.compile(rf"(.*?);.*\bextra *== *[\"']{extra}[\"']")
        named = [
            found[1].strip() for line in olss.requires or () if (found := of_extra.match(line))
        ]
        return " ".join(map(shlex.quote, named or [package]))
    if origin.get("dir_info", {}).get("editable"):
        return "-e " + shlex.quote(f"{place}[{extra}]")
    if version:
        address = f"{version['vcs']}+{address}@{version['commit_id']}"
    return shlex.quote(f"olss[{extra}] @ {address}")
