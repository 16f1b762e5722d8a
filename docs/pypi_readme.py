"""Makes the README of a package index, where no file of this repository is: without pictures and links to its files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n?", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)([^)]+)\)")
_BEFORE_PICTURE = re.compile(r" What `rollingfs map` draws.*?:$", re.MULTILINE | re.DOTALL)


class ReadmeHook(MetadataHookInterface):
    """Puts the README into the metadata."""

    PLUGIN_NAME = "rollingfs-readme"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field ``readme``."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_files(text)}


def without_files(text: str) -> str:
    """The README with its links to files as plain words: the name of the page, and where it is in the sources."""
    return _LINK.sub(r"\1 (`\2`)", _PICTURE.sub("", _BEFORE_PICTURE.sub("", text)))
