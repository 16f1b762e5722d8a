"""The schemes of URLs, by cloud, which filesystems of fsspec stand for them, and the options of every filesystem."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import fsspec
from fsspec import AbstractFileSystem

AZURE_PROTOCOLS = frozenset({"az", "abfs", "abfss", "azure", "adl"})
GOOGLE_PROTOCOLS = frozenset({"gs", "gcs"})
S3_PROTOCOLS = frozenset({"s3", "s3a"})
FSSPEC_OPTIONS = frozenset(
    {
        "asynchronous",
        "batch_size",
        "listings_expiry_time",
        "loop",
        "max_paths",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
"""Options that fsspec itself gives to any filesystem."""


OBSTORE, S3FS, GCSFS, ADLFS = "obstore.fsspec", "s3fs.core", "gcsfs.core", "adlfs.spec"
_CLASSES = {OBSTORE: "FsspecStore", S3FS: "S3FileSystem", GCSFS: "GCSFileSystem", ADLFS: "AzureBlobFileSystem"}
"""The filesystems of clouds, by their modules."""


def is_of(module: str, cls: type[AbstractFileSystem]) -> bool:
    """Return whether a class is the filesystem of a module, or derived from it."""
    # not imported for the question: a filesystem exists only where its module is
    kind = getattr(sys.modules.get(module), _CLASSES[module], None)
    return kind is not None and issubclass(cls, kind)


def options_of(fs: AbstractFileSystem) -> dict[str, Any]:
    """Return the options that a filesystem was made with, by their names."""
    names = list(inspect.signature(type(fs).__init__).parameters)[1:]
    options: dict[str, Any] = dict(zip(names, fs.storage_args, strict=False)) | fs.storage_options
    return options


def goes_straight_to_azure(protocol: str) -> bool:
    """Return whether Azure is meant, without obstore's own filesystem."""
    if protocol not in AZURE_PROTOCOLS:
        return False
    registered = fsspec.registry.get(protocol)
    return registered is None or not is_of(OBSTORE, registered)
