"""The S3 backend beyond the contract: the requests, lost answers, options, the user's own filesystem."""

import asyncio
import errno
import gc
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.support.servers import require_module

require_module("s3fs")

from botocore.parsers import ResponseParserFactory
from botocore.session import get_session
from fsspec.asyn import sync
from s3fs import S3FileSystem
from s3fs.utils import ParamKwargsHelper

from rollingfs.backend.contract import Over, Part, finished
from rollingfs.backend.objects import open_s3
from rollingfs.backend.objects.s3 import backend as s3_backend, bucket as s3_bucket, parts as s3_parts
from rollingfs.backend.objects.s3.backend import S3Backend
from rollingfs.backend.objects.s3.botocore import decoded, read_listing
from rollingfs.backend.objects.upload import PART_BYTES, PUT_BYTES_MAX
from rollingfs.errors import UnsafeBackendError
from rollingfs.testing import run
from tests.backend.conftest import proxied
from tests.support.driven import Driven
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.proxy import DROP_BEFORE, Proxy, Seen
from tests.support.s3 import driven_s3, small_parts
from tests.support.schedules import count_at_once
from tests.support.servers import count_requests, shared_backend

MIB = 2**20
STALE = '"00000000000000000000000000000000"'


@pytest.fixture
def backend(s3_options: dict[str, Any]) -> Driven:
    return Driven(shared_backend(**s3_options))


@pytest.fixture
def path(bucket: str) -> str:
    return f"{bucket}/folder/file"


wire = proxied("s3_options")


@pytest.fixture
def wired(s3_options: dict[str, Any], wire: Proxy, monkeypatch: pytest.MonkeyPatch) -> Driven:
    """A backend behind `wire` that does not wait before it tries again."""
    monkeypatch.setattr("rollingfs.backend.patience.PAUSE_FIRST_S", 0.0)
    return driven_s3(s3_options, wire.url)


# -- times of listings ----------------------------------------------------------------------------------------


CONTENTS = (
    "<Contents><Key>a%2Fb%26</Key><LastModified>2026-11-24T02:22:23.123Z</LastModified><ETag>&#34;e&#34;</ETag>"
    "<Size>300</Size><Owner><ID>me</ID></Owner><StorageClass>STANDARD</StorageClass></Contents>"
)
LISTING = (
    '<?xml version="1.0"?>\n<ListBucketResult{}><Name>b</Name>{}<KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>'
    "<NextContinuationToken>n&amp;</NextContinuationToken><EncodingType>url</EncodingType>"
    "<CommonPrefixes><Prefix>a%2Fc/</Prefix></CommonPrefixes></ListBucketResult>"
)
NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def _parsed(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer to a listing as botocore reads it, without and with our hook."""
    shape = get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
    parser = ResponseParserFactory().create_parser("rest-xml")
    answer, ours = {"status_code": 200, "headers": {}, "body": body}, dict[str, Any]()
    theirs = parser.parse(dict(answer), shape)
    read_listing(response_dict=answer, customized_response_dict=ours, operation_model=None)
    return theirs, {**parser.parse(answer, shape), **ours}


CHECKED = (
    "<Contents><Size>0</Size><ChecksumType>FULL_OBJECT</ChecksumType><ChecksumAlgorithm>CRC32C</ChecksumAlgorithm>"
    '<ETag>"e-2"</ETag><Key>%0A+</Key><LastModified>2026-11-24T02:22:23Z</LastModified></Contents>'
)


@pytest.mark.parametrize("namespace", [NAMESPACE, ""])
@pytest.mark.parametrize("files", ["", CONTENTS, CONTENTS * 3, CHECKED + CONTENTS])
def test_files_of_listing_are_those_that_botocore_reads(namespace, files):
    theirs, ours = _parsed(LISTING.format(namespace, files).encode())
    for file in theirs.get("Contents", []):
        for name in ("Owner", "ChecksumType", "ChecksumAlgorithm"):
            file.pop(name, None)  # nobody here reads it
    assert ours == theirs
    assert len(ours.get("Contents", [])) == files.count("<Key>")


def _left_alone(*files: str, status: int = 200) -> bool:
    """Whether a listing of these files is left to botocore."""
    body, ours = LISTING.format(NAMESPACE, "".join(files)).encode(), dict[str, Any]()
    answer = {"status_code": status, "headers": {}, "body": body}
    read_listing(response_dict=answer, customized_response_dict=ours)
    return (answer["body"], ours) == (body, {})


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("<Size>300</Size>", ""),
        ("2026-11-24T02:22:23.123Z", ""),
        ("02:22:23.123Z", "02:22:23.123"),
        ("</Contents>", ""),
        ("%26", "&amp;"),
        ("&#34;e", "&#34;&#101;"),
        ("a%2F", "<!-- -->a%2F"),
        ("<Size>300</Size>", "<New>300</New><Size>300</Size>"),
        ("</Contents>", "</Contents><Contents/>"),
        (CONTENTS, f"<!-- {CONTENTS} -->"),
    ],
)
def test_undocumented_listing_is_left_to_botocore(part, other):
    assert part in CONTENTS
    assert _left_alone(CONTENTS, CONTENTS.replace(part, other))


def test_refused_listing_and_unclear_file_are_left_to_botocore():
    assert _left_alone(CONTENTS, status=503)
    assert not _left_alone(CONTENTS)
    owned = CONTENTS.replace("<Owner><ID>me</ID></Owner>", "").replace("<Key>", "<Owner><ID>me</ID></Owner><Key>")
    assert _left_alone(owned, owned.replace("2026-11-24T", "24 November 2026, "), owned)


def test_keys_of_listing_are_decoded_as_one_by_one():
    keys = ["a%2Fb%24header", "", "a+b", "%2B%25", "%C3%A9", "%"]
    assert decoded(keys) == ["a/b$header", "", "a b", "+%", "é", "%"]
    assert decoded(["a%0Ab", "c"]) == ["a\nb", "c"]
    assert decoded([]) == []


# -- requests ------------------------------------------------------------------------------------------------


def test_every_verb_sends_as_few_requests_as_it_can(backend, bucket):
    path, other = f"{bucket}/a/file", f"{bucket}/a/other"
    with count_requests(backend) as counts:

        def sent(request: str, verb: str, *args: Any) -> Any:
            """What a verb answers, which sends one such request and no other."""
            counts.clear()
            answer = getattr(backend, verb)(*args)
            assert counts == {request: 1}, verb
            return answer

        token = sent("PutObject", "create", path, b"one")
        token = sent("PutObject", "replace", path, b"two", token)
        blob = sent("GetObject", "read", path)
        assert (blob.data, blob.token) == (b"two", token)
        assert sent("GetObject", "read_if_changed", path, token) is None
        assert sent("GetObject", "read_if_changed", path, STALE) == blob
        assert sent("GetObject", "read_range", path, 1, 9) == b"wo"
        info = sent("HeadObject", "stat", path)
        assert (info.size, info.token) == (3, token)
        assert sent("ListObjectsV2", "is_folder", f"{bucket}/a") is True
        entries = sent("ListObjectsV2", "list", f"{bucket}/a").entries
        assert [(entry.path, entry.token) for entry in entries] == [(path, token)]
        sent("PutObject", "write", other, [b"x" * MIB, b"y"])
        sent("CopyObject", "copy", path, other)
        sent("HeadBucket", "now", path)
        sent("DeleteObjects", "delete", [path, other])
        token = sent("PutObject", "create", path, b"")
        assert sent("DeleteObject", "delete_if", path, token) is True
        assert sent("ListObjectsV2", "is_folder", f"{bucket}/a") is False


def test_the_users_filesystem_is_left_as_it_was(s3_options, path, wire):
    config = {"read_timeout": 30, "retries": {"max_attempts": 2, "mode": "standard"}}
    fs = S3FileSystem(**(s3_options | {"endpoint_url": wire.url, "config_kwargs": config}), skip_instance_cache=True)
    backend = Driven(open_s3(fs))
    backend.create(path, b"ours")
    assert fs._s3 is None, "the backend connected the user's own filesystem"
    assert fs.config_kwargs == {"read_timeout": 30, "retries": {"max_attempts": 2, "mode": "standard"}}
    backend.write(path + "-large", [bytes(PUT_BYTES_MAX + 1)])
    sync(backend.loop, backend.fs.set_session, refresh=True)  # makes another client
    backend.write(path + "-larger", [bytes(PUT_BYTES_MAX + 1)])
    fs.pipe_file(path + "-theirs", b"theirs")
    *ours, theirs = wire.of("PUT")
    assert [put.headers.get("expect") for put in ours] == [None] * 7
    assert theirs.headers["expect"] == "100-continue"
    assert backend.fs.config_kwargs["retries"] == {"mode": "standard", "total_max_attempts": 1}
    assert backend.fs.config_kwargs["read_timeout"] == 30


def test_positional_and_pool_options_reach_the_clone():
    fs = S3FileSystem(True, config_kwargs={"max_pool_connections": 7, "request_checksum_calculation": "when_supported"})
    backend = open_s3(fs)
    assert backend.fs.anon is True
    assert backend.capability.requests_max == 7
    assert backend.fs.config_kwargs["request_checksum_calculation"] == "when_supported"
    default = open_s3(S3FileSystem())
    assert default.fs.config_kwargs["max_pool_connections"] == s3_backend.CONNECTIONS_MAX
    assert default.fs.config_kwargs["request_checksum_calculation"] == "when_required"
    assert default.fs._s3 is None


# -- the user's options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "argument"), [("create", "IfNoneMatch"), ("replace", "IfMatch")])
def test_a_botocore_without_conditions_is_refused(seaweed, proxy, monkeypatch, verb, argument):
    backend = driven_s3(seaweed, proxy.url, use_obstore=False)
    sync(backend.loop, backend.fs.set_session)
    known = backend.fs._kwargs_helper._get_valid_keys("PutObject") - {argument}
    monkeypatch.setitem(ParamKwargsHelper._kwarg_cache, "PutObject", known)
    arguments = (b"data",) if verb == "create" else (b"data", STALE)
    with pytest.raises(UnsafeBackendError, match=argument):
        getattr(backend, verb)("bucket/file", *arguments)
    assert proxy.seen == []


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_that_forgets_backend_does_not_disturb_parent(s3_options, path):
    backends = [driven_s3(s3_options, config_kwargs={"read_timeout": 5})]
    backends[0].create(path, b"before")  # leaves an open connection behind

    def closes_nothing() -> bool:
        clone = weakref.ref(backends[0].fs)
        backends.clear()
        gc.collect()
        return clone() is not None

    assert is_so_in_child(closes_nothing), "the child closed what belongs to the parent"
    backends[0].create(path + "2", b"after")  # sent once: a dead connection would time out


# -- lost answers and refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [DROP_BEFORE, (503, "SlowDown"), (500, "InternalError")])
def test_a_conditional_write_that_fails_is_not_sent_again(wired, path, wire, fault):
    token = wired.create(path, b"one")
    wire.seen.clear()
    wire.fail(fault, fault, method="PUT")
    with pytest.raises(OSError, match="replacing") as caught:
        wired.replace(path, b"two", token)
    assert caught.value.errno == (errno.EBUSY if fault == (503, "SlowDown") else errno.EIO)
    with pytest.raises(OSError, match="creating"):
        wired.create(path + "2", b"two")
    assert len(wire.of("PUT")) == 2
    assert wired.read(path).data == b"one"


def test_a_failed_delete_names_the_first_file(backend, monkeypatch):
    async def refuse(verb: str, **_: object) -> dict[str, Any]:
        assert verb == "delete_objects"
        return {"Errors": [{"Key": "b", "Code": "AccessDenied", "Message": "no"}, {"Key": "c", "Code": "X"}]}

    monkeypatch.setattr(backend.backend, "call", refuse)
    with pytest.raises(PermissionError, match=r"2 of 3 .* AccessDenied, no: 'bucket/b'"):
        backend.delete(["bucket/a", "bucket/b", "bucket/c"])


# -- large files, copies, joins ------------------------------------------------------------------------------


def _upload(
    backend: Driven, path: str, pieces: Iterable[Any], look: Callable[[Any], object] = id, metadata: Any = None
) -> list[Any]:
    """Write a file piece by piece; what a look at the upload finds after each of them."""

    async def upload() -> list[Any]:
        upload, found = await backend.backend.open_write(path, None, metadata), []
        try:
            for piece in pieces:
                await upload.write(piece)
                found.append(look(upload))
            await upload.finish()
            assert upload.held_bytes == 0
        finally:
            await upload.abort()
        return found

    return run(backend.backend, upload())


def test_a_large_write_keeps_few_parts_in_memory(backend, path, monkeypatch):
    puts = count_at_once(monkeypatch, s3_parts.S3Parts, "_put")
    monkeypatch.setattr(s3_parts, "PARTS_IN_FLIGHT_MAX", 2)
    small_parts(monkeypatch, 5 * MIB)

    pieces = [bytes([index]) * 3 * MIB for index in range(9)]
    assert max(_upload(backend, path, pieces, lambda upload: upload.held_bytes)) <= 3 * 5 * MIB
    assert puts["most"] == 2
    assert backend.read(path).data == b"".join(pieces)


@pytest.mark.parametrize(("over", "size"), [(None, PART_BYTES), (Over.ANYTHING, PUT_BYTES_MAX)])
def test_only_an_export_has_large_parts(backend, path, over, size, monkeypatch):
    parts, real = [], s3_parts.S3Parts.write

    async def write(self: Any, part: bytes) -> None:
        parts.append(len(part))
        await real(self, part)

    monkeypatch.setattr(s3_parts.S3Parts, "write", write)

    async def upload() -> None:
        async with finished(await backend.backend.open_write(path, over)) as upload:
            await upload.write(bytes(2 * PUT_BYTES_MAX + 1))

    run(backend.backend, upload())
    assert parts == [size] * (2 * PUT_BYTES_MAX // size) + [1]


def test_full_part_of_a_begun_upload_is_sent_immediately(backend, path, monkeypatch):
    small_parts(monkeypatch, 5 * MIB)

    with count_requests(backend) as counts:
        held = _upload(backend, path, [bytes(5 * MIB)] * 3, lambda upload: upload._pieces_bytes)
        assert held == [5 * MIB, 0, 0]  # the first may be the whole file
        assert counts == {"CreateMultipartUpload": 1, "UploadPart": 3, "CompleteMultipartUpload": 1}
    assert backend.stat(path).size == 15 * MIB


@pytest.mark.parametrize("parts", [1, 2])
def test_aborted_upload_ends_only_with_its_last_request(backend, bucket, parts, monkeypatch):
    path = f"{bucket}/file"
    owner, name = {1: (s3_bucket.S3Bucket, "put"), 2: (S3Backend, "call")}[parts]
    real, arrived = getattr(owner, name), []

    async def late(request: Any) -> Any:
        await asyncio.sleep(0.2)
        return await request

    async def slow(*args: Any, **options: Any) -> Any:
        request = real(*args, **options)
        if name == "call" and args[1] != "complete_multipart_upload":
            return await request
        arrived.append(name)  # at the store, which goes on whatever becomes of the caller
        return await asyncio.shield(asyncio.ensure_future(late(request)))

    async def upload() -> None:
        upload = await backend.backend.open_write(path)
        await upload.write(bytes(PUT_BYTES_MAX * (parts - 1) + 1))
        finishing = asyncio.ensure_future(upload.finish())
        while not arrived:
            await asyncio.sleep(0.01)
        finishing.cancel()
        await asyncio.gather(finishing, return_exceptions=True)
        await upload.abort()
        await backend.backend.delete([path])
        await asyncio.sleep(0.3)

    monkeypatch.setattr(owner, name, slow)
    run(backend.backend, upload())
    assert len(arrived) == 1
    assert backend.list(bucket).entries == ()


def test_a_failed_part_aborts_the_upload_and_is_raised(wired, bucket, wire):
    wire.fail(*[(400, "InvalidArgument")] * 9, method="PUT")
    with pytest.raises(OSError, match="uploading a part"):
        wired.write(f"{bucket}/file", [bytes(PUT_BYTES_MAX + 1)])
    assert wired.fs.list_multipart_uploads(bucket) == []
    assert wired.list(bucket).entries == ()


def test_an_upload_of_too_many_parts_is_refused(backend, path, monkeypatch):
    monkeypatch.setattr(s3_parts, "PARTS_MAX", 2)
    small_parts(monkeypatch, 5 * MIB)

    with pytest.raises(OSError, match="more than 2 parts") as caught:
        _upload(backend, path, [bytes(5 * MIB)] * 4)
    assert caught.value.errno == errno.EFBIG


def test_a_copy_beyond_the_limit_is_done_in_parts(wired, bucket, wire, monkeypatch):
    data = os.urandom(11 * MIB)
    wired.write(f"{bucket}/source", [data])
    token = wired.stat(f"{bucket}/source").token
    monkeypatch.setattr(s3_bucket, "COPY_OBJECT_BYTES_MAX", 10 * MIB)
    monkeypatch.setattr(s3_parts, "COPY_PART_BYTES_MAX", 6 * MIB)
    wire.fail((400, "InvalidRequest"), method="PUT")
    with count_requests(wired) as counts:
        wired.copy(f"{bucket}/source", f"{bucket}/target", token)
        assert counts == {
            "CopyObject": 1,
            "HeadObject": 1,
            "CreateMultipartUpload": 1,
            "UploadPartCopy": 2,
            "CompleteMultipartUpload": 1,
        }
    assert wired.read(f"{bucket}/target").data == data


@pytest.mark.parametrize("answer", [(411, "MissingContentLength"), (501, "NotImplemented"), (200, b"")])
def test_uncopied_parts_pass_through_the_client(wired, bucket, wire, monkeypatch, answer):
    """gofakes3 1.2.0 answers 411; moves to a tier and exports failed for ever."""
    source, data = f"{bucket}/source", os.urandom(6 * MIB)
    wired.write(source, [data])
    copies = list[str]()

    def refuse(seen: Seen) -> tuple[int, str | bytes] | None:
        if "x-amz-copy-source" not in seen.headers:
            return None
        copies.append("part" if "uploadId" in seen.path else "file")
        return answer if copies[-1] == "part" else (400, "InvalidRequest")

    async def join() -> None:
        async with finished(await wired.backend.open_write(f"{bucket}/target")) as upload:
            await upload.copy(Part(source, 1, len(data)))
            await upload.copy(Part(source, 2, 4))
            await upload.write(b"more")
            await upload.copy(Part(source, 0, len(data)))

    wire.fault = refuse
    run(wired.backend, join())
    assert wired.read(f"{bucket}/target").data == data[1:] + data[2:4] + b"more" + data
    assert (copies, wired.backend.capability.can_join) == (["part"], False)
    monkeypatch.setattr(s3_bucket, "COPY_OBJECT_BYTES_MAX", 0)
    wired.backend.buckets[bucket].can_join = None
    wired.copy(source, f"{bucket}/copy", wired.stat(source).token)
    assert wired.read(f"{bucket}/copy").data == data
    assert copies == ["part", "file", "part"]


# -- folders and names ---------------------------------------------------------------------------------------


def test_markers_and_empty_names_are_no_entries(backend, bucket):
    client = sync(backend.loop, backend.fs.set_session)
    for key in ("folder/", "folder/file"):
        sync(backend.loop, client.put_object, Bucket=bucket, Key=key, Body=b"")
    assert [entry.path for entry in backend.list(f"{bucket}/folder").entries] == [f"{bucket}/folder/file"]
    assert [(e.path, e.is_folder) for e in backend.list(bucket).entries] == [(f"{bucket}/folder", True)]
    with pytest.raises(OSError, match="not empty") as caught:
        backend.remove_folder(f"{bucket}/folder")
    assert caught.value.errno == errno.ENOTEMPTY
    backend.delete([f"{bucket}/folder/file"])
    backend.remove_folder(f"{bucket}/folder")
    with pytest.raises(FileNotFoundError):
        backend.remove_folder(f"{bucket}/folder")


def test_buckets_are_folders(backend, bucket):
    fresh = bucket + "-fresh"
    backend.make_folder(f"{fresh}/deeper")
    backend.make_folder(fresh)
    assert backend.is_folder(fresh)
    assert backend.is_folder("")
    assert not backend.is_folder(fresh + "-absent")
    assert {bucket, fresh} <= {entry.path for entry in backend.list("").entries}
    backend.write(f"{fresh}/file", [b""])
    with pytest.raises(OSError, match="not empty"):
        backend.remove_folder(fresh)
    backend.delete([f"{fresh}/file"])
    backend.remove_folder(fresh)
    assert not backend.is_folder(fresh)


POINT = "arn:aws:s3:eu-west-1:123456789012:accesspoint/point"


@pytest.mark.parametrize(
    "path",
    ["", "bucket", "bucket/", "bucket/key", "bucket//key/", "/key", "b:c/d", "arn", "arn/key", POINT, f"{POINT}/a/b"],
)
def test_bucket_and_key_are_those_of_s3fs(path):
    fs = S3FileSystem(anon=True)
    assert open_s3(fs).split(path) == tuple(fs._find_bucket_key(path))


@pytest.mark.parametrize("use_obstore", [True, False])
def test_metadata_go_with_the_write_without_extra_requests(s3_options, bucket, use_obstore):
    owner = {"Metadata": {"owner": "me"}}
    backend = driven_s3(s3_options, use_obstore=use_obstore, s3_additional_kwargs=owner)
    given = {"rollingfsoffset": "5", "rollingfscrc32c": "00000000"}
    backend.write(f"{bucket}/warm", [b"x"])
    with count_requests(backend) as counts:
        backend.write(f"{bucket}/small", [b"x"], given)
    assert counts == {"PutObject": 1}

    _upload(backend, f"{bucket}/parts", [bytes(PUT_BYTES_MAX + 1)], metadata=given)
    for name in ("small", "parts"):
        found = backend.metadata(f"{bucket}/{name}")
        assert {key.lower(): value for key, value in found.items()} == {**given, "owner": "me"}, name
    assert backend.metadata(f"{bucket}/warm") == {"owner": "me"}
