"""The result of an erase: what went, and what is left elsewhere, with the reason."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import field

from rollingfs.backend.contract import FileInfo
from rollingfs.backend.tiers import check_aliases
from rollingfs.errors import CorruptHeaderError, MissingTierError, UnknownTierError
from rollingfs.format import names
from rollingfs.format.header import GRACE_S, Header
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At
from rollingfs.segment.files.survey import Survey, pending_uploads, survey_folder
from rollingfs.segment.segment import names_file

YOUNG = "younger than the grace: a collection deletes it after that"
PINNED = "a pin protects it, and the segment that the pin names is absent"
KEPT = "the former name of a part of the segment keeps it for readers of older snapshots"
NAMED = "another segment refers to it"
HIDDEN = "a plain file of the segment's name, which the segment hides"
UNREADABLE = "a folder that cannot be read, so nothing in it may be deleted"
UPLOAD = "unfinished upload: a collection aborts it after the grace"


@value_class
class Remains:
    """A file that may still hold erased bytes."""

    file: str
    """Path on the backend; the path of a file in a tier begins with ``tier:`` and its alias."""
    size: int
    """Bytes of the file; 0 for an unfinished upload."""
    reason: str
    """Why it is still there."""
    held: bool
    """True: it held the erased bytes. False: no header refers to it, and its content is not known."""
    until: float | None = None
    """When a collection may delete it, seconds since 1970 by the store's clock; None if that is not known."""
    kept_by: str | None = None
    """The former name that keeps it for readers: a collection of that name deletes it, or another erase."""


@value_class
class Erased:
    """The bytes that an erase dropped, and the files that are left."""

    start: int
    """The segment begins at this offset; no file that it refers to holds a byte before it."""
    bytes: int = 0
    """Bytes of the segment that this call has dropped; 0 if it only finished an earlier erase."""
    rewritten_files: int = 0
    """Files that this call has rewritten, because they held bytes before and after the start."""
    rewritten_bytes: int = 0
    """Retained bytes in these."""
    remains: tuple[Remains, ...] = ()
    """Files that may still hold erased bytes."""
    versions: Mapping[str, bool | None] = field(default_factory=dict)
    """Whether the store keeps former versions of files, by the alias of a tier ("" for the segment's own store). None:
    the store does not answer that."""

    @property
    def is_gone(self) -> bool:
        """Whether the erased bytes are gone from all places that rollingfs knows and can see."""
        return not self.remains and all(kept is False for kept in self.versions.values())


logger = logging.getLogger("rollingfs")


async def leftovers(at: At, path: str, folders: Iterable[str], held: Set[str]) -> tuple[Remains, ...]:
    """The files in some chunk folders that may hold erased bytes of the segment at `path`, and its plain file.

    Parameters
    ----------
    held
        Files that certainly held the erased bytes.
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
    """Return the files that may hold erased bytes, by a look at a folder; pure."""
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
