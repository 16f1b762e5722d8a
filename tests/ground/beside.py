"""Reads beside appends: no call fails, and each answer is whole."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rollingfs import RollingFileSystem, RollingPolicy

RECORD = b"<" + b"x" * 200 + b">"
TAIL_RECORDS = 20
INLINE_BYTES = 8192
"""A header that has grown to this is replaced by a shorter one."""
WRITERS = READERS = 2


def live_beside(
    make: Callable[[], RollingFileSystem], path: str, appends: int, reads: int = 0, whole_every: int = 1
) -> None:
    """Append so often in all, while others read at least so often, and until the last append.

    Parameters
    ----------
    whole_every
        One read in so many takes all bytes; the others look at the end, the name and the folder by turns.
    """
    make().create(path, policy=RollingPolicy(inline_bytes=INLINE_BYTES))
    is_over, folder = threading.Event(), path.rpartition("/")[0]

    def write() -> None:
        fs = make()
        for _ in range(appends // WRITERS):
            fs.append(path, RECORD)

    def read() -> int:
        fs, size = make(), 0
        for count in itertools.count():
            if is_over.is_set() and count >= reads // READERS:
                return count
            if count % whole_every == 0:
                data = fs.cat_file(path)
                assert len(data) >= size
                size = len(data)
            elif count % 3 == 0:
                data = fs.cat_file(path, start=-TAIL_RECORDS * len(RECORD))
            elif count % 3 == 1:
                assert fs.exists(path)
                continue
            else:
                assert fs.ls(folder, detail=False) == [path]
                continue
            assert data == RECORD * (len(data) // len(RECORD))
        raise AssertionError("a count ends")

    with ThreadPoolExecutor(WRITERS + READERS) as pool:
        readers = [pool.submit(read) for _ in range(READERS)]
        try:
            for writer in [pool.submit(write) for _ in range(WRITERS)]:
                writer.result()
        finally:
            is_over.set()
        assert all(reader.result() for reader in readers)
    assert make().cat_file(path) == RECORD * (appends // WRITERS * WRITERS)
