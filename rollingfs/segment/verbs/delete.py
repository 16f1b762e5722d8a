"""Deletes segments and plain files: a tombstone for each segment, then the files of many in few requests."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from rollingfs.backend.tiers import check_tiers, list_folder
from rollingfs.errors import AppendOutcomeUnknown, if_interrupted
from rollingfs.format import names, transitions
from rollingfs.format.drops import drop_all, with_hints
from rollingfs.format.header import Drop, Header
from rollingfs.format.transitions import NO_GUARD, Guard
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit import removals
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.files.adopt import remove_plain
from rollingfs.segment.segment import Segment, shadow

logger = logging.getLogger("rollingfs")

BELIEVED_S_MAX = 60.0
"""A header in the cache that was seen longer ago is looked at again before the segment is deleted."""
BATCH_MAX = 256
"""Maximum segments whose tombstones are committed before the files of all of them are deleted."""


@value_class
class Buried:
    """A segment whose tombstone is committed, or which is gone whole, and the files that go with it."""

    path: str
    before: Header
    header: Header
    files: Sequence[str] = ()
    drops: Sequence[Drop] = ()
    """The lines whose work is done then."""


Call = Callable[[], Awaitable[Buried | None]]


async def bury(at: At, path: str, guard: Guard = NO_GUARD, seen: Segment | None = None) -> Buried | None:
    """Delete a plain file, or commit the tombstone of a segment; finish an interrupted delete.

    Parameters
    ----------
    seen
        A header of the segment that the caller has just seen. It spares a look, and so does a header in the cache.

    Returns
    -------
    Buried or None
        The segment, whose files `clear` then deletes; None if the delete is complete.

    It raises what `delete` does.
    """
    return await at.with_room(path, partial(_buried, at, path, guard, seen))


async def _buried(at: At, path: str, guard: Guard, seen: Segment | None) -> Buried | None:
    seen = at.headers.recent(path, BELIEVED_S_MAX) or seen
    if seen is not None and seen.live:
        try:
            return await _removed(at, path, guard, seen) or await _bury(at, path, guard, seen)
        except FileNotFoundError:
            pass  # it is gone since: what is there now decides
        except AppendOutcomeUnknown:
            if (await at.headers.load(path)).token is not None:
                raise
            # the very file is gone, so no tombstone on it can come any more
    loaded = await at.headers.load(path)
    if not loaded.live and (guard.segment is None or guard.is_plain):
        with if_interrupted(path, "unknown"):  # the file may be gone, or a segment may have taken its place
            is_removed = await remove_plain(at, path, guard.segment)
        if is_removed:
            return None
        if guard.segment is None and loaded.header is not None and await _finish(at, path, loaded.header):
            return None
    return await _removed(at, path, guard, loaded) or await _bury(at, path, guard, None)


async def _removed(at: At, path: str, guard: Guard, seen: Segment) -> Buried | None:
    """Delete a segment that has only a header, where the store can; None if it cannot."""
    try:
        header = transitions.check(seen.header, guard, path)
    except OSError:
        return None  # a commit looks at the header again, and says what is wrong
    return Buried(path, header, header) if await removals.take_whole(at, path, {path: seen}) else None


async def bury_unread(at: At, path: str) -> Buried:
    """Commit the tombstone of a segment whose index pages may be lost; what these list is left to collection."""
    return await _bury(at, path, NO_GUARD, None, is_unread=True)


async def _bury(at: At, path: str, guard: Guard, seen: Segment | None, *, is_unread: bool = False) -> Buried:
    own: list[str] = []

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        found = transitions.check(base.header, guard, path)
        await removals.check_there(at, path, found)
        plain = await at.headers.plain(Segment(path)) if found.adopted else None
        known = found
        if is_unread:
            known = replace(found, entries=await at.pages.readable(path, found.entries))
        own[:] = await removals.mapped_files(at.pages, path, known)
        grave = transitions.tombstone(found)
        drops = drop_all(found, at.now_ms())
        hints = await at.pages.hints(path, known.entries)
        grave = replace(grave, adopted=shadow(plain) or found.adopted, drops=drops)
        await removals.wait_for_new_date(at, path, grave.adopted, attempt.deadline_s)
        return with_hints(grave, hints, at.now_ms())

    committed = await at.commits.commit(path, step, seen=seen)
    assert committed.base is not None
    with if_interrupted(path, "committed"):
        drops, files = await removals.due_files(at, path, committed.made)
    return Buried(path, committed.base, committed.made, list(dict.fromkeys([*own, *files])), drops)


async def clear_buried(at: At, buried: Sequence[Buried]) -> None:
    """Delete the files of buried segments, all in as few requests as the store allows.

    Raises
    ------
    OSError
        Some are still there; the segments are deleted, and collection finishes this.
    """
    if not buried:
        return
    first = buried[0].path
    with if_interrupted(first, "committed"):
        what = first if len(buried) == 1 else f"{first} and {len(buried) - 1} more"
        await removals.delete_dropped(at.backend, what, [file for one in buried for file in one.files])
        for one in buried:
            at.slots.remember(one.path, drops=one.drops, header=one.header)
            await removals.delete_shadowed(at, one.path, one.header.adopted)
            # where tombstones need not stay, it stays while it hides a plain file
            is_asked = at.backend.capability.removes_whole and one.header.adopted is not None
            if not (is_asked and await at.headers.plain(Segment(one.path)) is not None):
                await removals.remove_grave(at, one.path, one.header)


async def bury_all(at: At, calls: Iterable[Call]) -> None:
    """Bury many, several at once, and delete the files of each batch together.

    After an error no other call begins; what is buried by then is cleared.
    """
    buried: list[Buried] = []

    async def note(call: Call) -> None:
        if (one := await call()) is not None:
            buried.append(one)

    waiting = list(calls)
    while waiting:
        batch, waiting = waiting[:BATCH_MAX], waiting[BATCH_MAX:]
        buried.clear()
        try:
            await at.each([partial(note, call) for call in batch])
        except Exception:
            try:
                await clear_buried(at, buried)
            except OSError as error:
                logger.info("%s", error)
            raise
        await clear_buried(at, buried)


async def _finish(at: At, path: str, header: Header) -> bool:
    """Delete the files that a tombstone still names; returns whether there were any."""
    named = {names.locate(path, drop.file, drop.tier) for drop in header.drops if not drop.is_hint}
    if not named:
        return False
    check_tiers(at.backend, named)
    listed = await list_folder(at.backend, names.chunks_folder(path), {drop.tier for drop in header.drops})
    if not any(entry.path in named for entry in listed):
        return False
    now = await at.headers.load_durable(path)  # the interrupted client may not have flushed its tombstone
    if now.live or now.header is None:
        return False  # a plain file was adopted meanwhile: this segment is to be deleted
    await removals.finish_drops(at, path, now.header)
    return True


async def delete(at: At, path: str, guard: Guard = NO_GUARD) -> Header | None:
    """Delete a segment or a plain file; finish an interrupted delete.

    Returns
    -------
    Header or None
        The segment's header when it was deleted; None if there was no segment.

    Raises
    ------
    FileNotFoundError
        No segment is there.
    FencedError
        An exclusive owner holds it.
    """
    buried = await bury(at, path, guard)
    await clear_buried(at, [] if buried is None else [buried])
    return None if buried is None else buried.before
