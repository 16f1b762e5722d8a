"""Looks for files that may still hold bytes which a segment has erased."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Set

from rollingfs.backend.contract import FileInfo
from rollingfs.backend.tiers import check_aliases
from rollingfs.errors import CorruptHeaderError, MissingTierError, UnknownTierError
from rollingfs.format import names
from rollingfs.format.header import GRACE_S, Header
from rollingfs.segment.at import At
from rollingfs.segment.files.erased import HIDDEN, KEPT, NAMED, PINNED, UNREADABLE, UPLOAD, YOUNG, Remains
from rollingfs.segment.files.survey import Survey, pending_uploads, survey_folder
from rollingfs.segment.segment import names_file

logger = logging.getLogger("rollingfs")


async def leftovers(at: At, path: str, folders: Iterable[str], held: Set[str]) -> tuple[Remains, ...]:
    """The files in some chunk folders that may hold erased bytes of the segment at `path`, and its plain file.

    Parameters
    ----------
    held
        Files in which the erased bytes certainly lay.
    """
    found: list[Remains] = []
    for folder in sorted(folders):
        try:
            found += of_survey(await survey_folder(at, folder), path, held)
        except FileNotFoundError:
            logger.debug("%s: nothing is there any more", folder)
        except (CorruptHeaderError, UnknownTierError, MissingTierError) as error:
            found.append(Remains(folder, 0, f"{UNREADABLE}: {error}", False))
        found += [
            Remains(upload.path, 0, UPLOAD, False, upload.began + GRACE_S)
            for upload in await pending_uploads(at, folder)
        ]
        if folder != names.chunks_folder(path):
            found += await _plain_of(at, names.segment_of_folder(folder))
    with contextlib.suppress(FileNotFoundError):
        plain = await at.backend.stat(path)
        found.append(Remains(path, plain.size, HIDDEN, True))
    return tuple(found)


async def _plain_of(at: At, segment: str) -> list[Remains]:
    """The plain file from which a former segment was adopted, which another segment has taken in or renamed."""
    try:
        header = (await at.headers.load(segment)).header
        info = await at.backend.stat(segment)
    except (CorruptHeaderError, FileNotFoundError):
        return []
    if header is None or not names_file(header, info):
        return []
    return [Remains(segment, info.size, HIDDEN, True)]


async def kept_versions(at: At, path: str, header: Header) -> dict[str, bool | None]:
    """Whether each store of a segment keeps former versions of files."""
    check_aliases(at.backend, header.tiers, path)
    file = names.header_path(path)
    found = {"": await at.backend.keeps_versions(file)}
    for tier in header.tiers:
        found[tier.alias] = await at.backend.keeps_versions(names.in_tier(tier.alias, file))
    return found


def of_survey(survey: Survey, path: str, held: Set[str]) -> list[Remains]:
    """What a look at one folder shows; pure."""
    itself = {file for referrer in survey.referrers if referrer.path == path for file in referrer.files}
    blocked, kept = survey.blocked_until(), survey.kept
    found = []
    for info in survey.files:
        if info.path in itself or not _has_bytes(info):
            continue
        is_held, until = info.path in held, info.modified + GRACE_S
        if info.path in kept:
            keeper = kept[info.path]
            found.append(Remains(info.path, info.size, KEPT, is_held, keeper.until, keeper.path))
        elif info.path in survey.named:
            if is_held:
                found.append(Remains(info.path, info.size, NAMED, is_held))
        elif info.modified <= blocked:
            found.append(Remains(info.path, info.size, PINNED, is_held))
        else:
            found.append(Remains(info.path, info.size, YOUNG, is_held, until))
    found += [Remains(one.path, 0, UPLOAD, False, one.began + GRACE_S) for one in survey.tier_uploads]
    return found


def _has_bytes(info: FileInfo) -> bool:
    """Whether a file in a chunk folder may hold bytes of a segment: index pages do not."""
    name = info.path.rpartition("/")[2]
    return not info.is_folder and not name.startswith((names.INDEX_PREFIX, names.PROBE_PREFIX))
