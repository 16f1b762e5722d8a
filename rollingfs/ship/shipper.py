"""`Shipper`: follows logs, and appends what is new to segments."""

from __future__ import annotations

import glob
import logging
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from rollingfs.errors import visible
from rollingfs.format.crc import crc32c
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.fs.write_buffer import CommitOn, CommitOnGiven, parse_commit_on
from rollingfs.runtime.system import HAS_LEASES
from rollingfs.ship.generations import Log
from rollingfs.ship.lineage import Lineage
from rollingfs.ship.route import Lag, Route, RoutedLog
from rollingfs.ship.sender import Sender, Series, Stopped
from rollingfs.show.metrics import meter_of

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

logger = logging.getLogger("rollingfs")

COMMIT_ON = ("1s", "8MiB")
POLL_S = 0.1
REST_S = 0.2
"""Time between two looks while all files stay as they are: 200 files take less than 1 % of a processor."""
FIND_S = 0.75
"""Time between two looks for new files of patterns."""
STEPS_AT_ONCE = 8
"""Threads for logs that have changed: a first commit takes ten requests, one after the other."""
SOURCES_MAX = 32
"""Maximum logs of a segment: its attributes have room for this number of positions."""


@dataclass(eq=False, repr=False)
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

    fs: RollingFileSystem
    files: Sequence[str]
    target: str
    _: KW_ONLY
    into: bool = False
    commit_on: CommitOnGiven | CommitOn = COMMIT_ON
    prefix: str = ""
    partial_after_s: float | None = None
    source: str | None = None
    seal_on_rotate: bool = False
    delete_after: bool = False
    say: Callable[[str], None] = logger.warning

    def __post_init__(self) -> None:
        given, say = [self.files] if isinstance(self.files, str) else self.files, self.say
        self.when = self.commit_on if isinstance(self.commit_on, CommitOn) else parse_commit_on(self.commit_on)
        if self.when.flush:
            raise ValueError("commit_on is 'flush', which is for an open file: give a time, bytes or lines")
        if self.into and self.seal_on_rotate:
            raise ValueError("a segment of all logs cannot be sealed when one of them is rotated: leave into out")
        if self.delete_after and not HAS_LEASES:
            raise ValueError("only Linux lets a program keep writers away from a file: leave delete_after out")
        self.prefix.format(host="", file="", path="")
        is_one = len(given) == 1 and not glob.has_magic(given[0]) and not self.target.endswith("/")
        self.is_segment, self.target = self.into or is_one, self.target.rstrip("/")
        self.core, self.files = core(self.fs), [os.path.abspath(one) for one in given]
        self.say = lambda text: say(visible(text))
        self._stop: Callable[[], bool] = bool
        self._routes: dict[str, Route] = {}
        self._logs: dict[str, Log] = {}
        self._all: list[Route] = []
        """Also the routes of earlier runs."""
        self._large = Lock()
        self._found_s: float | None = None
        self._looked_s: float | None = None
        """When the step before began: what waits was written since."""
        self._rests = False
        """Whether all files were as they were, at the step before."""
        for path in self.files:
            Log(path)

    @property
    def commits(self) -> int:
        """Return the number of commits of this object."""
        return sum(route.commits for route in self._all)

    @property
    def bytes(self) -> int:
        """Return the bytes of files that its commits have."""
        return sum(route.bytes for route in self._all)

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
        errors = [route.error or OSError(one.error) for route, one in self._sources() if route.error or one.error]
        self.close()
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Close the files; a later run finds their places in the segments."""
        for _, source in self._sources():
            source.lineage.close()
        self._routes.clear()
        self._logs.clear()
        self._found_s = None

    def lags(self) -> tuple[Lag, ...]:
        """Return what each log has that is not committed, as of the last look; any thread may ask."""
        return tuple(route.lag(source, route.since_s) for route, source in self._sources())

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
                route.begin()
                series = Series(self.core, route.sender.path, self._stop, self.say)
                if route.sender.segment is None and series.attrs():  # the other seals on rotation
                    route.sender = series
                    route.begin()
            except Stopped as error:
                raise OSError(f"{route.sender.path}: {error}") from error
            for source in route.sources.values():
                source.look()
                is_begun, shipped_s = source.lineage.text is not None, source.lineage.position.mtime_ns / 1e9
                found.append(route.lag(source, time.monotonic() - time.time() + shipped_s if is_begun else None))
        return found

    def _sources(self) -> Iterator[tuple[Route, RoutedLog]]:
        return ((route, source) for route in list(self._routes.values()) for source in list(route.sources.values()))

    # -- a step --------------------------------------------------------------------------------------------

    def step(self, *, flush: bool = False) -> bool:
        """Look at all logs once, and commit what is due, or all that waits.

        Returns
        -------
        bool
            Whether another step may find more, although no file changes.
        """
        now_s = time.monotonic()
        if self._found_s is None or now_s - self._found_s >= FIND_S:
            self._find()
            self._delete()
        routes = [one for one in self._routes.values() if one.error is None and (flush or not one.rests(now_s))]
        step = partial(Route.step, since_s=self._looked_s or now_s, flush=flush)
        if len(routes) > 1:
            with ThreadPoolExecutor(min(len(routes), STEPS_AT_ONCE)) as threads:
                found = list(threads.map(step, routes))
        else:  # in this thread: a caller may drive coroutines there
            found = list(map(step, routes))
        self._looked_s, self._rests = now_s, not routes
        return any(found)

    def _delete(self) -> None:
        for _, source in self._sources():
            if source.deletes:
                source.delete()

    # -- which logs ----------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Find new files of the patterns."""
        self._found_s = time.monotonic()
        for pattern in self.files:
            found = glob.glob(pattern) if glob.has_magic(pattern) else [pattern]
            for path in sorted(set(found) - self._logs.keys()):
                folder, name = os.path.split(path)
                others = (one for one in (*found, *self._logs) if one != path and os.path.dirname(one) == folder)
                if path == pattern or all(Log(one).age(name) is None for one in others):  # else it is a rotated file
                    self._add(Log(path))

    def _add(self, log: Log) -> None:
        self._logs[log.path] = log
        path = self.target if self.is_segment else f"{self.target}/{log.name}"
        path = self.core.to_write(path)
        route = self._routes.get(path)
        if route is None:
            kind = Series if self.seal_on_rotate else Sender
            sender = kind(self.core, path, lambda: self._stop(), self.say)
            route = self._routes[path] = Route(sender, self.when, self.into, self._large)
            self._all.append(route)
        key = f"ship-{crc32c(f'{self.source or str()}:{log.path}'.encode()):08x}"
        if not self.into and route.sources:
            other = next(iter(route.sources.values())).lineage.log.path
            self.say(f"{log.path} is not shipped: {other} goes to {path}, and without --into a segment is for one log")
        elif key in route.sources or len(route.sources) >= SOURCES_MAX:
            self.say(f"{log.path} is not shipped: {path} has {len(route.sources)} logs, and room for {SOURCES_MAX}")
        else:
            lineage = Lineage(log, self.say, any_host=self.source is not None, partial_after_s=self.partial_after_s)
            prefix = self.prefix.format(host=platform.node(), file=log.name, path=log.path)
            route.sources[key] = RoutedLog(lineage, key, prefix.encode(), self.delete_after)
            route.is_begun = False


def observe(shipper: Shipper, meter: Meter | None = None) -> None:
    """Let OpenTelemetry export what logs have that is not committed, in bytes and in seconds.

    Parameters
    ----------
    meter
        Maker of the instruments; by default a meter of OpenTelemetry's global provider.

    Raises
    ------
    ImportError
        OpenTelemetry is not installed: ``pip install 'rollingfs[otel]'``.
    """
    meter = meter_of(meter)
    from opentelemetry.metrics import Observation

    def asked(value: Callable[[Lag], float]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [
            Observation(value(one), {"file": one.path, "segment": one.segment}) for one in shipper.lags()
        ]

    for name, value, unit, what in (
        ("rollingfs.ship.lag", lambda one: one.bytes, "By", "Bytes of a log that are not committed"),
        ("rollingfs.ship.lag.time", lambda one: one.seconds, "s", "Time that the oldest of them waits"),
        ("rollingfs.ship.failing", lambda one: one.error is not None, "1", "1 for a log that cannot be shipped"),
    ):
        meter.create_observable_gauge(name, [asked(value)], unit, what)
