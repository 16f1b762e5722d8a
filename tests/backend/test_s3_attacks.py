"""What an attack on the data path of S3 found: many requests at once, odd answers, odd metadata, odd credentials."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.examples import slowly
from tests.support.servers import new_bucket, require_module

require_module("s3fs")
require_module("obstore")

from fsspec.asyn import sync

from rollingfs import RollingFileSystem
from rollingfs.backend.objects import obstore_files as obstore_objects
from rollingfs.backend.objects.request_errors import LastingError, date_of
from tests.support.proxy import Handler, Proxy, Redirect, Seen, serving
from tests.support.s3 import driven_s3, ways_of

DATA = bytes(range(100))


def read_by_newcomer(moto: dict[str, Any], proxy: Proxy, bucket: str, before: Callable[[], object]) -> tuple[Any, ...]:
    """Let a new client read many files at once, and something happen before it; the client, their paths and answers."""
    paths = [f"{bucket}/file-{number}" for number in range(16)]
    backend = driven_s3(moto, proxy.url)
    for path in paths:
        backend.write(path, [DATA])
    before()
    newcomer = driven_s3(moto, proxy.url)

    async def at_once() -> list[Any]:
        return await asyncio.gather(*map(newcomer.backend.read, paths), return_exceptions=True)

    found = sync(newcomer.loop, at_once)
    assert [getattr(blob, "data", blob) for blob in found] == [DATA] * 16
    return newcomer, paths, found


# -- many first requests at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [(400, "AuthorizationHeaderMalformed"), *slowly(((301, "PermanentRedirect"),))])
def test_many_first_requests_to_bucket_elsewhere_all_find_it(moto, moto_proxy, refusal):
    bucket, region = f"{new_bucket(moto)}-there", "eu-west-1"
    place = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    driven_s3(moto).call("create_bucket", Bucket=bucket, **place)

    def fault(seen: Seen) -> Any:
        is_wrong = f"/{region}/" not in seen.headers["authorization"]
        return refusal if "/file-" in seen.path and is_wrong else None

    newcomer, paths, found = read_by_newcomer(moto, moto_proxy, bucket, lambda: setattr(moto_proxy, "fault", fault))
    assert ways_of(newcomer) == {"ObstoreObjects"}
    moto_proxy.seen.clear()
    assert (writer := driven_s3(moto, moto_proxy.url)).replace(paths[0], b"another", found[0].token)
    assert [seen.method for seen in moto_proxy.seen] == ["PUT", "HEAD", "PUT"]
    assert ways_of(writer) == {"ObstoreObjects"}


def test_many_first_requests_through_s3fs_all_succeed(moto, moto_proxy, monkeypatch):
    async def refused(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(0.01)
        raise LastingError("the store's certificate cannot be trusted", is_untrusted=True)

    refuse = partial(monkeypatch.setattr, obstore_objects.ObstoreObjects, "get", refused)
    newcomer, _, _ = read_by_newcomer(moto, moto_proxy, new_bucket(moto), refuse)
    assert ways_of(newcomer) == {"BotocoreObjects"}


# -- odd answers and odd metadata ----------------------------------------------------------------------------


class Chunks(Handler):
    """Answers by a body of unknown length, as proxies do that change bodies on their way."""

    def _answer(self, status: int, headers: Any, data: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in (*headers, ("Transfer-Encoding", "chunked")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))


def test_an_answer_of_unknown_length_is_read(moto):
    path = f"{new_bucket(moto)}/log$header"
    token = driven_s3(moto).create(path, DATA)
    with serving(moto["endpoint_url"], Chunks) as proxy:
        backend = driven_s3(moto, proxy.url)
        assert backend.read(path).data == DATA
        assert bytes(backend.read_range(path, 10, 20, token)) == DATA[10:20]
        assert ways_of(backend) == {"ObstoreObjects"}


FILES, UPLOADS = "ListBucketResult", "ListMultipartUploadsResult"


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        *((FILES, token, "at no other place") for token in ("", "<NextContinuationToken/>")),
        (FILES, "<NextContinuationToken>t</NextContinuationToken>", "at no other place"),
        (UPLOADS, "", "at no other place"),
        (UPLOADS, "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>", "at no other place"),
        *((FILES, part, "without '") for part in ("<Contents/>", "<CommonPrefixes/>")),
        (FILES, "<Contents><Key>a</Key><Size>1</Size></Contents>", "without '"),
        (FILES, "<Contents><Key>a</Key><Size>1k</Size></Contents>", "bucket/folder': a date or a number .*'1k'"),
        (FILES, "<Contents><LastModified>noon</LastModified></Contents>", "bucket/folder': a date or a number .*noon"),
    ],
)
def test_endless_short_or_garbled_listing_is_an_error(moto, moto_proxy, name, token, message):
    """It says of each page that there is another one, and little else."""
    moto_proxy.fault = lambda _: (200, f"<{name}><IsTruncated>true</IsTruncated>{token}</{name}>".encode())
    with pytest.raises(OSError, match=f"{message}.*; the store is {moto_proxy.url}/bucket"):
        getattr(driven_s3(moto, moto_proxy.url), "list" if name == FILES else "list_uploads")("bucket/folder")


def test_a_date_that_cannot_be_read_is_named():
    with pytest.raises(ConnectionError, match="date is 'noon'"):
        date_of({"date": "noon"})


@pytest.mark.parametrize("name", ["storage-class", "Content-Type", "contenttype", "CACHE-CONTROL"])
def test_metadata_with_the_name_of_a_header_stays_metadata(moto, moto_proxy, name):
    backend = driven_s3(moto, moto_proxy.url, s3_additional_kwargs={"Metadata": {name: "GLACIER"}})
    backend.write(f"{new_bucket(moto)}/file", [DATA])
    (put,) = moto_proxy.of("PUT")
    assert put.headers[f"x-amz-meta-{name.lower()}"] == "GLACIER"
    assert "GLACIER" not in (put.headers.get("x-amz-storage-class"), put.headers.get("content-type"))


def test_metadata_that_s3_does_not_take_is_refused(moto, moto_proxy):
    backend = driven_s3(moto, moto_proxy.url, s3_additional_kwargs={"Metadata": {"owner": "Zoë"}})
    with pytest.raises(OSError, match="Non ascii"):
        backend.write(f"{new_bucket(moto)}/file", [DATA])
    assert moto_proxy.of("PUT") == []


@pytest.mark.parametrize("use_obstore", [True, False])
def test_write_that_ends_on_another_page_is_not_done(moto, moto_proxy, monkeypatch, use_obstore):
    monkeypatch.setattr("rollingfs.backend.patience.PATIENCE_S", 0.1)
    backend, bucket = driven_s3(moto, moto_proxy.url, use_obstore=use_obstore), new_bucket(moto)
    token = backend.create(f"{bucket}/kept", b"another file, with an ETag")
    moto_proxy.fault = lambda seen: Redirect(303, f"/{bucket}/kept") if seen.method != "GET" else None
    for verb, path, arguments in (
        ("create", f"{bucket}/new", (DATA,)),
        ("replace", f"{bucket}/kept", (DATA, token)),
        ("write", f"{bucket}/new", ([DATA],)),
        ("write", f"{bucket}/new", ([bytes(2**20), DATA],)),
        ("delete", [f"{bucket}/kept"], ()),
    ):
        with pytest.raises(OSError, match=r"elsewhere|may have written nothing|could not be looked up"):
            getattr(backend, verb)(path, *arguments)
    moto_proxy.fault = lambda _: None
    assert [(entry.path, entry.token) for entry in backend.list(bucket).entries] == [(f"{bucket}/kept", token)]
    backend.create(f"{bucket}/new", DATA)
    assert backend.read(f"{bucket}/new").data == DATA


class OtherTokens(Handler):
    """A store whose ETags are no hashes, as that of a key of AWS."""

    def _answer(self, status: int, headers: Any, data: bytes, length: str | None = None) -> None:
        other = [(name, '"other"' if name.lower() == "etag" else value) for name, value in headers]
        super()._answer(status, other, data, length)


def test_without_hash_tokens_only_the_first_file_is_reread(moto):
    with serving(moto["endpoint_url"], OtherTokens) as proxy:
        backend, bucket = driven_s3(moto, proxy.url), new_bucket(moto)
        for name in "abc":
            backend.create(f"{bucket}/{name}", DATA)
        assert [len(proxy.of(method)) for method in ("PUT", "GET")] == [3, 1]


class NoTokens(Handler):
    """A proxy that removes the ETags of what is read."""

    def _answer(self, status: int, headers: Any, data: bytes, length: str | None = None) -> None:
        kept = [(name, value) for name, value in headers if name.lower() != "etag" or self.command == "PUT"]
        super()._answer(status, kept, data, length)


@pytest.mark.parametrize("use_obstore", [True, False])
def test_reads_without_etag_are_asked_for_once(moto, use_obstore):
    with serving(moto["endpoint_url"], NoTokens) as proxy:
        path = f"{new_bucket(moto)}/file"
        driven_s3(moto).write(path, [DATA])
        backend = driven_s3(moto, proxy.url, use_obstore=use_obstore)
        for verb, doing in (("read", "reading"), ("stat", "looking up")):
            with pytest.raises(OSError, match=f"{doing} '{path}': .*no ETag, .*proxy"):
                getattr(backend, verb)(path)
        assert len(proxy.seen) == 2


# -- what is wrong on this machine ---------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which AWS's tools are configured, and no other."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.mark.parametrize("use_obstore", [True, *slowly(False)])
@pytest.mark.parametrize(
    "lines",
    [
        "credential_process = /nowhere/credentials",
        "role_arn = arn:aws:iam::123456789012:role/x\nweb_identity_token_file = /nowhere/token",
        "ca_bundle = /nowhere/certificates",
    ],
)
def test_missing_local_file_is_not_a_missing_segment(moto, config, monkeypatch, lines, use_obstore):
    monkeypatch.setattr("rollingfs.backend.patience.PAUSE_FIRST_S", 0.001)
    path = f"{new_bucket(moto)}/log"
    RollingFileSystem("s3", moto).pipe_file(path, DATA)
    config.write_text(f"[default]\n{lines}\n")
    options = {"endpoint_url": moto["endpoint_url"]} | (moto if "ca_bundle" in lines else {})
    if "ca_bundle" in lines:
        options["endpoint_url"] = options["endpoint_url"].replace("http:", "https:")
    fs = RollingFileSystem(backend=driven_s3(options, use_obstore=use_obstore).backend, commit_timeout_s=0.5)
    for attempt in (fs.exists, fs.cat_file, fs.ls, lambda path: fs.append(path, b"x")):
        with pytest.raises(OSError, match=r"log|rollingfs-") as caught:
            attempt(path)
        assert not isinstance(caught.value, FileNotFoundError), attempt
    assert RollingFileSystem("s3", moto).cat_file(path) == DATA


@pytest.mark.parametrize("use_obstore", [True, False])
@pytest.mark.parametrize("printed", ["", "no JSON", r"\377"])
def test_credential_program_without_json_gives_a_one_sentence_error(moto, tmp_path, config, printed, use_obstore):
    program = tmp_path / "credentials"
    program.write_text(f"#!/bin/sh\nprintf '{printed}'\n")
    program.chmod(0o700)
    config.write_text(f"[default]\ncredential_process = {program}\n")
    fs = RollingFileSystem(backend=driven_s3({}, moto["endpoint_url"], use_obstore=use_obstore).backend)
    for attempt in (fs.cat_file, fs.ls, lambda path: fs.append(path, b"x")):
        with pytest.raises(OSError, match=r"bucket/log.*credential_process, or .* printed is not JSON"):
            attempt("bucket/log")


# -- sessions and credentials --------------------------------------------------------------------------------


def test_credentials_that_are_incomplete_are_refused_alike_either_way(moto, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    refusals = []
    for use_obstore in (True, False):
        backend = driven_s3({}, moto["endpoint_url"], use_obstore=use_obstore)
        with pytest.raises(Exception, match="AWS_SECRET_ACCESS_KEY") as caught:
            backend.read("bucket/file")
        refusals.append((caught.type, str(caught.value)))
    assert refusals[0] == refusals[1]


# -- the end -------------------------------------------------------------------------------------------------

ENDING = """
import asyncio, atexit, gc, sys
import obstore.store
atexit.register(lambda: print(len(obstore_process._watched)))
from rollingfs.backend.objects import obstore_process
sys.kept = asyncio.new_event_loop().create_future()  # as one of obstore's that takes long
obstore_process.wait_at_exit()
obstore_process.watched(sys.kept)
obstore_process.WAIT_S_MAX = 0.01
wait = obstore_process._wait

def wait_for_the_test():
    obstore_process._wait = wait
    print("waits", flush=True)
    sys.stdin.readline()
    wait()
    obstore_process.WAIT_S_MAX = 60  # obstore's next call drops what it held
    obstore.store.MemoryStore = lambda: (vars(sys).pop("kept", 0), gc.collect())

obstore_process._wait = wait_for_the_test
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_second_interrupt_does_not_end_the_wait_for_obstore():
    with subprocess.Popen(
        [sys.executable, "-c", ENDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        held, said = process.communicate("go on\n", timeout=60)
    assert (process.returncode, held, said) == (0, "0\n", "")


def test_the_name_of_a_store_has_no_password(moto, moto_proxy):
    backend = driven_s3(moto, moto_proxy.url, endpoint_url=moto_proxy.url.replace("//", "//user:password@"))
    assert backend.store_name("bucket/log").startswith(moto_proxy.url)
