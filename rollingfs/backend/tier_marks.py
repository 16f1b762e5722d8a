"""The mark at the root of a tier, and the path by which a segment's files are there: no mark, no tier.

A disk that is not mounted looks like an empty tier, and so does a tree that is reached by another path than the files
were put under. Rules P4.12 to P4.20 of the protocol.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import replace

from rollingfs.backend.contract import Backend, Over, finished
from rollingfs.backend.patience import read_fitting
from rollingfs.backend.tiers import check_tier
from rollingfs.errors import MissingTierError, RollingError, TierFailedError
from rollingfs.format import names, tokens
from rollingfs.format.header import TIER_PATH_BYTES_MAX, Header, Tier
from rollingfs.runtime.concurrency import Runtime

MARK_FORMAT = "rollingfs-tier 1"
MARK_BYTES_MAX = 4096


def format_mark(identity: str) -> bytes:
    """Return a mark's content."""
    return tokens.seal_text(f"{MARK_FORMAT}\nid {identity}\n".encode())


def parse_mark(data: bytes, name: str) -> str:
    """Return the id that a mark has; "" for an empty mark, which older releases wrote.

    Raises
    ------
    CorruptHeaderError
        The mark is malformed, or a newer release wrote it.
    """
    if not data:
        return ""
    try:
        tokens.check_size(data, MARK_BYTES_MAX)
        lines, end = tokens.split_text(data, MARK_FORMAT)
        kind, word = " ".join(lines).split(" ")
        if kind != "id" or end != len(data):
            raise tokens.Malformed("it has more than an id: upgrade rollingfs to read it")
        return tokens.uuid(word)
    except (ValueError, IndexError) as error:
        tokens.corrupt(name, 0, "", error)


async def check_marks(backend: Backend, runtime: Runtime, tiers: Iterable[Tier], path: str) -> None:
    """Refuse the tiers of a header that are not there; a caller that may drop something uses `check_there`.

    Raises
    ------
    UnknownTierError, MissingTierError, TierFailedError
        The message names the tier.
    """
    for line in tiers:
        await check_mark(backend, runtime, line, path)


async def check_mark(backend: Backend, runtime: Runtime, line: Tier, path: str) -> str:
    """Return the id of the tier of a line; otherwise as `check_marks`."""
    check_tier(backend, line.alias, path)
    try:
        found = await find_mark(backend, runtime, line.alias)
    except RollingError:
        raise
    except OSError as error:
        raise TierFailedError(
            f"{path}: the tier {line.alias!r} failed, so nothing was dropped: its mark at "
            f"{_root(backend, line.alias)}/{names.TIER_MARK} cannot be read: repeat the call when the store answers. "
            f"It said: {error}"
        ) from error
    if found is None:
        raise missing(backend, line.alias, path, line.id)
    if line.id and found != line.id:
        raise MissingTierError(
            f"{path}: the tier {line.alias!r} at {_root(backend, line.alias)} is not the one with the files of this "
            f"segment: the header names the id {line.id}, and its mark has {found or 'none'}; nothing was dropped. "
            "Is the right disk mounted?"
        )
    return found


def is_placed(backend: Backend, line: Tier, path: str) -> bool:
    """Return whether a segment's files in a tier certainly are below this path, or are reached by it."""
    return bool(line.path) and backend.place(path, line.path) == line.path


async def find_mark(backend: Backend, runtime: Runtime, alias: str) -> str | None:
    """Return the id that the mark of a tier has, "" for an empty mark; None if there is no mark."""
    return await _identity(backend, runtime, names.in_tier(alias, names.TIER_MARK))


async def _identity(backend: Backend, runtime: Runtime, file: str) -> str | None:
    try:
        return await read_fitting(backend, runtime, file, lambda blob: parse_mark(blob.data, file))
    except FileNotFoundError:
        return None


async def make_mark(backend: Backend, runtime: Runtime, alias: str) -> str:
    """Put a mark at the root of a tier, unless a mark with an id is there; return the id of the tier."""
    mark = names.in_tier(alias, names.TIER_MARK)
    found = await find_mark(backend, runtime, alias)
    if found is None:
        await _write(backend, mark, str(uuid.uuid4()), Over.NOTHING)
    elif not found:  # an older release made it
        election = names.in_tier(alias, names.TIER_ID)
        await _write(backend, election, str(uuid.uuid4()), Over.NOTHING)
        if elected := await _identity(backend, runtime, election):
            await _write(backend, mark, elected, Over.ANYTHING)
    else:
        return found
    found = await find_mark(backend, runtime, alias)
    if not found:
        raise missing(backend, alias, _root(backend, alias), "")
    return found


async def _write(backend: Backend, path: str, identity: str, over: Over) -> None:
    with contextlib.suppress(FileExistsError):  # another client has just done it
        async with finished(await backend.open_write(path, over)) as upload:
            await upload.write(format_mark(identity))


async def has_files(backend: Backend, line: Tier, path: str) -> bool:
    """Return whether files of a segment are in a tier below a path.

    Then the tier's tree was moved along with the segment.
    """
    try:
        listing = await backend.list(names.in_tier(line.alias, names.chunks_folder(path)))
    except FileNotFoundError:
        return False
    return any(names.key_of(info.path.rpartition("/")[2]) == line.key for info in listing.entries)


def placed(backend: Backend, path: str) -> str:
    """Return the path of a segment for a tier's line, or "" if it is too long."""
    place = backend.place(path)
    return place if len(place.encode(errors="replace")) <= TIER_PATH_BYTES_MAX else ""


def moved_lines(backend: Backend, tiers: Iterable[Tier], source: str, target: str) -> tuple[Tier, ...]:
    """Return the lines of a source for its target; a line in doubt stays."""
    return tuple(
        replace(line, path=placed(backend, target)) if is_placed(backend, line, source) else line for line in tiers
    )


async def why_missing(backend: Backend, runtime: Runtime, header: Header | None, file: str, error: OSError) -> OSError:
    """Return the error for a file of a segment that is missing: that its tier is not there, or what is given."""
    alias, hot = names.split_tier(file)
    line = header.tier(alias) if header is not None and alias else None
    try:
        if line is not None:
            path = names.segment_of_folder(names.parent(hot))
            await check_mark(backend, runtime, line, path)
            if not is_placed(backend, line, path) and line.path:
                raise elsewhere(line, path)
    except OSError as reason:
        return reason
    return error


def missing(backend: Backend, alias: str, path: str, identity: str) -> MissingTierError:
    """Return the error for a tier whose root has no mark."""
    root, content = _root(backend, alias), f", as {format_mark(identity).decode()!r}" if identity else ""
    return MissingTierError(
        f"{path}: the tier {alias!r} is not there (its mark is missing at {root}/{names.TIER_MARK}): is it mounted? "
        f"Nothing was dropped. If you emptied it on purpose, put the mark there again{content}"
    )


def elsewhere(line: Tier, path: str) -> MissingTierError:
    """Return the error for a segment whose files in a tier are below another path."""
    other = f"below {line.path}" if line.path else "below the path that the first offload used"
    return MissingTierError(
        f"{path}: the tier {line.alias!r} has no files of this segment below this path; they lie {other}, and it is "
        "not known whether both paths are one. Nothing was looked for there, and nothing was dropped: use that path. "
        "If the tree was moved, move its tree in the tier as well"
    )


def _root(backend: Backend, alias: str) -> str:
    root: str = getattr(backend, "tier_roots", {}).get(alias, alias)
    return root
