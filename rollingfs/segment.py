"""The operations on one segment: create, append, stage, overwrite, seal, truncate, acquire, delete."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rollingfs import names, transitions
from rollingfs.append import Append, Appender, as_items, grow
from rollingfs.backend.contract import FileInfo
from rollingfs.chunks import Staged, Stored
from rollingfs.clock import Moment
from rollingfs.commit import Attempt, Committed, Committer, Step
from rollingfs.errors import AttributeMismatchError, ConflictError
from rollingfs.header import Adopted, Chunk, Header, Page
from rollingfs.headers import Loaded
from rollingfs.lookup import Lookup, modified_ms
from rollingfs.policy import RollingPolicy
from rollingfs.transitions import Guard

ADOPTIONS_MAX = 8


class Segments:
    """Changes segments, one commit each."""

    def __init__(self, committer: Committer, lookup: Lookup, policy: RollingPolicy) -> None:
        self.committer = committer
        self.appender = Appender(committer)
        self.lookup = lookup
        self.policy = policy

    # -- existence -----------------------------------------------------------------------------------------

    async def create(self, path: str, policy: RollingPolicy | None = None) -> Header:
        """Make an empty segment.

        Raises
        ------
        FileExistsError
            A segment or a plain file is there.
        """
        names.check_segment_name(path)
        if await self.lookup.plain(path, await self.committer.headers.load(path)) is not None:
            raise FileExistsError(17, "A plain file is there already", path)

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            if base.live:
                raise FileExistsError(17, "The segment is there already", path)
            return self._new(base.header, policy or self.policy)

        return _header(await self.committer.commit(path, step))

    def _new(self, base: Header | None, policy: RollingPolicy, plain: FileInfo | None = None) -> Header:
        return transitions.create(base, str(uuid.uuid4()), policy, self.committer.now_ms(), _adopted(plain))

    async def overwrite(
        self,
        path: str,
        data: Sequence[bytes | Stored],
        *,
        attrs: Mapping[str, str] | None = None,
        guard: Guard | None = None,
        create_only: bool = False,
    ) -> Header:
        """Create a segment, or replace its content by a new incarnation, in one commit.

        Raises
        ------
        FileExistsError
            With `create_only`: something is there.
        FencedError
            An exclusive owner holds it.
        AttributeMismatchError
            An expected attribute differs.
        """
        names.check_segment_name(path)
        transitions.check_attrs(attrs or {})
        guard = guard or Guard()

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            plain = None if base.live else await self.lookup.plain(path, base)
            if create_only and (base.live or plain is not None):
                raise FileExistsError(17, "The file is there already", path)
            if base.live:
                policy = transitions.check(base.header, guard, path).policy
            else:
                _check_absent_attrs(guard, path)
                policy = self.policy
            header = self._new(base.header, policy, plain)
            if base.header is not None:
                hints = await self.committer.pages.hints(path, base.header.entries)
                header = transitions.with_hints(header, hints, self.committer.now_ms())
            items = await as_items(self.committer, path, data, attempt)
            return transitions.with_attrs(await grow(self.committer, path, header, items, attempt), attrs or {})

        header = _header(await self.committer.commit(path, step))
        await self.committer.finish_drops(path, header)
        return header

    async def delete(self, path: str, guard: Guard | None = None) -> None:
        """Delete a segment or a plain file; finish a delete that was broken off.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        FencedError
            An exclusive owner holds it.
        """
        loaded = await self.committer.headers.load(path)
        if not loaded.live:
            plain = await self.lookup.plain(path, loaded)
            if plain is not None:
                await self.committer.backend.delete([path])
                return
            if loaded.header is not None and await self._finish_delete(path, loaded.header):
                return
        own: list[str] = []

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.check(base.header, guard or Guard(), path)
            plain = await self.lookup.plain(path, Loaded(None, None)) if found.adopted else None
            own[:] = await self._own_files(path, found)
            grave = transitions.tombstone(found)
            drops = transitions.drop_all(found, self.committer.now_ms())
            hints = await self.committer.pages.hints(path, found.entries)
            grave = replace(grave, adopted=_adopted(plain) or found.adopted, drops=drops)
            return transitions.with_hints(grave, hints, self.committer.now_ms())

        header = _header(await self.committer.commit(path, step))
        await self.committer.backend.delete([names.resolve(path, file) for file in own])
        await self.committer.finish_drops(path, header)
        if header.adopted is not None and (await self.committer.abilities(path)).delete_if:
            await self.committer.backend.delete_if(path, header.adopted.token)

    async def _own_files(self, path: str, header: Header) -> list[str]:
        """All files that a delete removes at once: own chunks that were not staged, own pages last."""
        chunks = await self.committer.pages.unfold(path, header.entries)
        files = [chunk.file for chunk in chunks if "/" not in chunk.file and not names.is_staged(chunk.file)]
        return files + [entry.file for entry in header.entries if isinstance(entry, Page) and "/" not in entry.file]

    async def _finish_delete(self, path: str, header: Header) -> bool:
        """Delete what a tombstone still names; whether there was any of it."""
        named = {names.resolve(path, drop.file) for drop in header.drops if not drop.is_hint}
        if not named:
            return False
        try:
            listing = await self.committer.backend.list(names.chunks_folder(path))
        except FileNotFoundError:
            return False
        if not any(entry.path in named for entry in listing.entries):
            return False
        await self.committer.finish_drops(path, header)
        return True

    # -- content -------------------------------------------------------------------------------------------

    async def append(
        self,
        path: str,
        data: Sequence[bytes | Stored],
        *,
        attrs: Mapping[str, str] | None = None,
        guard: Guard | None = None,
    ) -> int:
        """Append bytes and stored chunks, in one commit; returns the offset at which they begin.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        SegmentSealedError, FencedError, BadOffsetError, AttributeMismatchError
            Nothing was written.
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        """
        transitions.check_attrs(attrs or {})

        async def call() -> int:
            return (await self.appender.append(path, Append(data, guard or Guard(), attrs or {}))).offset

        try:
            return await call()
        except FileNotFoundError:
            if not await self.adopt(path):
                raise
        return await call()

    async def seal(self, path: str, guard: Guard | None = None) -> int:
        """Let the segment take no more bytes; returns its length."""

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.check(base.header, guard or Guard(), path)
            return None if found.sealed else transitions.seal(found)

        return _header(await self._commit(path, step)).length

    async def truncate(self, path: str, offset: int, guard: Guard | None = None) -> int:
        """Drop the bytes before `offset`; returns how many bytes wait for the collection of other folders.

        Raises
        ------
        BadOffsetError
            The offset is negative or beyond the end.
        """

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.check(base.header, guard or Guard(), path)
            pages = {
                page: await self.committer.pages.chunks(path, page)
                for page in transitions.pages_to_truncate(found, offset)
            }
            changed = transitions.truncate(found, offset, self.committer.now_ms(), pages, path)
            return None if changed is found else changed

        header = _header(await self._commit(path, step))
        await self.committer.finish_drops(path, header)
        return header.waiting_bytes

    async def acquire(self, path: str, owner: str, guard: Guard | None = None) -> Header:
        """Take the segment exclusively, from whoever holds it; the header's epoch is the new handle's."""
        if not owner:
            raise ValueError("an owner needs a name")

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.live(base.header, path)
            transitions.check(found, replace(guard or Guard(), epoch=found.epoch if found.owner else None), path)
            return transitions.acquire(found, owner)

        return _header(await self._commit(path, step))

    async def release(self, path: str, guard: Guard) -> None:
        """Give an exclusively held segment back."""

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            return transitions.release(transitions.check(base.header, guard, path))

        await self._commit(path, step)

    async def _commit(self, path: str, step: Step) -> Committed:
        try:
            return await self.committer.commit(path, step)
        except FileNotFoundError:
            if not await self.adopt(path):
                raise
        return await self.committer.commit(path, step, fresh=True)

    # -- plain files ---------------------------------------------------------------------------------------

    async def adopt(self, path: str) -> bool:
        """Give a plain file a header: copy it into a chunk, on condition that it is what was seen.

        Returns
        -------
        bool
            False if there is no plain file.
        """
        for _ in range(ADOPTIONS_MAX):
            loaded = await self.committer.headers.load(path)
            if loaded.live:
                return True
            plain = await self.lookup.plain(path, loaded)
            if plain is None:
                return False
            try:
                await self._adopt(path, plain)
            except ConflictError:
                continue  # it was overwritten while it was copied
            return True
        raise ConflictError(f"{path}: the plain file changes too often to be adopted")

    async def _adopt(self, path: str, plain: FileInfo) -> None:
        backend = self.committer.backend
        began = Moment.now(self.committer.clock)
        target = f"{names.chunks_folder(path)}/{names.new_chunk_name(0)}"
        if plain.size and backend.can_copy:
            await backend.copy(path, target, plain.token)
        elif plain.size:
            await self.committer.chunks.copy_through(path, target)
            if (await backend.stat(path)).token != plain.token:
                await backend.delete([target])
                raise ConflictError(f"{path} changed while it was copied")
        stored = Stored(target, plain.size, None, modified_ms(plain), began)

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            if plain.size:
                attempt.uploads[b"", 0] = await self.committer.chunks.young(stored, None)
            if base.live:
                return None
            header = self._new(base.header, self.policy, plain)
            entries: list[Chunk] = [attempt.uploads[b"", 0].chunk(path, 0)] if plain.size else []
            return replace(header, entries=tuple(entries))

        await self.committer.commit(path, step, fresh=True)


def _header(committed: Committed) -> Header:
    assert committed.header is not None
    return committed.header


def _adopted(plain: FileInfo | None) -> Adopted | None:
    return Adopted(plain.token or "", modified_ms(plain)) if plain is not None else None


def _check_absent_attrs(guard: Guard, path: str) -> None:
    for key, expected in guard.expected_attrs.items():
        if expected is not None:
            raise AttributeMismatchError(f"{path} is not there, but attribute {key!r} was expected to be {expected!r}")


def check_receipts(path: str, staged: Sequence[Staged]) -> tuple[Stored, ...]:
    """The chunks of some receipts, in order.

    Raises
    ------
    ValueError
        A receipt is for another segment, or comes twice.
    """
    ids = [receipt.id for receipt in staged]
    if len(set(ids)) != len(ids):
        raise ValueError(f"{path}: one staged receipt comes twice in this call; its records would be doubled")
    for receipt in staged:
        if receipt.path != path:
            raise ValueError(f"a receipt staged for {receipt.path} cannot be committed to {path}")
    return tuple(chunk for receipt in staged for chunk in receipt.chunks)
