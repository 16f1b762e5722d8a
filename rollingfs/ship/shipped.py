"""Rotated files whose bytes are committed: they are deleted once no program can write to them."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing

from rollingfs.runtime.system import lease
from rollingfs.ship.generations import ASIDE, ASIDE_NAME, File, Generation, opened
from rollingfs.ship.lineage import Lineage
from rollingfs.ship.position import Position


class Shipped:
    """The rotated files of a log that are to be deleted.

    A position names the file before it by its size and checksums, so the file is found also after a restart, and as a
    compressed file.
    """

    def __init__(self, lineage: Lineage, say: Callable[[str], None]) -> None:
        self._lineage, self._say = lineage, say
        self._waiting: list[Position] = []
        """Committed positions; the files before them are there."""
        self._newest: tuple[int, str] | None = None

    def delete(self) -> None:
        """Delete the files before the committed position that no program writes to; later calls try again."""
        lineage = self._lineage
        position = None if lineage.text is None else Position.parse(lineage.text)
        if position is None or not position.offset or lineage.file is None or lineage.file.inode != position.inode:
            return
        if position.size_before and (position.inode, position.before) != self._newest:
            self._newest = position.inode, position.before
            self._waiting.append(position)
        if self._waiting:
            try:
                there = lineage.log.generations()
            except OSError:  # the look at the log reports it
                return
            at = next((number for number, one in enumerate(there) if one.inode == position.inode), 0)
            older = [one for one in reversed(there[:at]) if not one.is_current]
            self._waiting = [one for one in self._waiting if not self._is_done(older, one)]

    def _is_done(self, older: Iterable[Generation], position: Position) -> bool:
        """Delete the file before a position; False if a later try may succeed."""
        for one in older:
            try:
                with closing(opened(one)) as file:
                    if position.follows(file.read):
                        return lease(file.fd) and _delete(file, position)
            except FileNotFoundError:  # it was renamed since the folder was listed
                return False
            except OSError as error:
                self._say(f"{one.path}: not deleted: {error.strerror or error}")
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
