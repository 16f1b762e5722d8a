"""Growing a header: chunks are written several at a time, once for all attempts."""

from rollingfs import RollingPolicy
from rollingfs.write.ingest import SMALL_BYTES_MAX
from tests.support.backends import Scripted, private_memory
from tests.support.site import Site

HEADER = "$header"
LARGE = b"0123456789" * (SMALL_BYTES_MAX // 10 + 1)


def test_chunks_of_one_commit_are_written_several_at_a_time():
    backend = Scripted(private_memory(), suspends=True)
    site = Site(backend, "", RollingPolicy(max_bytes=10, inline_bytes=0))
    site.create()
    site.append(b"x" * 200)
    assert 2 <= backend.at_once_max["write"] <= 8
    assert site.content() == b"x" * 200


def test_short_pieces_between_staged_chunks_share_one_file_that_a_truncation_leaves():
    backend = Scripted(private_memory())
    site = Site(backend, "", RollingPolicy(max_bytes=100, inline_bytes=0))
    site.create()
    one, two, three = (site.run(site.client.segments.stage(site.path, b"S" * 10)) for _ in range(3))
    backend.clear()
    site.append([b"a", one, b"bb", two, b"ccc", three, b"dddd"])
    whole = b"a" + b"S" * 10 + b"bb" + b"S" * 10 + b"ccc" + b"S" * 10 + b"dddd"
    assert (backend.count("write"), site.content()) == (1, whole)
    site.run(site.client.segments.truncate(site.path, 12))
    assert site.content() == whole[12:]


def test_a_long_piece_and_a_short_one_behind_it_are_chunks_of_their_own():
    backend = Scripted(private_memory())
    site = Site(backend, "", RollingPolicy(max_bytes=10, inline_bytes=0))
    site.create()
    site.append(b"x" * 25)
    assert all("/stage-" not in file for file in site.chunk_files())
    assert site.content() == b"x" * 25
