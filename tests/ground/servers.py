"""Servers that other people run. An entry says how to start one; what is found there stands in `results.json`."""

import contextlib
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.ground.clients import Raw
from tests.support import clouds, seaweed, servers
from tests.support.schedules import eventually
from tests.support.servers import PASSWORD, USER, Program, go_program, npm_package

MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
GARAGE_KEYS = "GK" + "0123456789abcdef" * 2, "0123456789abcdef" * 4
GARAGE_BUCKET = "rollingfs-ground"
QUICK = {"OPT_LEVEL": "1", "LTO": "off", "CODEGEN_UNITS": "16", "DEBUG": "false"}
"""Rust's release profile takes three times as long to build."""
Options = dict[str, Any]
Started = contextlib.AbstractContextManager[Options]
Command = Callable[[Path, str, int], list[str]]
"""Makes the words of a command of a program, a folder and a port."""


@dataclass(frozen=True)
class Server:
    """A server that can be started."""

    title: str
    """Its name and version, as on the page."""
    start: Callable[[], Started]
    """Gives the options of the target filesystem."""
    protocol: str = "s3"
    bucket: str = ""
    """The bucket that it begins with; by default one is made."""

    def new_bucket(self, options: Options) -> str:
        """Make a bucket without rollingfs."""
        if self.protocol != "s3":
            return {"az": clouds.new_container, "gs": clouds.new_google_bucket}[self.protocol](options)
        name = self.bucket or f"rollingfs-{uuid.uuid4().hex[:12]}"
        with contextlib.closing(Raw(options, name)) as raw:
            eventually(
                lambda: raw.send("HEAD" if self.bucket else "PUT", f"/{name}").is_done
            )  # MinIO answers 503 first
        return name


def _options(url: str, key: str = USER, secret: str = PASSWORD) -> Options:
    return {"endpoint_url": url, "key": key, "secret": secret}


@contextlib.contextmanager
def _program(
    name: str,
    program: Program | None,
    command: Command,
    settings: Mapping[str, str] = MappingProxyType({}),
    ready_path: str = "/",
    keys: tuple[str, str] = (USER, PASSWORD),
) -> Iterator[Options]:
    """Run a program with an empty folder; `command` gets the program, the folder and a port."""
    found = Path() if program is None else _installed(program)
    with tempfile.TemporaryDirectory(prefix=f"rollingfs-{name}-", ignore_cleanup_errors=True) as data:
        for folder in ("data", "beside"):
            Path(data, folder).mkdir()
        with servers.running(name, lambda port, _: command(found, data, port), ready_path, settings) as url:
            yield _options(url, *keys)


def _installed(program: Program) -> Path:
    try:
        return program.installed()
    except (subprocess.SubprocessError, RuntimeError) as error:
        pytest.skip(f"{program.name} does not build here: {error}")


def _cargo(crate: str, features: str) -> Program:
    settings = " ".join(f"CARGO_PROFILE_RELEASE_{name}={value}" for name, value in QUICK.items())
    words = f"--quiet --locked {crate} --no-default-features --features {features} --root made"
    return Program(crate.replace("@", "-"), "cargo", f"env {settings} cargo install {words}")


def _jars(name: str, *jars: str) -> Program:
    copies = (f'mvn -q -B {MAVEN_COPY} -Dartifact={jar} "-DoutputDirectory=$PWD/made"' for jar in jars)
    return Program(name, "mvn", "\n".join(copies))


def _served(title: str, program: Program | None, words: str | Command, bucket: str = "", **how: Any) -> Server:
    """Return a server by the words of its command, or by what makes them."""

    def command(found: Path, data: str, port: int) -> list[str]:
        keys = {"user": USER, "password": PASSWORD, "python": sys.executable}
        return [word.format(program=found, data=data, port=port, **keys) for word in str(words).split()]

    name = title.partition(" ")[0].lower()
    start = partial(_program, name, program, command if isinstance(words, str) else words, **how)
    return Server(title, start, bucket=bucket)


def _s3proxy(jars: Path, data: str, port: int, *, provider: str) -> list[str]:
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": USER,
        "s3proxy.credential": PASSWORD,
        "jclouds.provider": provider,
        "jclouds.identity": "x",
        "jclouds.credential": "y",
        "jclouds.filesystem.basedir": f"{data}/data",
    }
    file = Path(data, "s3proxy.conf")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return ["java", "-Xmx1g", "-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(file)]


def _s3mock(jars: Path, data: str, port: int) -> list[str]:
    prefix = "--com.adobe.testing.s3mock"
    where = [f"{prefix}.store.root={data}/data", f"{prefix}.store.retainFilesOnExit=true"]
    [jar] = jars.iterdir()
    return ["java", "-Xmx1g", "-jar", str(jar), "--server.port=0", f"{prefix}.httpPort={port}", *where]


def _garage(program: Path, data: str, port: int) -> list[str]:
    text = f"""
        metadata_dir = "{data}/beside"
        data_dir = "{data}/data"
        db_engine = "sqlite"
        replication_factor = 1
        rpc_bind_addr = "127.0.0.1:{servers.free_ports(1, but=port)[0]}"
        rpc_secret = "{GARAGE_KEYS[1]}"
        [s3_api]
        s3_region = "us-east-1"
        api_bind_addr = "127.0.0.1:{port}"
        """
    file = Path(data, "garage.toml")
    file.write_text(text)
    return [f"{program}/bin/garage", "-c", str(file), "server", "--single-node", "--default-bucket"]


GARAGE_SETTINGS = {
    "GARAGE_DEFAULT_ACCESS_KEY": GARAGE_KEYS[0],
    "GARAGE_DEFAULT_SECRET_KEY": GARAGE_KEYS[1],
    "GARAGE_DEFAULT_BUCKET": GARAGE_BUCKET,
}


VERSITYGW = go_program("versitygw", "github.com/versity/versitygw/cmd/versitygw@v1.8.0")
GOFAKES3 = go_program("gofakes3", "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0")
S3PROXY = _jars(
    "s3proxy-4.1.0",
    "org.gaul:s3proxy:4.1.0:jar:jar-with-dependencies",
    "com.fasterxml.jackson.core:jackson-annotations:2.21",
)
S3MOCK = _jars("s3mock-4.11.0", "com.adobe.testing:s3mock:4.11.0:jar:exec")
S3S_FS, GARAGE = _cargo("s3s-fs@0.14.1", "binary"), _cargo("garage@2.5.0", "bundled-libs,sqlite")
MINISTACK = Program("ministack-1.5.33", "uv", f"{sys.executable} -m uv pip install --target made ministack==1.5.33")
OF_VERSITYGW = "{program} --access {user} --secret {password} --port 127.0.0.1:{port} --quiet posix"
OF_S3S = "{program}/bin/s3s-fs --host 127.0.0.1 --port {port} --access-key {user} --secret-key {password} {data}/data"
OF_MINISTACK = "env PYTHONPATH={program} GATEWAY_PORT={port} {python} -m ministack"
OF_S3RVER = "node {program}/node_modules/.bin/s3rver -d {data}/data -a 127.0.0.1 -p {port}"
SERVERS = {
    "minio": Server("MinIO 2026-02-12", servers.minio_server),
    "seaweedfs": Server("SeaweedFS 4.48", seaweed.seaweed_server),
    "rclone": Server("rclone 1.76.0 `serve s3`", servers.rclone_server),
    "versitygw": _served("versitygw 1.8.0 `posix`", VERSITYGW, f"{OF_VERSITYGW} {{data}}/data"),
    "versitygw-sidecar": _served(
        "versitygw 1.8.0 `posix --sidecar`", VERSITYGW, f"{OF_VERSITYGW} --sidecar {{data}}/beside {{data}}/data"
    ),
    "gofakes3": _served("gofakes3 1.2.0", GOFAKES3, "{program} -host 127.0.0.1:{port} -backend memory"),
    "s3proxy": _served("S3Proxy 4.1.0 `filesystem-nio2`", S3PROXY, partial(_s3proxy, provider="filesystem-nio2")),
    "s3proxy-memory": _served("S3Proxy 4.1.0 `transient-nio2`", S3PROXY, partial(_s3proxy, provider="transient-nio2")),
    "s3mock": _served("Adobe S3Mock 4.11.0", S3MOCK, _s3mock),
    "s3s-fs": _served("s3s-fs 0.14.1", S3S_FS, OF_S3S),
    "garage": _served("Garage 2.5.0", GARAGE, _garage, GARAGE_BUCKET, settings=GARAGE_SETTINGS, keys=GARAGE_KEYS),
    "moto": _served("moto 5.2.5", None, "{python} -m moto.server -H 127.0.0.1 -p {port}", ready_path="/moto-api/"),
    "ministack": _served("MiniStack 1.5.33", MINISTACK, OF_MINISTACK),
    "s3rver": _served("s3rver 3.7.1", npm_package("s3rver@3.7.1"), OF_S3RVER, keys=("S3RVER", "S3RVER")),
    "azurite": Server("azurite 3.37.0", clouds.azurite_server, "az"),
    "fake-gcs-server": Server("fake-gcs-server 1.56.1", clouds.fake_google_server, "gs"),
}
