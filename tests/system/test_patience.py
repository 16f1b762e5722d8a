"""One patience for reads and writes, and what ends at once: refusals for good, and answers that never end."""

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rollingfs import AppendOutcomeUnknown, RollingFileSystem
from tests.support.backends import Scripted, private_memory, raises
from tests.support.examples import slowly
from tests.support.proxy import DROP_BEFORE, Handler, Proxy, Seen, proxy_to, serving
from tests.support.schedules import Caller
from tests.support.servers import new_bucket, share_verdict
from tests.system.test_fresh_reads import LOOKS

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
