"""Paths of `universal_pathlib` on segments; it finds them by the entry points of this project."""

from __future__ import annotations

import re
from typing import Any

import fsspec
from upath import UPath
from upath.types import JoinablePathLike

from rollingfs.segment.write.ingest import Data

ALIAS_OF = {
    scheme.removeprefix("rolling+"): scheme for scheme in fsspec.available_protocols() if scheme.startswith("rolling+")
}
"""The scheme that means the same as ``rolling::`` before a store's URL."""

_URL = re.compile(r"(rolling(?:\+?[a-z0-9]+)?)(?:://|:(?=/))(.*)", re.DOTALL)
_CHAIN = re.compile(r"rolling::([a-z0-9]+)://(.*)", re.DOTALL)

LETTERS = {f"rolling{target}": alias for target, alias in ALIAS_OF.items()}
"""Only the forms of letters; a path of one is a path of the other."""

# `UPath` parses a path by the class of its filesystem if fsspec has loaded the class, and by a guess otherwise
for _protocol in ("rolling", *ALIAS_OF.values()):
    fsspec.get_filesystem_class(_protocol)


class RollingPath(UPath):
    """A segment or a folder: ``UPath("rolling+s3://bucket/logs")``, with the options of the filesystem.

    ``rolling::s3://bucket/logs`` becomes ``rolling+s3://bucket/logs``, because a chained URL has no place for the name
    of a child.
    """

    __slots__ = ()

    def append(self, data: Data, **conditions: Any) -> int:
        """Append to the segment; see `RollingFileSystem.append`."""
        offset: int = self.fs.append(self.path, data, **conditions)
        return offset

    def seal(self) -> int:
        """Let the segment take no more bytes; see `RollingFileSystem.seal`."""
        length: int = self.fs.seal(self.path)
        return length

    def truncate(self, offset: int, erase: bool = False, **options: bool) -> Any:
        """Drop the bytes before an offset; see `RollingFileSystem.truncate`."""
        return self.fs.truncate(self.path, offset, erase, **options)

    @classmethod
    def _transform_init_args(
        cls, args: tuple[JoinablePathLike, ...], protocol: str, storage_options: dict[str, Any]
    ) -> tuple[tuple[JoinablePathLike, ...], str, dict[str, Any]]:
        first, *rest = args or ("",)
        if isinstance(first, UPath) and first.is_absolute():
            storage_options = {**first.storage_options, **storage_options}
            first = first.path
        if isinstance(first, str) and (chain := _CHAIN.fullmatch(first)) and chain[1] in ALIAS_OF:
            first, protocol = chain[2], ALIAS_OF[chain[1]]
            storage_options |= storage_options.pop("rolling", None) or {}
        elif isinstance(first, str) and (url := _URL.fullmatch(first)):
            first = url[2]  # `UPath` reads "rolling+file" as "rolling", and finds the two incompatible
        protocol = LETTERS.get(protocol, protocol)
        if protocol == ALIAS_OF["memory"] and isinstance(first, str):
            first = "/" + first.lstrip("/")  # as the filesystem lists it
        return (first, *rest), protocol, storage_options
