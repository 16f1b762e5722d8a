"""The result of a collection: its files, and a reason for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from rollingfs.backend.contract import FileInfo
from rollingfs.backend.contract_values import PendingUpload
from rollingfs.format import names
from rollingfs.runtime.values import value_class

CHUNK = "unreferenced chunk"
STAGED = "staged chunk that nobody committed"
PAGE = "unreferenced index page"
LEFTOVER = "leftover of a write that was broken off"
PROBE = "leftover of a probe of the store"
PIN = "stale pin"
DROPPED = "dropped"
PLAIN = "plain file that its segment shadows"
TOMBSTONE = "tombstone"
UPLOAD = "unfinished upload"

_BY_PREFIX = {
    names.STAGED_PREFIX: STAGED,
    names.INDEX_PREFIX: PAGE,
    names.TEMPORARY_PREFIX: LEFTOVER,
    names.PROBE_PREFIX: PROBE,
    names.PIN_PREFIX: PIN,
}


def why(path: str) -> str:
    """The reason for which an unreferenced file in a chunk folder is garbage."""
    name = path.rpartition("/")[2]
    return next((reason for prefix, reason in _BY_PREFIX.items() if name.startswith(prefix)), CHUNK)


def is_old(now: float, since: float, grace_s: float) -> bool:
    """Whether something of the time `since` is as old as the grace, by the clock of the store (seconds since 1970).

    A date ahead of that clock counts as young. S3 gives its time (the `Date` of an answer) in whole seconds, so a file
    that was just written may have such a date.
    """
    return max(0.0, now - since) >= grace_s


@value_class
class Collected:
    """The files that a collection deleted (in a dry run: would delete)."""

    files: tuple[str, ...] = ()
    """Paths on the backend: chunks, pages, pins, plain files that were adopted, tombstones, unfinished uploads."""
    bytes: int = 0
    """Their sizes, together; unfinished uploads count as 0."""
    young: int = 0
    """Unreferenced files that are younger than the grace."""
    folders: tuple[str, ...] = ()
    """Chunk folders that were looked at."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """For each of the files, why it goes: ``"unreferenced chunk"``, ``"dropped"``, ``"stale pin"``, ..."""


@value_class
class Garbage:
    """The files of a chunk folder that may go."""

    files: tuple[FileInfo, ...] = ()
    """On a disk also the folders that a probe of the store left."""
    uploads: tuple[PendingUpload, ...] = ()
    young: int = 0
    """The number of further files that are only too young."""

    def __bool__(self) -> bool:
        return bool(self.files or self.uploads)

    def without(self, files: Iterable[FileInfo]) -> Garbage:
        """All but these files."""
        paths = {info.path for info in files}
        return replace(self, files=tuple(info for info in self.files if info.path not in paths))

    def report(self, folder: str) -> Collected:
        """It as the result of a collection of this folder."""
        reasons = {info.path: why(info.path) for info in self.files}
        reasons |= {upload.path: UPLOAD for upload in self.uploads}
        size = sum(info.size for info in self.files)
        return Collected(tuple(reasons), size, self.young, (folder,), reasons)


def report(files: Iterable[FileInfo], reason: str) -> Collected:
    """Files that all go for the same reason, as the result of a collection."""
    several = tuple(files)
    paths = tuple(info.path for info in several)
    return Collected(paths, sum(info.size for info in several), reasons=dict.fromkeys(paths, reason))
