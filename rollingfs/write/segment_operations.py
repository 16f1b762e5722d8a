"""The operations on one segment: create, append, extend, stage, overwrite, seal, truncate, acquire, release, delete."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from rollingfs.backend.contract import FileInfo
from rollingfs.commit.attempt import Attempt, Step
from rollingfs.commit.chunk_files import Staged, Stored
from rollingfs.commit.commits import Commits
from rollingfs.commit.drop_files import finish_drops, try_drops
from rollingfs.commit.header_cache import Loaded
from rollingfs.commit.operation import Committed
from rollingfs.commit.tier_checks import check_there
from rollingfs.commit.uploads import Uploads
from rollingfs.errors import ConflictError, if_interrupted
from rollingfs.format import names, transitions
from rollingfs.format.drops import with_hints
from rollingfs.format.header import Header, Phase
from rollingfs.format.object_metadata import Last
from rollingfs.format.transitions import NO_GUARD, Attrs, Guard
from rollingfs.policy import ROLLING_FIELDS, RollingPolicy
from rollingfs.read.folder_contents import Contents
from rollingfs.read.snapshot import Lookup
from rollingfs.runtime.meters import APPEND, OVERWRITE
from rollingfs.write import ingest
from rollingfs.write.adopt import ADOPTIONS_MAX, Adoption
from rollingfs.write.append_to_header import as_items, behead, grow
from rollingfs.write.budget import Budget
from rollingfs.write.chunk_writer import ChunkWriter
from rollingfs.write.group_commit import Append, Written, append_together
from rollingfs.write.ingest import Data, Intake, Items
from rollingfs.write.inherited import Inherited

if TYPE_CHECKING:
    from rollingfs.write.delete import Deletes

Check = Callable[[Header | None, FileInfo | None], None]
"""Raises, before an upload, if the operation cannot succeed on the present header or plain file."""


class Segments:
    """Changes segments, one commit each."""

    def __init__(
        self, commits: Commits, lookup: Lookup, contents: Contents, policy: RollingPolicy, budget: Budget
    ) -> None:
        self.budget = budget
        self.commits = commits
        self.store = commits.store
        self.policy = policy
        self.inherited = Inherited(commits.store, policy)
        self.adoption = Adoption(commits, lookup, self.inherited)
        self.adopt = self.adoption.adopt
        self.lookup = lookup
        self.contents = contents

    @cached_property
    def deletes(self) -> Deletes:
        """Deletes; made, and imported, at their first use."""
        from rollingfs.write.delete import Deletes

        return Deletes(self.commits, self.lookup, self.adoption)

    async def create(self, path: str, policy: RollingPolicy | None = None) -> Header:
        """Make an empty segment.

        Raises
        ------
        FileExistsError
            A segment or a plain file is there.
        FolderOccupiedError
            A folder with something in it is.
        """
        names.check_segment_name(path)

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            if base.header is not None and base.header.phase is Phase.MERGING:
                raise transitions.MergeFoundError(path, base.header)  # the target may have its content already
            if base.live or await self.contents.room(path, base) is not None:
                raise transitions.exists(path)
            if policy is None:
                return self.adoption.new(base.header, await self.inherited.policy(path))
            return self.adoption.new(base.header, RollingPolicy(**policy.as_fields(), own=ROLLING_FIELDS))

        return _header(await self.commits.commit(path, step))

    async def overwrite(
        self,
        path: str,
        data: Data | Intake,
        *,
        attrs: Attrs | None = None,
        guard: Guard = NO_GUARD,
        create_only: bool = False,
    ) -> Header:
        """Create a segment, or replace its content by a new incarnation, in one commit.

        Parameters
        ----------
        data
            What `Intake.take` takes, or an intake that has taken it (see `replacement`).
        attrs
            All attributes of the new incarnation; a function makes them of those that it replaces.

        Raises
        ------
        FileExistsError
            With `create_only`: something is there.
        FolderOccupiedError
            A folder with something in it is there.
        FencedError
            An exclusive owner holds it.
        AttributeMismatchError
            An expected attribute differs.
        """
        names.check_segment_name(path)
        transitions.check_attrs(attrs or {}, path)
        intake = self.replacement(path, guard, create_only=create_only)
        commit = partial(self._overwrite, path, attrs or {}, guard, create_only)
        return await intake.commit(OVERWRITE, data, commit)

    async def _overwrite(
        self, path: str, attrs: Attrs, guard: Guard, create_only: bool, data: Items, uploads: Uploads | None
    ) -> Header:
        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            plain = None if base.live else await self.contents.room(path, base)
            if create_only and (base.live or plain is not None):
                raise transitions.exists(path)
            if base.live:
                policy = transitions.check(base.header, guard, path).policy
            else:
                if guard.segment is not None:
                    raise transitions.missing(path)
                transitions.check_absent(guard, path)
                policy = await self.inherited.policy(path)
            header = self.adoption.new(base.header, policy, plain)
            if base.header is not None:
                await check_there(self.store.headers, self.store.pages, path, base.header)
                hints = await self.store.pages.hints(path, base.header.entries)
                header = with_hints(header, hints, self.store.now_ms())
            items = await as_items(data, attempt.files)
            given = attrs(base.header.attrs if base.header else {}, 0) if callable(attrs) else attrs
            return transitions.with_attrs(await grow(header, items, attempt.files), given, path)

        is_large = any(isinstance(item, Stored) for item in data)
        header = _header(await self.commits.commit(path, step, fresh=is_large, uploads=[uploads] if uploads else []))
        await try_drops(self.commits, path, header)
        return header

    async def delete(self, path: str, guard: Guard = NO_GUARD) -> Header | None:
        """Delete a segment or a plain file; finish an interrupted delete.

        Returns
        -------
        Header or None
            What the segment was when it was deleted; None if there was none.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        FencedError
            An exclusive owner holds it.
        """
        buried = await self.deletes.bury(path, guard)
        await self.deletes.clear([] if buried is None else [buried])
        return None if buried is None else buried.before

    def addition(self, path: str, guard: Guard = NO_GUARD, *, create: bool = False) -> Intake:
        """An intake for data to be appended; before it uploads, it refuses what could not be committed now."""

        def check(header: Header | None, plain: FileInfo | None) -> None:
            if header is not None:
                transitions.check_open(transitions.check(header, guard, path), path)
            elif plain is None:
                if not create:
                    raise transitions.missing(path)
                transitions.check_absent(guard, path)

        return self._intake(path, check, appends=True)

    def replacement(self, path: str, guard: Guard = NO_GUARD, *, create_only: bool = False) -> Intake:
        """An intake for data that replaces the content; it refuses as `addition` does."""

        def check(header: Header | None, plain: FileInfo | None) -> None:
            if create_only and (header is not None or plain is not None):
                raise transitions.exists(path)
            if header is not None:
                transitions.check(header, guard, path)

        return self._intake(path, check)

    def _intake(self, path: str, check: Check | None, *, appends: bool = False, staged: bool = False) -> Intake:
        new_writer = partial(self._new_writer, path, check, appends, staged)
        return Intake(self.store, path, new_writer, self.budget.share(), staged=staged)

    async def _new_writer(self, path: str, check: Check | None, appends: bool, staged: bool) -> ChunkWriter:
        """How large data is written: by the segment's own policy, or that of a new one if there is no segment."""
        await self.store.abilities(path)
        loaded = await self.store.headers.load(path)
        header = loaded.header if loaded.live else None
        if check is not None and (header is None or header.phase is not Phase.MERGING):
            try:
                check(header, None if loaded.live else await self.contents.room(path, loaded))
            except FileNotFoundError:  # unless another has adopted a plain file, and deleted it, between the two looks
                header = transitions.live((await self.store.headers.load(path)).header, path)
                if header.phase is not Phase.MERGING:
                    check(header, None)
        policy = await self.inherited.policy(path) if header is None else header.policy
        more = partial(ChunkWriter, self.store.backend, path, policy.max_bytes, staged=staged, clock=self.store.clock)
        if header is None or not appends:
            return more()
        return more(start=header.length, incarnation=header.segment, last=Last.of(header))

    async def stage(self, path: str, data: Data) -> Staged:
        """Upload chunks for a segment, which need not be there yet, without committing them.

        Returns
        -------
        Staged
            The receipt, for `append` or `overwrite`. Collection deletes the files of a receipt that is never committed.
        """
        names.check_segment_name(path)
        intake = self._intake(path, None, staged=True)
        await intake.take(data)
        stored = [chunk for chunk in await intake.finish() if isinstance(chunk, Stored)]  # it keeps none in memory
        return Staged(path, tuple(stored), uuid.uuid4().hex)

    async def append(
        self, path: str, data: Data | Intake, *, attrs: Attrs | None = None, guard: Guard = NO_GUARD
    ) -> int:
        """Append data, in one commit; returns the offset at which it begins.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        SegmentSealedError, FencedError, BadOffsetError, AttributeMismatchError, FolderOccupiedError
            Nothing was written.
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        """
        return (await self.extend(path, data, attrs=attrs, guard=guard)).offset

    async def extend(
        self,
        path: str,
        data: Data | Intake,
        *,
        attrs: Attrs | None = None,
        guard: Guard = NO_GUARD,
        create: bool = False,
    ) -> Written:
        """`append`, which with `create` makes the segment where nothing is.

        Parameters
        ----------
        attrs
            Or a function of the segment's attributes and the offset of the data, which is called at each attempt to
            commit. What it raises, as a `RollingError`, refuses the append.
        """
        if attrs:
            transitions.check_attrs(attrs, path)
        if type(data) is bytes and len(data) <= ingest.SMALL_BYTES_MAX:  # the caller holds them: nothing is to be taken
            call = self._extend(path, attrs or {}, guard, create, [data])
            return await self.store.meters.measure(APPEND, self.store.runtime.shield(call), len(data))
        commit = partial(self._extend, path, attrs or {}, guard, create)
        return await self.addition(path, guard, create=create).commit(APPEND, data, commit)

    async def _extend(
        self, path: str, attrs: Attrs, guard: Guard, create: bool, data: Items, uploads: Uploads | None = None
    ) -> Written:
        is_bound = False
        for _ in range(ADOPTIONS_MAX):
            try:
                return await append_together(self.commits, path, Append(data, guard, attrs, uploads))
            except FileNotFoundError:
                if guard.segment is not None and (is_bound or not guard.is_plain):
                    raise
                with if_interrupted(path, "not committed"):
                    is_adopted = await self.adopt(path, guard.segment)
                if is_adopted:
                    is_bound = True
                    continue
                if guard.is_plain:
                    raise
                if not create:
                    await self.contents.check_no_folder(path)
                    raise
            try:
                header = await self._overwrite(path, attrs, guard, True, data, uploads)
            except FileExistsError:
                continue  # another client has created it just now
            return Written(header.start, header)
        raise ConflictError(f"{path}: it is created and deleted too often to be appended to; nothing was written")

    async def change(self, path: str, rule: Callable[[Header], Header], guard: Guard = NO_GUARD) -> Header:
        """Commit what a rule makes of a live header, unless that is the header itself.

        Raises
        ------
        FileNotFoundError
            Nothing is there.
        FencedError, AttributeMismatchError
            The guard forbids it; nothing was written.
        """

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.check(base.header, guard, path)
            changed = rule(found)
            return None if changed == found and changed.policy.own == found.policy.own else changed

        return _header(await self._commit(path, step, guard))

    async def seal(self, path: str, guard: Guard = NO_GUARD) -> int:
        """Let the segment take no more bytes; returns its length."""
        return (await self.change(path, transitions.seal, guard)).length

    async def truncate(self, path: str, offset: int, guard: Guard = NO_GUARD) -> int:
        """Drop the bytes before `offset`; returns how many bytes wait for the collection of other folders."""
        return _header(await self.behead(path, offset, guard)).waiting_bytes

    async def behead(self, path: str, offset: int, guard: Guard = NO_GUARD) -> Committed:
        """`truncate`, which returns the headers before and after.

        Raises
        ------
        BadOffsetError
            The offset is negative or beyond the end.
        """

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.check(base.header, guard, path)
            changed = await behead(self.store, path, found, offset)
            return None if changed is found else changed

        committed = await self.store.with_room(path, partial(self._commit, path, step, guard))
        with if_interrupted(path, "committed"):
            await finish_drops(self.commits, path, _header(committed))
        return committed

    async def renew(self, path: str, data: Data | Intake, guard: Guard, start: int | None = None) -> Header:
        """Append data and move the start in one commit, by default to the data, which then replaces all bytes.

        Raises
        ------
        FileNotFoundError, SegmentSealedError, FencedError, BadOffsetError
            Nothing was written.
        """

        async def commit(items: Items, uploads: Uploads) -> Header:
            async def step(base: Loaded, attempt: Attempt) -> Header | None:
                found = transitions.check(base.header, guard, path)
                transitions.check_open(found, path)
                beheaded = await behead(self.store, path, found, found.length if start is None else start)
                return await grow(beheaded, await as_items(items, attempt.files), attempt.files)

            return _header(await self._commit(path, step, guard, [uploads]))

        header = await self.addition(path, guard).commit(OVERWRITE, data, commit)
        await try_drops(self.commits, path, header)
        return header

    async def acquire(self, path: str, owner: str, guard: Guard = NO_GUARD) -> Header:
        """Take the segment exclusively, also from another owner; the header's epoch is that of the new handle."""
        if not owner:
            raise ValueError(f"{path}: an owner needs a name")

        async def step(base: Loaded, attempt: Attempt) -> Header | None:
            found = transitions.live(base.header, path)
            transitions.check(found, replace(guard, epoch=found.epoch if found.owner else None), path)
            return transitions.acquire(found, owner)

        return _header(await self._commit(path, step, guard))

    async def release(self, path: str, guard: Guard) -> None:
        """Give an exclusively held segment back."""
        await self.change(path, transitions.release, guard)

    async def _commit(self, path: str, step: Step, guard: Guard, uploads: Sequence[Uploads] = ()) -> Committed:
        try:
            return await self.commits.commit(path, step, uploads=uploads)
        except FileNotFoundError:
            with if_interrupted(path, "not committed"):
                is_adopted = await self.adopt(path, guard.segment)
            if not is_adopted:
                raise
        return await self.commits.commit(path, step, fresh=True, uploads=uploads)


def _header(committed: Committed) -> Header:
    assert committed.header is not None
    return committed.header
