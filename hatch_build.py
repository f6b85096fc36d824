"""What a package page shows: the README and links of a release, in full.

Pages of an index know nothing of the folder the README lies in, so links there must be whole. Where
the repository is at home is told by the environment variable OLSS_HOME, an address like
``https://github.com/somebody/olss``, which the release workflow sets. Without it, what a link says
stays and images go.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAPER = "https://arxiv.org/abs/1908.00355"
IMAGE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]+)\)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def page(readme: str, home: str, version: str) -> str:
    """Return the README with links into the release `version` of `home`, or without links."""
    if not home:
        return LINK.sub(r"\1", IMAGE.sub("", readme))
    readme = IMAGE.sub(rf"![\1]({home}/raw/v{version}/\2)", readme)
    return LINK.sub(rf"[\1]({home}/blob/v{version}/\2)", readme)


def links(home: str, version: str) -> dict[str, str]:
    """Return ``project.urls``."""
    if not home:
        return {"Paper": PAPER}
    return {
        "Homepage": home,
        "Documentation": f"{home}/tree/v{version}/docs",
        "Changes": f"{home}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{home}/issues",
        "Paper": PAPER,
    }


class PackagePage(MetadataHookInterface):
    """Fills in ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the metadata of a build."""
        home, version = os.environ.get("OLSS_HOME", "").rstrip("/"), metadata["version"]
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": page(text, home, version)}
        metadata["urls"] = links(home, version)
