"""A store that throttles, is slow, or loses answers: which requests are repeated, how long, and what is known then."""

import errno
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.backends import forget_verdicts
from tests.support.servers import require_module

require_module("s3fs")

from rollingfs import AppendOutcomeUnknown, BadOffsetError, RollingFileSystem, RollingPolicy
from rollingfs.backend import probe as probe_module
from tests.support.examples import slowly
from tests.support.proxy import CUT, DROP_AFTER, DROP_BEFORE, HOLD, STALL, Proxy, Seen, proxy_to
from tests.support.s3 import small_parts
from tests.support.servers import new_bucket

Fault = str | tuple[int, str | bytes]

PART_BYTES = 5 * 2**20
SLOW_DOWN = (503, "SlowDown")
OTHER_REFUSALS = [((429, "TooManyRequests"),), ((500, "InternalError"),), ((503, "ServiceUnavailable"),)]
FAULTS = [DROP_AFTER, *slowly((SLOW_DOWN,), DROP_BEFORE, *OTHER_REFUSALS)]
"""The fast suite meets an answer that is lost here; each request is refused once in a test of its own."""
TRIES = 5

pytestmark = pytest.mark.timeout(120)


# -- kinds of requests ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Requests of a method whose key and query contain something; those of the probe are a kind of their own."""

    method: str
    key: str = ""
    query: str = ""

    def __call__(self, seen: Seen) -> bool:
        key, _, query = unquote(seen.path).partition("?")
        is_alike = seen.method == self.method and self.key in key and self.query in query
        return is_alike and ("/probe-" in key) == (self.key == "/probe-")


header_put, header_get = Kind("PUT", "$header"), Kind("GET", "$header")
chunk_put, chunk_get = Kind("PUT", "$chunks/"), Kind("GET", "$chunks/")
beginning, part = Kind("POST", query="uploads"), Kind("PUT", query="partNumber")
completion, probe_put = Kind("POST", query="uploadId"), Kind("PUT", "/probe-")
listing, deletion = Kind("GET", query="list-type=2"), Kind("POST", query="delete")


def first(count: int, kind: Callable[[Seen], bool], fault: Fault) -> Callable[[Seen], Fault | None]:
    """Meet the first `count` requests of a kind with a fault."""
    left = [fault] * count
    return lambda seen: left.pop() if left and kind(seen) else None


def always(kind: Callable[[Seen], bool], fault: Fault) -> Callable[[Seen], Fault | None]:
    return lambda seen: fault if kind(seen) else None


# -- filesystems ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def way(s3_options: dict[str, Any]) -> Iterator[Proxy]:
    with proxy_to(s3_options["endpoint_url"]) as proxy:
        yield proxy


@pytest.fixture
def proxy(way: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr("rollingfs.backend.patience.PAUSE_FIRST_S", 0.001)
    yield way
    way.fault = lambda _: None
    way.seen.clear()


@pytest.fixture(scope="module")
def connect(s3_options: dict[str, Any], way: Proxy) -> Callable[..., Any]:
    """Makes filesystems behind the proxy."""
    target = s3_options | {"endpoint_url": way.url}
    return partial(RollingFileSystem, "s3", target, skip_instance_cache=True)


@pytest.fixture(scope="module")
def fs(connect: Callable[..., Any]) -> Any:
    return connect(header_cache_s=0, commit_timeout_s=30)


@pytest.fixture(scope="module")
def hasty(connect: Callable[..., Any]) -> Any:
    """A filesystem that gives up soon."""
    return connect(header_cache_s=0, commit_timeout_s=1.5)


@pytest.fixture(scope="module")
def bucket(s3_options: dict[str, Any]) -> str:
    return new_bucket(s3_options)


@pytest.fixture
def path(bucket: str) -> str:
    return f"{bucket}/{uuid.uuid4().hex}/log"


@pytest.fixture(scope="module")
def plain(s3_options: dict[str, Any]) -> Any:
    """A filesystem that does not go through the proxy."""
    return RollingFileSystem("s3", s3_options, skip_instance_cache=True, header_cache_s=0)


CHUNKS = RollingPolicy(max_bytes=1000, inline_bytes=0)


# -- for a while ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_appends_are_there_once_whatever_their_header_puts_meet(fs, path, proxy, plain, fault):
    fs.create(path)
    for number in range(3):
        proxy.fault = first(3, header_put, fault)
        assert fs.append(path, b"%d," % number) == 2 * number
    assert plain.cat_file(path) == b"0,1,2,"


@pytest.mark.parametrize("fault", [*slowly(HOLD), DROP_AFTER, STALL])
@pytest.mark.parametrize("verb", ["create", "append", "seal", "truncate"])
def test_unanswered_commit_is_recognised_and_a_stalled_is_repeated(hasty, path, proxy, plain, verb, fault):
    fs = hasty
    if verb != "create":
        fs.create(path)
        fs.append(path, b"first")
    proxy.seen.clear()
    proxy.fault = first(1, header_put, fault)
    arguments = {"append": (b"second",), "truncate": (2,)}.get(verb, ())
    getattr(fs, verb)(path, *arguments)
    assert len([seen for seen in proxy.seen if header_put(seen)]) == (2 if fault == STALL else 1)
    info = plain.info(path)
    expected = {"create": (0, 0), "append": (0, 11), "seal": (0, 5), "truncate": (2, 5)}[verb]
    assert (info["start_offset"], info["length"], info["sealed"]) == (*expected, verb == "seal")


@pytest.mark.parametrize("fault", [*FAULTS, CUT], ids=str)
@pytest.mark.parametrize("kind", [header_get, chunk_get, listing])
def test_reads_are_exact_whatever_they_meet(fs, path, proxy, plain, kind, fault):
    data = bytes(range(250)) * 12
    plain.create(path, policy=CHUNKS)
    plain.append(path, data)
    for read in (lambda: fs.cat_file(path), lambda: fs.open(path, "rb").read(), lambda: fs.cat_file(path, 900, 2100)):
        proxy.fault = first(TRIES - 1, kind, fault)
        assert read() in (data, data[900:2100])
    assert fs.ls(path.removesuffix("/log"), detail=False) == [path]


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (beginning, SLOW_DOWN),
        (part, SLOW_DOWN),
        (completion, DROP_AFTER),
        (completion, (200, "InternalError")),  # S3 answers a long request with 200 before it is done
        *slowly((completion, SLOW_DOWN), (part, DROP_AFTER), (beginning, DROP_AFTER)),
    ],
    ids=str,
)
def test_large_appends_are_there_once_whatever_their_parts_meet(fs, path, proxy, plain, kind, fault, monkeypatch):
    small_parts(monkeypatch, PART_BYTES)
    data = b"0123456789abcdef" * (PART_BYTES // 16 + 1)
    fs.create(path)
    proxy.fault = first(TRIES - 1, kind, fault)
    assert fs.append(path, data) == 0
    assert plain.cat_file(path) == data


def test_each_operation_survives_one_refusal_of_each_request(fs, path, proxy, plain):
    met: Counter[tuple[str, str]] = Counter()

    def fault(seen: Seen) -> Fault | None:
        met[seen.method, seen.path] += 1
        return SLOW_DOWN if met[seen.method, seen.path] == 1 else None

    fs.create(f"{path}-probed")
    fs.rm(f"{path}-probed")
    proxy.fault = fault
    folder = path.rpartition("/")[0]
    for name in "abc":
        fs.create(f"{path}-{name}", policy=CHUNKS)
        fs.append(f"{path}-{name}", name.encode() * 2500)
        fs.seal(f"{path}-{name}")
    fs.create(path)
    fs.concat(path, [f"{path}-{name}" for name in "abc"])
    fs.truncate(path, 3000)
    fs.mv(path, f"{path}-moved")
    fs.seal(f"{path}-moved")
    fs.segment(f"{path}-moved").consolidate(grace=0)
    fs.collect(folder, recursive=True, grace=0)
    assert plain.cat_file(f"{path}-moved") == b"b" * 2000 + b"c" * 2500
    assert fs.find(folder) == [f"{path}-moved"]
    fs.rm(f"{path}-moved")
    assert plain.find(folder) == []
    assert sum(met.values()) > 2 * len(met) * 0.8, "hardly anything was tried again"


# -- for ever ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [SLOW_DOWN, DROP_BEFORE, DROP_AFTER], ids=str)
def test_an_append_never_confirmed_is_unknown_or_found(hasty, path, proxy, plain, fault):
    hasty.create(path)
    proxy.fault = always(header_put, fault)
    if fault == DROP_AFTER:
        assert hasty.append(path, b"data") == 0
    else:
        with pytest.raises(AppendOutcomeUnknown, match=f"{re.escape(path)}: .* unknown .*not confirmed") as caught:
            hasty.append(path, b"data")
        last = ("SlowDown", "TimeoutError") if fault == SLOW_DOWN else ("broke", "closed", "Error")
        assert any(word in str(caught.value) for word in last)  # the very last request may be cut off by the deadline
        assert len([seen for seen in proxy.seen if header_put(seen)]) > 2
    proxy.fault = lambda _: None
    try:  # as the error advises: `expected_offset` makes a repetition safe
        hasty.append(path, b"data", expected_offset=0)
    except BadOffsetError:
        assert fault == DROP_AFTER
    assert plain.cat_file(path) == b"data"


@pytest.mark.parametrize("fault", [SLOW_DOWN, DROP_BEFORE, DROP_AFTER], ids=str)
def test_append_with_unwritable_chunk_is_not_committed(hasty, path, proxy, plain, fault):
    hasty.create(path, policy=CHUNKS)
    hasty.append(path, b"a" * 500)
    proxy.fault = always(chunk_put, fault)
    with pytest.raises(OSError, match=f"nothing was committed: writing .*: '{re.escape(path)}'") as caught:
        hasty.append(path, b"b" * 500)
    assert caught.value.errno == (errno.EBUSY if fault == SLOW_DOWN else errno.EIO)
    assert not isinstance(caught.value, AppendOutcomeUnknown)
    proxy.fault = lambda _: None
    assert hasty.append(path, b"c" * 500) == 500
    assert plain.cat_file(path) == b"a" * 500 + b"c" * 500


def test_probe_throttled_for_ever_names_a_busy_store(connect, path, proxy, plain, monkeypatch):
    monkeypatch.setattr(probe_module, "backoff_s", lambda _: 0.0)
    forget_verdicts()
    proxy.fault = always(probe_put, SLOW_DOWN)
    with pytest.raises(OSError, match=f"nothing was committed: .*SlowDown.*: '{re.escape(path)}'") as caught:
        connect().create(path)
    assert caught.value.errno == errno.EBUSY
    assert not plain.exists(path)


# -- deletes -------------------------------------------------------------------------------------------------


def _put_off(*keys: str) -> Fault:
    """The answer of a busy store to DeleteObjects: 200, with the reason for each file that it did not delete."""
    errors = "".join(f"<Error><Key>{key}</Key><Code>SlowDown</Code><Message>busy</Message></Error>" for key in keys)
    return 200, f"<DeleteResult>{errors}</DeleteResult>".encode()


def test_deferred_deletions_happen_in_the_next_try(fs, path, proxy, plain):
    fs.create(path, policy=CHUNKS)
    fs.append(path, b"a" * 3000)
    keys = [name.partition("/")[2] for name in _chunks(plain, path)][:2]
    proxy.fault = first(1, deletion, _put_off(*keys))
    proxy.seen.clear()
    fs.truncate(path, 2000)
    assert len(_chunks(plain, path)) == 1
    assert len([seen for seen in proxy.seen if deletion(seen)]) == 2


def test_conditional_delete_repeats_after_refusals_not_lost_answers(fs, path, proxy):
    backend, run = fs._backend, fs._bridge.run
    token = run(backend.create(path, b"data"))
    proxy.fault = first(2, lambda seen: seen.method == "DELETE", SLOW_DOWN)
    assert run(backend.delete_if(path, token))
    token = run(backend.create(path, b"data"))
    proxy.seen.clear()
    proxy.fault = first(1, lambda seen: seen.method == "DELETE", (504, "GatewayTimeout"))
    with pytest.raises(OSError, match=f"deleting '{re.escape(path)}'.*GatewayTimeout"):
        run(backend.delete_if(path, token))
    proxy.fault = always(lambda seen: seen.method == "DELETE", DROP_AFTER)
    with pytest.raises(OSError, match=f"deleting '{re.escape(path)}'"):
        run(backend.delete_if(path, token))
    assert len(proxy.of("DELETE")) <= 3  # one, and one that aiohttp itself may send twice


@pytest.mark.parametrize("whole", [True, False], ids=["refused whole", "refused for each file"])
def test_truncation_with_undeletable_chunks_is_called_committed(hasty, path, proxy, plain, whole):
    hasty.create(path, policy=CHUNKS)
    hasty.append(path, b"a" * 3000)
    keys = [name.partition("/")[2] for name in _chunks(plain, path)][:2]
    proxy.fault = always(deletion, SLOW_DOWN if whole else _put_off(*keys))
    with pytest.raises(OSError, match=f"{re.escape(path)}: committed, but .*SlowDown") as caught:
        hasty.truncate(path, 2000)
    assert caught.value.errno == errno.EBUSY
    assert (plain.info(path)["start_offset"], plain.cat_file(path)) == (2000, b"a" * 1000)
    proxy.fault = lambda _: None
    plain.collect(path, grace=0)
    assert len(_chunks(plain, path)) == 1


def _chunks(fs: Any, path: str) -> list[str]:
    """The paths of all chunk files."""
    return sorted(name for name in fs._backend.fs.find(f"{path}$chunks") if "probe-" not in name)
