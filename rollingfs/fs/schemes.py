"""`RollingFileSystem` under schemes of its own over each store, for tools that know no chained URLs.

Each has a form of only letters (``rollings3``), for tools to which a scheme has no ``+``.
"""

from __future__ import annotations

from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.local.looks import canonical
from rollingfs.fs.filesystem import RollingFileSystem


class RollingS3FileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+s3://bucket/x``, for tools that know no chained URLs."""

    protocol = ("rolling+s3", "rolling+s3a", "rollings3", "rollings3a")
    target_default = "s3"

    @classmethod
    def _strip_default(cls, path: str) -> str:
        return path.strip("/")


class RollingLocalFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+file:///data/x``, for tools that know no chained URLs."""

    protocol = ("rolling+file", "rolling+local", "rollingfile", "rollinglocal")
    target_default = "file"

    @classmethod
    def _strip_default(cls, path: str) -> str:
        return canonical(path)


class RollingMemoryFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+memory://x``, for tools that know no chained URLs."""

    protocol = ("rolling+memory", "rollingmemory")
    target_default = "memory"

    @classmethod
    def _strip_default(cls, path: str) -> str:
        stripped: str = MemoryFileSystem._strip_protocol(path)
        return stripped


class RollingAzureFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+az://container/x``, for tools that know no chained URLs."""

    protocol = ("rolling+az", "rolling+abfs", "rolling+abfss", "rollingaz", "rollingabfs", "rollingabfss")
    target_default = "az"

    @classmethod
    def _strip_default(cls, path: str) -> str:
        container, slash, key = path.strip("/").partition("/")
        return f"{container.partition('@')[0]}{slash}{key}"  # abfss://container@account.dfs.core.windows.net/key


class RollingGoogleFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+gs://bucket/x``, for tools that know no chained URLs."""

    protocol = ("rolling+gs", "rolling+gcs", "rollinggs", "rollinggcs")
    target_default = "gs"

    @classmethod
    def _strip_default(cls, path: str) -> str:
        return path.strip("/")
