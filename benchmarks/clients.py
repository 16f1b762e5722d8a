"""How rollingfs and its rivals connect. Each has the settings that made it fastest when we tried."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import fsspec

from benchmarks.case import Job, Skip

STORE_VARIABLE = "ROLLINGFS_BENCH_FOLDER"
"""The environment variable by which processes know the folder of ``--store``."""
BUCKET = os.environ.get(STORE_VARIABLE, "bench")
WARM = f"{BUCKET}/warm"
"""A small object that each client reads before the clock starts, so that its first connection is made by then."""
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
        target_options=job.servers.s3fs_options(direct=direct),
        skip_instance_cache=True,
        **options,
    )
    if warm:
        fs.cat_file(WARM)
    return fs


@contextlib.contextmanager
def serving(job: Job) -> Iterator[str]:
    """Serve the bucket by a process of its own; gives its URL, with a slash at its end."""
    options = job.servers.s3fs_options()
    given = {"s3.client_kwargs": json.dumps(options.pop("client_kwargs"))} if options else {}
    given |= {f"s3.{name}": value for name, value in options.items()}
    words = [word for name, value in given.items() for word in ("--option", f"{name}={value}")]
    command = [sys.executable, "-m", "rollingfs.cli", "serve", f"s3://{BUCKET}", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def s3(job: Job, *, direct: bool = False, warm: bool = True) -> Any:
    """A new s3fs, with as many connections as ours."""
    from s3fs import S3FileSystem

    fs = S3FileSystem(
        **job.servers.s3fs_options(direct=direct),
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

    if not job.servers.url:
        bucket, _, prefix = BUCKET.partition("/")
        store = S3Store(bucket, prefix=prefix)
        obstore.get(store, "warm").bytes()
        return store
    store = S3Store(
        BUCKET,
        endpoint=job.servers.direct_url if direct else job.servers.url,
        access_key_id=job.servers.key,
        secret_access_key=job.servers.secret,
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
    given = {
        "access_key": job.servers.key,
        "secret_key": job.servers.secret,
        "endpoint_override": job.servers.url.removeprefix("http://"),
        "scheme": "http",
        "region": "us-east-1",
    }
    fs = S3FileSystem(**(given if job.servers.url else {}))
    with fs.open_input_file(WARM) as file:
        file.read()
    return fs


def delta_options(job: Job) -> dict[str, str]:
    """The storage options of delta-rs; conditional puts are its default."""
    need("deltalake")
    if not job.servers.url:
        return {}
    return {
        "AWS_ACCESS_KEY_ID": job.servers.key,
        "AWS_SECRET_ACCESS_KEY": job.servers.secret,
        "AWS_ENDPOINT_URL": job.servers.url,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
