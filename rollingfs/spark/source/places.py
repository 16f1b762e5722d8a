"""From a URL to the segments that it means: one, those of a folder, or those that a pattern matches."""

from __future__ import annotations

import errno
import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from glob import has_magic
from typing import Any

import fsspec
from fsspec.utils import glob_translate

from rollingfs.client import Client
from rollingfs.errors import CorruptHeaderError
from rollingfs.folders.listing import Listings
from rollingfs.format import names
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.read.snapshot import View
from rollingfs.spark.source.options import Options

PLAIN = "plain "
SHOWN_MAX = 5
"""Names that a message gives of many."""

Seen = dict[str, View | CorruptHeaderError]
"""By path, what is there, or why that cannot be said."""


def filesystem(options: Options) -> RollingFileSystem:
    """The filesystem that the options mean; one for all tasks of a process."""
    fs: RollingFileSystem = fsspec.filesystem(
        "rolling",
        target_protocol=options.target_protocol,
        target_options=options.target_options,
        **options.rolling_options,
    )
    return fs


@dataclass(frozen=True, slots=True)
class Found:
    """What is at some places now."""

    views: Mapping[str, View]
    """Sorted by path."""
    corrupt: Mapping[str, CorruptHeaderError]
    """Segments whose header cannot be believed."""

    def __str__(self) -> str:
        named = [f"{path} ({error})" for path, error in list(self.corrupt.items())[:SHOWN_MAX]]
        more = f" and {len(self.corrupt) - SHOWN_MAX} more" if len(self.corrupt) > SHOWN_MAX else ""
        return (
            f"{len(self.corrupt)} of {len(self.corrupt) + len(self.views)} segments cannot be read: "
            f"{', '.join(named)}{more}"
        )


def find(fs: RollingFileSystem, options: Options) -> Found:
    """What is to be read now; names that begin with ``_`` or ``.`` are passed over, as by Spark.

    Raises
    ------
    FileNotFoundError
        A place that is no pattern holds neither a segment nor a folder.
    CorruptHeaderError
        A segment cannot be read, and the options do not say to skip it.
    """
    seen: dict[str, View | CorruptHeaderError] = {}
    for place in options.places:
        seen |= _find(fs, place.path)
    ordered = sorted(seen.items())
    found = Found(
        {path: one for path, one in ordered if isinstance(one, View)},
        {path: one for path, one in ordered if isinstance(one, CorruptHeaderError)},
    )
    if found.corrupt and not options.skips_corrupt:
        first = next(iter(found.corrupt.values()))
        raise CorruptHeaderError(f"{found}; option onCorrupt=skip goes on without") from first
    return found


def _find(fs: RollingFileSystem, url: str) -> Seen:
    path = fs._strip_protocol(url)
    if not has_magic(path):
        return _at(fs, path)
    try:
        matched = fs.glob(path)
    except CorruptHeaderError:
        matched = _matching(fs, path)
    seen: Seen = {}
    for one in matched:
        if not _is_passed_over(one.rpartition("/")[2]):
            seen |= {name: found for name, found in _at(fs, one).items() if not names.is_ledger(name)}
    return seen


def _matching(fs: RollingFileSystem, pattern: str) -> list[str]:
    """What a pattern matches, segments and folders in which there are some, whatever is wrong with one of them."""
    root = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0] or "/"
    is_matched = re.compile(glob_translate(pattern)).match
    found: set[str] = set()
    for path in fs._bridge.run(_each_below(fs._client, root)):
        found.update(one for one in (path, *_above(path)) if len(one) > len(root) and is_matched(one))
    return sorted(found)


def _above(path: str) -> Iterator[str]:
    """The folders that a path lies in."""
    while path := path.rpartition("/")[0]:
        yield path


def _at(fs: RollingFileSystem, path: str) -> Seen:
    """The segment of a path; else those below it."""
    client = fs._client
    try:
        return {path: fs._bridge.run(client.lookup.view(path, fresh=True))}
    except CorruptHeaderError as error:
        return {path: error}
    except FileNotFoundError:
        if not _is_folder(fs, path):
            raise
    try:
        scans = fs._bridge.run(Listings(client).tree(path))
        found: Seen = {name: view for scan in scans.values() for name, view in scan.listed.items()}
    except CorruptHeaderError:
        found = fs._bridge.run(_each_below(client, path))
    return {name: one for name, one in found.items() if not _is_passed_over(name[len(path) :])}


def _is_folder(fs: RollingFileSystem, path: str) -> bool:
    try:
        return fs.isdir(path)
    except CorruptHeaderError:
        return True  # something is in it


async def _each_below(client: Client, folder: str) -> Seen:
    """The segments and plain files below a folder, each looked at by itself."""
    below = await _names_below(client, folder)
    seen = await _views(client, below, fresh=False)
    found = {path: one for path, one in zip(below, seen, strict=True) if one is not None}
    # a folder is hidden by the segment that has its name
    return {path: one for path, one in found.items() if not any(above in found for above in _above(path))}


async def _names_below(client: Client, folder: str) -> list[str]:
    """The names of segments, deleted ones too, and of plain files below a folder; no header is read."""
    found: set[str] = set()
    waiting = [folder]
    while waiting:
        try:
            listing = await client.backend.list(waiting.pop())
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in listing.entries:
            name = entry.path.rpartition("/")[2]
            if entry.is_folder:
                waiting += [] if names.CHUNKS_SUFFIX in name else [entry.path]
            elif name.endswith(names.HEADER_SUFFIX) and name != names.HEADER_SUFFIX:
                found.add(names.segment_of_header(entry.path))
            elif not names.is_hidden(name):
                found.add(entry.path)
    return sorted(path for path in found if not names.is_ledger(path))


def check_no_folder(fs: RollingFileSystem, path: str) -> None:
    """Refuse a folder in which anything is as the name of a new segment, which would hide it.

    Raises
    ------
    IsADirectoryError
        The message says what is in it.
    """
    try:
        infos: Any = fs.ls(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except CorruptHeaderError as error:
        inside = [f"a damaged segment ({error})"]
    else:
        inside = [info["name"].rpartition("/")[2] for info in infos if info["name"] != path]
    if inside:
        more = f" and {len(inside) - SHOWN_MAX} more" if len(inside) > SHOWN_MAX else ""
        raise IsADirectoryError(
            errno.EISDIR,
            "A folder is here, and a segment of its name would hide what is in it "
            f"({', '.join(inside[:SHOWN_MAX])}{more}); nothing was written. Name a segment in the folder",
            path,
        )


def view_now(fs: RollingFileSystem, path: str) -> View | None:
    """What is at a path now, or None."""
    try:
        return fs._bridge.run(fs._client.lookup.view(path, fresh=True))
    except FileNotFoundError:
        return None


def views_now(fs: RollingFileSystem, paths: Sequence[str]) -> list[View | CorruptHeaderError | None]:
    """What is at some paths now, or why that cannot be said; several asked at once."""
    return fs._bridge.run(_views(fs._client, paths, fresh=True))


async def _views(client: Client, paths: Sequence[str], *, fresh: bool) -> list[View | CorruptHeaderError | None]:
    async def look(path: str) -> View | CorruptHeaderError | None:
        try:
            return await client.lookup.view(path, fresh=fresh)
        except FileNotFoundError:
            return None
        except CorruptHeaderError as error:
            return error

    return await client.runtime.gather([partial(look, path) for path in paths], client.backend.requests_max)


def identity(view: View) -> str:
    """What tells a segment from another that gets its name later."""
    if view.header is not None:
        return view.header.segment
    assert view.plain is not None
    # no token: a listing may know another than a look at the file; and only one of the two may know milliseconds
    return f"{PLAIN}{int(view.plain.modified)} {view.plain.size}"


def is_same(view: View, known: str) -> bool:
    """Whether offsets of the segment with that identity mean this one; a plain file stays itself when it is adopted."""
    if view.header is not None and known.startswith(PLAIN):
        origin_ms = view.header.origin_ms
        return origin_ms is not None and known.split()[1] == str(origin_ms // 1000)
    return identity(view) == known


def is_sealed(view: View) -> bool:
    """Whether it takes no more bytes."""
    return view.header is not None and view.header.sealed


def url_of(options: Options, path: str) -> str:
    """The URL that Spark, pandas and this data source open a segment by."""
    return f"rolling+{options.target_protocol}://{path}"


def _is_passed_over(path: str) -> bool:
    return any(fnmatch.fnmatchcase(part, "[_.]*") for part in path.split("/"))
