"""The operations on one segment, on memory and on disk: header, chunks and limits after each."""

import threading
import uuid

import pytest

from rollingfs import BadOffsetError, RollingPolicy, SegmentSealedError
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.client import Client
from rollingfs.format import names
from rollingfs.format.header import LOOSE_CHUNKS_MAX, Page
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import drive


@pytest.fixture(params=["memory", "local"])
def client(request, tmp_path):
    if request.param == "memory":
        client, root = Client(MemoryBackend(), RollingPolicy(max_bytes=100)), f"/{uuid.uuid4().hex}"
    else:
        client, root = Client(LocalBackend(sync=False), RollingPolicy(max_bytes=100)), str(tmp_path)
    client.path = f"{root}/clicks"
    return client


def content(client):
    header = drive(client.lookup.view(client.path, fresh=True)).header
    chunks = [c for c in drive(client.pages.unfold(client.path, header.entries)) if c.end > header.start]
    data = b"".join(
        drive(client.backend.read_range(names.resolve(client.path, c.file), c.offset, c.offset + c.length))
        for c in chunks
    )
    skipped = header.start - (chunks[0].start if chunks else header.start)
    return data[skipped:] + header.tail


def append(client, data, **guard):
    return drive(client.segments.append(client.path, [data], guard=Guard(**guard)))


def test_appends_roll_and_read_back(client):
    drive(client.segments.create(client.path))
    written = b""
    for index in range(20):
        data = bytes([index]) * (24 if index % 2 else 180)
        assert append(client, data) == len(written)
        written += data
    header = drive(client.headers.load(client.path)).header
    chunks = drive(client.pages.unfold(client.path, header.entries))
    assert max(chunk.length for chunk in chunks) <= 100
    assert content(client) == written


def test_equal_bytes_in_one_append_become_chunks_of_their_own(client):
    drive(client.segments.create(client.path, RollingPolicy(max_bytes=10, inline_bytes=0)))
    append(client, b"a" * 30)
    header = drive(client.headers.load(client.path)).header
    assert len({entry.file for entry in header.entries}) == 3
    drive(client.segments.truncate(client.path, 20))
    assert content(client) == b"a" * 10


def test_truncation_deletes_the_chunks_wholly_before_it_through_index_pages(client):
    drive(client.segments.create(client.path, RollingPolicy(max_bytes=1, inline_bytes=0)))
    data = bytes(range(256)) + bytes(range(100))
    append(client, data)
    header = drive(client.headers.load(client.path)).header
    assert header.loose_count <= LOOSE_CHUNKS_MAX
    assert any(isinstance(entry, Page) for entry in header.entries)
    for offset in (0, 50, 200, len(data)):
        drive(client.segments.truncate(client.path, offset))
        assert content(client) == data[offset:]
        listing = drive(client.backend.list(names.chunks_folder(client.path)))
        chunks = [e for e in listing.entries if names.parent(e.path) and e.path.rpartition("/")[2][:1].isdigit()]
        assert len(chunks) == len(data) - offset
    assert append(client, b"x") == len(data)


def test_a_wrong_expected_offset_or_a_seal_refuses_and_writes_nothing(client):
    drive(client.segments.create(client.path))
    append(client, b"0123")
    with pytest.raises(BadOffsetError, match=r"3.*4"):
        append(client, b"x", expected_offset=3)
    assert drive(client.segments.seal(client.path)) == 4
    for data in (b"x", b""):
        with pytest.raises(SegmentSealedError):
            append(client, data)
    assert content(client) == b"0123"


def test_eight_threads_append_and_every_byte_is_there_once(client):
    drive(client.segments.create(client.path))
    offsets = {}

    def work(name):
        for index in range(20):
            record = f"{name}:{index};".encode()
            offsets[append(client, record)] = record

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(offsets) == 160
    assert content(client) == b"".join(offsets[offset] for offset in sorted(offsets))


def test_a_plain_file_is_adopted_by_the_first_append(client):
    drive(client.backend.write(client.path, [b"plain"]))
    with pytest.raises(FileExistsError):
        drive(client.segments.create(client.path))
    assert append(client, b" and more") == 5
    assert content(client) == b"plain and more"


def test_delete_leaves_nothing_to_find_and_a_second_one_finds_nothing(client):
    drive(client.segments.create(client.path))
    append(client, b"x" * 1000)
    drive(client.segments.delete(client.path))
    with pytest.raises(FileNotFoundError):
        drive(client.lookup.view(client.path))
    with pytest.raises(FileNotFoundError):
        drive(client.segments.delete(client.path))
    drive(client.segments.create(client.path))
    assert append(client, b"again") == 0


def test_overwrite_begins_a_new_incarnation_and_deletes_the_old_chunks(client):
    drive(client.segments.create(client.path))
    append(client, b"old" * 100)
    before = drive(client.headers.load(client.path)).header
    drive(client.segments.overwrite(client.path, [b"new"]))
    after = drive(client.headers.load(client.path)).header
    assert content(client) == b"new"
    assert after.segment != before.segment
    assert after.version == before.version + 1
