"""Stand-ins for Azure and Google to test against, on loopback: azurite, and fake-gcs-server."""

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.servers import BUILD_S_MAX, cache_dir, go_program, installed, require_module, running

AZURITE_VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, known to everybody."""
FAKE_GOOGLE = "github.com/fsouza/fake-gcs-server@v1.56.1"
PROJECT = "rollingfs"
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "read": (),
    "read_range": (0, 10),
    "stat": (),
    "list": (),
    "create": (b"x",),
    "replace": (b"x", "1"),
    "write": ([b"x"],),
    "delete_if": ("1",),
    "now": (),
}
"""What some verbs of a backend take after the path."""


def azurite_program(build: bool) -> Path | None:
    """The script that starts azurite's blob service, installed at first use; None if it is missing and cannot be."""
    cache = cache_dir()
    home = cache / f"azurite-{AZURITE_VERSION}"
    script = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if script.exists():
        return script
    npm = shutil.which("npm")
    if not build or npm is None or shutil.which("node") is None:
        return None
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", f"azurite@{AZURITE_VERSION}"]
        subprocess.run(command, check=True, timeout=BUILD_S_MAX, cwd=folder)
        # a rename over a folder that another process made meanwhile fails; its content is the same
        with contextlib.suppress(OSError):
            os.rename(folder, home)
        Path(folder).mkdir(exist_ok=True)
    return script


fake_google_program = functools.partial(go_program, "fake-gcs-server", FAKE_GOOGLE)


@contextlib.contextmanager
def azurite_server() -> Iterator[dict[str, Any]]:
    """An azurite with an empty folder; gives the storage options of the target ``az`` for it."""
    require_module("obstore")
    require_module("azure.storage.blob")
    script = installed("azurite", azurite_program, "node")
    node = shutil.which("node") or "node"
    with tempfile.TemporaryDirectory(prefix="rollingfs-azurite-") as data:

        def command(port: int) -> list[str]:
            listen = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", data]
            # it knows no API version that is newer than itself
            return [node, str(script), *listen, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]

        with running("azurite", command, f"/{ACCOUNT}", os.environ.copy()) as url:
            given = {"AccountName": ACCOUNT, "AccountKey": ACCOUNT_KEY, "BlobEndpoint": f"{url}/{ACCOUNT}"}
            yield {"connection_string": ";".join(f"{name}={value}" for name, value in given.items())}


@functools.cache
def blob_service(**options: str) -> Any:
    """Microsoft's own client of an azurite, which reads and writes around the backend."""
    from azure.storage.blob import BlobServiceClient

    return BlobServiceClient.from_connection_string(options["connection_string"])


def new_container(options: dict[str, Any]) -> str:
    """Make a container with a new name."""
    name = f"rollingfs-{uuid.uuid4().hex[:12]}"
    blob_service(**options).create_container(name)
    return name


@contextlib.contextmanager
def fake_google_server() -> Iterator[dict[str, Any]]:
    """A fake-gcs-server with nothing in it; gives the storage options of gcsfs for it."""
    require_module("gcsfs")
    binary = installed("fake-gcs-server", fake_google_program, "go")

    def command(port: int) -> list[str]:
        listen = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
        return [str(binary), *listen, "-backend", "memory", "-log-level", "error"]

    with running("fake-gcs-server", command, "/storage/v1/b?project=p", os.environ.copy()) as url:
        yield {"endpoint_url": url, "token": "anon", "project": PROJECT}


def new_google_bucket(options: dict[str, Any]) -> str:
    """Make a bucket with a new name."""
    from gcsfs import GCSFileSystem

    name = f"rollingfs-{uuid.uuid4().hex[:12]}"
    GCSFileSystem(**options).mkdir(name)
    return name
