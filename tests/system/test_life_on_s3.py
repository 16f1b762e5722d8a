"""The life of a segment on an object store: joined by the server, trimmed, followed, collected."""

import dataclasses
import re

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.contract import Over
from rollingfs.format import names
from rollingfs.format.header import GRACE_S
from tests.support.backends import Scripted
from tests.support.schedules import eventually

MIB = 2**20


@pytest.fixture
def fs(s3_options):
    below = RollingFileSystem("s3", s3_options, skip_instance_cache=True)._backend
    options = {"max_bytes": 16 * MIB, "inline_bytes": 0, "skip_instance_cache": True}
    return RollingFileSystem(backend=Scripted(below), **options)


@pytest.mark.parametrize("overwrite", [False, True])
def test_export_that_died_is_aborted_by_next_one(fs, bucket, overwrite):
    path, target = f"{bucket}/log", f"{bucket}/file"
    fs.create(path)
    fs.append(path, b"x" * 1000)
    uploads = [fs._bridge.run(fs._backend.open_write(name, Over.NOTHING)) for name in (target, f"{target}-beside")]
    for upload in uploads:
        fs._bridge.run(upload.write(bytes(17 * MIB)))
    fs.export(path, target, overwrite=overwrite)
    with pytest.raises(OSError, match="file"):
        fs._bridge.run(uploads[0].finish())
    fs._bridge.run(uploads[0].abort())
    fs._bridge.run(uploads[1].finish())
    assert fs.cat_file(target) == b"x" * 1000


def write_later(fs, path, data):
    """Write a file as another tool does, in a later second of the store's clock than the last write."""
    before = fs.info(path)["mtime"] if fs.exists(path) else 0.0
    fs._bridge.run(fs._backend.delete([path]))
    eventually(lambda: fs._bridge.run(fs._backend.now(path)) > before)
    fs._bridge.run(fs._backend.write(path, [data]))


def test_plain_file_of_a_stream_is_cut_and_trimmed(fs, bucket):
    """Some stores give milliseconds in listings, and whole seconds for a single file."""
    path = f"{bucket}/stream/plain"
    write_later(fs, path, b"0123456789")
    stream = fs.stream(f"{bucket}/stream")
    early, late = stream.cut(), stream.cut()
    fs.append(path, b"more")
    assert stream.trim(early).bytes == 10
    assert fs.cat_file(path) == b"more"
    assert stream.trim(late).bytes == 0
    fs.rm(path)
    write_later(fs, path, b"0123456789")
    assert stream.trim(late).bytes == 0
    assert fs.cat_file(path) == b"0123456789"


@pytest.mark.parametrize("s3_options", ["seaweed"], indirect=True)  # MinIO tells of uploads by their exact key only
def test_old_unfinished_uploads_in_the_chunk_folder_are_aborted(fs, bucket):
    path = f"{bucket}/log"
    fs.create(path)
    chunk, beside = f"{path}$chunks/{names.new_chunk_name(0)}", f"{bucket}/not-ours"
    uploads = [fs._bridge.run(fs._backend.open_write(name)) for name in (chunk, beside)]
    for upload in uploads:
        fs._bridge.run(upload.write(bytes(17 * MIB)))
    assert fs.collect(path).young == 1

    def older(found):
        return [dataclasses.replace(upload, began=upload.began - GRACE_S - 1) for upload in found]

    fs._backend.plan("list_uploads", answers=older, times=None)
    assert fs.collect(path, dry_run=True).reasons == {chunk: "unfinished upload"}
    assert fs.collect(path).reasons == {chunk: "unfinished upload"}
    with pytest.raises(OSError, match=re.escape(chunk)):
        fs._bridge.run(uploads[0].finish())
    fs._bridge.run(uploads[1].finish())
    assert fs.size(beside) == 17 * MIB
