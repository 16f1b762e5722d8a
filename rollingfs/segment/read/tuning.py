"""The caller's limits of reading: requests at once, bytes fetched ahead, memory. The backend has the defaults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rollingfs.policy import parse_bytes
from rollingfs.runtime.values import value_class

CONCURRENCY_MAX = 1024
MEMORY_BYTES_MIN = 1024 * 1024
MEMORY_BYTES_DEFAULT = 96 * 1024 * 1024
"""24 ranges of 4 MiB. A process grows by 143 to 170 MiB, with what obstore and the reader hold."""


@value_class
class Tuning:
    """Limits of reads of files.

    Parameters
    ----------
    max_concurrency
        Maximum number of requests for data at once, for one read, `cat_ranges` or open file (1 to 1024); None: the
        store's default, 64 on S3.
    prefetch
        Whether a file that is read from front to back is fetched ahead of its reader.
    max_memory
        Maximum number of bytes (or text like ``"64MiB"``; at least 1 MiB) that an open file has fetched ahead, on
        their way or waiting to be read; 96 MiB by default.

    Raises
    ------
    ValueError
        A value is out of its range.
    """

    max_concurrency: int | None = None
    prefetch: bool = True
    max_memory: int | str = MEMORY_BYTES_DEFAULT

    def __post_init__(self) -> None:
        limit = self.max_concurrency
        if limit is not None and (type(limit) is not int or not 1 <= limit <= CONCURRENCY_MAX):
            raise ValueError(f"max_concurrency is {limit!r}: it must be a number of requests, 1 to {CONCURRENCY_MAX}")
        if not isinstance(self.prefetch, bool):
            raise ValueError(
                f"prefetch is {self.prefetch!r}: it must be true or false; max_memory sets how much is fetched"
            )
        memory = parse_bytes(self.max_memory)
        if memory < MEMORY_BYTES_MIN:
            raise ValueError(f"max_memory is {memory}: it must be at least {MEMORY_BYTES_MIN} bytes")
        object.__setattr__(self, "max_memory", memory)

    @property
    def memory_bytes(self) -> int:
        """`max_memory` as a number."""
        assert isinstance(self.max_memory, int)
        return self.max_memory

    def with_given(self, **given: Any) -> Tuning:
        """Return the values with the given values that are not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})
