"""Rebuild: a new segment of what a segment with a lost header left. Old files stay: the chunks are copied.

1. List the folder, also in tiers; leave out what other segments refer to.
2. Read every chunk file once, for its checksum, and every index page.
3. Plan (`rebuild_plan`).
4. Copy the files of the plan under new names, read the copies back, and create the new segment in a single commit.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from rollingfs.backend.contract import FileInfo
from rollingfs.backend.tier_marks import find_mark
from rollingfs.backend.tiers import check_tiers, list_folder
from rollingfs.errors import TELLING, ConflictError, CorruptChunkError, CorruptHeaderError, not_committed, worded
from rollingfs.format import names, transitions
from rollingfs.format.header import Chunk, Header
from rollingfs.format.side_files import parse_label, parse_page, parse_pin
from rollingfs.runtime.meters import Progress, Steps
from rollingfs.runtime.system import Moment
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.commit.attempt import Attempt
from rollingfs.segment.commit.chunk_files import Stored, Uploads, copy_file, copy_through, read_checksum
from rollingfs.segment.commit.index_pages import LOOKS_MAX
from rollingfs.segment.files.adopt import new_header
from rollingfs.segment.files.rebuild_plan import (
    AmbiguousRebuildError,
    By,
    ChunkFile,
    FileRange,
    Gap,
    Left,
    Placed,
    Plan,
    check,
    gather,
    is_named,
    plan,
)
from rollingfs.segment.files.rewrite_commits import check_unused
from rollingfs.segment.files.survey import referrer_of
from rollingfs.segment.segment import Segment

logger = logging.getLogger("rollingfs")

FILES_AT_ONCE_MAX = 4
CANNOT_RETURN = (
    "the inline tail: the newest bytes, which lay in the header",
    "attributes, the seal, the policy, the owner and the epoch",
    "chunks in folders of other segments, unless an index page lists them",
    "staged chunks, unless an index page lists them",
)
OTHERS = "another segment refers to it: "
UNREADABLE = "the index page cannot be read: "
TOMBSTONE = (
    "The segment was deleted, not lost, or it was lost and a collection then made this tombstone; nothing was made: if "
    "you know that it was lost, delete its header file and try again"
)
GONE = "This file went meanwhile, as a collection takes what no header names; nothing was made: stop it, and try again"


@value_class
class Rebuilt:
    """The segment that a rebuild made, or in a dry run would make, and what it could not bring back."""

    start: int
    end: int
    """The new segment holds bytes `start` to `end`."""
    chunks: int
    by_page: int
    """Bytes that index pages place: they were committed there."""
    by_label: int
    """Bytes that the metadata of their files place; it is not known if they were committed there."""
    by_name: int
    """Bytes that only the names of their files place; it is not known if they were committed there."""
    gaps: tuple[Gap, ...]
    """Gaps after `end`: offsets without a file that are followed by files."""
    left: tuple[Left, ...]
    """Files of the folder that are not part of the new segment, with the reason."""
    by_later: int = 0
    """Bytes that the metadata of later files place: they were committed there."""
    pieces: tuple[Placed, ...] = ()
    """The evidence that places each chunk."""
    lost: tuple[str, ...] = CANNOT_RETURN
    """Fields that no file has, so that they cannot return."""
    is_dry_run: bool = False


async def rebuild(
    at: At,
    path: str,
    to: str,
    start: int,
    *,
    leave_out: Collection[str] = (),
    incarnations: Collection[str] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Rebuilt:
    """Make a segment at `to` of the chunks of the segment at `path`, whose header is lost or damaged.

    Parameters
    ----------
    start
        The offset at which the lost segment began, or another at which a chunk begins.
    leave_out
        Files that are no part of it, and index pages that are not to count: paths, last parts of paths, or
        patterns of last parts.
    incarnations
        If given, only files of these incarnations and files that do not name any.
    progress
        Takes the number of bytes that were read since the last call.

    Raises
    ------
    FileExistsError
        The segment at `path` has a header; or something is at `to`.
    FileNotFoundError
        The segment was deleted, or there is no chunk at `start`.
    MissingTierError
        A tier is not there that another segment of the folder has used.
    AmbiguousRebuildError
        The files allow several contents.
    CorruptChunkError
        A copy differs from its chunk.
    ValueError
        `start` or `to` cannot be; or what is to be left out, or an incarnation, is not there.
    """
    if start < 0:
        raise ValueError(f"{path}: start is {start}: it must be at least 0; nothing was made")
    if path == to:
        raise ValueError(f"{path}: give the new segment another name: nothing of the old one is touched")
    await _check_lost(at, path)
    base = await at.headers.load(to)
    if base.live or await at.contents.room(to, base) is not None:
        raise transitions.exists(to)
    chain, gaps, left = await _plan(at, path, start, leave_out, incarnations, progress)
    absent = await _absent(at, path)  # after the lists, which may have been in vain
    await _check_lost(at, path)  # it may have come back, or others have begun another segment, before the listing
    if not chain:
        starts = sorted({one.start for one in left if one.start is not None})
        hint = f"; chunks begin at {', '.join(map(str, starts[:5]))}" if starts else ""
        raise FileNotFoundError(2, f"No chunk begins at offset {start}{hint}; nothing was made", path)
    pieces = [piece for piece, _ in chain]
    if not dry_run:
        check(chain)
        await _make(at, to, pieces)
    by = dict.fromkeys(By, 0)
    for piece in pieces:
        by[piece.by] += piece.length
    return Rebuilt(
        start,
        pieces[-1].end,
        len(pieces),
        by[By.PAGE],
        by[By.LABEL],
        by[By.NAME],
        tuple(gaps),
        tuple(left),
        by[By.LATER],
        tuple(Placed(one.start, one.end, one.file.path, one.by.name.lower(), rivals) for one, rivals in chain),
        (*CANNOT_RETURN, *absent),
        dry_run,
    )


async def _absent(at: At, path: str) -> list[str]:
    """Return which tiers have no mark; refuse if a header of the folder shows that such a tier was in use."""
    absent = []
    for alias in at.backend.tiers:
        if await find_mark(at.backend, at.runtime, alias) is None:
            await check_unused(at, path, alias)
            absent.append(f"files in the tier {alias!r}, whose root has no mark: it was never used, or is not there")
    return absent


async def _check_lost(at: At, path: str) -> None:
    try:
        header = (await at.headers.load(path)).header
    except CorruptHeaderError as error:
        logger.info("%s: its header is damaged, so it is rebuilt without: %s", path, error)
        return
    if header is not None and header.deleted:
        raise FileNotFoundError(2, TOMBSTONE, path)
    if header is not None:
        raise FileExistsError(17, "The segment has a header that can be read; nothing was made", path)


# -- what is there ---------------------------------------------------------------------------------------


async def _plan(
    at: At, path: str, start: int, leave_out: Collection[str], incarnations: Collection[str], progress: Progress | None
) -> Plan:
    listed, others = await _look(at, path)
    infos = {info.path: info for info in listed if not info.is_folder and info.path not in others}
    pages, unreadable = await _pages(at, infos.values())
    named = {names.locate(path, chunk.file, chunk.tier) for chunks in pages.values() for chunk in chunks}
    away = named - infos.keys() - others.keys()
    check_tiers(at.backend, away)
    _check_known(path, {*away, *(info.path for info in listed)}, leave_out)
    wanted = [info for info in infos.values() if _is_chunk(info.path.rpartition("/")[2])]
    _check_keys(path, [info.path for info in wanted], leave_out)
    for file in sorted(away):
        with contextlib.suppress(FileNotFoundError):  # the plan lists it as missing
            wanted.append(await at.backend.stat(file))
    steps = Steps(sum(info.size for info in wanted), progress)
    calls = [partial(_file, at, info, steps) for info in wanted]
    files = await at.runtime.gather(calls, FILES_AT_ONCE_MAX)
    known, left, places = gather(path, {file.path: file for file in files if file is not None}, pages, leave_out)
    left = [*left, *(Left(file, f"{OTHERS}{who}") for file, who in sorted(others.items())), *unreadable]
    return plan((known, left, places), start, incarnations)


async def _look(at: At, path: str) -> tuple[list[FileInfo], dict[str, str]]:
    """Return the files of the folder, also in tiers; and the files that other segments refer to, each with its segment.

    If a pin came or went during the look, another segment is being moved, and has a name that was not looked at.
    """
    folder = names.chunks_folder(path)
    for _ in range(LOOKS_MAX):
        listed = await list_folder(at.backend, folder, ["", *at.backend.tiers])
        if not listed:
            raise FileNotFoundError(2, "There are no chunks of such a segment; nothing was made", path)
        pins = _pins(listed)
        with contextlib.suppress(FileNotFoundError):  # a collection took a pin, or a page went with its header
            others = await _of_others(at, path, folder, pins)
            if not pins or pins == _pins((await at.backend.list(folder)).entries):
                return listed, others
    raise ConflictError(
        f"{path}: the segments that refer to its files changed {LOOKS_MAX} times; nothing was made, try again"
    )


async def _of_others(at: At, path: str, folder: str, pins: Iterable[str]) -> dict[str, str]:
    """Return the files of a folder that other segments refer to, which pins name; each with its segment."""
    found: dict[str, str] = {}
    for file in pins:
        pin = parse_pin((await at.backend.read(file)).data, folder, file)
        for other in (pin.source, pin.target):  # in this order: what moves in between is at the target
            if other not in (path, ""):
                loaded = await at.headers.load(other)
                found |= dict.fromkeys((await referrer_of(at, folder, other, loaded)).files, other)
    return found


async def _pages(at: At, infos: Iterable[FileInfo]) -> tuple[dict[str, Sequence[Chunk]], list[Left]]:
    pages: dict[str, Sequence[Chunk]] = {}
    unreadable = []
    for info in infos:
        if not names.is_index(info.path):
            continue
        try:
            pages[info.path] = tuple(parse_page((await at.backend.read(info.path)).data, None, info.path))
        except FileNotFoundError:
            continue  # a collection took it meanwhile
        except CorruptHeaderError as error:
            unreadable.append(Left(info.path, f"{UNREADABLE}{error}"))
    return pages, unreadable


async def _file(at: At, info: FileInfo, steps: Steps) -> ChunkFile | None:
    try:
        crc, size = await read_checksum(at.backend, info.path, steps=steps)
        label = parse_label(await at.backend.metadata(info.path))
    except FileNotFoundError:
        return None  # a collection took it meanwhile
    return ChunkFile(info.path, size, crc, round(info.modified * 1000), label)


# -- the new segment -------------------------------------------------------------------------------------


async def _make(at: At, to: str, pieces: Sequence[FileRange]) -> None:
    await at.abilities(to)
    uploads = Uploads(at, to)
    stored: dict[FileRange, Stored] = {}
    calls = [partial(_copied, at, to, piece, uploads, stored) for piece in pieces]
    try:
        await at.runtime.gather(calls, FILES_AT_ONCE_MAX)
    except FileNotFoundError as error:
        await uploads.discard()
        raise FileNotFoundError(2, GONE, error.filename) from error
    except BaseException as error:
        await uploads.discard()
        if isinstance(error, OSError) and not isinstance(error, TELLING):
            raise not_committed(error, to) from error
        raise

    async def step(base: Segment, attempt: Attempt) -> Header | None:
        if base.live or await at.contents.room(to, base) is not None:
            raise transitions.exists(to)
        header = new_header(at, base.header, await at.inherited.policy(to))
        young = [await attempt.files.young(stored[piece], base.header) for piece in pieces]
        entries = tuple(one.chunk(to, piece.start) for one, piece in zip(young, pieces, strict=True))
        return replace(header, start=pieces[0].start, entries=entries)

    await uploads.settle(at.commits.commit(to, step, fresh=True, uploads=[uploads]))


async def _copied(at: At, to: str, piece: FileRange, uploads: Uploads, stored: dict[FileRange, Stored]) -> None:
    began = Moment.now(at.clock)
    target = f"{names.chunks_folder(to)}/{names.new_chunk_name(piece.start)}"
    new = Stored(target, piece.length, None, piece.file.modified_ms, began)
    uploads.add([new])
    if piece.is_whole:
        await copy_file(at, piece.file.path, target)
        wanted = piece.file.crc32c
    else:
        end = piece.offset + piece.length
        wanted = await copy_through(at, piece.file.path, target, piece.offset, end)
    if await read_checksum(at.backend, target) != (wanted, piece.length):
        raise CorruptChunkError(
            f"{target}: the copy differs from {piece.file.path}, which may have changed meanwhile; "
            "nothing was made, and nothing old was touched"
        )
    stored[piece] = replace(new, crc32c=wanted)


def _pins(listed: Iterable[FileInfo]) -> list[str]:
    return sorted(info.path for info in listed if info.path.rpartition("/")[2].startswith(names.PIN_PREFIX))


def _check_known(path: str, files: Collection[str], leave_out: Collection[str]) -> None:
    """Refuse to leave out what is not there: a name with a mistake in it would leave the file in.

    Raises
    ------
    ValueError
        A name has no file.
    """
    for name in leave_out:
        if not any(is_named(file, [name]) for file in files):
            raise ValueError(
                f"{path}: {worded(leave_out=...)} names {name!r}, which is no file of the lost segment; nothing was "
                "made: give a path, or its last part, as a dry run tells it, or a pattern such as stage-*"
            )


def _check_keys(path: str, files: Iterable[str], leave_out: Collection[str]) -> None:
    """Refuse files in a tier that may be of two stores: each has a key of its own.

    Raises
    ------
    AmbiguousRebuildError
        A tier has files of several keys; the message names a file of each.
    """
    found: dict[str, dict[str, str]] = {}
    for file in sorted(files):
        name = file.rpartition("/")[2]
        key = names.key_of(name)
        if key is not None and not is_named(file, leave_out):
            found.setdefault(names.split_tier(file)[0], {}).setdefault(key, file)
    for alias, keys in found.items():
        if len(keys) > 1:
            raise AmbiguousRebuildError(
                f"{path}: the tier {alias!r} has files of {len(keys)} keys, so another store may have the same root: "
                f"{', '.join(keys.values())}; nothing was made: leave out those of the others"
            )


def _is_chunk(name: str) -> bool:
    return names.offset_of(name) is not None or names.is_staged(name)
