"""Several clients on one failing store, checked against the reference model, for `tests/system/test_crashes.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollingfs.backend.metered import MeteredBackend
from rollingfs.client import Client
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.sharing.files import ASK_AGE_S_MAX
from rollingfs.errors import AppendOutcomeUnknown, CommitTimeoutError, RollingError
from rollingfs.format import merging, names
from rollingfs.format.crc import crc32c
from rollingfs.format.header import GRACE_S, Chunk, Header, Page, Phase
from rollingfs.format.pin_codec import parse_pin
from rollingfs.format.transitions import Guard
from rollingfs.policy import RollingPolicy
from rollingfs.runtime.concurrency import drive
from tests.support import model
from tests.support.faults import CLOCK, Crashed, Fault, Faulty, Store
from tests.support.model import Call, Outcome, Possible, Seg

logger = logging.getLogger("tests")

COMMIT_TIMEOUT_S = 20.0
SHARING = 2
"""So many of the clients, the first ones, share commits."""
ROUNDS_MAX = 8
"""Maximum rounds of collection: garbage of segments that hold each other's chunks goes folder by folder."""
PATHS = ("/top/a", "/top/b", "/top/sub/c", "/top/sub/d e%", "/other/f")
NEW = "/new/name"
"""A path that segments only pass through."""
COMMIT_IS_LAST = {
    model.create,
    model.append,
    model.overwrite,
    model.seal,
    model.acquire,
    model.concat,
    model.rename,
}
"""Verbs that do nothing after their commit: after an error of the store they did not take effect."""


@dataclass(frozen=True)
class Op:
    """An operation: for the model, and for a client."""

    call: Call
    start: Callable[[Client], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class Handle:
    """The handle of an exclusive writer."""

    path: str
    owner: str
    epoch: int

    @property
    def guard(self) -> Guard:
        """The condition of its operations."""
        return Guard(epoch=self.epoch)


class World:
    """A store, its clients, and the states that the model holds possible."""

    def __init__(self, policy: RollingPolicy, clients: int = 3, store: Store | None = None) -> None:
        self.policy = policy
        self.store = store or Store()
        self.possible = Possible()
        self.clients = [self.new_client(index) for index in range(clients)]
        self.checker = Client(self.store, policy, header_cache_s=0.0, clock=CLOCK.time)

    def new_client(self, index: int) -> Client:
        """A client; all but the last share commits."""
        return Client(
            Faulty(self.store),
            self.policy,
            header_cache_s=1.0,
            commit_timeout_s=COMMIT_TIMEOUT_S,
            share_commits=index < SHARING,
            clock=CLOCK.time,
        )

    def backend(self, index: int) -> Faulty:
        """A client's way to the store."""
        metered = self.clients[index].backend
        assert isinstance(metered, MeteredBackend)
        backend = metered.inner
        assert isinstance(backend, Faulty)
        return backend

    # -- operations ----------------------------------------------------------------------------------------

    def step(self, op: Op, index: int = 0, faults: Mapping[int, Fault] | None = None) -> Outcome:
        """Run an operation with faults; check all against the model."""
        backend = self.backend(index)
        backend.prepare(faults)
        outcome = self.run(op, index)
        backend.prepare()
        if outcome.kind in ("unknown", "not done"):
            self.store.land()
        if outcome.kind == "unknown":
            CLOCK.sleep(ASK_AGE_S_MAX + 1)  # others may carry the ask of an append until then
        logger.debug("%d: %s faults %s -> %s", index, op.call, faults, outcome)
        self.possible.happened(op.call, outcome)
        self.look(_touched(op.call))
        return outcome

    def run(self, op: Op, index: int) -> Outcome:
        """Run an operation; gives the outcome for its caller."""
        try:
            value = drive(op.start(self.clients[index]))
        except Crashed as crash:
            self.clients[index] = self.new_client(index)
            return Outcome("unknown", error=crash)
        except AppendOutcomeUnknown as error:
            return Outcome("unknown", error=error)
        except CommitTimeoutError as error:
            return Outcome("not done", error=error)
        except (FileNotFoundError, FileExistsError, RollingError, ValueError) as error:
            return Outcome("error", type(error), error)
        except (OSError, TimeoutError) as error:
            if "injected" not in str(error):
                raise
            return Outcome("not done" if op.call.verb in COMMIT_IS_LAST else "unknown", error=error)
        return Outcome("ok", value)

    # -- looking -------------------------------------------------------------------------------------------

    def look(self, paths: Sequence[str] = PATHS) -> None:
        """Check what an undisturbed client sees against the model."""
        for path in dict.fromkeys(paths):
            self.possible.seen(path, self.observe(path))
        if len(self.possible.states) > 1:
            self.possible.join()

    def header(self, path: str) -> Header | None:
        """The header that lies at a path."""
        return drive(self.checker.headers.load(path)).header

    def observe(self, path: str) -> Seg | None:
        """The segment or file at a path. A source whose content another segment has taken counts as gone."""
        header = self.header(path)
        if header is None or header.deleted:
            plain = drive(self.checker.lookup.plain(path, Loaded(header, None)))
            if plain is None:
                return None
            return Seg(None, data=drive(self.store.read(path)).data, plain=True)
        if header.merge is not None:
            target = self.header(names.climb(names.parent(path), header.merge.target))
            if target is not None and merging.has_merged(target, header.merge):
                return None
        data = self.content(path, header)
        assert len(header.tail) <= header.policy.tail_bytes_max
        return Seg(header.policy, header.start, data, header.sealed, dict(header.attrs), header.owner)

    def content(self, path: str, header: Header) -> bytes:
        """The retained bytes of a header, read from the files themselves."""
        pieces = []
        for chunk in self._chunks(path, header):
            whole = self.store.fs.store[names.locate(path, chunk.file, chunk.tier)].getvalue()
            assert len(whole) == chunk.size, (path, chunk)
            assert chunk.crc32c in (None, crc32c(whole)), (path, chunk)
            pieces.append(whole[chunk.offset + max(header.start - chunk.start, 0) : chunk.offset + chunk.length])
        return b"".join([*pieces, header.tail]) if pieces else header.tail

    def _chunks(self, path: str, header: Header) -> list[Chunk]:
        """The chunks with retained bytes."""
        chunks = drive(self.checker.pages.unfold(path, header.entries))
        return [chunk for chunk in chunks if chunk.end > header.start]

    def owned(self) -> set[str]:
        """The paths of segments that somebody holds exclusively."""
        return {path for path in PATHS if (header := self.header(path)) is not None and header.owner is not None}

    # -- the end -------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Resolve all marks and collect all garbage, later; only files that are needed must be left."""
        self.store.lapse(2 * GRACE_S)
        self.look()
        for _ in range(ROUNDS_MAX):
            self.store.lapse(1.0)
            before = self.store.snapshot()
            for path in (*PATHS, NEW):
                try:
                    drive(self.checker.collector.collect(path, grace_s=0))
                except FileNotFoundError:
                    assert self.observe(path) is None
            if self.store.snapshot() == before:
                break
        self.look()
        marks = {file for file in self.store.files() if file.endswith(f"/{names.TIER_MARK}")}
        orphans = self.store.files() - self._needed() - marks
        assert not orphans, f"nobody needs {sorted(orphans)}"

    def _needed(self) -> set[str]:
        """The files of all visible segments."""
        needed = set()
        for path in PATHS:
            header = self.header(path)
            if header is None or header.deleted:
                needed |= {path} if self.observe(path) is not None else set()
                continue
            assert header.phase is not Phase.MERGING, path
            chunks = [*self._chunks(path, header), *(one for one in header.entries if isinstance(one, Chunk))]
            files = [names.locate(path, chunk.file, chunk.tier) for chunk in chunks]
            files += [names.resolve(path, one.file) for one in header.entries if isinstance(one, Page)]
            needed |= {names.header_path(path), *files, *self._pins_needed(files, path)}
        return needed

    def _pins_needed(self, files: list[str], path: str) -> set[str]:
        """The files that protect chunks in other folders: pins, headers of the folders, tombstones of sources."""
        folders = {names.parent(names.split_tier(file)[1]) for file in files} - {names.chunks_folder(path)}
        needed = {names.header_path(names.segment_of_folder(folder)) for folder in folders}
        for file in self.store.files():
            if names.parent(file) in folders and f"/{names.PIN_PREFIX}" in file:
                pin = parse_pin(self.store.fs.store[file].getvalue(), names.parent(file), file)
                needed |= {file, names.header_path(pin.source)} if pin.target == path else set()
        return needed


def _touched(call: Call) -> list[str]:
    paths = [call.path, *call.args.get("sources", ())]
    return [*paths, call.args["target"]] if "target" in call.args else paths
