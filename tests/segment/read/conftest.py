"""What the tests of reading share."""

from typing import Any

import pytest

from rollingfs.fs import cat_and_get, read_buffer
from rollingfs.segment.read import prefetch, ranges


@pytest.fixture
def small_ranges(limits: Any) -> None:
    """No request covers a whole chunk: neither those of one large read, nor those fetched ahead."""
    limits(ranges, RANGE_BYTES_MIN=300, RANGE_BYTES_MAX=300, SYNC_RANGE_BYTES_MAX=300)
    limits(read_buffer, SYNC_BUFFER_BYTES=170, LINE_BYTES=170, PREFETCH_RANGE_BYTES=300)
    limits(prefetch, PREFETCH_RANGE_BYTES=300)
    limits(cat_and_get, PIECE_BYTES=700)
