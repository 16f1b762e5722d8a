"""Objects on S3 go through obstore, and through s3fs where obstore cannot do it: right either way, and told once."""

import asyncio
import datetime
import gc
import json
import os
import socket
import subprocess
import sys
import time
import weakref
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from tests.support.driven import Driven
from tests.support.s3 import driven_s3, ways_of
from tests.support.schedules import count_at_once, eventually
from tests.support.servers import new_bucket, require_module, ways

require_module("s3fs")
require_module("obstore")

from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from fsspec.asyn import get_lock, sync
from obstore.exceptions import GenericError
from s3fs import S3FileSystem

from rollingfs.backend.objects import obstore_files as obstore_objects
from rollingfs.backend.objects.bucket import QUICK_BYTES_MAX
from rollingfs.backend.objects.cloned import clone_of
from rollingfs.backend.objects.obstore_files import from_obstore
from rollingfs.backend.objects.upload import PUT_BYTES_MAX
from rollingfs.errors import ConflictError
from rollingfs.format.side_files import read_bytes_max
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.proxy import CUT, HOLD, Proxy

SESSION = AioSession()
"""Shared, because each new one reads botocore's rules again."""
MIB = 2**20
DATA = os.urandom(3 * MIB)
KEYS = [
    "a b/c$header",
    "ü/日本/e\u0301",
    "plus+and%41&=~'()!*;:@,",
    'question?mark#hash"quotes"',
    "[x] {y} |^`<>%2F%25",
]


class Ours(S3FileSystem):
    """A filesystem of the user's."""


class Session(AIOHTTPSession):
    """What a user may have botocore send by."""


def _socket(address: Any) -> socket.socket:
    return socket.socket(*address[:3])


class Way(Driven):
    """A backend behind a proxy, and a bucket."""

    def __init__(self, options: dict[str, Any], proxy: Proxy, **more: Any) -> None:
        super().__init__(driven_s3(options, proxy.url, **{"session": SESSION} | more).backend)
        self.bucket = new_bucket(options)
        self.path = f"{self.bucket}/log$header"

    @property
    def way(self) -> str:
        (way,) = ways_of(self)
        return way

    def use(self) -> None:
        """Send something each way there is."""
        token = self.create(self.path, b"one")
        token = self.replace(self.path, b"two", token)
        with pytest.raises(ConflictError):
            self.replace(self.path, b"three", '"stale"')
        with pytest.raises(FileExistsError):
            self.create(self.path, b"three")
        assert self.read(self.path).data == b"two"
        assert self.read_if_changed(self.path, token) is None
        assert self.read_range(self.path, 1, 9, token) == b"wo"
        assert self.read_range(self.path, 3, 9) == b""
        with pytest.raises(ConflictError):
            self.read_range(self.path, 1, 9, '"stale"')
        self.write(f"{self.path}-large", [DATA[:MIB], memoryview(DATA)[MIB:]])
        target = bytearray(MIB)
        assert self.read_into(f"{self.path}-large", 7, memoryview(target)) == MIB
        assert target == DATA[7 : MIB + 7]


@pytest.fixture
def store(seaweed: dict[str, Any], proxy: Proxy) -> Way:
    return Way(seaweed, proxy)


# -- which way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"s3_additional_kwargs": {"ACL": "private"}}, "obstore has no counterpart of ACL in s3_additional_kwargs"),
        ({"config_kwargs": {"connector_args": {"socket_factory": _socket}}}, "connector_args"),
        ({"config_kwargs": {"http_session_cls": Session}}, "http_session_cls"),
        ({"config_kwargs": {"proxies": {"http": "what is this://"}}}, None),
        ({"cls": Ours}, "Ours may do more"),
    ],
    ids=["ACL", "own sockets", "own sessions", "options that obstore refuses", "own class"],
)
def test_unsupported_requests_go_through_s3fs_and_are_reported_once(seaweed, proxy, told, more, why):
    store = Way(seaweed, proxy, **more)
    if why is None:
        with pytest.raises(OSError, match="creating"):
            store.use()
        assert "obstore refuses the options" in told()[0]
        assert "what is this" not in told()[0]
        return
    store.use()
    assert store.way == "BotocoreObjects"
    (line,) = told()
    assert why in line
    assert store.bucket in line


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "AWS_REQUEST_PAYER", "AWS_SKIP_SIGNATURE", "AWS_S3_EXPRESS"])
def test_what_obstore_reads_in_the_environment_is_overruled(seaweed, proxy, name, monkeypatch):
    monkeypatch.setenv(name, "true")
    store = Way(seaweed, proxy)
    store.use()
    assert store.way == "ObstoreObjects"
    for seen in proxy.seen:
        assert "authorization" in seen.headers
        assert not {"x-amz-security-token", "x-amz-request-payer"} & seen.headers.keys()


@pytest.mark.parametrize("acl", [{}, {"ACL": "bucket-owner-full-control"}], ids=["obstore", "s3fs"])
def test_what_the_user_asks_for_is_in_every_request(moto, moto_proxy, acl):
    additional = {"ServerSideEncryption": "AES256", "StorageClass": "STANDARD_IA", "Metadata": {"owner": "me"}, **acl}
    store = Way(moto, moto_proxy, s3_additional_kwargs=additional, requester_pays=True, token="session")
    store.use()
    store.copy(store.path, f"{store.path}-copy")
    store.write(f"{store.path}-parts", [bytes(PUT_BYTES_MAX + 1)])
    assert store.way == ("BotocoreObjects" if acl else "ObstoreObjects")
    made = [seen for seen in moto_proxy.seen if seen.method != "GET" and "uploadId" not in seen.path]
    assert {seen.method for seen in made} == {"PUT", "POST"}
    for name, value in (
        ("x-amz-server-side-encryption", "AES256"),
        ("x-amz-storage-class", "STANDARD_IA"),
        ("x-amz-meta-owner", "me"),
        ("x-amz-acl", acl.get("ACL")),
    ):
        assert {seen.headers.get(name) for seen in made} == {value}, name
        assert {seen.headers.get(name) for seen in moto_proxy.of("GET")} == {None}
    assert {seen.headers.get("x-amz-request-payer") for seen in moto_proxy.seen} == {"requester"}
    assert {seen.headers.get("x-amz-security-token") for seen in moto_proxy.seen} == {"session"}


@pytest.mark.parametrize("use_obstore", [True, False])
def test_keys_of_all_kinds_are_written_and_read(s3_options, use_obstore):
    keys = [*KEYS, "tab\tin it"]  # obstore refuses the last; MinIO refuses others: "a//b", "./x"
    backend = driven_s3(s3_options, use_obstore=use_obstore)
    bucket, plain = new_bucket(s3_options), S3FileSystem(**s3_options, skip_instance_cache=True)
    for key in keys:
        token = backend.create(f"{bucket}/{key}", key.encode())
        assert plain.call_s3("get_object", Bucket=bucket, Key=key)["ETag"] == token
        assert backend.read(f"{bucket}/{key}").data == key.encode()
        backend.replace(f"{bucket}/{key}", b"again", token)
    listed = plain.call_s3("list_objects_v2", Bucket=bucket)["Contents"]
    assert sorted(entry["Key"] for entry in listed) == sorted(keys)


@pytest.mark.parametrize("key", ["a//b", "a/", "/a", "./a", "a/../b", "a\nb", "..", "a/."])
def test_keys_that_obstore_changes_are_left_to_s3fs(seaweed, key):
    assert not obstore_objects.can_name(key)
    assert all(map(obstore_objects.can_name, [*KEYS, "back\\slash", "a/.b/..c/d.", "..."]))


def test_only_so_many_buckets_are_kept(store, seaweed, monkeypatch):
    monkeypatch.setattr("rollingfs.backend.objects.bucket.BUCKETS_MAX", 2)
    for bucket in [store.bucket, new_bucket(seaweed), new_bucket(seaweed), store.bucket]:
        store.write(f"{bucket}/file", [b"data"])
    assert len(ways(store)) == 2


def test_a_bucket_of_unknown_region_is_left_to_s3fs(store, proxy, told):
    proxy.fail((400, "AuthorizationHeaderMalformed"), (400, "AuthorizationHeaderMalformed"), method="PUT")
    with pytest.raises(PermissionError, match="AuthorizationHeaderMalformed"):
        store.create(store.path, b"one")
    assert store.way in ("ObstoreObjects", "BotocoreObjects")
    assert len(proxy.of("PUT")) == 2


def test_file_reported_as_gone_is_deleted_and_not_replaced(store, proxy):
    """As MinIO and S3 say it; SeaweedFS says that the condition does not hold."""
    proxy.fault = lambda seen: (404, "NoSuchKey") if seen.method in ("PUT", "DELETE") else None
    with pytest.raises(ConflictError):
        store.replace(store.path, b"two", '"token"')
    assert store.delete_if(store.path, '"token"') is True


# -- ranges, bodies, connections -----------------------------------------------------------------------------
def test_store_that_answers_range_with_whole_is_understood(store, proxy):
    store.write(store.path, [DATA])
    proxy.fault = lambda seen: (200, DATA) if seen.method == "GET" else None
    assert store.read_range(store.path, 5, 2 * MIB) == DATA[5 : 2 * MIB]
    assert len(proxy.of("GET")) == 2


def test_broken_answer_is_requested_again_and_never_short(store, proxy, monkeypatch):
    monkeypatch.setattr("rollingfs.backend.patience.PAUSE_FIRST_S", 0.0)
    store.write(store.path, [DATA])
    for read in (("read", store.path), ("read_range", store.path, 0, len(DATA)), ("read_range", store.path, 0, 100)):
        proxy.fail(CUT, method="GET")
        found = getattr(store, read[0])(*read[1:])
        # a header longer than the format allows is read no further than its parser needs to refuse it
        end = {"read": read_bytes_max(store.path), "read_range": read[-1]}[read[0]]
        assert getattr(found, "data", found) == DATA[:end]
    proxy.fail(CUT, method="GET")
    store.write(f"{store.path}-whole", [DATA])
    assert store.read(f"{store.path}-whole").data == DATA


def test_simultaneous_reads_use_at_most_their_connections(seaweed, proxy):
    store = Way(seaweed, proxy, config_kwargs={"max_pool_connections": 2})
    store.write(store.path, [DATA])

    async def all_at_once() -> list[bytes]:
        return await asyncio.gather(*(store.backend.read_range(store.path, at, at + MIB) for at in range(12)))

    with pytest.MonkeyPatch.context() as patch:
        gets = count_at_once(patch, obstore_objects.obstore, "get_range_async")
        assert sync(store.backend.loop, all_at_once) == [DATA[at : at + MIB] for at in range(12)]
    assert gets["most"] == 2


def test_read_that_is_cancelled_leaves_next_one_alone(seaweed, proxy):
    store = Way(seaweed, proxy, config_kwargs={"max_pool_connections": 1})
    store.write(store.path, [DATA])

    async def cancelled() -> None:
        proxy.fault = lambda seen: HOLD
        task = asyncio.ensure_future(store.backend.read_range(store.path, 0, 2 * MIB))
        while not proxy.of("GET"):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    sync(store.backend.loop, cancelled)
    proxy.fault = lambda _: None
    assert store.read_range(store.path, 0, 2 * MIB) == DATA[: 2 * MIB]


def test_large_body_may_outlast_the_read_timeout(seaweed, proxy, monkeypatch):
    store = Way(seaweed, proxy, config_kwargs={"read_timeout": 0.5})
    store.write(store.path, [b"small"])
    proxy.fault = lambda seen: HOLD
    with pytest.raises(TimeoutError):
        store.create(f"{store.path}-small", b"small")
    monkeypatch.setattr(obstore_objects, "SEND_S_MAX", 1.0)
    (objects,) = ways(store)
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(objects.put("large", [bytes(QUICK_BYTES_MAX + 1)]))
    assert time.monotonic() - began_s > 1.0


# -- credentials ---------------------------------------------------------------------------------------------


def test_credentials_are_asked_for_again_and_renewed(moto, moto_proxy, monkeypatch):
    monkeypatch.setattr("rollingfs.backend.objects.s3.obstore_options.CREDENTIALS_S", 1.0)  # too old at once
    made: list[str] = []

    async def renew() -> dict[str, str]:
        made.append("abcdefghijklmnopqrstuvwxyz"[len(made)])
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)  # so botocore renews them each time
        fields = {"access_key": made[-1], "secret_key": "secret", "token": f"token of {made[-1]}"}
        return fields | {"expiry_time": soon.isoformat()}

    session = AioSession()
    renewed = AioRefreshableCredentials.create_from_metadata(asyncio.run(renew()), renew, "test")

    async def get_credentials() -> AioRefreshableCredentials:
        return renewed

    monkeypatch.setattr(session, "get_credentials", get_credentials)
    store = Way(moto, moto_proxy, session=session, key=None, secret=None)
    for number in range(3):
        store.write(f"{store.path}-{number}", [b"data"])
        time.sleep(0.12)  # obstore waits so long before it asks again
    assert store.way == "ObstoreObjects"
    ids = [seen.headers["authorization"].split("Credential=")[1][0] for seen in moto_proxy.of("PUT")]
    assert ids == made[-3:]
    assert [seen.headers["x-amz-security-token"] for seen in moto_proxy.of("PUT")] == [f"token of {id}" for id in ids]


NON_2XX = " - Server returned non-2xx status code:"
DEBUG = "\n\nDebug source:\n"
OF_AZURE = (
    "<?xml version='1.0'?><Error><Code>ContainerNotFound</Code>"
    "<Message>There is none.\nRequestId:0c1\nTime:2026-11-22T10:00:00Z</Message></Error>"
)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (f"x{NON_2XX} 503 Service Unavailable: <Code>SlowDown</Code>", "Refusal", "SlowDown"),
        (f"x{NON_2XX} 304 Not Modified: ", "Refusal", "304"),
        (f"x{NON_2XX} 404 Not Found: {OF_AZURE}", "Refusal", "answered 404 ContainerNotFound: There is none."),
        ("x - Received redirect without LOCATION, this normally", "Refusal", "PermanentRedirect"),
        (f"x{DEBUG}kind: Timeout,", "TimeoutError", "in time"),
        (f"x{DEBUG}InvalidCertificate(\n Other(\n OtherError(\n CaUsedAsEndEntity,", "LastingError", "CaUsed"),
        (
            f'Error performing GET http://u:p@h:1/b in 1s{DEBUG}kind: Connect, message: "No"',
            "ConnectionRefusedError",
            "http://h:1: No",
        ),
        (
            f'Error performing GET http://h/b in 1s{DEBUG}kind: Connect, error: "failed to lookup address: unknown"',
            "ConnectionRefusedError",
            "could not connect to http://h: failed to lookup address: unknown",
        ),
        ("something new", "ConnectionError", "no whole answer came from the store"),
    ],
)
def test_what_obstore_says_is_understood(text, kind, said):
    found = from_obstore(GenericError(text))
    assert type(found).__name__ == kind
    assert said in str(found)
    assert "RequestId" not in str(found), "it fits a line"


# -- forks ---------------------------------------------------------------------------------------------------


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("of", ["the parent", "the child"])
def test_forked_child_goes_through_s3fs_and_parent_goes_on(store, seaweed, of):
    token = store.create(store.path, b"parent")

    def goes_through_s3fs() -> bool:
        backend = driven_s3(seaweed) if of == "the child" else store
        if of == "the parent":
            backend.after_fork()
        return backend.read(store.path).data == b"parent" and ways_of(backend) == {"BotocoreObjects"}

    with get_lock():  # as of a thread that makes fsspec's loop
        assert is_so_in_child(goes_through_s3fs)
    assert store.replace(store.path, b"again", token)
    assert store.way == "ObstoreObjects"


FORK_DURING_IMPORT = """
import importlib.abc, json, os, signal, sys, threading
from rollingfs import RollingFileSystem
options, path = json.loads(sys.argv[1]), sys.argv[2]
fs = RollingFileSystem("s3", options, probe_cache=False)
importing, forking, forked = (threading.Event() for _ in range(3))

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "obstore":
            importing.set()
            forking.wait()
            forked.wait(0.5)  # nobody forks before the end of the import

sys.meta_path.insert(0, Slow())
read = threading.Thread(target=fs.cat_file, args=(path,))
read.start()
importing.wait()
os.register_at_fork(before=forking.set, after_in_parent=forked.set)  # `before` is called before that of rollingfs
child = os.fork()
if not child:
    signal.alarm(60)
    os._exit(0 if fs.cat_file(path) == b"bytes" else 1)
read.join()
print(os.waitpid(child, 0)[1])
"""


@needs_fork
def test_fork_waits_for_import_of_first_request(seaweed: dict[str, Any], seaweed_bucket: str) -> None:
    path = f"{seaweed_bucket}/forked"
    RollingFileSystem("s3", seaweed, skip_instance_cache=True).pipe_file(path, b"bytes")
    command = [sys.executable, "-c", FORK_DURING_IMPORT, json.dumps(seaweed), path]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"


FORK_WITHIN_IMPORT = """
import os, sys, threading, types
from importlib.machinery import ModuleSpec
from rollingfs.runtime import system
system.IMPORTS_S_MAX = 0.2
importing, held = threading.Event(), threading.Event()

class Forking:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in ("forking", "rollingfs_other") else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        if module.__name__ == "rollingfs_other":
            held.set()
            importing.wait()
            import forking
        else:
            importing.set()
            held.wait()
            module.child = os.fork() or os._exit(0)

def other():
    import rollingfs_other

sys.meta_path.insert(0, Forking())
thread = threading.Thread(target=other)
thread.start()
import forking
thread.join()
print(os.waitpid(forking.child, 0)[1])
"""


@needs_fork
def test_fork_within_an_awaited_import_goes_on() -> None:
    command = [sys.executable, "-c", FORK_WITHIN_IMPORT]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "0\n"


@needs_fork
def test_a_child_keeps_equal_filesystems_of_its_parent() -> None:
    fs = S3FileSystem(key="a", secret="b", skip_instance_cache=True)
    clones = [clone_of(fs), clone_of(fs)]
    assert clones[0] == clones[1]
    refs = [weakref.ref(one) for one in clones]

    def are_kept() -> bool:  # closing them would close connections of the parent
        clones.clear()
        gc.collect()
        return all(ref() is not None for ref in refs)

    assert is_so_in_child(are_kept)


def _used(seaweed: dict[str, Any]) -> list[Any]:
    fs, bucket = RollingFileSystem("s3", seaweed, skip_instance_cache=True), new_bucket(seaweed)
    fs.pipe_file(f"{bucket}/x", b"bytes")
    assert fs.cat_file(f"{bucket}/x") == b"bytes"
    assert len(fs.ls(bucket)) == 1
    assert fs._backend.fs._s3 is not None  # through botocore, too
    return [weakref.ref(one) for one in (fs, fs._client, fs._backend, fs._backend.fs)]


def test_a_filesystem_that_nobody_holds_is_freed(seaweed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []  # as obstore may keep the futures of all requests until its next call
    monkeypatch.setattr(obstore_objects, "watched", lambda future: kept.append(future) or future)
    refs = _used(seaweed)

    def is_freed() -> bool:  # the event loop drops the last request in a moment of its own
        gc.collect()
        return all(ref() is None for ref in refs)

    eventually(is_freed, said=lambda: str([ref() for ref in refs]))
