"""Text and compression over a `WriteFile`; here too, only `close` and `commit` commit."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from typing import Any

from fsspec.compression import compr
from fsspec.core import get_compression

from rollingfs.fs.unclosed import CommitsByClose, watch
from rollingfs.fs.write_file import WriteFile


class _Kept(io.BytesIO):
    """Keeps its bytes when a codec closes it."""

    def close(self) -> None: ...


@functools.cache
def joins(codec: Callable[..., Any]) -> bool:
    """Whether a codec of fsspec reads two of its streams, in sequence, as one stream. An archive does not."""
    joined = b""
    for part in (b"a", b"b"):
        packed = _Kept()
        file = codec(packed, mode="wb")
        file.write(part)
        file.close()
        joined += packed.getvalue()
    with contextlib.suppress(Exception):
        found: bytes = codec(io.BytesIO(joined), mode="rb").read()
        return found == b"ab"
    return False


class CompressedFile(CommitsByClose, io.BufferedIOBase):
    """Writes through a codec of fsspec; `close` ends the compressed stream and commits.

    fsspec's own wrapper leaves the file below open, and relies on its garbage collection to commit.

    Parameters
    ----------
    codec
        The name of a codec in `fsspec.compression.compr`.
    """

    def __init__(self, file: WriteFile, codec: str) -> None:
        self._file = file
        self._taken = 0
        self._start = file.tell()
        self._is_dying = False
        self._codec = compr[codec](file, mode=file.mode[0])
        watch(self, instead_of=file)

    @property
    def path(self) -> str:
        """The segment."""
        return self._file.path

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        written = 0 if self._is_dying else int(self._codec.write(data))
        self._taken += size
        return written

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """The bytes that this file took, before compression, and the bytes that were there before, as they are."""
        return self._start + self._taken

    def commit(self) -> None:
        """Refuse, except at the end of a transaction: a compressed stream is whole only at its end.

        Raises
        ------
        io.UnsupportedOperation
            The file is of no transaction; no byte is lost.
        """
        if self._file.autocommit:
            raise io.UnsupportedOperation(
                f"{self.path}: only close() commits a compressed file; nothing is committed yet, and writing may go on"
            )
        self.close()
        self._file.commit()

    def close(self) -> None:
        """End the stream and commit."""
        if not self.closed:
            self._codec.close()
            self._file.close()
            super().close()

    def discard(self) -> None:
        """Close without committing."""
        self._file.discard()
        super().close()

    @property
    def pending_bytes(self) -> int:
        """The number of written bytes, counted before compression, that are not committed."""
        return self._taken if self._file.pending_bytes or not self.closed else 0

    @property
    def is_mine(self) -> bool:
        """Whether this process opened the file."""
        return self._file.is_mine

    def hold(self, is_held: bool = True) -> None:
        """Keep all output of the codec in memory."""
        self._file.hold(is_held)

    def stop(self) -> None:
        """From now on only count written bytes: this file dies, and its codec may be dead already."""
        self._is_dying = True

    def forget(self) -> None:
        """Close without committing and without waiting, for garbage collection."""
        lost = self.pending_bytes
        self._file.hold()  # the codec will want to end its stream
        self._file.forget(lost)
        super().close()

    def tell_at_exit(self) -> None:
        """Say, as the program ends, how many bytes are lost, if any are."""
        self._file.tell_at_exit(self.pending_bytes)


class TextFile(CommitsByClose, io.TextIOWrapper):
    """Writes text; an exception or garbage collection commits no byte."""

    def __init__(self, file: WriteFile | CompressedFile, **options: Any) -> None:
        self._file = file
        self._is_made = False
        super().__init__(file, **options)  # type: ignore[arg-type]  # it needs only what the file has
        self._is_made = True
        watch(self, instead_of=file)

    @property
    def path(self) -> str:
        """The segment."""
        return self._file.path

    def commit(self) -> None:
        """Publish all bytes written so far, or no byte; writing may go on.

        Raises
        ------
        OSError
            The same as in `WriteFile.commit`.
        io.UnsupportedOperation
            The file is compressed.
        """
        self._hand_on()
        self._file.commit()

    def _hand_on(self) -> None:
        """Hand the text that is buffered here to the file below."""
        if self._is_made and not self.closed:
            self.flush()

    def discard(self) -> None:
        """Close without committing."""
        self._file.discard()

    def forget(self) -> None:
        """Close without committing and without waiting, for garbage collection."""
        if isinstance(self._file, CompressedFile):
            self._file.stop()
        self._file.hold()
        self._hand_on()
        self._file.forget()

    def tell_at_exit(self) -> None:
        """Say, as the program ends, how many bytes are lost, if any are."""
        if self._file.is_mine:
            self._file.hold()
            self._hand_on()
            self._file.hold(False)
        self._file.tell_at_exit()


def open_to_write(
    open_binary: Callable[..., Any], path: str, mode: str, compression: str | None, options: dict[str, Any]
) -> Any:
    """Open a file for writing; what is written as text or compressed is committed by only `close`.

    Parameters
    ----------
    open_binary
        Opens a binary file without compression.
    """
    keys = [key for key in ("encoding", "errors", "newline") if "b" not in mode and key in options]
    text = {key: options.pop(key) for key in keys}
    codec = get_compression(path, compression)
    if codec is not None and options.get("commit_on") is not None:
        raise ValueError(f"{path}: only close() commits a compressed file: leave out commit_on")
    if codec is not None and "a" in mode and not joins(compr[codec]):
        raise ValueError(
            f"{path}: a reader finds only one of several {codec} archives in a file, so nothing can be appended "
            "by this codec; nothing was written: open by 'wb', or append by gzip, bz2 or xz"
        )
    file = open_binary(path, mode if "b" in mode else mode.replace("t", "") + "b", **options)
    file = file if codec is None else CompressedFile(file, codec)
    return file if "b" in mode else TextFile(file, write_through="commit_on" in options, **text)
