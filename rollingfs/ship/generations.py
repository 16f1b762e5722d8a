"""The files of a log: its current file and its older files, in order, by their names; a position in one of them."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import zlib
from collections.abc import Callable
from lzma import LZMAError
from typing import BinaryIO, TypeVar, cast

from fsspec.compression import compr

from rollingfs.format.crc import crc32c
from rollingfs.runtime.system import NO_WAIT, first_data, read_at
from rollingfs.runtime.values import value_class

T = TypeVar("T")
PACKERS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz"}
"""Names of compressed files that can be read."""
_PACKED = re.compile(r"(\.(?:gz|bz2|xz|zst|lz4|zip|Z))?")
_COUNT_DIGITS_MAX = 4
"""A number of more digits is a date: greater is newer. Of a count, greater is older."""
_DAY_FIRST = re.compile(r"\d{4}(?:00|1[3-9]|[2-9]\d)\d\d(?:\d{4}|\d{6})?(?:\D.*)?|\d\d?\D\d\d?\D\d{4}(?:\D.*)?")
"""A date that begins with its day or month, so that its digits do not order files: their times do."""
_DATE = {"Y": r"\d{4}", "m": r"\d\d", "d": r"\d\d", "j": r"\d{3}", "H": r"\d\d", "M": r"\d\d", "S": r"\d\d"}
_CODE = re.compile(r"%([A-Za-z])")
ASIDE = ".shipped-"
ASIDE_NAME = re.compile(rf"^{re.escape(ASIDE)}[0-9a-f]{{32}}-")
"""Before the name of a file that is being deleted."""
CURRENT = (2,)
"""The age of the file that has the name of the log; rotated files have less."""
NUL = b"\0"
BLOCK_BYTES = 1024 * 1024
LOOKS_MAX = 20
"""Looks at a folder, until two in a row agree: a rotation may rename files between."""


@value_class
class Generation:
    """A file as it was seen in its folder."""

    path: str
    age: tuple[int, ...]
    """Orders the files of a log, the oldest first."""
    inode: int
    size: int
    mtime_ns: int

    @property
    def is_current(self) -> bool:
        """Return whether it has the name of the log, so that a program writes to it."""
        return self.age == CURRENT

    @property
    def is_packed(self) -> bool:
        """Return whether it is a compressed file, which is read as what it was before."""
        return os.path.splitext(self.path)[1] in PACKERS

    def may_be_after(self, mtime_ns: int) -> bool:
        """Return whether it was perhaps written after a time; disks and programs may keep only whole seconds of it."""
        unit_ns = 1 if self.mtime_ns % 10**9 else 10**9
        return self.mtime_ns // unit_ns >= mtime_ns // unit_ns


class File:
    """An open file: it can be read after it was renamed or deleted. A compressed file is read as what it was before.

    Raises
    ------
    FileNotFoundError
        Another file has the name now.
    """

    def __init__(self, generation: Generation) -> None:
        self.path, self.inode = generation.path, generation.inode
        self.fd = os.open(self.path, os.O_RDONLY | NO_WAIT)
        if os.fstat(self.fd).st_ino != self.inode:
            os.close(self.fd)
            raise FileNotFoundError(errno.ENOENT, "Another file has the name now", self.path)
        self._unpacked: BinaryIO | None = None
        self._size: int | None = None
        """Of what it was before, once that is known."""
        if generation.is_packed:
            packed = os.fdopen(self.fd, "rb", closefd=False)
            self._unpacked = cast(BinaryIO, compr[PACKERS[os.path.splitext(self.path)[1]]](packed, mode="rb"))

    def status(self) -> tuple[int, int]:
        """Return its size, and the time of its last write in nanoseconds."""
        status = os.fstat(self.fd)
        if self._unpacked is None:
            return status.st_size, status.st_mtime_ns
        if self._size is None:
            self._size = self._unpack(self._unpacked.seek, 0, io.SEEK_END)
        return self._size, status.st_mtime_ns

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from an offset on, fewer at the end."""
        if self._unpacked is None:
            return read_at(self.fd, size, offset)
        self._unpack(self._unpacked.seek, offset)
        return self._unpack(self._unpacked.read, size)

    def _unpack(self, call: Callable[..., T], *given: int) -> T:
        try:
            return call(*given)
        except (OSError, EOFError, LZMAError, zlib.error) as error:
            why = f"It cannot be decompressed, so nothing of it was shipped: {error}"
            raise OSError(errno.EIO, why, self.path) from error

    def begin(self) -> int:
        """Return the offset of its first byte but zeros: a writer that does not append leaves a hole after a cut."""
        try:
            at = first_data(self.fd)
        except OSError:  # it is empty
            return 0
        while (block := self.read(at, BLOCK_BYTES)) and not block.strip(NUL):
            at += len(block)
        return at + len(block) - len(block.lstrip(NUL))

    def close(self) -> None:
        """Give the descriptor back."""
        if self._unpacked is not None:
            self._unpacked.close()
        os.close(self.fd)


class Log:
    """A log by its name: ``app.log``, or ``app-%Y%m%d.log`` for a program that begins a file for each date.

    Raises
    ------
    ValueError
        The name has a code other than %Y %m %d %j %H %M %S, or a code in a folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        folder, name = os.path.split(path)
        self.is_dated = "%" in path
        if self.is_dated and ("%" in folder or not set(_CODE.findall(name)) <= _DATE.keys() or "%%" in name):
            raise ValueError(f"{path}: codes of dates are %Y %m %d %j %H %M %S, in the last part of the name")

    @property
    def name(self) -> str:
        """Return the last part of the name, without codes of dates."""
        bare = re.sub(r"[-_.]?(?:%[A-Za-z][-_.:T]?)*%[A-Za-z]", "", os.path.basename(self.path))
        return bare or os.path.basename(self.path)

    def age(self, name: str) -> tuple[int, ...] | None:
        """Return a key that orders names of generations, the oldest first; None for a name of another file."""
        base = os.path.basename(os.path.realpath(self.path) if not self.is_dated else self.path)
        name = ASIDE_NAME.sub("", name)
        if self.is_dated:
            pattern = _CODE.sub(lambda code: f"({_DATE[code[1]]})", re.escape(base).replace(r"\%", "%"))
            found = re.fullmatch(f"{pattern}{_PACKED.pattern}", name)
            codes = _CODE.findall(base)
            by_code = dict(zip(codes, found.groups(), strict=False)) if found else {}
            return tuple(int(by_code[code]) for code in _DATE if code in by_code) if found else None
        if name == base:
            return CURRENT
        stem, extension = os.path.splitext(base)
        after = rf"{re.escape(base)}(?:[-_.](\d[-\d._:T]*?)|\.old){_PACKED.pattern}"
        within = rf"{re.escape(stem)}(?:\.(\d+)|[-_.](\d[-\d._:T]{{5,}}?)){re.escape(extension)}{_PACKED.pattern}"
        found = re.fullmatch(after, name) or (re.fullmatch(within, name) if extension else None)
        if not found:
            return None
        digits = next((one for one in found.groups()[:-1] if one), "1")
        if _DAY_FIRST.fullmatch(digits):
            return (1,)
        numbers = tuple(int(one) for one in re.findall(r"\d+", digits))
        is_count = len(numbers) == 1 and numbers[0] < 10**_COUNT_DIGITS_MAX
        return (0, -numbers[0]) if is_count else (1, *numbers)

    def current(self) -> Generation | None:
        """Return the file that has the name of the log; None while it is missing, or if the name has a date.

        Raises
        ------
        OSError
            It is not a regular file.
        """
        return None if self.is_dated else _seen(self.path, CURRENT)

    def generations(self) -> list[Generation]:
        """Return the files that are there, the oldest first, as two looks in a row see them."""
        seen: list[Generation] = []
        for _ in range(LOOKS_MAX):
            before, seen = seen, self._look()
            if [(one.path, one.inode) for one in before] == [(one.path, one.inode) for one in seen]:
                break
        return seen

    def _look(self) -> list[Generation]:
        folder = os.path.dirname(self.path if self.is_dated else os.path.realpath(self.path)) or "."
        try:
            aged = {name: age for name in os.listdir(folder) if (age := self.age(name)) is not None}
        except FileNotFoundError:
            return []
        there = (
            _seen(os.path.join(folder, name), age)
            for name, age in aged.items()
            if (bare := re.sub(rf"{_PACKED.pattern[:-1]}$", "", name)) == name
            or (bare not in aged and os.path.splitext(name)[1] in PACKERS)
        )
        files = sorted(filter(None, there), key=lambda one: (one.age, one.mtime_ns, one.path))
        for one in [one for one in files if one.age[0] == 0 and ASIDE_NAME.match(os.path.basename(one.path))]:
            files.remove(one)  # its number was right before later rotations, so its time orders it
            newer = (at for at, other in enumerate(files) if other.is_current or other.mtime_ns > one.mtime_ns)
            files.insert(next(newer, len(files)), one)
        return files


def _seen(path: str, age: tuple[int, ...]) -> Generation | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:  # it was renamed or deleted since the folder was listed
        return None
    if stat.S_ISREG(status.st_mode):
        return Generation(path, age, status.st_ino, status.st_size, status.st_mtime_ns)
    if age == CURRENT:
        raise OSError(errno.EINVAL, "It is not a regular file, so nothing of it is shipped", path)
    return None


# -- positions --------------------------------------------------------------------------------------------


HEAD_BYTES_MAX = 1024
TAIL_BYTES_MAX = 256
LINES_MAX = 6
"""First lines whose ends have a checksum; the attributes of a segment have room for the positions of 32 logs."""
Read = Callable[[int, int], bytes]
"""Reads bytes of a file, by offset and size."""


@value_class
class Position:
    """A file by its inode and by checksums of its bytes, and the offset before which all bytes are in the segment."""

    inode: int
    offset: int
    begin: str
    """Checksums of the first bytes, as of `_begin`."""
    check: int
    """Checksum of the first and the last bytes before the offset."""
    mtime_ns: int
    """When the file was last written, as far as it was read."""
    host: str
    before: str = "0"
    """The mark of the file before it: a rotated file that has it is older, whatever the times of the files."""

    @classmethod
    def of(cls, read: Read, inode: int, offset: int, mtime_ns: int, host: str, before: str = "0") -> Position:
        """Return the position at an offset of a file.

        Parameters
        ----------
        mtime_ns
            The time of the last write that was seen before the bytes were read.
        """
        head, tail = read(0, min(offset, HEAD_BYTES_MAX)), min(offset, TAIL_BYTES_MAX)
        check = crc32c(head + read(offset - tail, tail))
        return cls(inode, offset, _begin(head), check, mtime_ns, host, before)

    def holds(self, read: Read) -> bool:
        """Return whether a file has the bytes before the offset."""
        return not self.offset or _has(self.mark, read)

    @property
    def mark(self) -> str:
        """Return the offset and its checksum; at the begin of a file, the values of the file before it."""
        return f"{self.offset:x}.{self.check:x}" if self.offset else self.before

    @property
    def size_before(self) -> int:
        """Return the size of the file before it."""
        return int(self.before.split(".")[0], 16)

    def follows(self, read: Read) -> bool:
        """Return whether it is the file before."""
        return _has(self.before, read)

    def exceeds(self, read: Read) -> bool:
        """Return whether a file has only some of the bytes before the offset: a copy from before the last of them."""
        begin = _begin(read(0, HEAD_BYTES_MAX))
        return bool(begin) and self.begin.startswith(begin) and not read(self.offset - 1, 1)

    def __str__(self) -> str:
        here = f"{self.inode:x} {self.offset:x} {self.begin} {self.check:x}"
        return f"{here} {self.mtime_ns:x} {self.host} {self.before}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position that an attribute has.

        Raises
        ------
        ValueError
            It is not a position; another program may have the attribute.
        """
        inode, offset, begin, check, mtime_ns, host, before = text.split(" ")
        return cls(int(inode, 16), int(offset, 16), begin, int(check, 16), int(mtime_ns, 16), host, before)


def _begin(head: bytes) -> str:
    """Return checksums of bytes up to the end of each of the first lines, and of the first KiB.

    So the checksums of a file begin with the checksums of a part of it.
    """
    ends = [line.end() for line in re.finditer(b"\n", head)][:LINES_MAX]
    ends += [HEAD_BYTES_MAX] if len(head) == HEAD_BYTES_MAX else []
    return "".join(f"{crc32c(head[:end]) & 0xFFFF:04x}" for end in ends)


def _has(mark: str, read: Read) -> bool:
    """Return whether a file has the bytes before the offset of a mark."""
    offset = int(mark.split(".")[0], 16)
    return offset > 0 and Position.of(read, 0, offset, 0, "").mark == mark
