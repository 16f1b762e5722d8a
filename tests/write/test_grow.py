"""Growing a header: chunks are written several at a time, once for all attempts."""

from rollingfs import (
    RollingPolicy,
)
from rollingfs.write.ingest import SMALL_BYTES_MAX
from tests.support.hooks import AsyncMemory, Site, private_memory

HEADER = "$header"
LARGE = b"0123456789" * (SMALL_BYTES_MAX // 10 + 1)


def test_chunks_of_one_commit_are_written_several_at_a_time():
    backend = AsyncMemory(private_memory())
    site = Site(backend, "", RollingPolicy(max_bytes=10, inline_bytes=0))
    site.create()
    site.append(b"x" * 200)
    assert 2 <= backend.at_once_max["write"] <= 8
    assert site.content() == b"x" * 200
