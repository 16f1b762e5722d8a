"""From a URL to the segments that it means: one, those of a folder, or those that a pattern matches."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from functools import partial
from glob import has_magic

import fsspec

from rollingfs import names
from rollingfs.filesystem import RollingFileSystem
from rollingfs.listing import Listings
from rollingfs.lookup import View
from rollingfs.spark.source.options import Options, Place

PLAIN = "plain "


def filesystem(options: Options) -> RollingFileSystem:
    """The filesystem that the options mean; one for all tasks of a process."""
    fs: RollingFileSystem = fsspec.filesystem(
        "rolling",
        target_protocol=options.target_protocol,
        target_options=options.target_options,
        **options.rolling_options,
    )
    return fs


def find(fs: RollingFileSystem, places: Iterable[Place]) -> list[View]:
    """What is to be read now, sorted by path; names that begin with ``_`` or ``.`` are passed over, as by Spark.

    Raises
    ------
    FileNotFoundError
        A place that is no pattern holds neither a segment nor a folder.
    """
    found: dict[str, View] = {}
    for place in places:
        found |= {view.path: view for view in _find(fs, place.path)}
    return [found[path] for path in sorted(found)]


def _find(fs: RollingFileSystem, url: str) -> list[View]:
    path = fs._strip_protocol(url)
    if not has_magic(path):
        return _at(fs, path)
    matched = [one for one in fs.glob(path) if not _is_passed_over(one.rpartition("/")[2])]
    return [view for one in matched for view in _at(fs, one) if not names.is_ledger(view.path)]


def _at(fs: RollingFileSystem, path: str) -> list[View]:
    """The segment of a path; else those below it."""
    client = fs._client
    try:
        return [fs._bridge.run(client.lookup.view(path, fresh=True))]
    except FileNotFoundError:
        if not fs.isdir(path):
            raise
    scans = fs._bridge.run(Listings(client).tree(path))
    views = [view for scan in scans.values() for view in scan.listed.values()]
    return [view for view in views if not _is_passed_over(view.path[len(path) :])]


def view_now(fs: RollingFileSystem, path: str) -> View | None:
    """What is at a path now, or None."""
    try:
        return fs._bridge.run(fs._client.lookup.view(path, fresh=True))
    except FileNotFoundError:
        return None


def views_now(fs: RollingFileSystem, paths: Sequence[str]) -> list[View | None]:
    """What is at some paths now, several asked at once."""

    async def one(path: str) -> View | None:
        try:
            return await fs._client.lookup.view(path, fresh=True)
        except FileNotFoundError:
            return None

    calls = [partial(one, path) for path in paths]
    return fs._bridge.run(fs._client.runtime.gather(calls, fs._client.backend.requests_max))


def identity(view: View) -> str:
    """What tells a segment from another that gets its name later."""
    if view.header is not None:
        return view.header.segment
    assert view.plain is not None
    # no token: a listing may know another than a look at the file; and only one of the two may know milliseconds
    return f"{PLAIN}{int(view.plain.modified)} {view.plain.size}"


def is_same(view: View, known: str) -> bool:
    """Whether offsets of the segment with that identity mean this one; a plain file stays itself when it is adopted.

    Also once a plain copy has taken its place: the header keeps the date of the file that was adopted.
    """
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
