"""`Route`: a segment, and the logs whose lines go there."""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from threading import Lock

from rollingfs.fs.write_buffer import CommitOn
from rollingfs.runtime.system import lease
from rollingfs.runtime.values import value_class
from rollingfs.segment.write.ingest import SMALL_BYTES_MAX
from rollingfs.ship.generations import ASIDE, ASIDE_NAME, File, Generation, Position
from rollingfs.ship.lineage import LINE_FEED, Changed, Lineage, Piece
from rollingfs.ship.sender import Sender, Stopped


@value_class
class Lag:
    """Bytes of a log that are not committed."""

    path: str
    segment: str
    bytes: int
    since_s: float | None
    """When the oldest byte that waits may have been written, by `time.monotonic`."""
    error: str | None

    @property
    def seconds(self) -> float:
        """Return how long bytes wait."""
        return 0.0 if self.since_s is None else time.monotonic() - self.since_s


class Unreadable(Exception):
    """The bytes of a log cannot be read, by a source and an error; other logs go on."""


@dataclass
class RoutedLog:
    """A log that is shipped, and what is to be done with its lines."""

    lineage: Lineage
    key: str
    """Attribute of its position."""
    prefix: bytes
    deletes: bool = False
    """Whether rotated files are deleted once they are committed."""
    error: str | None = None
    _committed: list[Position] = field(default_factory=list)
    """Committed positions; the files before them are there. A position names the file before it by its size and
    checksums, so the file is found also after a restart, and as a compressed file."""
    _newest: tuple[int, str] | None = None

    def look(self) -> Piece | None:
        """Look at the log; an error is reported, and the next look tries again."""
        try:
            piece = self.lineage.look()
        except OSError as error:
            self.report(error)
            return None
        if piece is None:  # else its bytes may be unreadable
            self.error = None
        return piece

    def report(self, error: OSError) -> None:
        """Report an error, unless it is the same as before."""
        said = f"{error.filename or self.lineage.log.path}: {error.strerror or error}"
        if said != self.error:
            self.lineage.say(said)
        self.error = said

    def read(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield blocks of the log.

        Raises
        ------
        Unreadable
            Its disk fails, which is not an error of the store.
        """
        try:
            yield from blocks
        except OSError as error:
            raise Unreadable(self, error) from error

    def delete(self) -> None:
        """Delete the files before the committed position that no program writes to; later calls try again."""
        lineage = self.lineage
        position = None if lineage.text is None else Position.parse(lineage.text)
        if position is None or not position.offset or lineage.file is None or lineage.file.inode != position.inode:
            return
        if position.size_before and (position.inode, position.before) != self._newest:
            self._newest = position.inode, position.before
            self._committed.append(position)
        if self._committed:
            try:
                there = lineage.log.generations()
            except OSError:  # the look at the log reports it
                return
            at = next((number for number, one in enumerate(there) if one.inode == position.inode), 0)
            older = [one for one in reversed(there[:at]) if not one.is_current]
            self._committed = [one for one in self._committed if not self._is_done(older, one)]

    def _is_done(self, older: Iterable[Generation], position: Position) -> bool:
        """Delete the file before a position; False if a later try may succeed."""
        for one in older:
            try:
                with closing(File(one)) as file:
                    if position.follows(file.read):
                        return lease(file.fd) and _delete(file, position)
            except FileNotFoundError:  # it was renamed since the folder was listed
                return False
            except OSError as error:
                self.lineage.say(f"{one.path}: not deleted: {error.strerror or error}")
                return True
        return True


def _delete(file: File, position: Position) -> bool:
    """Delete an open file, unless another file has its name now.

    It gets a name of its own before, because a rotation may give its name to another file at any time. That other file
    stays in the log by the new name.
    """
    if file.status()[0] != position.size_before or not position.follows(file.read):
        raise OSError(errno.EBUSY, "it has bytes that came after it was shipped, and that are not in the segment")
    folder, name = os.path.split(file.path)
    aside = os.path.join(folder, f"{ASIDE}{uuid.uuid4().hex}-{ASIDE_NAME.sub('', name)}")
    os.rename(file.path, aside)
    if os.stat(aside).st_ino != file.inode:
        return False
    os.unlink(aside)
    return True


Pieces = Sequence[tuple[RoutedLog, Piece]]


@dataclass
class Route:
    """A segment, and the logs that go there."""

    sender: Sender
    when: CommitOn
    ends: bool
    """Whether a last line without its end gets one."""
    large: Lock
    """Held for a commit that is streamed, because each takes memory."""
    sources: dict[str, RoutedLog] = field(default_factory=dict)
    is_begun: bool = False
    """Whether all logs are at their positions."""
    since_s: float | None = None
    """When the oldest byte that waits may have been written."""
    error: Exception | None = None
    """The error that ends the shipping of this log."""
    commits: int = 0
    bytes: int = 0
    """Of files, in these commits."""

    def rests(self, now_s: float) -> bool:
        """Return whether all its logs are as they were."""
        return all(source.error is None and source.lineage.rests(now_s) for source in self.sources.values())

    def lag(self, source: RoutedLog, since_s: float | None) -> Lag:
        """Return the lag of a log, whose bytes wait since a time."""
        waiting, error = source.lineage.lag_bytes, source.error if self.error is None else str(self.error)
        return Lag(source.lineage.log.path, self.sender.path, waiting, since_s if waiting else None, error)

    def begin(self) -> None:
        """Bring all logs to their positions.

        Raises
        ------
        OSError, ValueError
            The segment cannot be read, or has another attribute of that name.
        """
        attrs = self.sender.attrs()
        for source in self.sources.values():
            source.lineage.begin(attrs.get(source.key))
        self.is_begun = True

    def step(self, since_s: float, *, flush: bool) -> bool:
        """Look at the logs once, and commit what is due, or all that waits.

        Parameters
        ----------
        since_s
            The time of the look before.

        Returns
        -------
        bool
            Whether another step may find more, although no file changes.
        """
        pieces: Pieces = []
        try:
            if not self.is_begun:
                self.begin()
            pieces = [(source, piece) for source in self.sources.values() if (piece := source.look())]
            self.since_s = (self.since_s or since_s) if pieces else None
            while pieces:
                try:
                    if not (flush or self._is_due(pieces)):
                        break
                    self._send(pieces)
                    return True
                except Unreadable as found:
                    source, error = found.args
                    source.report(error)
                    pieces = [one for one in pieces if one[0] is not source]
        except Changed:
            for source, _ in pieces:
                source.lineage.begin_again()
            return True
        except Stopped as error:
            self.error = OSError(f"{self.sender.path}: the last lines are not written: {error}")
        except (OSError, ValueError) as error:
            self.error = error
            self.sender.say(f"{self.sender.path}: nothing more is shipped there: {error}")
        return any(source.lineage.is_pending for source in self.sources.values())

    def _is_due(self, pieces: Pieces) -> bool:
        if any(source.lineage.text is None for source, _ in pieces):
            return True  # from then on a rotation cannot hide the file
        age_s, size = time.monotonic() - (self.since_s or 0.0), sum(piece.size for _, piece in pieces)
        blocks = (block for source, piece in pieces for block in source.read(piece.blocks()))
        return self.when.is_due(size, age_s, lambda: sum(block.count(LINE_FEED) for block in blocks))

    def _send(self, pieces: Pieces) -> None:
        """Commit what waits; if another shipper has gone on, go on from its position."""
        before = {source.key: source.lineage.text for source, _ in pieces}
        after = {source.key: str(piece.end) for source, piece in pieces}
        size, (source, piece) = sum(piece.size for _, piece in pieces), pieces[0]

        def data() -> bytes | Iterator[bytes]:
            texts = (source.read(piece.payload(source.prefix, ends=self.ends)) for source, piece in pieces)
            blocks = (block for text in texts for block in text)
            return b"".join(blocks) if size <= SMALL_BYTES_MAX // 2 else blocks

        is_turned = source.lineage.is_rotated_before(piece) and self.sender.turn(before)
        with self.large if size > SMALL_BYTES_MAX else nullcontext():
            is_sent = not is_turned and self.sender.send(data, before, after)
        if not is_sent:
            self.begin()
            return
        self.since_s, self.commits, self.bytes = None, self.commits + 1, self.bytes + size
        for source, piece in pieces:
            source.lineage.done(piece)
            source.error = None
