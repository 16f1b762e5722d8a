"""Collection: delete the files of a segment's chunk folder without a reference.

It takes a folder at a time, and never scans a store:

1. Look twice at everything that may refer to the folder. Begin again if the two looks differ.
2. Commit a new version of the folder's own header, over a header that refers to no file that is to go. So every
   commit in flight has to look again at the age of its chunks.
3. Delete the unreferenced files that are older than the grace.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Container, Sequence, Set
from dataclasses import replace
from functools import partial

from rollingfs.backend.contract import FileInfo
from rollingfs.backend.contract_values import PendingUpload
from rollingfs.backend.tiers import check_aliases, list_folder
from rollingfs.errors import ConflictError
from rollingfs.format import names, transitions
from rollingfs.format.drops import OWN_HINT, has_protected, hinted, protects
from rollingfs.format.header import GRACE_S, Drop, Header, Phase
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.runtime.values import added
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.index_pages import LOOKS_MAX, PageGoneError, successor
from rollingfs.segment.commit.removals import check_there, delete_shadowed, finish_drops
from rollingfs.segment.files.survey import (
    DROPPED,
    PLAIN,
    TOMBSTONE,
    Collected,
    Garbage,
    Survey,
    collected,
    dropped_infos,
    garbage,
    is_old,
    pending_uploads,
    referrer_of,
    report,
    survey_folder,
)
from rollingfs.segment.segment import Segment, is_shadowed, names_file

logger = logging.getLogger("rollingfs")

LAST = (names.INDEX_PREFIX, names.PIN_PREFIX)
"""Begin the names of files that name others, so they go last."""


async def collect(
    at: At,
    path: str,
    *,
    grace_s: float | None = None,
    dry_run: bool = False,
    seen: dict[str, int] | None = None,
    named: Container[str] = (),
) -> Collected:
    """Delete unreferenced files in a segment's chunk folder and in the folders of its chunks.

    Parameters
    ----------
    grace_s
        Leave files younger than this, in seconds; by default the format's 24 hours. Less is the
        caller's word that no other client writes. It counts in the segment's own folder, and in the folders of `named`.
    dry_run
        Delete no file, and report what would be deleted. That may be a plain file or a tombstone that will stay,
        because no probe shows if the store deletes conditionally.
    seen
        The chunk folders that the same collection of many segments has looked at, each with its count of files
        that are too young. This collection adds its own.
    named
        Other segments for which the caller gives its word, too.

    Raises
    ------
    FileNotFoundError
        There is neither a segment, nor a plain file, nor a file left of a segment.
    CorruptHeaderError, UnknownTierError, MissingTierError
        Something that may refer to the folder cannot be read, a tier is not configured, or it is not there;
        no file was deleted.
    """
    grace_s = GRACE_S if grace_s is None else grace_s
    if grace_s < 0:
        raise ValueError(f"grace is {grace_s} s: it must be at least 0")
    collect = partial(_collect, at, path, grace_s, dry_run, {} if seen is None else seen, named)
    return await at.with_room(path, collect)


async def _collect(
    at: At, path: str, grace_s: float, dry_run: bool, seen: dict[str, int], named: Container[str]
) -> Collected:
    header, lies_in, results = await _settled_map(at, path, dry_run)
    own = names.chunks_folder(path)
    hints = hinted(path, header) if header is not None else {}
    young = 0
    for folder in [own, *sorted({*hints, *lies_in} - {own})]:
        if folder in seen:
            young += seen[folder]
            continue
        seen[folder] = 1  # until the count is known, because others may ask meanwhile
        # a header may lead to any folder: only for those that the caller has named does its word count
        has_word = folder == own or names.segment_of_folder(folder) in named
        found = await _folder(at, folder, grace_s if has_word else max(grace_s, GRACE_S), dry_run)
        seen[folder] = found.young
        results.append(found)
    result = added(Collected(), *results)
    if header is None and not result.folders:
        await at.headers.view(path, fresh=True)
    if header is not None:
        result = added(result, await _plain_file(at, path, header, grace_s, dry_run))
    if not dry_run and header is not None:
        await _clear_hints(at, path, header, hints, result.young + young)
    if header is None and at.backend.capability.has_folders and not dry_run:
        await _remove_empty(at, own)
    if header is not None and header.deleted:
        result = added(result, await _tombstone(at, path, grace_s, set(result.files) if dry_run else None))
    return result


async def _settled_map(at: At, path: str, dry_run: bool) -> tuple[Header | None, set[str], list[Collected]]:
    """Return the header without pending merges and drops, the folders of its chunks, and the deleted files."""
    results: list[Collected] = []
    for count in range(1, LOOKS_MAX + 1):
        header, dropped = await settle(at, path, dry_run=dry_run)
        results.append(dropped)
        if header is None:
            return None, set(), results
        try:
            return header, await at.pages.folders(path, header.entries), results
        except PageGoneError as gone:
            await successor(at.headers, path, header, gone)
            await at.runtime.sleep(backoff_s(count))
    raise ConflictError(f"{path}: its map changed {LOOKS_MAX} times; nothing was deleted, try again")


async def settle(at: At, path: str, *, dry_run: bool = False) -> tuple[Header | None, Collected]:
    """Finish pending merges and drops; returns the header then, and the files that were dropped."""
    loaded = await (at.headers.load(path) if dry_run else at.commits.merges.settled(path))
    header = loaded.header
    if header is not None:
        check_aliases(at.backend, header.tiers, path)
    if dry_run or header is None or not header.drops:
        return header, Collected()
    await at.headers.secure(path, loaded)
    dropped = await dropped_infos(at, path, header, at.now_ms())
    await finish_drops(at, path, header)
    if any(has_protected(drop, at.now_ms()) for drop in header.drops):
        header = await _without_done_drops(at, path) or header
    return header, report(dropped, DROPPED)


async def _without_done_drops(at: At, path: str) -> Header | None:
    """Commit a header without the lines whose work is done, and without lines of files whose time has come."""

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        if base.header is not None and base.header.phase is Phase.MERGING:
            return None  # its mover relies on the header that the mark has made
        return base.header

    return (await at.commits.commit(path, step)).header


# -- one folder ----------------------------------------------------------------------------------------


async def _folder(at: At, folder: str, grace_s: float, dry_run: bool) -> Collected:
    uploads = await pending_uploads(at, folder)
    for count in range(1, LOOKS_MAX + 1):
        try:
            survey = await survey_folder(at, folder)
            dropped = await _to_drop(at, survey) if dry_run else []
            loose, waiting = survey.loose(), (*uploads, *survey.tier_uploads)
            asks = survey.now is None and (loose or waiting)  # the listing does not have it
            now = await at.backend.now(folder) if asks else survey.now or 0.0
            found = garbage(loose, waiting, grace_s, now)
            if dry_run:
                gone = {info.path for info in dropped}
                files = [info for info in found[0] if info.path not in gone]
                return added(collected(folder, (files, *found[1:])), report(dropped, DROPPED))
            if not (found[0] or found[1]):
                return collected(folder, found)
            agrees = survey.agrees_with(await survey_folder(at, folder))
        except FileNotFoundError:
            if not await at.backend.is_folder(folder):
                return await _uploads_alone(at, uploads, folder, grace_s, dry_run)
            continue  # a page went with the header that named it, or another collection took a pin
        if agrees and await _renew(at, folder, survey, {info.path for info in found[0]}, now):
            await _delete(at, found)
            return collected(folder, found)
        await at.runtime.sleep(backoff_s(count))
    raise ConflictError(
        f"{folder}: the segments that refer to it changed {LOOKS_MAX} times; nothing was deleted, try again"
    )


async def _uploads_alone(
    at: At, uploads: Sequence[PendingUpload], folder: str, grace_s: float, dry_run: bool
) -> Collected:
    """Collect the unfinished uploads of a folder without files, which an object store does not list."""
    if not uploads:
        return Collected()
    found = garbage((), uploads, grace_s, await at.backend.now(folder))
    if not dry_run:
        await _delete(at, found)
    return collected(folder, found)


async def _to_drop(at: At, survey: Survey) -> list[FileInfo]:
    """Return the files that a collection deletes first, however young: files that drop lines of the own header name."""
    header = survey.own.header
    if header is None or header.phase is Phase.MERGING:
        return []
    return await dropped_infos(at, survey.segment, header, at.now_ms())


async def _renew(at: At, folder: str, survey: Survey, files: Set[str], now_s: float) -> bool:
    """Commit a new version of the folder's own header; False if it has changed, or refers to the garbage.

    It is dated no earlier than `now_s`, the time by which the garbage is old: so no writer takes a file for young that
    was collected by a clock that was ahead.
    """
    segment = names.segment_of_folder(folder)
    before = replace(survey.known[segment], files=frozenset())
    agrees = False

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        nonlocal agrees
        now = await referrer_of(at, folder, segment, base)
        agrees = replace(now, files=frozenset()) == before and not now.files & files
        if not agrees:
            return None
        header = base.header or Header(str(uuid.uuid4()), 1, phase=Phase.DELETED, created_ms=at.now_ms())
        if header.phase is Phase.MERGING:
            raise transitions.MergeFoundError(segment, header)
        return replace(header, modified_ms=max(header.modified_ms, round(now_s * 1000)))

    await at.commits.commit(segment, step)
    return agrees


async def _delete(at: At, found: Garbage) -> None:
    """Delete chunks first, then pages and pins: what names others goes last."""
    infos, uploads, _ = found
    files = [info.path for info in infos if not info.is_folder]
    for is_last in (False, True):
        if group := [file for file in files if file.rpartition("/")[2].startswith(LAST) is is_last]:
            await at.backend.delete(group)
    for info in infos:
        if info.is_folder:
            await _remove_folder(at, info.path)
    for upload in uploads:
        await at.backend.abort_upload(upload)


async def _remove_folder(at: At, folder: str) -> None:
    """Remove the folder of a probe, with the probe's files."""
    with contextlib.suppress(FileNotFoundError):  # another collection removed it
        entries = (await at.backend.list(folder)).entries
        await at.backend.delete([info.path for info in entries if not info.path.endswith(f"/{names.LOCK_NAME}")])
        await at.backend.remove_folder(folder)


# -- the remains of the segment itself -----------------------------------------------------------------


async def _clear_hints(at: At, path: str, header: Header, hints: dict[str, Drop], young: int) -> None:
    """Forget hints at folders without files that wait, and the merge marks that were settled."""
    others = [drop for drop in header.drops if drop.is_hint and drop not in hints.values()]
    done = [drop for drop in others if not young or drop.file != OWN_HINT]
    is_keeping = any(map(protects, header.drops))  # once their time is over, hints alone lead to these files
    for folder, drop in hints.items():
        if not (young or is_keeping or await _is_waiting(at, path, folder)):
            done.append(drop)
    settled = header.deleted and (header.merges or header.aborts)  # a tombstone with such lines cannot be deleted
    if not done and not settled:
        return
    at.slots.remember(path, drops=done)
    await _without_done_drops(at, path)


async def _is_waiting(at: At, path: str, folder: str) -> bool:
    """Return whether a foreign folder still has a pin that names this segment, or files that a tombstone keeps."""
    try:
        survey = await survey_folder(at, folder)
    except FileNotFoundError:
        return await at.backend.is_folder(folder)
    if survey.kept:
        return True  # they may hold bytes of this segment, and an erase must find them
    is_pinned = any(path in (pin.source, pin.target) for _, pin in survey.pins)
    return is_pinned and path not in {referrer.path for referrer in survey.referrers if referrer.files}


async def _plain_file(at: At, path: str, header: Header, grace_s: float, dry_run: bool) -> Collected:
    """Delete the plain file that was adopted, if it still is the same file."""
    if header.adopted is None:
        return Collected()
    try:
        info = await at.backend.stat(path)
    except FileNotFoundError:
        return Collected()
    is_due = names_file(header, info) and is_old(await at.backend.now(path), info.modified, grace_s)
    if not is_due or not (dry_run or await delete_shadowed(at, path, header.adopted)):
        return Collected()  # young; or no conditional delete in this store; or another program wrote the file anew
    return report([info], PLAIN)


async def _tombstone(at: At, path: str, grace_s: float, would_go: set[str] | None) -> Collected:
    """Delete a tombstone that is not needed any more: old, and no file or pin is left of the segment.

    In a dry run, `would_go` are the files that would be gone before.
    """
    file = names.header_path(path)
    folder = names.chunks_folder(path)
    loaded = await at.headers.load(path)
    found = loaded.header
    if found is None or not found.deleted or found.merges or found.aborts or loaded.token is None:
        return Collected()
    if any(drop.is_hint for drop in found.drops):
        return Collected()  # pins elsewhere still name it
    plain = await at.headers.plain(Segment(path)) if found.adopted is not None else None
    if plain is not None and is_shadowed(found, plain) and path not in (would_go or ()):
        return Collected()  # the tombstone still says that this plain file is dead
    # a dry run does not probe, because a probe writes
    has = at.backend.capability
    can = has.can_delete_if if would_go is not None else (await at.abilities(path)).delete_if
    check_aliases(at.backend, found.tiers, path)
    tiers = [tier.alias for tier in found.tiers]
    there = [info.path for info in await list_folder(at.backend, folder, ["", *tiers])] if can else []
    if not can or any(not one.endswith(f"/{names.LOCK_NAME}") and one not in (would_go or ()) for one in there):
        return Collected()
    await check_there(at, path, found)  # the list may have been in vain
    info = await at.backend.stat(file)
    # a collection's own, of version 1, stands in the way of a writer who stopped before it made the header
    if not (has.removes_whole and found.version > 1) and not is_old(await at.backend.now(path), info.modified, grace_s):
        return Collected()
    if would_go is not None:
        return report([info], TOMBSTONE)
    if not await at.backend.delete_if(file, loaded.token):
        return Collected()
    at.headers.keep(path, Segment(path), at.headers.begin())
    for place in [folder] * at.backend.capability.has_folders + [names.in_tier(alias, folder) for alias in tiers]:
        await _remove_empty(at, place)
    return report([info], TOMBSTONE)


async def _remove_empty(at: At, folder: str) -> None:
    try:
        await at.backend.remove_folder(folder)
    except OSError as error:
        logger.debug("%s stays: %s", folder, error)  # gone, or somebody begins a segment of this name
