"""Queries that write into what they read: each batch would make the rows of the next.

Spark reports neither the source of a query nor its sink about the other. The id of the query is known to tasks of both:
a task of the source notes its segments, for tasks of the sink on its machine. On another machine, the second batch
sees the attribute that the sink left with the first.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress

from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.segment.segment import Segment
from rollingfs.spark.source import places
from rollingfs.spark.source.options import Options

QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark reports tasks the id of the query."""
ATTRIBUTE_PREFIX = "spark/"
"""The attributes in which a segment notes the batches that it has, by query, begin with this."""


class LoopError(ValueError):
    """A query writes into what it reads."""


def note(fs: RollingFileSystem, options: Options, query: str) -> None:
    """Note what a query reads, once for each source of it."""
    folder = places.worker_folder()
    if folder is None:
        return
    text = json.dumps([_store(options), [core(fs).strip(place.path) for place in options.places]])
    path = f"{_notes(folder, query)}-{zlib.crc32(text.encode()):08x}"
    if not os.path.exists(path):
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)


def check_target(options: Options, query: str, paths: Iterable[str]) -> None:
    """Refuse segments that a query writes and also reads, as far as tasks on this machine have noted it.

    Raises
    ------
    LoopError
        There is such a segment.
    """
    folder = places.worker_folder()
    if folder is None:
        return
    begin = os.path.basename(_notes(folder, query))
    for name in sorted(os.listdir(folder)):
        if not name.startswith(begin) or "." in name:  # a file of another query, or one that is being written
            continue
        with suppress(FileNotFoundError), open(f"{folder}/{name}", encoding="utf-8") as file:
            store, read = json.load(file)
            meant = [places.meaning(place, shown=True) for place in read] if store == _store(options) else []
            found = next((path for path in paths if any(is_meant(path) for is_meant in meant)), None)
            if found is not None:
                raise LoopError(_loop(found, "nothing of this batch was written"))


def check_source(view: Segment, query: str | None) -> None:
    """Refuse to read what the query itself has written.

    Raises
    ------
    LoopError
        The segment has the attribute of the query.
    """
    if query is not None and f"{ATTRIBUTE_PREFIX}{query}" in view.attrs:
        raise LoopError(_loop(view.path, "what earlier batches have written there stays"))


def _loop(path: str, state: str) -> str:
    return (
        f"{path}: the query writes into this segment and reads it, so its rows would come back for ever; {state}. "
        "Start it with a target that it does not read"
    )


def _store(options: Options) -> str:
    """Return a checksum that distinguishes stores, because options hold secrets."""
    known = json.dumps([options.target_protocol, dict(options.target_options)], sort_keys=True, default=str)
    return f"{zlib.crc32(known.encode()):08x}"


def _notes(folder: str, query: str) -> str:
    return f"{folder}/rollingfs-reads-{query}"
