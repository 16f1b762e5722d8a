"""Stand-ins for Azure and Google to test against, on loopback: azurite, and fake-gcs-server."""

import contextlib
import functools
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

from tests.support.servers import go_program, npm_package, require_module, running

AZURITE = npm_package("azurite@3.37.0")
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, known to everybody."""
FAKE_GOOGLE = go_program("fake-gcs-server", "github.com/fsouza/fake-gcs-server@v1.56.1")
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


@contextlib.contextmanager
def azurite_server() -> Iterator[dict[str, Any]]:
    """An azurite with an empty folder; gives the storage options of the target ``az`` for it."""
    require_module("obstore")
    require_module("azure.storage.blob")
    script = AZURITE.installed() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    node = shutil.which("node") or "node"
    # it knows no API version that is newer than itself
    flags = ("--blobHost", "127.0.0.1", "--silent", "--disableTelemetry", "--skipApiVersionCheck")

    def command(port: int, folder: str) -> list[str]:
        return [node, str(script), *flags, "--blobPort", str(port), "--location", folder]

    with running("azurite", command, f"/{ACCOUNT}") as url:
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
    place = ("-scheme", "http", "-host", "127.0.0.1", "-backend", "memory", "-log-level", "error")
    program = [str(FAKE_GOOGLE.installed()), *place, "-port"]
    with running("fake-gcs-server", lambda port, _: [*program, str(port)], "/storage/v1/b?project=p") as url:
        yield {"endpoint_url": url, "token": "anon", "project": PROJECT}


def new_google_bucket(options: dict[str, Any]) -> str:
    """Make a bucket with a new name."""
    from gcsfs import GCSFileSystem

    name = f"rollingfs-{uuid.uuid4().hex[:12]}"
    GCSFileSystem(**options).mkdir(name)
    return name
