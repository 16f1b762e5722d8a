"""A store that refuses, or is not there: a clear error soon, the same by every verb, and no half-written segment."""

import contextlib
import datetime
import errno
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.servers import require_module

require_module("s3fs")

from rollingfs import AppendOutcomeUnknown, RollingFileSystem
from tests.support.backends import Scripted, private_memory, raises
from tests.support.examples import slowly
from tests.support.messages import refused
from tests.support.proxy import DROP_BEFORE, Handler, Proxy, Seen, proxy_to, serving
from tests.support.s3 import small_parts
from tests.support.schedules import Caller, eventually
from tests.support.seaweed import ROLE
from tests.support.servers import botocore_client, free_port, new_bucket, share_verdict
from tests.system.test_fresh_reads import LOOKS

MIB = 2**20
PART_BYTES = 5 * MIB
MUCH_BYTES = 12 * MIB
"""A chunk of several parts."""
WAIT_S = 1
TRIES_MAX = 5
EXPIRED = "InvalidAccessKeyId|AccessDenied"  # the second where they expire between two checks of the server
"""What SeaweedFS says of credentials that have expired; S3 says ExpiredToken."""

pytestmark = pytest.mark.timeout(120)

Changes = dict[str, str]
CASES: dict[str, tuple[Changes, type[OSError], str]] = {
    "wrong secret": ({"secret": "wrong"}, PermissionError, "SignatureDoesNotMatch"),
    "unknown key": ({"key": "nobody"}, PermissionError, "InvalidAccessKeyId"),
    "unknown session": ({"token": "unknown"}, PermissionError, "InvalidAccessKeyId|InvalidToken|InvalidTokenId"),
    "no server": ({"endpoint_url": ""}, OSError, "could not connect to http://127.*refused; check the endpoint"),
}
"""The options that differ, the error, and what it says."""


def written(fs: Any, path: str, mode: str) -> None:
    with fs.open(path, mode) as file:
        for _ in range(MUCH_BYTES // MIB):
            file.write(bytes(MIB))


VERBS: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda fs, path: fs.append(path, b"more"),
    "append much": lambda fs, path: fs.append(path, bytes(MUCH_BYTES)),
    "write": lambda fs, path: fs.pipe_file(path, b"other"),
    "open to write much": lambda fs, path: written(fs, path, "wb"),
    "open to append much": lambda fs, path: written(fs, path, "ab"),
    "read": lambda fs, path: fs.cat_file(path),
    "read ranges": lambda fs, path: fs.cat_ranges([path] * 2, [0, 2], [1, 3], on_error="raise"),
}
QUICK = {"append", "read", "open to write much"}
SOME = [verb if verb in QUICK else pytest.param(verb, marks=pytest.mark.slow) for verb in VERBS]
"""All verbs, of which the fast suite takes one of each kind."""


@pytest.fixture(autouse=True)
def small_parts_and_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollingfs.backend.patience.PAUSE_FIRST_S", 0.001)
    small_parts(monkeypatch, PART_BYTES)


def open_fs(options: dict[str, Any]) -> Any:
    return RollingFileSystem("s3", options, header_cache_s=0, commit_timeout_s=WAIT_S, skip_instance_cache=True)


@pytest.fixture(scope="module")
def path(s3_options: dict[str, Any]) -> str:
    """All tests share it, because none changes it."""
    return new_segment(s3_options)


def new_segment(options: dict[str, Any]) -> str:
    """A segment with a few bytes, alone in its bucket."""
    path = f"{new_bucket(options)}/log"
    open_fs(options).pipe_file(path, b"12345")
    return path


def check_unchanged(s3_options: dict[str, Any], path: str) -> None:
    """Check that the segment is as it was, and that nothing else was begun beside it."""
    fs = open_fs(s3_options)
    assert fs.cat_file(path) == b"12345"
    backend, bucket = fs._backend, path.partition("/")[0]
    assert backend.fs.find(bucket, refresh=True) == [f"{path}$header"]
    assert backend.fs.list_multipart_uploads(bucket) == []


@pytest.mark.parametrize("verb", SOME)
@pytest.mark.parametrize("case", CASES)
def test_refusal_is_same_clear_error_by_every_verb(s3_options: dict[str, Any], path: str, case: str, verb: str) -> None:
    changes, kind, why = CASES[case]
    if "endpoint_url" in changes:
        changes = {"endpoint_url": f"http://127.0.0.1:{free_port()}"}
    with refused(kind, path, why, changes=False) as caught:
        VERBS[verb](open_fs(s3_options | changes), path)
    assert s3_options["secret"] not in str(caught.value)
    check_unchanged(s3_options, path)


def test_listing_without_a_server_hints_at_the_endpoint(s3_options: dict[str, Any]) -> None:
    fs = open_fs(s3_options | {"endpoint_url": f"http://127.0.0.1:{free_port()}"})
    with pytest.raises(OSError, match=r"listing 'b'.*http://127.*; check the endpoint, the network and whether"):
        fs.ls("b")


@pytest.mark.parametrize("verb", VERBS)
def test_missing_bucket_is_named_by_every_verb_never_made(s3_options: dict[str, Any], verb: str) -> None:
    fs, bucket = open_fs(s3_options), f"absent-{uuid.uuid4().hex[:12]}"
    said = None if verb.startswith("read") else f"the bucket '{bucket}' does not exist"
    with refused(FileNotFoundError, f"{bucket}/log", said, changes=False):
        VERBS[verb](fs, f"{bucket}/log")
    assert not fs.exists(bucket)


def test_missing_bucket_is_named_by_copy_into_it(s3_options: dict[str, Any]) -> None:
    """A copy begins again, or passes over a file, where its source is missing of a sudden; here the target is."""
    fs, source, bucket = open_fs(s3_options), new_segment(s3_options), f"absent-{uuid.uuid4().hex[:12]}"
    fs.append(source, bytes(MUCH_BYTES))
    for on_error in ("raise", "ignore"):
        with pytest.raises(FileNotFoundError, match=f"the bucket '{bucket}' does not exist"):
            fs.copy(source, f"{bucket}/log", on_error=on_error)


@pytest.mark.parametrize("verb", SOME)
@pytest.mark.parametrize("s3_options", ["seaweed"], indirect=True)
@pytest.mark.parametrize("code", ["ExpiredToken", "AuthorizationHeaderMalformed"])
def test_token_and_region_errors_are_equal_for_all_verbs(
    s3_options: dict[str, Any], path: str, code: str, verb: str
) -> None:
    with proxy_to(s3_options["endpoint_url"]) as proxy:
        proxy.fault = lambda _: (400, code)
        with refused(PermissionError, path, code, changes=False):
            VERBS[verb](open_fs(s3_options | {"endpoint_url": proxy.url}), path)
    check_unchanged(s3_options, path)


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_wrong_region_is_found_and_mended_by_all_verbs(minio_of_region: dict[str, Any], verb: str) -> None:
    path = new_segment(minio_of_region)
    fs = open_fs(minio_of_region | {"client_kwargs": {"region_name": "eu-west-3"}})
    VERBS[verb](fs, path)
    assert fs.size(path) == open_fs(minio_of_region).size(path)


# -- credentials that expire ---------------------------------------------------------------------------------


def short_credentials(seaweed: dict[str, Any], path: str) -> tuple[dict[str, Any], datetime.datetime]:
    """Options with credentials that read the segment and expire in two seconds, and the time when they do."""
    client = botocore_client("sts", seaweed)
    for _ in range(TRIES_MAX):
        found = client.assume_role(RoleArn=ROLE, RoleSessionName="test")["Credentials"]
        keys = {"key": found["AccessKeyId"], "secret": found["SecretAccessKey"], "token": found["SessionToken"]}
        with contextlib.suppress(PermissionError):  # this process was suspended for two seconds
            assert open_fs(seaweed | keys).cat_file(path) == b"12345"
            return seaweed | keys, found["Expiration"]
    raise AssertionError("the credentials never worked")


@pytest.mark.parametrize("mode", ["wb", pytest.param("ab", marks=pytest.mark.slow)])
def test_credentials_that_expire_amid_writes_leave_the_segment(seaweed: dict[str, Any], mode: str) -> None:
    own_path = new_segment(seaweed)
    options, end = short_credentials(seaweed, own_path)

    with refused(PermissionError, own_path, EXPIRED, changes=False), open_fs(options).open(own_path, mode) as file:
        file.write(bytes(2 * PART_BYTES))
        eventually(lambda: datetime.datetime.now(datetime.UTC) > end + datetime.timedelta(seconds=1))
        file.write(bytes(2 * PART_BYTES))
    fs = open_fs(seaweed)
    assert fs.cat_file(own_path) == b"12345"
    # with expired credentials nobody can abort the upload that was begun; the owner collects it
    fs.collect(own_path, grace=0)
    check_unchanged(seaweed, own_path)


# -- one patience for reads and writes, and what ends at once --------------------------------------------------


OUTAGE = 12
"""Requests in a row that find no store: more than any count of tries that was ever built in."""
DRIP_S = 0.02


@dataclass
class Way:
    """A segment of five bytes on SeaweedFS, and a proxy on the way to it."""

    options: dict[str, Any]
    proxy: Proxy
    path: str

    @property
    def plain(self) -> RollingFileSystem:
        """A filesystem that does not go through the proxy."""
        return RollingFileSystem("s3", self.options)

    def through(self, **options: Any) -> RollingFileSystem:
        target = {**self.options, "endpoint_url": self.proxy.url}
        return RollingFileSystem("s3", target, skip_instance_cache=True, **options)


@pytest.fixture
def way(seaweed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    monkeypatch.setattr("rollingfs.backend.patience.PAUSE_FIRST_S", 0.001)
    monkeypatch.setattr("rollingfs.backend.patience.PAUSE_S_MAX", 0.01)
    monkeypatch.setattr("rollingfs.runtime.concurrency.BACKOFF_S_MAX", 0.01)
    bucket = new_bucket(seaweed)
    with proxy_to(seaweed["endpoint_url"]) as proxy:
        share_verdict(seaweed["endpoint_url"], bucket, proxy.url)
        found = Way(seaweed, proxy, f"{bucket}/log")
        found.plain.pipe_file(found.path, b"bytes")
        yield found


READS = {name: LOOKS[name] for name in ("cat_file", "open", "info", "ls")}


@pytest.mark.parametrize("verb", READS)
def test_a_read_rides_out_what_an_append_rides_out(way: Way, verb: str) -> None:
    fs = way.through()
    way.proxy.fail(*[DROP_BEFORE] * OUTAGE)
    assert READS[verb](fs, way.path) == 5
    way.proxy.fail(*[DROP_BEFORE] * OUTAGE, method="PUT")
    assert fs.append(way.path, b"more") == 5


def test_the_option_ends_the_patience_of_reads_and_appends(way: Way) -> None:
    fs = way.through(commit_timeout_s=0.2)
    way.proxy.fault = lambda _: DROP_BEFORE
    for look in (*READS.values(), lambda fs, path: fs.append(path, b"more")):
        with pytest.raises(OSError, match=r"log|rollingfs-"):
            look(fs, way.path)


def test_tail_reaches_the_seal_however_often_connections_drop(way: Way, caplog: Any) -> None:
    tail = way.through(commit_timeout_s=0.01).segment(way.path).tail(poll_s_min=0.01, poll_s_max=0.02)
    assert next(tail) == b"bytes"
    refused = threading.Event()
    seen: list[Seen] = []

    def drop(one: Seen) -> str:
        seen.append(one)
        if len(seen) > OUTAGE:
            refused.set()
        return DROP_BEFORE

    way.proxy.fault = drop
    reader = Caller(lambda: b"".join(tail))
    reader.start()
    assert refused.wait(60)
    assert reader.is_alive()
    way.plain.append(way.path, b"two")
    way.plain.seal(way.path)
    way.proxy.fault = lambda _: None
    reader.join(60)
    assert reader.outcome == b"two"
    assert "the store fails, and is asked again until it answers" in caplog.text


class Dripping(Handler):
    """Sends the bodies of answers to GET byte by byte, until the proxy ends."""

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, length: str | None = None) -> None:
        if self.command != "GET":
            super()._answer(status, headers, data, length)
            return
        super()._answer(status, headers, b"", length or str(len(data)))
        for byte in data:
            if self.server.proxy.ended.wait(DRIP_S):  # type: ignore[attr-defined]
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("use_obstore", [True, *slowly(False)])
def test_an_answer_that_drips_ends(seaweed: dict[str, Any], use_obstore: bool) -> None:
    from s3fs import S3FileSystem

    from rollingfs.backend.objects import open_s3

    path = f"{new_bucket(seaweed)}/log"
    RollingFileSystem("s3", seaweed).pipe_file(path, os.urandom(20_000))
    with serving(seaweed["endpoint_url"], Dripping) as proxy:
        target = {**seaweed, "endpoint_url": proxy.url, "config_kwargs": {"read_timeout": 0.1}}
        below = S3FileSystem(**target, skip_instance_cache=True)
        fs = RollingFileSystem(backend=open_s3(below, use_obstore=use_obstore), commit_timeout_s=0.1)
        with pytest.raises(TimeoutError):
            fs.cat_file(path)


# -- refusals for good ---------------------------------------------------------------------------------------


def test_unimplemented_request_is_final_and_nothing_is_written(way: Way) -> None:
    way.proxy.fault = lambda seen: (501, "NotImplemented") if seen.method == "PUT" else None
    with pytest.raises(OSError, match=r"nothing was (written|committed)") as caught:
        way.through().append(way.path, b"more")
    assert (caught.value.errno, isinstance(caught.value, AppendOutcomeUnknown)) == (errno.ENOTSUP, False)
    assert way.plain.cat_file(way.path) == b"bytes"


@pytest.mark.parametrize("number", [errno.EFBIG, errno.EOPNOTSUPP, errno.ENOSYS])
def test_irreparable_error_is_final_and_nothing_is_written(number: int) -> None:
    backend = Scripted(private_memory())
    fs = RollingFileSystem(backend=backend, skip_instance_cache=True)
    fs.pipe_file("/log", b"bytes")
    backend.plan("replace", before=raises(OSError(number, os.strerror(number))), times=100)
    with pytest.raises(OSError, match=r"nothing was (written|committed)") as caught:
        fs.append("/log", b"more")
    assert (caught.value.errno, isinstance(caught.value, AppendOutcomeUnknown)) == (number, False)
    assert fs.cat_file("/log") == b"bytes"
