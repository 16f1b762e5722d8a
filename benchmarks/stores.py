"""How ours and the rivals connect: each with what makes it fast, found by trying."""

from __future__ import annotations

import importlib.util
from typing import Any

import fsspec

from benchmarks.work import Job, Skip

BUCKET = "bench"
WARM = f"{BUCKET}/warm"
"""A small object that everybody reads before the clock starts: clients and the first connection are made by then."""
S3FS_CONNECTIONS = 64


def need(module: str) -> None:
    """Skip the contestant where its package is not installed."""
    if importlib.util.find_spec(module) is None:
        raise Skip(f"{module} is not installed")


def rolling(job: Job, *, direct: bool = False, warm: bool = True, **options: Any) -> Any:
    """A new `RollingFileSystem`."""
    fs = fsspec.filesystem(
        "rolling",
        target_protocol="s3",
        target_options=job.rig.s3fs_options(direct=direct),
        skip_instance_cache=True,
        **options,
    )
    if warm:
        fs.cat_file(WARM)
    return fs


def s3(job: Job, *, direct: bool = False, warm: bool = True) -> Any:
    """A new s3fs, with as many connections as ours."""
    from s3fs import S3FileSystem

    fs = S3FileSystem(
        **job.rig.s3fs_options(direct=direct),
        config_kwargs={"max_pool_connections": S3FS_CONNECTIONS},
        skip_instance_cache=True,
    )
    if warm:
        fs.cat_file(WARM)
    return fs


def obs(job: Job, *, direct: bool = False) -> Any:
    """A new obstore client."""
    need("obstore")
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=job.rig.direct_url if direct else job.rig.url,
        access_key_id=job.rig.key,
        secret_access_key=job.rig.secret,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    obstore.get(store, "warm").bytes()
    return store


def arrow(job: Job) -> Any:
    """Pyarrow's own filesystem."""
    import pyarrow as pa
    from pyarrow.fs import S3FileSystem

    pa.set_io_thread_count(32)
    fs = S3FileSystem(
        access_key=job.rig.key,
        secret_key=job.rig.secret,
        endpoint_override=job.rig.url.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    with fs.open_input_file(WARM) as file:
        file.read()
    return fs


def delta_options(job: Job) -> dict[str, str]:
    """The storage options of delta-rs; conditional puts are its default."""
    need("deltalake")
    return {
        "AWS_ACCESS_KEY_ID": job.rig.key,
        "AWS_SECRET_ACCESS_KEY": job.rig.secret,
        "AWS_ENDPOINT_URL": job.rig.url,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
