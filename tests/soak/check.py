"""What must be true of the bytes that a soak leaves, by the notes of its processes."""

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rollingfs.format import names
from rollingfs.segment.at import At
from rollingfs.segment.verbs.collect import collect, settle
from tests.soak.plan import SOCKETS_AT_REST_MAX, Place, read_notes
from tests.support.backends import Shifted
from tests.support.history import Call, check_order
from tests.support.records import records

Name = tuple[str, int]
"""A record: its writer, and its number."""
GROWTH_MAX = 1.3
GROWTH_BYTES_MAX = 32 * 1024 * 1024
GROWTH_FILES_MAX = 12
LATER_S = 7 * 86_400.0
"""A look so much later finds that every lag and grace has passed."""


class Told:
    """What the notes say, once all processes have ended."""

    def __init__(self, place: Place) -> None:
        self.tried: dict[Name, str] = {}
        self.acked: dict[Name, int] = {}
        self.calls: dict[Name, Call] = {}
        self.void: set[Name] = set()
        self.faults: list[str] = []
        self.refused: Counter[str] = Counter()
        self.truncated: dict[str, int] = defaultdict(int)
        self.health: dict[str, list[dict[str, int]]] = defaultdict(list)
        self.rest: dict[str, int] = {}
        for writer, note in read_notes(place):
            self._add(writer, note)

    def _add(self, writer: str, note: dict[str, Any]) -> None:
        name = (writer, note.get("number", 0))
        if "fault" in note:
            self.faults.append(f"{writer}: {note['fault']}")
        elif "refused" in note:
            self.refused[f"{note['refused']}: {note['error'].partition(':')[0]}"] += 1
        elif "health" in note:
            self.health[writer].append(note["health"])
        elif "rest" in note:
            self.rest[writer] = note["rest"]
        elif "truncates" in note:
            path = note["truncates"]
            self.truncated[path] = max(self.truncated[path], note["offset"])
        elif "void" in note:
            self.void.add(name)
        elif "offset" in note:
            self.acked[name] = note["offset"]
            self.calls[name] = replace(self.calls[name], ended=note["at"], told="ok", value=note["offset"])
        elif "number" in note:
            self.tried[name] = note["path"]
            self.calls[name] = Call(*name, "append", note["at"], expected=note.get("expected_offset"))


def broken(place: Place) -> Iterator[str]:
    """Each promise that was broken, as a sentence."""
    told, fs = Told(place), place.open()
    yield from told.faults
    _settle(place, fs)
    found: Counter[Name] = Counter()
    starts: dict[str, int] = {}
    for path in fs.find(place.root):
        if path.startswith(f"{place.root}/scratch/"):
            continue  # what a killed process left there was never meant to stay
        segment = fs.segment(path)
        starts[path] = segment.start
        named = [(writer, number, segment.start + at) for at, writer, number in records(fs.cat_file(path))]
        found.update((writer, number) for writer, number, _ in named)
        yield from _misplaced(path, named, told)
        yield from (f"{path}: damaged: {row}" for row in segment.verify() if not row.ok)
    yield from (f"{name} is there {count} times" for name, count in found.items() if count > 1)
    yield from (f"{name} is there; its append said that nothing was written" for name in found if name in told.void)
    yield from (f"{name} is there, and nobody has appended it" for name in found if name not in told.tried)
    for path in place.logs:
        if starts[path] > told.truncated[path]:
            yield f"{path} begins at {starts[path]}; the last truncation was at {told.truncated[path]}"
    for name, offset in told.acked.items():
        path = told.tried[name]
        if name not in found and not (path in starts and offset < starts[path]):
            yield f"{name} is lost: it was acknowledged in {path} at {offset}"
    yield from _disordered(place, told)
    yield from _left(place, fs)


def _later(fs: Any) -> At:
    """A client for which all that processes left half done is old."""
    return At.of(Shifted(fs._backend, LATER_S), clock=lambda: time.time() + LATER_S)


def _settle(place: Place, fs: Any) -> None:
    """Finish merges that were broken off: for some seconds, their bytes are shown in the source and in the target."""
    client = _later(fs)
    for path in fs.find(place.root):
        fs._bridge.run(settle(client, path))
    fs.invalidate_cache()


def _disordered(place: Place, told: Told) -> Iterator[str]:
    """Appends that lie where they were not to lie: at another offset, or before one that had ended when they began."""
    calls = [told.calls[name] for name in told.acked]
    elsewhere = [call for call in calls if call.expected not in (None, call.value)]
    yield from (f"it was conditioned on another offset: {call}" for call in elsewhere)
    for path in place.logs:
        try:
            check_order((told.acked[call.name], 1, call) for call in calls if told.tried[call.name] == path)
        except AssertionError as error:
            yield f"{path}: {error}"


def _misplaced(path: str, named: list[tuple[str, int, int]], told: Told) -> Iterator[str]:
    for writer, number, offset in named:
        acked = told.acked.get((writer, number))
        if acked is not None and told.tried[writer, number] == path and acked != offset:
            yield f"{path}: {writer} {number} is at {offset}, and was acknowledged at {acked}"


def _left(place: Place, fs: Any) -> Iterator[str]:
    """Once all that was dropped is old, a collection leaves no file that no segment names."""
    run, client = fs._bridge.run, _later(fs)
    backend, paths = client.backend, fs.find(place.root)
    for path in (*paths, *paths):  # the first round may free what the files of others kept
        run(collect(client, path))
    for path in paths:
        folder = names.chunks_folder(path)
        named = {chunk.file for chunk in fs.segment(path).chunks} | {names.LOCK_NAME}
        try:
            files = [entry.path.rpartition("/")[2] for entry in run(backend.list(folder)).entries]
        except FileNotFoundError:
            continue
        for name in files:
            if name not in named and not name.startswith(names.INDEX_PREFIX):
                yield f"{folder}/{name} is left, and no segment names it"


def growth(place: Place) -> Iterator[str]:
    """What a process that was never killed has more of in the last quarter than in the second, and sockets at rest.

    A pool holds as many sockets as its last verbs needed at once, and gives them up in time; a leak does not.
    """
    told = Told(place)
    for writer, rows in told.health.items():
        quarter = len(rows) // 4
        if quarter < 3:
            continue
        early, late = rows[quarter : 2 * quarter], rows[-quarter:]
        was, now = ({key: statistics.median(row[key] for row in part) for key in early[0]} for part in (early, late))
        if now["rss"] > GROWTH_MAX * was["rss"] + GROWTH_BYTES_MAX:
            yield f"{writer}: {was['rss'] / 2**20:.0f} MiB became {now['rss'] / 2**20:.0f}"
        for key in ("files", "threads"):
            if now[key] > was[key] + GROWTH_FILES_MAX:
                yield f"{writer}: {was[key]} {key} became {now[key]}"
    for writer, sockets in told.rest.items():
        if sockets > SOCKETS_AT_REST_MAX:
            yield f"{writer}: {sockets} sockets are open at rest"
