"""Effects of a look at the segments on the marks of a stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rollingfs.segment.segment import Segment
from rollingfs.spark.source import segments
from rollingfs.spark.source.plain_files import PLAIN, PlainFile
from rollingfs.spark.source.stream.offsets import ReadMark

Moves = dict[str, tuple[str, ReadMark]]
"""By the new path of a segment: its old path, and its mark."""


def has_moved(before: Mapping[str, ReadMark], after: Mapping[str, ReadMark]) -> bool:
    """Return whether there are bytes to read, or something to remember: the end of a segment, or a loss of bytes."""
    if any(path not in after and not mark.sealed for path, mark in before.items()):
        return True
    for path, mark in after.items():
        known = before.get(path)
        if known is None:
            if mark.begin is not None and mark.offset > mark.begin:
                return True
        elif mark.begin is not None or mark.offset > known.offset or mark.sealed != known.sealed:
            return True
    return False


def moves(
    before: Mapping[str, ReadMark],
    views: Mapping[str, Segment],
    goes_on: Callable[[Segment, ReadMark], bool],
    became: Callable[[str, str], str | None],
) -> Moves:
    """Return the segments that a rename has given other names.

    A segment keeps its incarnation. A plain file keeps its inode, and its bytes, which `goes_on` compares; where a
    store has no inodes, a plain file under another name is another file.

    Parameters
    ----------
    became
        Tells, by path and identity, the segment that a plain file became.
    """
    old = {path: mark for path, mark in before.items() if not _is_at(views.get(path), mark)}
    new = {path: view for path, view in views.items() if path not in before or not _is_at(view, before[path])}
    if not old or not new:
        return {}
    lineages = {mark.identity: path for path, mark in old.items() if not mark.identity.startswith(PLAIN)}
    plain = {path: mark.identity for path, mark in old.items() if mark.identity.startswith(PLAIN)}
    inodes = {PlainFile.parse(identity).inode: path for path, identity in plain.items()}
    if any(view.header is not None for view in new.values()):
        lineages |= {became(path, identity) or "": path for path, identity in plain.items() if path not in views}
    found: Moves = {}
    for path, view in new.items():
        if view.plain is None:
            was = lineages.get(segments.identity(view))
        else:
            was = inodes.get(PlainFile.of(view.plain).inode or "")
            is_it = was is not None and segments.is_kept(view, old[was].identity) and goes_on(view, old[was])
            was = was if is_it else None
        if was is not None:
            mark = old[was] if view.plain is not None else replace(old[was], identity=segments.identity(view))
            found[path] = (was, mark)
    return found


def _is_at(view: Segment | None, mark: ReadMark) -> bool:
    return view is not None and segments.is_same(view, mark.identity)


def known(before: Mapping[str, ReadMark], views: Mapping[str, Segment], moved: Moves) -> dict[str, ReadMark | None]:
    """Return the marks of the present segments, also of renamed segments.

    It is None for a segment that the query does not know.
    """
    gone = {was for was, _ in moved.values()}
    stay = {path: before[path] if path in before and path not in gone else None for path in views}
    return stay | {path: mark for path, (_, mark) in moved.items()}


def lag(views: Mapping[str, Segment], marks: Mapping[str, ReadMark]) -> dict[str, Any]:
    """Return what `reportLatestOffset` gives."""
    behind: dict[str, Any] = {}
    for path, view in views.items():
        begin = max(view.start, marks[path].offset) if path in marks else view.start
        if view.length > begin:
            age_s = max(0.0, time.time() - segments.committed_ms(view, begin) / 1000)
            lags = {"lagBytes": view.length - begin, "lagSeconds": round(age_s, 3)}
            behind[path] = {"segment": segments.identity(view), "offset": view.length, **lags}
    lag_bytes = sum(found["lagBytes"] for found in behind.values())
    lag_s = max((found["lagSeconds"] for found in behind.values()), default=0.0)
    return {"lagBytes": lag_bytes, "lagSeconds": lag_s, "segments": behind}
