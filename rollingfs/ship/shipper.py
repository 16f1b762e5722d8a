"""`Shipper`: follows logs, and appends what is new to segments."""

from __future__ import annotations

import glob
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from rollingfs.errors import visible
from rollingfs.format.crc import crc32c
from rollingfs.fs.commit_on import CommitOn, CommitOnGiven, parse_commit_on
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.runtime.system import HAS_LEASES
from rollingfs.runtime.values import value_class
from rollingfs.segment.write.ingest import SMALL_BYTES_MAX
from rollingfs.ship.generations import Log
from rollingfs.ship.lineage import LINE_FEED, Changed, Lineage, Piece
from rollingfs.ship.payload import payload
from rollingfs.ship.position import Position
from rollingfs.ship.sender import Sender, Stopped
from rollingfs.ship.series import Series
from rollingfs.ship.shipped import Shipped

logger = logging.getLogger("rollingfs")

COMMIT_ON = ("1s", "8MiB")
POLL_S = 0.1
REST_S = 0.15
"""Time between two looks while all files stay as they are: 200 files take less than 1 % of a processor."""
FIND_S = 0.75
"""Time between two looks for new files of patterns."""
STEPS_AT_ONCE = 8
"""Threads for logs that have changed: a first commit takes ten requests, one after the other."""
SOURCES_MAX = 32
"""Maximum logs of a segment: its attributes have room for this number of positions."""


@value_class
class Lag:
    """Bytes of a log that are not committed."""

    path: str
    segment: str
    bytes: int
    since_s: float | None
    """When the oldest byte that waits may have been written, by `time.monotonic`."""
    error: str | None

    @property
    def seconds(self) -> float:
        """Return how long bytes wait."""
        return 0.0 if self.since_s is None else time.monotonic() - self.since_s


@dataclass
class Source:
    """A log that is shipped, and what is to be done with its lines."""

    lineage: Lineage
    key: str
    """Attribute of its position."""
    prefix: bytes
    error: str | None = None
    shipped: Shipped | None = None
    """Rotated files that are deleted."""


class Unreadable(Exception):
    """The bytes of a log cannot be read; other logs go on."""

    def __init__(self, source: Source, error: OSError) -> None:
        super().__init__(str(error))
        self.source, self.error = source, error


@dataclass
class Route:
    """A segment, and the logs that go there."""

    sender: Sender
    sources: dict[str, Source] = field(default_factory=dict)
    is_begun: bool = False
    """Whether all logs are at their positions."""
    since_s: float | None = None
    """When the oldest byte that waits may have been written."""
    error: Exception | None = None
    """The error that ends the shipping of this log."""

    def rests(self, now_s: float) -> bool:
        """Return whether all its logs are as they were."""
        return all(source.error is None and source.lineage.rests(now_s) for source in self.sources.values())


class Shipper:
    """Follows logs and appends their new lines, each once, however often it is stopped, killed or started twice.

    The commit that appends lines sets the position of their file, an attribute of the segment, on condition of the
    position before. So there is no other state.

    Parameters
    ----------
    fs
        The filesystem of the segments.
    files
        Names of local files, patterns, or names with codes of dates (``app-%Y%m%d.log``), which are a single log.
    target
        A segment; or a folder, with a segment for each log, if it ends with a slash or there are several logs.
    into
        Whether the target is a single segment for all logs.
    commit_on
        A commit is due after this time, these bytes, or lines, as of ``open``.
    prefix
        Text before each line; ``{host}``, ``{file}`` and ``{path}`` in it are replaced.
    partial_after_s
        Ship a line without its end after so long; by default it waits for its end.
    source
        A name that is part of each position: hosts that ship files of the same names into a segment need it.
    seal_on_rotate
        Make the target of each log a folder, with a segment for each file of it, sealed when the next file begins.
    delete_after
        Delete a rotated file once all of it is committed, lines of the next file are, and no program can write to it.
    say
        Gets a line for what is lost, what fails, and what is waited for; by default it is logged.

    Raises
    ------
    ValueError
        An argument makes no sense.
    """

    def __init__(
        self,
        fs: RollingFileSystem,
        files: Sequence[str],
        target: str,
        *,
        into: bool = False,
        commit_on: CommitOnGiven | CommitOn = COMMIT_ON,
        prefix: str = "",
        partial_after_s: float | None = None,
        source: str | None = None,
        seal_on_rotate: bool = False,
        delete_after: bool = False,
        say: Callable[[str], None] = logger.warning,
    ) -> None:
        if isinstance(files, str):
            files = [files]
        self.core, self.into, self.source = core(fs), into, source
        self.files = [os.path.abspath(one) for one in files]
        self.when = commit_on if isinstance(commit_on, CommitOn) else parse_commit_on(commit_on)
        if self.when.flush:
            raise ValueError("commit_on is 'flush', which is for an open file: give a time, bytes or lines")
        if into and seal_on_rotate:
            raise ValueError("a segment of all logs cannot be sealed when one of them is rotated: leave into out")
        if delete_after and not HAS_LEASES:
            raise ValueError("only Linux lets a program keep writers away from a file: leave delete_after out")
        self.seal_on_rotate, self.delete_after = seal_on_rotate, delete_after
        self.prefix, self.partial_after_s = prefix, partial_after_s
        prefix.format(host="", file="", path="")
        is_one = len(files) == 1 and not glob.has_magic(files[0]) and not target.endswith("/")
        self.target, self.is_segment = target.rstrip("/"), into or is_one
        self.commits = self.bytes = 0
        """Commits of this object, and the bytes of files that they have."""
        self.say: Callable[[str], None] = lambda text: say(visible(text))
        """Report a line."""
        self._stop: Callable[[], bool] = bool
        self._routes: dict[str, Route] = {}
        self._logs: dict[str, Log] = {}
        self._found_s: float | None = None
        self._looked_s: float | None = None
        """When the step before began: what waits was written since."""
        self._rests = False
        """Whether all files were as they were, at the step before."""
        self._lags: tuple[Lag, ...] = ()
        self._counting, self._large = threading.Lock(), threading.Lock()
        """Of the sums, and of the memory for a commit that is streamed."""
        for path in self.files:
            Log(path)

    # -- runs ----------------------------------------------------------------------------------------------

    def once(self, stop: Callable[[], bool] = bool) -> None:
        """Ship the whole lines that are there now.

        Raises
        ------
        OSError
            A log could not be shipped; the others were.
        """
        self._stop = stop
        while self.step(flush=True) and not stop():
            time.sleep(POLL_S)
        self._delete()
        self._end()

    def follow(self, stop: Callable[[], bool]) -> None:
        """Ship lines as they come, until `stop` returns true; then commit what waits.

        Raises
        ------
        OSError
            A log could not be shipped, or its last lines; the others were.
        """
        self._stop = stop
        while not stop() and not (self._routes and all(route.error for route in self._routes.values())):
            self.step()
            time.sleep(REST_S if self._rests else POLL_S)
        self.step(flush=True)
        self._end()

    def _end(self) -> None:
        try:
            for route, source in self._sources():
                if route.error is not None:
                    raise route.error
                if source.error is not None:
                    raise OSError(source.error)
        finally:
            self.close()

    def close(self) -> None:
        """Close the files; a later run finds their places in the segments."""
        for _, source in self._sources():
            source.lineage.close()
        self._routes.clear()
        self._logs.clear()
        self._found_s = None

    def lags(self) -> tuple[Lag, ...]:
        """Return what each log has that is not committed, as of the last second; any thread may ask."""
        return self._lags

    def seen(self) -> list[Lag]:
        """Return the lags of logs that another process ships, by their positions in the segments; ship no line.

        It is for a shipper with the files and the target of the other, which does not ship itself.

        Returns
        -------
        list
            Bytes wait since the last write that is shipped, at most.

        Raises
        ------
        OSError
            A segment cannot be read.
        """
        self._stop = lambda: True  # a store that fails is not waited for
        self._find()
        found = []
        for route in self._routes.values():
            try:
                self._begin(route)
            except Stopped as error:
                raise OSError(f"{route.sender.path}: {error}") from error
            for source in route.sources.values():
                self._look(source)
                is_begun, shipped_s = source.lineage.text is not None, source.lineage.position.mtime_ns / 1e9
                found.append(_lag(route, source, time.monotonic() - time.time() + shipped_s if is_begun else None))
        return found

    def _publish(self) -> None:
        self._lags = tuple(_lag(route, source, route.since_s) for route, source in self._sources())

    def _sources(self) -> Iterator[tuple[Route, Source]]:
        return ((route, source) for route in self._routes.values() for source in route.sources.values())

    # -- a step --------------------------------------------------------------------------------------------

    def step(self, *, flush: bool = False) -> bool:
        """Look at all logs once, and commit what is due, or all that waits.

        Returns
        -------
        bool
            Whether another step may find more, although no file changes.
        """
        now_s = time.monotonic()
        is_time = self._found_s is None or now_s - self._found_s >= FIND_S
        if is_time:
            self._find()
            self._delete()
        routes = [one for one in self._routes.values() if one.error is None and (flush or not one.rests(now_s))]
        shares = [routes[first::STEPS_AT_ONCE] for first in range(min(STEPS_AT_ONCE, len(routes)))]
        if len(shares) > 1:
            with ThreadPoolExecutor(len(shares)) as threads:
                found = list(threads.map(partial(self._steps, flush), shares))
        else:
            found = [self._steps(flush, share) for share in shares]
        self._looked_s, self._rests = now_s, not routes
        if is_time or any(found):
            self._publish()
        return any(found)

    def _steps(self, flush: bool, routes: Sequence[Route]) -> bool:
        found = [self._step(route, flush) for route in routes]
        return any(found)

    def _step(self, route: Route, flush: bool) -> bool:
        pieces: list[tuple[Source, Piece]] = []
        try:
            if not route.is_begun:
                self._begin(route)
            pieces = [(source, piece) for source in route.sources.values() if (piece := self._look(source))]
            route.since_s = (route.since_s or self._looked_s or time.monotonic()) if pieces else None
            while pieces:
                try:
                    if not (flush or self._is_due(route, pieces)):
                        break
                    self._publish()  # the store may let it wait for long
                    self._send(route, pieces)
                    return True
                except Unreadable as found:
                    self._report(found.source, found.error)
                    pieces = [one for one in pieces if one[0] is not found.source]
                    route.since_s = time.monotonic() if pieces else None
        except Changed:
            for source, _ in pieces:
                source.lineage.begin_again()
            return True
        except Stopped as error:
            route.error = OSError(f"{route.sender.path}: the last lines are not written: {error}")
        except (OSError, ValueError) as error:
            route.error = error
            self.say(f"{route.sender.path}: nothing more is shipped there: {error}")
        return any(source.lineage.is_pending for source in route.sources.values())

    def _begin(self, route: Route) -> None:
        attrs = route.sender.attrs()
        for source in route.sources.values():
            source.lineage.begin(attrs.get(source.key))
        route.is_begun = True

    def _look(self, source: Source) -> Piece | None:
        """Look at a log; an error is reported, and the next look tries again."""
        try:
            piece = source.lineage.look()
        except OSError as error:
            self._report(source, error)
            return None
        if piece is None:  # else its bytes may be unreadable
            source.error = None
        return piece

    def _report(self, source: Source, error: OSError) -> None:
        said = f"{error.filename or source.lineage.log.path}: {error.strerror or error}"
        if said != source.error:
            self.say(said)
        source.error = said

    def _is_due(self, route: Route, pieces: Sequence[tuple[Source, Piece]]) -> bool:
        if any(source.lineage.text is None for source, _ in pieces):
            return True  # from then on a rotation cannot hide the file
        age_s, size = time.monotonic() - (route.since_s or 0.0), sum(piece.size for _, piece in pieces)
        return self.when.is_due(
            size,
            age_s,
            lambda: sum(block.count(LINE_FEED) for one in pieces for block in _read(one[0], one[1].blocks())),
        )

    def _send(self, route: Route, pieces: Sequence[tuple[Source, Piece]]) -> None:
        """Commit what waits; if another shipper has gone on, go on from its position."""
        before = {source.key: source.lineage.text for source, _ in pieces}
        after = {source.key: str(piece.end) for source, piece in pieces}
        if _is_rotated_since(*pieces[0]) and route.sender.turn(before):
            self._begin(route)
            return
        size = sum(piece.size for _, piece in pieces)

        def data() -> bytes | Iterator[bytes]:
            payloads = ((source, payload(piece, source.prefix, ends=self.into)) for source, piece in pieces)
            blocks = (block for source, one in payloads for block in _read(source, one))
            return b"".join(blocks) if size <= SMALL_BYTES_MAX // 2 else blocks

        with self._large if size > SMALL_BYTES_MAX else nullcontext():
            is_sent = route.sender.send(data, before, after)
        if is_sent:
            route.since_s = None
            with self._counting:
                self.commits, self.bytes = self.commits + 1, self.bytes + size
            for source, piece in pieces:
                source.lineage.done(piece)
                source.error = None
        else:
            self._begin(route)

    def _delete(self) -> None:
        for _, source in self._sources():
            if source.shipped is not None:
                source.shipped.delete()

    # -- which logs ----------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Find new files of the patterns."""
        self._found_s = time.monotonic()
        for pattern in self.files:
            found = glob.glob(pattern) if glob.has_magic(pattern) else [pattern]
            for path in sorted(set(found) - self._logs.keys()):
                if path == pattern or not any(_is_rotated(path, one) for one in [*found, *self._logs] if one != path):
                    self._add(Log(path))

    def _add(self, log: Log) -> None:
        self._logs[log.path] = log
        path = self.target if self.is_segment else f"{self.target}/{log.name}"
        path = self.core.to_write(path)
        route = self._routes.get(path)
        if route is None:
            kind = Series if self.seal_on_rotate else Sender
            route = self._routes[path] = Route(kind(self.core, path, lambda: self._stop(), self.say))
        key = f"ship-{crc32c(f'{self.source or str()}:{log.path}'.encode()):08x}"
        if not self.into and route.sources:
            other = next(iter(route.sources.values())).lineage.log.path
            self.say(f"{log.path} is not shipped: {other} goes to {path}, and without --into a segment is for one log")
        elif key in route.sources or len(route.sources) >= SOURCES_MAX:
            self.say(f"{log.path} is not shipped: {path} has {len(route.sources)} logs, and room for {SOURCES_MAX}")
        else:
            lineage = Lineage(log, self.say, any_host=self.source is not None, partial_after_s=self.partial_after_s)
            prefix = self.prefix.format(host=platform.node(), file=log.name, path=log.path)
            shipped = Shipped(lineage, self.say) if self.delete_after else None
            route.sources[key], route.is_begun = Source(lineage, key, prefix.encode(), shipped=shipped), False


def _lag(route: Route, source: Source, since_s: float | None) -> Lag:
    waiting, error = source.lineage.lag_bytes, source.error if route.error is None else str(route.error)
    return Lag(source.lineage.log.path, route.sender.path, waiting, since_s if waiting else None, error)


def _read(source: Source, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks of a log; an error of its disk is not one of the store."""
    try:
        yield from blocks
    except OSError as error:
        raise Unreadable(source, error) from error


def _is_rotated_since(source: Source, piece: Piece) -> bool:
    """Return whether a piece is of a later file than the last bytes in the segment."""
    text = source.lineage.text
    return text is not None and str(piece.start) != text and Position.parse(text).offset > 0


def _is_rotated(path: str, other: str) -> bool:
    """Return whether a file is a generation of another log."""
    return os.path.dirname(path) == os.path.dirname(other) and Log(other).age(os.path.basename(path)) is not None
