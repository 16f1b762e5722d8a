"""The generations of a log: its current file and its older files, in order, by their names."""

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
    """An open file: it can be read after it was renamed or deleted.

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

    def status(self) -> tuple[int, int]:
        """Return its size, and the time of its last write in nanoseconds."""
        status = os.fstat(self.fd)
        return status.st_size, status.st_mtime_ns

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from an offset on, fewer at the end."""
        return read_at(self.fd, size, offset)

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
        os.close(self.fd)


class PackedFile(File):
    """A compressed file, which is read as what it was before."""

    def __init__(self, generation: Generation) -> None:
        super().__init__(generation)
        packed = os.fdopen(self.fd, "rb", closefd=False)
        self._unpacked = cast(BinaryIO, compr[PACKERS[os.path.splitext(self.path)[1]]](packed, mode="rb"))
        self._size: int | None = None

    def status(self) -> tuple[int, int]:
        if self._size is None:
            self._size = self._unpack(self._unpacked.seek, 0, io.SEEK_END)
        return self._size, super().status()[1]

    def read(self, offset: int, size: int) -> bytes:
        self._unpack(self._unpacked.seek, offset)
        return self._unpack(self._unpacked.read, size)

    def _unpack(self, call: Callable[..., T], *given: int) -> T:
        try:
            return call(*given)
        except (OSError, EOFError, LZMAError, zlib.error) as error:
            why = f"It cannot be decompressed, so nothing of it was shipped: {error}"
            raise OSError(errno.EIO, why, self.path) from error

    def close(self) -> None:
        self._unpacked.close()
        super().close()


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
            if (bare := _bare(name)) == name or (bare not in aged and os.path.splitext(name)[1] in PACKERS)
        )
        files = sorted(filter(None, there), key=lambda one: (one.age, one.mtime_ns, one.path))
        for one in [one for one in files if one.age[0] == 0 and ASIDE_NAME.match(os.path.basename(one.path))]:
            files.remove(one)  # its number was right before later rotations, so its time orders it
            newer = (at for at, other in enumerate(files) if other.is_current or other.mtime_ns > one.mtime_ns)
            files.insert(next(newer, len(files)), one)
        return files


def _bare(name: str) -> str:
    """Return a name without the ending of a compression."""
    return re.sub(rf"{_PACKED.pattern[:-1]}$", "", name)


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


def opened(generation: Generation) -> File:
    """Return the file, open.

    Raises
    ------
    FileNotFoundError
        Another file has its name now.
    """
    return PackedFile(generation) if generation.is_packed else File(generation)
