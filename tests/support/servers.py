"""Object stores to test against: MinIO and moto, on loopback, each in a process of its own (SeaweedFS: `seaweed`)."""

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TextIO, TypeVar

import pytest

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")

USER = "rollingfs"
PASSWORD = "rollingfs-secret"
# Not the `moto_server` command, which need not be on the PATH. moto looks first and acts then, in threads: the probe
# refused 3 of 40 plain servers. This one does one PUT or DELETE after another.
MOTO_PROGRAM = """
import functools, sys, threading
from moto.s3.responses import S3Response
from moto.server import main

lock = threading.RLock()

def alone(verb):
    @functools.wraps(verb)
    def locked(*args, **options):
        with lock:
            return verb(*args, **options)
    return locked

S3Response.put_object = alone(S3Response.put_object)
S3Response.delete_object = alone(S3Response.delete_object)
main(sys.argv[1:])
"""
BUILD_S_MAX = 1500
READY_S_MAX = 120
"""A Java server took 83 s to start at a load of 27."""
READY_POLL_S = 0.05
STARTS_MAX = 3
WATCH = 'exec 3<&0; { read -r end <&3; kill -9 $$; } 2>/dev/null & exec "$@" 3<&-'
"""A script: run a program until its standard input ends: until the process that started it ends, or is killed."""
_running: dict[str, Callable[[], None]] = {}
"""What kills the server of a URL and starts it anew, on the same port and folder."""


def required() -> bool:
    """Whether a test fails, and is not skipped, when its server is missing."""
    return os.environ.get("ROLLINGFS_REQUIRE") == "all"


def require(reason: str) -> NoReturn:
    """Skip the test for `reason`; fail it if ``ROLLINGFS_REQUIRE=all``."""
    if required():
        pytest.fail(f"ROLLINGFS_REQUIRE=all, but {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def require_module(name: str) -> None:
    """Skip the whole test module where an optional dependency is absent; fail it if ``ROLLINGFS_REQUIRE=all``."""
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # a parent package is missing
        found = None
    if found is None:
        require(f"{name} is not installed")


def found_by(call: Callable[..., T], *args: object) -> T:
    """Return what a call finds; skip the test, or fail it, as `require`, if a module is absent."""
    try:
        return call(*args)
    except ModuleNotFoundError as error:
        require(f"{error.name} is not installed")


def cache_dir() -> Path:
    """The folder of built servers: ``ROLLINGFS_CACHE``, by default a folder in the user's cache."""
    return Path(os.environ.get("ROLLINGFS_CACHE") or Path.home() / ".cache" / "rollingfs")


@dataclass(frozen=True)
class Program:
    """A program, or a folder of programs, and the script of a shell that makes it."""

    name: str
    """Its name in the cache, with the version."""
    tool: str
    """What must be installed to make it."""
    script: str
    """It runs in an empty folder, and makes ``made`` there."""
    made: str = "made"
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts that are in the folder before, by name."""

    def build(self) -> Path:
        """Return it in the cache, made at its first use."""
        cache = cache_dir()
        place = cache / self.name
        if place.exists():
            return place
        if shutil.which(self.tool) is None:
            raise RuntimeError(f"{self.name} is not in the cache, and there is no `{self.tool}` to build it")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            for name, text in self.files.items():
                Path(work, name).write_text(text)
            subprocess.run(["sh", "-ec", self.script], cwd=work, check=True, timeout=BUILD_S_MAX, capture_output=True)
            # a rename over a folder that another process made meanwhile fails; its content is the same
            with contextlib.suppress(OSError):
                os.replace(f"{work}/{self.made}", place)
        return place

    def installed(self) -> Path:
        """Return it in the cache; without it, skip the test unless it is required, and builds."""
        if not required() and not (cache_dir() / self.name).exists():
            require(f"{self.name} is not in the cache, and ROLLINGFS_REQUIRE is not 'all', which builds it")
        return self.build()


def go_program(name: str, package: str) -> Program:
    """Return a program of Go of a package with its version."""
    script = f'GOBIN="$PWD" go install "-ldflags=-s -w" {package}'
    return Program(f"{name}-{package.rpartition('@')[2]}", "go", script, package.partition("@")[0].rpartition("/")[2])


def npm_package(package: str) -> Program:
    """Return a folder of a package of npm with its version, and its needs."""
    return Program(
        package.replace("@", "-"), "npm", f"npm install --no-audit --no-fund --silent --prefix made {package}"
    )


MINIO = go_program("minio", "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c")
RCLONE = go_program("rclone", "github.com/rclone/rclone@v1.76.0")
TOXIPROXY = go_program("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0")
"""Adds the latency and the bandwidth of S3."""


@contextlib.contextmanager
def moto_server() -> Iterator[dict[str, Any]]:
    """A moto server; gives the storage options of s3fs for it."""
    require_module("s3fs")
    require_module("moto")
    program = [sys.executable, "-c", MOTO_PROGRAM, "-H", "127.0.0.1", "-p"]
    with running("moto", lambda port, _: [*program, str(port)], "/moto-api/") as url:
        yield _options(url)


@contextlib.contextmanager
def minio_server(certificate: Path | None = None, region: str | None = None) -> Iterator[dict[str, Any]]:
    """A MinIO server with an empty folder; gives the storage options of s3fs for it.

    With a `region` it refuses what is signed for another one, as S3 does.

    With a `certificate` (of the CA, beside ``public.crt`` and ``private.key``) it speaks https only.
    """
    require_module("s3fs")
    program, secure = [str(MINIO.installed()), "server", "--quiet"], []
    if certificate is not None:
        secure = ["--certs-dir", str(certificate.parent)]
    settings = {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, "MINIO_BROWSER": "off"}
    settings |= {} if region is None else {"MINIO_SITE_REGION": region}

    def command(port: int, folder: str) -> list[str]:
        return [*program, "--address", f"127.0.0.1:{port}", *secure, folder]

    with running("MinIO", command, "/minio/health/ready", settings, certificate) as url:
        yield _options(url)


@contextlib.contextmanager
def rclone_server() -> Iterator[dict[str, Any]]:
    """``rclone serve s3`` of an empty folder, which writes objects in place; gives the storage options for it."""
    require_module("s3fs")
    program = [str(RCLONE.installed()), "serve", "s3", "--config", os.devnull, "--auth-key", f"{USER},{PASSWORD}"]
    with running("rclone", lambda port, folder: [*program, "--addr", f"127.0.0.1:{port}", folder], "/") as url:
        yield _options(url)


def _options(url: str) -> dict[str, Any]:
    return {"endpoint_url": url, "key": USER, "secret": PASSWORD}


def aws_environment(options: dict[str, Any]) -> dict[str, str]:
    """Return the variables by which every client of S3 finds a server and its keys."""
    keys = {"AWS_ACCESS_KEY_ID": options["key"], "AWS_SECRET_ACCESS_KEY": options["secret"]}
    return keys | {"AWS_ENDPOINT_URL": options["endpoint_url"], "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def running(
    name: str,
    command: Callable[[int, str], list[str]],
    ready_path: str,
    settings: Mapping[str, str] = MappingProxyType({}),
    certificate: Path | None = None,
) -> Iterator[str]:
    """Give the URL of a server that a command for a port and an empty folder starts, with these variables."""
    trust = None if certificate is None else ssl.create_default_context(cafile=certificate)
    with tempfile.TemporaryDirectory(prefix=f"rollingfs-{name}-") as folder, tempfile.TemporaryFile() as log:
        start = functools.partial(_start, env={**os.environ, **settings}, stdout=log, stderr=log)
        for _ in range(STARTS_MAX):  # another process may take the free port first
            port = free_port()
            process = start(command(port, folder))
            url = f"{'http' if trust is None else 'https'}://127.0.0.1:{port}"
            if _is_ready(process, url + ready_path, trust):
                break
            _kill(process)
        else:
            log.seek(0)
            raise RuntimeError(f"{name} did not start in {STARTS_MAX} tries:\n{log.read().decode(errors='replace')}")
        servers = [process]

        def start_anew() -> None:
            _kill(servers[0])
            servers[0] = start(command(port, folder))
            _is_ready(servers[0], url + ready_path, trust)

        _running[url] = start_anew
        try:
            yield url
        finally:
            del _running[url]
            _kill(servers[0])


def _start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process at the latest, also when this process is killed."""
    watched = command if sys.platform == "win32" else ["sh", "-c", WATCH, "sh", *command]
    return subprocess.Popen(watched, stdin=subprocess.PIPE, **options)


@contextlib.contextmanager
def shared(server: Callable[[], contextlib.AbstractContextManager[T]], place: Path) -> Iterator[T]:
    """Give the server of all processes that name this place; the first of them runs it, until the others have left."""
    if sys.platform == "win32":
        with server() as options:
            yield options
        return
    with open(place, "a+") as users:
        while True:
            fcntl.flock(users, fcntl.LOCK_SH)
            if known := _read(users):
                yield json.loads(known)
                return
            fcntl.flock(users, fcntl.LOCK_EX)
            if not _read(users):
                break
        with server() as options:
            json.dump(options, users)
            users.flush()
            fcntl.flock(users, fcntl.LOCK_SH)
            yield options
            fcntl.flock(users, fcntl.LOCK_EX)
            users.truncate(0)


def _read(file: TextIO) -> str:
    file.seek(0)
    return file.read()


def restart(url: str) -> None:
    """Kill a server of this process, and start it anew on what it has stored."""
    _running[url]()


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def free_ports(count: int, but: int) -> list[int]:
    """Loopback ports that were free a moment ago, all different, and none of them `but`."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count + 1)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
    return [port for port in ports if port != but][:count]


def _is_ready(process: subprocess.Popen[bytes], url: str, trust: ssl.SSLContext | None) -> bool:
    deadline = time.monotonic() + READY_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1, context=trust) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as refusal:
            refusal.close()
            if refusal.code < 500:  # a store that signs every request
                return True
            time.sleep(READY_POLL_S)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(READY_POLL_S)
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a server, whose data is thrown away anyway; by itself SeaweedFS takes 15 s for that."""
    process.kill()
    process.wait()
    process.stdin.close()


def new_bucket(options: dict[str, Any]) -> str:
    """Make a bucket with a new name."""
    from fsspec.asyn import sync

    name = f"rollingfs-{uuid.uuid4().hex[:12]}"
    backend = shared_backend(**options)
    sync(backend.loop, backend.make_folder, name)
    share_verdict(options["endpoint_url"], name)
    return name


BACKENDS = ("S3Backend", "Counting", "Scripted", "Faulty")
"""The classes by which tests reach a bucket."""


def botocore_client(service: str, options: dict[str, Any]) -> Any:
    """A client of botocore of a service of a server."""
    import botocore.session

    keys = {"aws_access_key_id": options["key"], "aws_secret_access_key": options["secret"]}
    session = botocore.session.get_session()
    return session.create_client(service, "us-east-1", endpoint_url=options["endpoint_url"], **keys)


def believe(endpoint_url: str, *, delete_if: bool) -> None:
    """Spare this process all probes of a server that other tests probe."""
    from rollingfs.backend.probe import Abilities
    from rollingfs.backend.verdicts import _of_process

    _of_process[f"{BACKENDS[0]} {endpoint_url}/"] = Abilities(delete_if)


def share_verdict(endpoint_url: str, bucket: str, way_url: str | None = None) -> None:
    """Spare a bucket its probe if another bucket of the server was probed: a probe has 140 requests.

    With `way_url`, this holds for a proxy to the server.
    """
    from rollingfs.backend.verdicts import _of_process

    known = next((found for key, found in _of_process.items() if f" {endpoint_url}/" in key), None)
    for backend in BACKENDS if known is not None else ():
        for way in ("", " through s3fs"):
            _of_process.setdefault(f"{backend} {way_url or endpoint_url}/{bucket}{way}", known)


@functools.cache
def shared_backend(**options: str) -> Any:
    """An `ObjectBackend` on S3 that tests share, because making and connecting one takes 0.3 s."""
    from s3fs import S3FileSystem  # the bare package has no s3fs, and its tests run without

    from rollingfs.backend.objects import open_s3

    return open_s3(S3FileSystem(**options))


def ways(backend: Any) -> list[Any]:
    """What reads and writes the files of each bucket in use of an `ObjectBackend` on S3."""
    return [bucket.way for bucket in backend.buckets.values() if bucket.way is not None]


@contextlib.contextmanager
def count_requests(backend: Any) -> Iterator[Counter[str]]:
    """Count the requests of an `ObjectBackend` on S3 by operation: ``{"PutObject": 1}``.

    A request that botocore or rollingfs repeats counts again; one that aiohttp repeats does not (a proxy sees it).
    """
    import obstore
    from fsspec.asyn import sync

    counts: Counter[str] = Counter()

    def count(event_name: str, **_: object) -> None:
        counts[event_name.rpartition(".")[2]] += 1

    def counted(operation: str, send: Any) -> Any:
        def call(store: Any, *arguments: Any, **options: Any) -> Any:
            ours = [way for way in ways(backend) if hasattr(way, "quick")]
            if any(store in (way.quick, way.patient) for way in ours):
                counts[operation] += 1
            return send(store, *arguments, **options)

        return call

    client = sync(backend.loop, backend.fs.set_session)
    client.meta.events.register("before-send.s3", count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(obstore, "get_async", counted("GetObject", obstore.get_async))
        patch.setattr(obstore, "get_range_async", counted("GetObject", obstore.get_range_async))
        patch.setattr(obstore, "put_async", counted("PutObject", obstore.put_async))
        try:
            yield counts
            now = sync(backend.loop, backend.fs.set_session)
            assert now is client, "another client was made: the counts miss its requests"
        finally:
            client.meta.events.unregister("before-send.s3", count)


def main() -> None:
    """Build all servers into the cache."""
    from tests.support.clouds import AZURITE, FAKE_GOOGLE

    for program in (MINIO, TOXIPROXY, RCLONE, AZURITE, FAKE_GOOGLE):
        started = time.monotonic()
        print(f"{program.build()} ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
