"""The operations of maintenance on whole folders, ``retain``, ``trim`` and ``concat``.

A stream is a unit of work: its ledger records a trim before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollingfs.errors import CorruptHeaderError, SegmentNotSealedError
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.spark.segment_operations import UPKEEP, Chores, Outcome, said
from rollingfs.spark.source import segments
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.segment_upkeep import RETAIN

TRIM = "trim"
CONCAT = "concat"
STREAM_OPERATIONS = (RETAIN, TRIM, CONCAT)
"""In the order in which they are done, before the operations on segments."""

Outcomes = dict[str, dict[str, Outcome]]
"""By path (of a segment or, for the error of a stream, of its folder), then by operation."""


class StreamOperations:
    """Does the operations of the settings on streams, and the retention of ``upkeep``.

    Parameters
    ----------
    paths
        All segments at the URLs.
    cut, into
        For ``trim``, and the name of the target of ``concat`` in each folder.

    Raises
    ------
    ValueError
        `cut` or `into` is malformed.
    """

    def __init__(
        self,
        fs: RollingFileSystem,
        paths: Sequence[str],
        settings: Chores,
        cut: StreamCut | str | None,
        into: Any,
    ) -> None:
        if into is not None and (not into or "/" in into):
            raise ValueError(f"into={into!r}: it must be the name of a segment in each folder; nothing was done")
        self.fs, self.paths, self.settings, self.into = fs, paths, settings, into
        self.cut = StreamCut.parse(cut) if isinstance(cut, str) else cut or StreamCut({}, 0, 0)
        wanted = settings.operations
        self.operations = [one for one in STREAM_OPERATIONS if one in wanted or (one == RETAIN and UPKEEP in wanted)]

    def folders(self) -> list[str]:
        """Return the streams that the operations are meant for, sorted.

        Raises
        ------
        ValueError
            No stream is there, or the cut names segments that are not at the URLs.
        """
        elsewhere = sorted(self.cut.keys() - set(self.paths))
        if elsewhere:
            more = f" and {len(elsewhere) - 1} more" if elsewhere[1:] else ""
            raise ValueError(f"the cut names {elsewhere[0]}{more}, which is not at the URLs; nothing was trimmed")
        shown = {names.parent(path) for path in self.paths if not names.is_hidden_segment(path)}
        found = {names.parent(path) for path in self.cut}
        if RETAIN in self.operations:
            found |= {names.parent(path) for path in self.paths if names.is_ledger(path)}
            ledgers = Ledgers(core(self.fs).client, once=True)
            found |= {one for one in shown - found if self._inherits(ledgers, one)}
        if CONCAT in self.operations:
            found |= shown
        if not found and not {*STREAM_OPERATIONS}.isdisjoint(self.settings.operations):
            raise ValueError("no stream is at the URLs: give the folder of one that has a retention; nothing was done")
        return sorted(found)

    def _inherits(self, ledgers: Ledgers, folder: str) -> bool:
        """Return whether folders above have a retention.

        If they cannot be read, `keep` reports that of this folder only.
        """
        try:
            return core(self.fs).run(ledgers.above(folder)).retention is not None
        except OSError:
            return True

    def keep(self, folder: str) -> Outcomes:
        """Do the operations to a stream; its failure is in the row of the folder."""
        found: Outcomes = {}
        operation = ""
        try:
            for operation in self.operations:
                did = self._join(folder) if operation == CONCAT else self._drop(operation, folder)
                for path, outcome in did.items():
                    found.setdefault(path, {})[operation] = outcome
        except Exception as failure:  # noqa: BLE001 - one stream's failure is in its rows, never the job's
            found[folder] = {operation: Outcome(0, None, said(failure))}
        return found

    def _drop(self, operation: str, folder: str) -> dict[str, Outcome]:
        stream, dry_run = self.fs.stream(folder), self.settings.dry_run
        if operation == RETAIN and self.fs.get_policy(folder).retention is None:
            return {}
        of_folder = self.cut.only(path for path in self.cut if names.parent(path) == folder)
        did = stream.retain(dry_run) if operation == RETAIN else stream.trim(of_folder, dry_run)
        sizes = {path: did.dropped.get(path, 0) for path in {*did.dropped, *did.deleted, *did.failed, *did.left}}
        why = {**did.left, **did.failed}
        return {
            path: Outcome(size, {"bytes": size, "deleted": path in did.deleted}, why.get(path))
            for path, size in sizes.items()
        }

    def _join(self, folder: str) -> dict[str, Outcome]:
        """Join the present segments of a folder, whose last lines are ended where they are not."""
        fs, seals = self.fs, "seal" in self.settings.operations
        target = f"{folder.rstrip('/')}/{self.into}"
        others = [one for one in self.paths if names.parent(one) == folder and one != target]
        sources = [one for one in others if not names.is_hidden_segment(one)]
        sizes: dict[str, int] = {}
        for path, look in zip(sources, segments.look(fs, sources), strict=True):
            if isinstance(look, CorruptHeaderError):
                raise look
            if look is not None and not (look.sealed or seals):
                raise SegmentNotSealedError(f"{path}: it is not sealed, so nothing in its folder was joined")
            if look is not None:
                sizes[path] = look.length - look.start
        if sizes and not self.settings.dry_run:
            for path in sizes if seals else ():
                fs.seal(path)
            fs.concat(target, list(sizes), create=True, newline=True)
        found = {path: Outcome(0, {"bytes": size, "into": target}) for path, size in sizes.items()}
        return found | ({target: Outcome(sum(sizes.values()), {"sources": len(sizes)})} if sizes else {})
