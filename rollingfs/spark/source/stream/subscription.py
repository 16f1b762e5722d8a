"""A query as a subscriber of the streams that it reads: it publishes how far it has read, so retention may trim.

Each folder that the query reads is a stream with a ledger of its own. Of a segment that may still grow, the query
publishes the begin of its last batch. So a segment that is sealed then is not deleted before the query has seen the
seal, and can distinguish that deletion from a loss of bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from rollingfs.errors import AppendOutcomeUnknown, CommitTimeoutError, ConflictError
from rollingfs.format import names
from rollingfs.fs.core import core
from rollingfs.fs.filesystem import RollingFileSystem
from rollingfs.spark.source.hadoop_globs import is_pattern
from rollingfs.spark.source.options import Options, logger
from rollingfs.spark.source.segments import PLAIN
from rollingfs.spark.source.stream.offsets import ReadMark
from rollingfs.stream.cut import StreamCut

UNPUBLISHED = (CommitTimeoutError, ConflictError, AppendOutcomeUnknown)
"""Errors after which a cut may not be published."""


class Subscription:
    """Publishes the marks of finished batches.

    Parameters
    ----------
    name
        The subscriber.

    Raises
    ------
    ValueError
        The query reads single segments, or a pattern: all else in their folders would count as unread for ever.
    """

    def __init__(self, options: Options, fs: RollingFileSystem, name: str) -> None:
        self.fs = fs
        self.name = name
        self.folders = [core(fs).strip(path).rstrip("/") for path in options.paths]
        for folder in self.folders:
            if is_pattern(folder) or fs.isfile(folder):
                raise ValueError(
                    f"option subscriber: {folder} is not a folder; a subscriber reads whole folders, and would hold "
                    "back retention of what it does not read: load() the folder"
                )
        self._last: dict[str, ReadMark] | None = None
        """The marks of the batch before; a restarted query begins with where it goes on."""
        self._finished: Mapping[str, ReadMark] = {}
        """The marks of the last batch that Spark has called finished."""
        self._published: dict[str, StreamCut] = {}
        """By folder."""

    def begin(self, marks: Mapping[str, ReadMark]) -> None:
        """Publish that a new query has read no byte.

        Then retention keeps all bytes for it.
        """
        self._last = dict(marks)
        for folder in {*self.folders, *(names.parent(path) for path in marks)}:
            self._publish_first(folder)

    def join(self, before: Mapping[str, ReadMark], marks: Mapping[str, ReadMark]) -> None:
        """Become a subscriber of folders that appeared since, also again, before the query reads them.

        Parameters
        ----------
        before
            Position of the query; a restarted query goes on there.
        """
        if self._last is None:
            self._last = dict(before)
        # a folder of which no segment stayed may have been deleted, with its ledger, and made again
        stay = {names.parent(path) for path, mark in marks.items() if _is_kept(mark, before.get(path))}
        self._published = {folder: cut for folder, cut in self._published.items() if folder in stay}
        for folder in {names.parent(path) for path in marks} - self._published.keys():
            if self.name not in self.fs.stream(folder).subscribers():
                self._publish_first(folder)
            else:
                self._known(folder)

    def is_due(self, marks: Mapping[str, ReadMark]) -> bool:
        """Return whether a sealed segment that was read to its end may still be held back."""
        done = self._finished
        return any(mark.sealed and not (path in done and done[path].sealed) for path, mark in marks.items())

    def finished(self, marks: Mapping[str, ReadMark]) -> None:
        """Publish how far finished batches have read; again, if an earlier call could not."""
        last, self._last = self._last or {}, dict(marks)
        self._finished = self._last
        by_folder: dict[str, dict[str, ReadMark]] = {}
        for path, mark in marks.items():
            if not mark.identity.startswith(PLAIN):  # retention knows a plain file by a token, which a mark lacks
                by_folder.setdefault(names.parent(path), {})[path] = mark
        for folder, found in by_folder.items():
            known = self._known(folder)
            same = {path: known.get(path) for path in found if known.incarnations.get(path) == found[path].identity}
            safe = {path: _safe(mark, last.get(path), same.get(path)) for path, mark in found.items()}
            offsets = {path: offset for path, offset in safe.items() if offset is not None}
            cut = StreamCut(offsets, time.time(), 0, {path: found[path].identity for path in offsets})
            if (dict(cut), dict(cut.incarnations)) != (dict(known), dict(known.incarnations)):
                try:
                    self._publish(folder, cut)
                except UNPUBLISHED as error:
                    # what was published before holds back more, so no unread byte is trimmed
                    logger.warning("%s: subscriber %s is published with the next batch: %s", folder, self.name, error)
                    self._published.pop(folder, None)

    def _known(self, folder: str) -> StreamCut:
        if folder not in self._published:
            self._published[folder] = self.fs.stream(folder).subscribers().get(self.name, StreamCut({}, 0, 0))
        return self._published[folder]

    def _publish_first(self, folder: str) -> None:
        """Become a subscriber of a folder; without it, retention would delete what the query has not read.

        Raises
        ------
        OSError
            It failed, and the query must not begin.
        """
        try:
            self._publish(folder, StreamCut({}, time.time(), 0))
        except UNPUBLISHED as error:
            raise type(error)(
                f"{folder}: the query is not subscriber {self.name!r} yet, so retention may delete unread bytes; "
                f"nothing was read. Start it again: {error}"
            ) from error

    def _publish(self, folder: str, cut: StreamCut) -> None:
        try:
            self.fs.stream(folder).publish(self.name, cut)
        except FileNotFoundError:
            logger.info("%s: the folder is gone, and nothing is left to hold back there", folder)
        else:
            self._published[folder] = cut


def _is_kept(mark: ReadMark, known: ReadMark | None) -> bool:
    """Return whether a segment was there before."""
    return known is not None and (known.identity == mark.identity or mark.identity.startswith(PLAIN))


def _safe(mark: ReadMark, last: ReadMark | None, known: int | None) -> int | None:
    """Return the offset to publish of a segment, or None if it is unknown."""
    if mark.sealed:
        return mark.offset
    if last is not None and last.identity == mark.identity and last.offset < mark.offset:
        return last.offset
    return known
