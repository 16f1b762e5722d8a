"""The schemes of URLs, by cloud, which filesystems of fsspec stand for them, and the options of every filesystem."""

from __future__ import annotations

import sys

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
"""What fsspec itself gives to any filesystem."""


def is_of_obstore(fs: AbstractFileSystem | type[AbstractFileSystem]) -> bool:
    """Whether a filesystem, or a class of them, is obstore's own."""
    return _is_a(fs, "obstore.fsspec", "FsspecStore")


def is_of_gcsfs(fs: AbstractFileSystem) -> bool:
    """Whether a filesystem is gcsfs'."""
    return _is_a(fs, "gcsfs.core", "GCSFileSystem")


def is_of_adlfs(fs: AbstractFileSystem) -> bool:
    """Whether a filesystem is adlfs'."""
    return _is_a(fs, "adlfs.spec", "AzureBlobFileSystem")


def _is_a(fs: AbstractFileSystem | type[AbstractFileSystem], module: str, name: str) -> bool:
    # not imported for the question: a filesystem exists only where its module is
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and issubclass(fs if isinstance(fs, type) else type(fs), kind)


def goes_straight_to_azure(protocol: str) -> bool:
    """Whether Azure is meant, and nobody has told fsspec to use obstore's own filesystem for it."""
    if protocol not in AZURE_PROTOCOLS:
        return False
    registered = fsspec.registry.get(protocol)
    return registered is None or not is_of_obstore(registered)
