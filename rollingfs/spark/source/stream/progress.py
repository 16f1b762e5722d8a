"""What a look at the segments means for the marks of a stream."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rollingfs.read.snapshot import Snapshot
from rollingfs.spark.source import segments
from rollingfs.spark.source.stream.offsets import ReadMark


def has_moved(before: Mapping[str, ReadMark], after: Mapping[str, ReadMark]) -> bool:
    """Whether there are bytes to read, or something to remember: the end of a segment, or a loss of bytes."""
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


def moved(before: Mapping[str, ReadMark], views: Mapping[str, Snapshot]) -> dict[str, ReadMark]:
    """The marks of segments that a rename has given other names, by these names."""
    old = {
        mark.identity: mark
        for path, mark in before.items()
        if path not in views or not segments.is_same(views[path], mark.identity)
    }
    found = {
        path: old.get(segments.identity(view))
        for path, view in views.items()
        if path not in before or not segments.is_same(view, before[path].identity)
    }
    return {path: mark for path, mark in found.items() if mark is not None}


def known(before: Mapping[str, ReadMark], views: Mapping[str, Snapshot]) -> dict[str, ReadMark | None]:
    """The marks of the segments that are there, also of renamed ones; None for those that the query does not know."""
    renamed = moved(before, views)
    elsewhere = {mark.identity for mark in renamed.values()}
    own = {path: before.get(path) for path in views}
    stay = {path: None if mark is not None and mark.identity in elsewhere else mark for path, mark in own.items()}
    return stay | renamed


def lag(views: Mapping[str, Snapshot], marks: Mapping[str, ReadMark]) -> dict[str, Any]:
    """What `reportLatestOffset` gives."""
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
