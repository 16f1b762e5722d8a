"""Offsets that grow with what changed: a base on the store, and in the checkpoint the difference from it.

Spark must find each offset complete after a restart, and keeps a hundred of them. With the option ``offsetsLocation``,
the marks of all segments are one file on the store (the base), which is written before an offset names it and is never
changed. An offset then has the name of its base and the marks that differ. A base that a newer one has replaced is
deleted `REPLACED_S_MAX` later by the store's clock.
"""

from __future__ import annotations

import gzip
import json
import logging
import uuid
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

from rollingfs.errors import CorruptChunkError
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.spark.source.options import Options, parse_url
from rollingfs.spark.source.stream import offsets
from rollingfs.spark.source.stream.offsets import Mark

logger = logging.getLogger("pyspark_rollingfs")

COMPLETE_SEGMENTS_MAX = 64
"""Segments up to which an offset is complete, unless it has a base already."""
CHANGED_MIN = 32
CHANGED_PART = 8
"""A new base is due when more than `CHANGED_MIN` segments, and more than one in this number, differ from the old."""
REPLACED_S_MAX = timedelta(days=30).total_seconds()
BASES_MAX = 4
"""Maximum number of bases to remember."""
_FORMAT = "rollingfs-offsets"


class OffsetStore:
    """Reads and writes the offsets of a query.

    Parameters
    ----------
    options
        Those of the query. Without ``offsetsLocation``, it writes complete offsets; it reads both kinds in any case.

    Raises
    ------
    ValueError
        The location lies on another store, or where the query would read the bases as segments.
    """

    def __init__(self, options: Options, fs: RollingFileSystem) -> None:
        self._fs = fs
        self._folder = _folder(options, fs)
        self._bases: dict[str, Mapping[str, Mark]] = {}

    def parse(self, offset: Mapping[str, Any]) -> dict[str, Mark]:
        """The marks of an offset, by path.

        Raises
        ------
        FileNotFoundError, CorruptChunkError
            Its base is gone or damaged; no segment was read.
        """
        if offsets.is_complete(offset):
            return offsets.parse(offset)
        return offsets.parse(offset, self._base(offset[offsets.BASE]))

    def format(self, marks: Mapping[str, Mark], start: Mapping[str, Any], *, is_idle: bool = False) -> dict[str, Any]:
        """The inverse of `parse`; it may write a base.

        Parameters
        ----------
        start
            The offset before it, whose base is used again while few segments differ from it.
        """
        known = None if offsets.is_complete(start) else start[offsets.BASE]
        if self._folder is None or (known is None and len(marks) <= COMPLETE_SEGMENTS_MAX):
            return offsets.format_offset(marks, is_idle=is_idle)
        base = self._base(known) if known is not None else {}
        changed = sum(base.get(path) != mark for path, mark in marks.items()) + len(base.keys() - marks.keys())
        if known is None or changed > max(CHANGED_MIN, len(marks) // CHANGED_PART):
            # `from` is about one batch
            base = {path: replace(mark, begin=None) for path, mark in marks.items()}
            known = self._write(self._folder, base, known)
        return offsets.format_change(known, base, marks) | ({offsets.IDLE: True} if is_idle else {})

    def _base(self, name: str) -> Mapping[str, Mark]:
        found = self._bases.get(name)
        if found is None:
            try:
                data = core(self._fs).run(core(self._fs).client.backend.read(name)).data
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    2,
                    "The base of the offsets in this query's checkpoint is gone (a file below offsetsLocation), so the "
                    "query cannot know how far it has read: bring the file back, or begin a query with a new "
                    "checkpoint and startingOffsets",
                    name,
                ) from error
            found = _parse(data, name)
            self._keep(name, found)
        return found

    def _keep(self, name: str, base: Mapping[str, Mark]) -> None:
        self._bases[name] = base
        for old in list(self._bases)[:-BASES_MAX]:
            del self._bases[old]

    def _write(self, folder: str, base: Mapping[str, Mark], before: str | None) -> str:
        """Write a base behind another one; its name."""
        line, number = _place_of(before, folder)
        name = f"{folder}/{line}/{number:010}-{uuid.uuid4().hex}.json.gz"
        text = json.dumps({_FORMAT: 1, "marks": offsets.format_offset(base)}, ensure_ascii=False)
        core(self._fs).run(core(self._fs).client.backend.write(name, [gzip.compress(text.encode(), 6, mtime=0)]))
        self._keep(name, base)
        if number:
            try:
                self._drop(f"{folder}/{line}", {name, before})
            except OSError as error:
                logger.warning("%s: old bases of a stream's offsets stay: %s", folder, error)
        return name

    def _drop(self, own: str, used: Collection[str | None]) -> None:
        """Delete bases that were replaced long ago; the offsets of a restart name the last two."""
        backend, run = core(self._fs).client.backend, core(self._fs).run
        there = sorted(run(backend.list(own)).entries, key=lambda entry: entry.modified)
        now = max(entry.modified for entry in there)
        old = [
            entry.path
            for entry, newer in pairwise(there)
            if now - newer.modified > REPLACED_S_MAX and entry.path not in used
        ]
        if old:
            run(backend.delete(old))


def _place_of(before: str | None, folder: str) -> tuple[str, int]:
    """The folder of a query below the location, and the number of its next base."""
    if before is None or not before.startswith(f"{folder}/"):
        return uuid.uuid4().hex, 0
    line, _, last = before[len(folder) + 1 :].partition("/")
    return line, int(last.partition("-")[0]) + 1


def _parse(data: bytes, name: str) -> Mapping[str, Mark]:
    try:
        found = json.loads(gzip.decompress(data))
        if found[_FORMAT] != 1:
            raise ValueError(f"its format {found[_FORMAT]!r} is too new: upgrade rollingfs")
        return offsets.parse(found["marks"])
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise CorruptChunkError(f"{name}: this base of a stream's offsets cannot be read: {error}") from error


def _folder(options: Options, fs: RollingFileSystem) -> str | None:
    location = options.reading.offsets_location
    if location is None:
        return None
    place = parse_url(location)
    if place.protocol != options.target_protocol:
        raise ValueError(
            f"option offsetsLocation is {location!r}: it must lie on the store that is read ({options.target_protocol})"
        )
    folder = str(core(fs).strip(place.path)).rstrip("/")
    for source in (str(core(fs).strip(one.path)) for one in options.places):
        inside = f"{folder}/".removeprefix(f"{source}/")
        if len(inside) <= len(folder) and not any(part[:1] in ("_", ".") for part in inside.split("/")):
            raise ValueError(
                f"option offsetsLocation is {location!r}: it lies in the folder that is read, and the query would read "
                "its files; give a folder elsewhere, or one whose name begins with _"
            )
    return folder
