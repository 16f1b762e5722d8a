"""Backends of S3 whose verbs are plain functions."""

from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.objects import open_s3
from rollingfs.backend.objects.backend import ObjectBackend
from tests.support.driven import Driven
from tests.support.servers import ways


def driven_s3(options: dict[str, Any], url: str | None = None, *, use_obstore: bool = True, **more: Any) -> Driven:
    """A backend of its own; at this URL, as that of a proxy, and with more options of s3fs if there are any."""
    from s3fs import S3FileSystem  # the bare package has no s3fs, and its tests run without

    filesystem = more.pop("cls", S3FileSystem)
    given = options | ({} if url is None else {"endpoint_url": url}) | more
    return Driven(open_s3(filesystem(**given, skip_instance_cache=True), use_obstore=use_obstore))


def rolling_s3(options: dict[str, Any], url: str | None = None, **more: Any) -> RollingFileSystem:
    """A client of its own, which remembers no header; the rest as with `driven_s3`."""
    given = options | ({} if url is None else {"endpoint_url": url}) | more
    return RollingFileSystem("s3", given, skip_instance_cache=True, header_cache_s=0)


def ways_of(backend: Any) -> set[str]:
    """The names of the classes by which objects were read and written."""
    return {type(objects).__name__ for objects in ways(backend)}


def small_parts(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Make files larger than `size` uploads in parts of that size."""
    for limit in ("part_bytes", "put_bytes_max"):
        monkeypatch.setattr(ObjectBackend, limit, size)
