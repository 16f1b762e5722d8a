"""The operations of maintenance on whole folders, ``retain``, ``trim`` and ``concat``: what they did to each segment.

A stream is one piece of work: its ledger records what is to be trimmed before anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rollingfs.errors import CorruptHeaderError, SegmentNotSealedError
from rollingfs.format import names
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.runtime.values import value_class
from rollingfs.spark.segment_operations import Outcome, said
from rollingfs.spark.source import segments
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.retention_run import Retained
from rollingfs.stream.segment_upkeep import RETAIN
from rollingfs.stream.trim import Trimmed

TRIM = "trim"
CONCAT = "concat"
STREAM_OPERATIONS = (RETAIN, TRIM, CONCAT)
"""In the order in which they are done, before the operations on segments."""

Outcomes = dict[str, dict[str, Outcome]]
"""By path (of a segment or, for the error of a stream, of its folder), then by operation."""


@value_class
class Join:
    """What ``concat`` makes one segment of in each folder.

    Raises
    ------
    ValueError
        The name is none.
    """

    into: str
    """The name of the segment."""
    paths: Sequence[str]
    seals: bool
    """Whether the others are sealed first."""

    def __post_init__(self) -> None:
        if not self.into or "/" in self.into:
            raise ValueError(f"into={self.into!r}: it must be the name of a segment in each folder; nothing was done")

    def do(self, fs: RollingFileSystem, folder: str, *, dry_run: bool) -> dict[str, Outcome]:
        """Join the segments of a folder that are there; none if that was done already."""
        target = f"{folder.rstrip('/')}/{self.into}"
        others = [one for one in self.paths if names.parent(one) == folder and one != target]
        sources = [one for one in others if not names.is_hidden_segment(one)]
        sizes: dict[str, int] = {}
        for path, look in zip(sources, segments.look(fs, sources), strict=True):
            if isinstance(look, CorruptHeaderError):
                raise look
            if look is not None and not (look.sealed or self.seals):
                raise SegmentNotSealedError(f"{path}: it is not sealed, so nothing in its folder was joined")
            if look is not None:
                sizes[path] = look.length - look.start
        if sizes and not dry_run:
            for path in sizes if self.seals else ():
                fs.seal(path)
            if not fs.exists(target):
                fs.create(target)
            fs.concat(target, list(sizes))
        found = {path: Outcome(0, {"bytes": size, "into": target}) for path, size in sizes.items()}
        return found | ({target: Outcome(sum(sizes.values()), {"sources": len(sizes)})} if sizes else {})


def folders_of(
    operations: Sequence[str],
    cut: StreamCut | None,
    paths: Sequence[str],
    inherits: Callable[[str], bool],
    *,
    must_be: bool,
) -> list[str]:
    """The streams that operations are meant for, sorted.

    Parameters
    ----------
    inherits
        Whether a folder has a retention of those above it.
    must_be
        Whether it is an error that there is none.

    Raises
    ------
    ValueError
        There is none, or the cut names segments that are not at the URLs.
    """
    elsewhere = sorted(set(cut or ()) - set(paths))
    if elsewhere:
        more = f" and {len(elsewhere) - 1} more" if elsewhere[1:] else ""
        raise ValueError(f"the cut names {elsewhere[0]}{more}, which is not at the URLs; nothing was trimmed")
    found = {names.parent(path) for path in cut or ()}
    if RETAIN in operations:
        found |= {names.parent(path) for path in paths if names.is_ledger(path)}
        others = {names.parent(path) for path in paths if not names.is_hidden_segment(path)} - found
        found |= {folder for folder in others if inherits(folder)}
    if CONCAT in operations:
        found |= {names.parent(path) for path in paths if not names.is_hidden_segment(path)}
    if operations and must_be and not found:
        raise ValueError("no stream is at the URLs: give the folder of one that has a retention; nothing was done")
    return sorted(found)


def keep_stream(
    fs: RollingFileSystem,
    operations: Sequence[str],
    cut: StreamCut | None,
    join: Join | None,
    folder: str,
    *,
    dry_run: bool,
) -> Outcomes:
    """Do the operations to a stream; its failure is that of its folder."""
    found: Outcomes = {}
    operation = operations[0]
    try:
        stream = fs.stream(folder)
        for operation in operations:
            did: Retained | Trimmed
            if operation == CONCAT and join is not None:
                for path, outcome in join.do(fs, folder, dry_run=dry_run).items():
                    found.setdefault(path, {})[operation] = outcome
                continue
            if operation == TRIM and cut is not None:
                did = stream.trim(cut.only(path for path in cut if names.parent(path) == folder), dry_run)
            elif fs.get_policy(folder).retention is None:
                continue
            else:
                did = stream.retain(dry_run)
            for path in {*did.dropped, *did.deleted, *did.failed}:
                size = did.dropped.get(path, 0)
                details = {"bytes": size, "deleted": path in did.deleted}
                found.setdefault(path, {})[operation] = Outcome(size, details, did.failed.get(path))
    except Exception as failure:  # noqa: BLE001 - one stream's failure is in its rows, never the job's
        found[folder] = {operation: Outcome(0, None, said(failure))}
    return found
