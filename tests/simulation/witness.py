"""The witness: it sees every change of the store, reads each new header to the last byte, and checks all files."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fsspec.implementations.memory import MemoryFile

from rollingfs.format import merging, names
from rollingfs.format.crc import crc32c
from rollingfs.format.drops import is_own
from rollingfs.format.header import Chunk, Header, Page
from rollingfs.format.policies import ROLLING_ATTR, parse_rolling
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.commit import header_cache
from rollingfs.segment.segment import is_shadowed, shadow
from rollingfs.stream.ledger_codec import Ledger, parse_ledger
from tests.simulation.history import Doing, History, Violation, running
from tests.simulation.model import Seg
from tests.simulation.store import Store

if TYPE_CHECKING:
    from tests.simulation.world import World

PASSING = (names.PROBE_PREFIX, names.TEMPORARY_PREFIX, names.LOCK_NAME, names.PIN_PREFIX)
"""Names in chunk folders under which other bytes may come: of probes, asks, leftovers, and pins that come back."""

EXPORTS = "/exports/"
"""The folder of exported files."""
LOST, REBUILT, COPIES = "/lost/", "/rebuilt/", "/copies/"
"""Folders of chunks without a header, of what is made of them, and of copies of folders."""
TABLES = "/tables/"
"""The folder of growing Parquet files, whose rows `Tables` checks."""
SHIPPED = "/shipped/"
"""The folder of logs that shippers bring in, whose lines `Shipping` checks."""


def is_aside(file: str) -> bool:
    """Whether a file is none of the segments that the model knows."""
    return names.split_tier(file)[1].startswith((EXPORTS, LOST, REBUILT, COPIES, TABLES, SHIPPED))


FOUND_SHARE = 0.4
"""How often lost index pages come back, rather than another one goes."""


class Lost(dict[str, MemoryFile]):
    """The index pages that are lost, as they were, by path."""

    def change(self, world: World, chance: random.Random) -> None:
        """Lose another page, or find all."""
        headers = [(path, world.witness.headers.get(path)) for path in world.history.state]
        pages = {names.resolve(path, page.file) for path, header in headers for page in _pages(header)}
        if self and chance.random() < FOUND_SHARE:
            self.find(world.store)
        elif left := sorted(pages - self.keys()):
            file = chance.choice(left)
            self[file] = world.store.files[file]
            world.store.put_silently(file, b"damaged")
            if chance.random() < 0.5:
                dict.pop(world.store.files, file)
            world.counts["pages lost"] += 1
            for client in world.clients:
                client.pages.after_fork()  # no client has it in memory

    def find(self, store: Store) -> None:
        """Bring back all that are lost."""
        store.files.update(self)
        self.clear()

    def check_mark(self, path: str, header: Header, doing: Doing | None) -> None:
        """Whoever meets a mark must be able to undo it: nothing is marked whose folders a lost page names."""
        foreign = [page.file for page in _pages(header) if page.foreign or not is_own(page.file)]
        if any(names.resolve(path, file) in self for file in foreign):
            raise Violation(f"{path} was marked, and {[*self]} are lost, by {doing}")


def _pages(header: Header | None) -> list[Page]:
    return [] if header is None else [entry for entry in header.entries if isinstance(entry, Page)]


class Witness:
    """Knows what is visible, by the files alone.

    Parameters
    ----------
    paths
        All segments.
    fail
        Is told of the first broken rule.
    remembered
        Is told of each change of the memory of a stream: the folder, and what the memory said before and says now.
    """

    def __init__(
        self,
        history: History,
        paths: Iterable[str],
        fail: Callable[[Violation], None],
        remembered: Callable[[str, Ledger, Ledger], None],
    ) -> None:
        self.history, self.paths, self._fail, self._remembered = history, tuple(paths), fail, remembered
        self.headers: dict[str, Header] = {}
        self.files_of: dict[str, frozenset[str]] = {}
        """The files that each visible segment needs."""
        self._needed: Counter[str] = Counter()
        self.ever_needed: set[str] = set()
        self._verified: dict[str, bytes] = {}
        self._names: dict[str, int] = {}
        """The checksum of each file that was ever written in a chunk folder."""
        self.writers: dict[str, Doing | None] = {}
        """The operation that wrote each of these files first."""
        self._before: dict[str, tuple[Any, bytes]] = {}
        self._memories: dict[str, list[tuple[float, Ledger]]] = {}
        """What the memory of each stream has said, and since when, by its folder."""
        self.lost = Lost()
        self.outside: set[str] = set()
        """Files that no operation touches."""

    def watch(self, store: Store) -> None:
        self.store = store
        self.reader = At.of(store, header_cache_s=0.0, clock=store.clock)

    # -- what the store says -----------------------------------------------------------------------------------

    def written(self, path: str, data: bytes) -> None:
        try:
            self._written(path, data)
        except Violation as violation:
            self._fail(violation)

    def deleted(self, path: str) -> None:
        try:
            self._deleted(path)
        except Violation as violation:
            self._fail(violation)

    def taken_back(self, path: str, before: Header | None) -> None:
        """The store has lost the newest header of a segment."""
        del self.headers[path]
        self.headers |= {path: before} if before is not None else {}
        self.history.lost(path)
        self._need(path, self._files(path))

    def moved(self, path: str, target: str) -> None:
        """A header has got another name."""
        segments = [names.segment_of_header(one) for one in (path, target)]
        self.headers[segments[1]] = self.headers.pop(segments[0])
        try:
            for segment in segments:
                self._note_memory(segment)
            self._look(segments)
        except Violation as violation:
            self._fail(violation)

    def _written(self, path: str, data: bytes) -> None:
        if f"/{names.PROBE_PREFIX}" in path:
            return
        if path in self.paths:
            self._look([path])
        elif path.startswith(EXPORTS):
            return
        elif path.endswith(names.HEADER_SUFFIX):
            self._committed(
                names.segment_of_header(path), header_cache.parse_file(data, path)[0]
            )  # which parses each text once
        elif f"{names.CHUNKS_SUFFIX}/" in path:
            self._check_name(path, data)
        elif not path.endswith((f"/{names.TIER_MARK}", f"/{names.REMOVED_NAME}")):
            raise Violation(f"a file outside was written: {path}, by {running.get()}")

    def _check_name(self, path: str, data: bytes) -> None:
        """A file in a chunk folder is written once."""
        self._verified.pop(path, None)
        self.writers.setdefault(path, running.get())
        if path.rpartition("/")[2].startswith(PASSING):
            return
        crc = crc32c(data)
        if self._names.setdefault(path, crc) != crc:
            raise Violation(f"other bytes came under the name {path}, by {running.get()}")

    def _deleted(self, path: str) -> None:
        self._verified.pop(path, None)
        if self._needed[path] > 0:
            holders = [one for one, files in self.files_of.items() if path in files]
            raise Violation(f"{path} was deleted, and {holders} need it, by {running.get()}")
        if path in self.paths:
            self._look([path])
        elif path.endswith(names.HEADER_SUFFIX) and f"/{names.PROBE_PREFIX}" not in path:
            segment = names.segment_of_header(path)
            self.headers.pop(segment, None)
            self._note_memory(segment)
            self._look([segment])
        elif path in self.outside:
            raise Violation(f"a file outside was deleted: {path}, by {running.get()}")

    # -- headers -----------------------------------------------------------------------------------------------

    def _committed(self, path: str, header: Header | None) -> None:
        old = self.headers.get(path)
        if header is None or header == old:
            return  # nothing, or the rest of a torn record
        self._check_follows(path, old, header)
        self._check_evidence(path, old, header)
        self.headers[path] = header
        self._note_memory(path)
        # sources go with the commit of their target
        sources = [
            one
            for one, other in self.headers.items()
            if other.merge is not None and names.find(names.parent(one), other.merge.target) == path
        ]
        for one in sources:
            merge = self.headers[one].merge
            if merge is not None and merging.has_merged(header, merge) and not (old and merging.has_merged(old, merge)):
                self._has_evidence(one, path, merge.txn)
        self._look([path, *(one for one in sources if one != path)])

    def _check_evidence(self, path: str, old: Header | None, new: Header) -> None:
        """A move to another folder is marked after its evidence was written, as in the model of moves."""
        merge, doing = new.merge, running.get()
        is_late = doing is None or doing.told != "running"  # its mover has given up, and deleted the evidence
        if merge is None or is_late or (old is not None and old.merge is not None and old.merge.txn == merge.txn):
            return
        self.lost.check_mark(path, new, doing)
        target = names.find(names.parent(path), merge.target)
        if target is not None:
            self._has_evidence(path, target, merge.txn)

    def _has_evidence(self, source: str, target: str, txn: str) -> None:
        """While a source is marked and its mover may commit, the folder of the target shows the move."""
        pin = f"{names.chunks_folder(target)}/{names.PIN_PREFIX}{txn}"
        if names.parent(source) != names.parent(target) and pin not in self.store.files:
            raise Violation(f"{target} has no evidence of the move {txn} of {source}, by {running.get()}")

    def _note_memory(self, path: str) -> None:
        if names.is_ledger(path):
            header, folder = self.headers.get(path), names.parent(path)
            ledger, before = Ledger(), self.ledger(folder)
            if header is not None and not header.deleted:
                data, text = self.content(path, header), header.attrs.get(ROLLING_ATTR)
                ledger = replace(
                    parse_ledger(data, path) if data else ledger, rolling=parse_rolling(text) if text else {}
                )
            said = self._memories.setdefault(folder, [(0.0, Ledger())])
            said.append((asyncio.get_running_loop().time(), ledger))
            self._remembered(folder, before, ledger)

    def ledger(self, folder: str) -> Ledger:
        """The memory of a stream, as it lies there."""
        return self._memories[folder][-1][1] if folder in self._memories else Ledger()

    def ledgers_since(self, folder: str, since_s: float) -> list[Ledger]:
        """All that the memory of a stream has said since then."""
        said = self._memories.get(folder, [(0.0, Ledger())])
        last = max(index for index, (at_s, _) in enumerate(said) if at_s < since_s or not index)
        return [ledger for _, ledger in said[last:]]

    @staticmethod
    def _check_follows(path: str, old: Header | None, new: Header) -> None:
        if old is None:
            return
        if new.version != old.version + 1:
            raise Violation(f"{path}: version {new.version} follows {old.version}, by {running.get()}")
        if new.segment != old.segment or new.deleted or old.deleted:
            return
        if new.modified_ms < old.modified_ms:
            raise Violation(f"{path}: time went back from {old.modified_ms} to {new.modified_ms}, by {running.get()}")
        if new.start < old.start or new.epoch < old.epoch:
            raise Violation(f"{path}: start or epoch went back, by {running.get()}")

    def _look(self, paths: list[str]) -> None:
        changes = {path: self._visible(path) for path in paths if path in self.paths}
        for path in paths:
            self._need(path, self._files(path))
        before = self.history.state
        if changes:
            self.history.changed(changes)
        for path in changes:
            is_taken = path in self.headers and self.is_taken(path)
            if is_taken and path in before:
                self.history.taken(path, before[path])
            elif not is_taken:
                self.history.taken(path, None)

    def is_taken(self, path: str) -> bool:
        """Whether the segment is a source whose content its target has."""
        merge = self.headers[path].merge
        target = None if merge is None else names.find(names.parent(path), merge.target)
        header = self.headers.get(target) if target is not None else None
        return merge is not None and header is not None and merging.has_merged(header, merge)

    def _is_live(self, path: str) -> bool:
        header = self.headers.get(path)
        return header is not None and not header.deleted and not self.is_taken(path)

    def _visible(self, path: str) -> Seg | None:
        header = self.headers.get(path)
        if header is None or header.deleted:
            content = self.store.content(path)
            if content is None or is_shadowed(header, drive(self.store.stat(path))):
                return None
            dated = shadow(drive(self.store.stat(path)))
            return Seg(content, ids=(dated.incarnation,) if dated is not None else ())
        if self.is_taken(path):
            return None
        data = self.content(path, header)
        return Seg(
            data,
            header.start,
            header.sealed,
            dict(header.attrs),
            header.owner,
            header.segment,
            header.root,
            header.incarnations,
            header.epoch,
        )

    def content(self, path: str, header: Header) -> bytes:
        key = (header.entries, header.start)
        before = self._before.get(path)
        if before is None or before[0] != key:
            before = self._before[path] = (key, b"".join(self._pieces(path, header)))
        return before[1] + header.tail

    def _pieces(self, path: str, header: Header) -> Iterable[bytes]:
        for chunk in self.chunks(path, header):
            file = names.locate(path, chunk.file, chunk.tier)
            whole = self._verified.get(file)
            if whole is None:
                found = self.store.content(file)
                if found is None or len(found) != chunk.size or chunk.crc32c not in (None, crc32c(found)):
                    held = "is missing" if found is None else f"has other bytes than {chunk}"
                    raise Violation(f"{path}: {file} {held}, by {running.get()}")
                whole = self._verified[file] = found
            yield whole[chunk.offset + max(header.start - chunk.start, 0) : chunk.offset + chunk.length]

    def chunks(self, path: str, header: Header) -> list[Chunk]:
        """The chunks with retained bytes."""
        entries = header.entries
        if any(type(entry) is Page for entry in entries):
            entries = tuple(drive(self.reader.pages.unfold(path, entries)))
        return [chunk for chunk in entries if chunk.end > header.start]  # type: ignore[misc]

    def _files(self, path: str) -> frozenset[str]:
        if not self._is_live(path):
            return frozenset()
        header = self.headers[path]
        files = {names.locate(path, chunk.file, chunk.tier) for chunk in self.chunks(path, header)}
        pages = {names.resolve(path, entry.file) for entry in header.entries if isinstance(entry, Page)}
        return frozenset(files | pages)

    def _need(self, path: str, files: frozenset[str]) -> None:
        before = self.files_of.get(path, frozenset())
        if before is not files:
            self._needed.subtract(before - files)
            self._needed.update(files - before)
            self.ever_needed |= files
            self.files_of[path] = files
