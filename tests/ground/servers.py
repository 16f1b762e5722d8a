"""Servers of S3 that other people run. An entry says how to start one, and what a raw client finds there."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.support import seaweed, servers
from tests.support.servers import PASSWORD, USER, cache_dir, go_program, installed, required

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
GOFAKES3 = "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0"
S3PROXY = ("org.gaul:s3proxy:4.1.0:jar:jar-with-dependencies", "com.fasterxml.jackson.core:jackson-annotations:2.21")
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
MAVEN_S_MAX = 600
Options = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """A server, and what is expected of it."""

    version: str
    start: Callable[[], contextlib.AbstractContextManager[Options]]
    """Gives the options of s3fs."""
    creates: bool = True
    """Whether each race of conditional creates has one winner."""
    replaces: bool = True
    """Whether each race of conditional replaces has one winner."""
    pairs: bool = True
    """Whether a GET beside PUTs has the bytes of its ETag."""
    is_safe: bool = True
    """Whether `rollingfs doctor` finds it safe."""


@contextlib.contextmanager
def _go(name: str, package: str, command: Callable[[Path, str, int], list[str]]) -> Iterator[Options]:
    program = installed(name, partial(go_program, name, package), "go")
    with tempfile.TemporaryDirectory(prefix=f"rollingfs-{name}-", ignore_cleanup_errors=True) as data:
        for folder in ("data", "sidecar"):
            Path(data, folder).mkdir()
        with servers.running(name, partial(command, program, data), "/", os.environ.copy()) as url:
            yield {"endpoint_url": url, "key": USER, "secret": PASSWORD}


def _versitygw(program: Path, data: str, port: int, *, sidecar: bool) -> list[str]:
    keys = ["--access", USER, "--secret", PASSWORD, "--port", f"127.0.0.1:{port}", "--quiet"]
    return [str(program), *keys, "posix", *(["--sidecar", f"{data}/sidecar"] if sidecar else []), f"{data}/data"]


def _gofakes3(program: Path, data: str, port: int) -> list[str]:
    return [str(program), "-host", f"127.0.0.1:{port}", "-backend", "memory"]


def _jars() -> Path | None:
    folder = cache_dir() / "s3proxy-4.1.0"
    if folder.exists() or not required() or shutil.which("mvn") is None:
        return folder if folder.exists() else None
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir()) as made:
        for jar in S3PROXY:
            command = ["mvn", "-q", "-B", MAVEN_COPY, f"-Dartifact={jar}", f"-DoutputDirectory={made}/jars"]
            subprocess.run(command, check=True, timeout=MAVEN_S_MAX)
        os.replace(f"{made}/jars", folder)
    return folder


@contextlib.contextmanager
def _s3proxy(provider: str) -> Iterator[Options]:
    jars = installed("S3Proxy", lambda _: _jars(), "mvn")
    with tempfile.TemporaryDirectory(prefix="rollingfs-s3proxy-") as data:

        def command(port: int) -> list[str]:
            settings = {
                "s3proxy.endpoint": f"http://127.0.0.1:{port}",
                "s3proxy.authorization": "aws-v2-or-v4",
                "s3proxy.identity": USER,
                "s3proxy.credential": PASSWORD,
                "jclouds.provider": provider,
                "jclouds.identity": "x",
                "jclouds.credential": "y",
                "jclouds.filesystem.basedir": data,
            }
            file = Path(data, "s3proxy.conf")
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            return ["java", "-Xmx1g", "-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(file)]

        with servers.running("S3Proxy", command, "/", os.environ.copy()) as url:
            yield {"endpoint_url": url, "key": USER, "secret": PASSWORD}


SERVERS = {
    "minio": Server("2026-02-12 (7aac2a2c)", servers.minio_server),
    "seaweedfs": Server("4.48", seaweed.seaweed_server),
    "rclone": Server("1.76.0 serve s3", servers.rclone_server, pairs=False),
    "versitygw": Server(
        "1.8.0 posix", partial(_go, "versitygw", VERSITYGW, partial(_versitygw, sidecar=False)), pairs=False
    ),
    "versitygw-sidecar": Server(
        "1.8.0 posix --sidecar", partial(_go, "versitygw", VERSITYGW, partial(_versitygw, sidecar=True)), pairs=False
    ),
    "gofakes3": Server("1.2.0 -backend memory", partial(_go, "gofakes3", GOFAKES3, _gofakes3)),
    "s3proxy": Server(
        "4.1.0 filesystem-nio2", partial(_s3proxy, "filesystem-nio2"), replaces=False, pairs=False, is_safe=False
    ),
}
