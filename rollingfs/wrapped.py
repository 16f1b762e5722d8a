"""Text and compression over a `WriteFile`: they keep its rule that only `close` commits."""

from __future__ import annotations

import io
from typing import Any

from fsspec.compression import compr

from rollingfs.writer import CommitsByClose, WriteFile


class CompressedFile(CommitsByClose, io.BufferedIOBase):
    """Writes through a codec of fsspec; closing it ends the compressed stream and commits.

    (fsspec's own wrapper leaves the file below open, for its garbage collection to commit.)

    Parameters
    ----------
    codec
        The name of a codec in `fsspec.compression.compr`.
    """

    def __init__(self, file: WriteFile, codec: str) -> None:
        self._file = file
        self._codec = compr[codec](file, mode=file.mode[0])

    def write(self, data: Any) -> int:
        return int(self._codec.write(data))

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """End the stream and commit."""
        if not self.closed:
            self._codec.close()
            self._file.close()
            super().close()

    def discard(self) -> None:
        """Give up; nothing is committed."""
        self._file.discard()
        super().close()

    def forget(self) -> None:
        """Close without committing and without waiting, for garbage collection."""
        self._file.forget()
        super().close()


class TextFile(CommitsByClose, io.TextIOWrapper):
    """Writes text: an exception, or garbage collection, commits nothing here either."""

    def __init__(self, file: WriteFile | CompressedFile, **options: Any) -> None:
        self._file = file
        super().__init__(file, **options)  # type: ignore[arg-type]  # it needs no more than there is

    def discard(self) -> None:
        """Give up; nothing is committed."""
        self._file.discard()

    def forget(self) -> None:
        """Close without committing and without waiting, for garbage collection."""
        self._file.forget()
