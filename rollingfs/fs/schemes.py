"""`RollingFileSystem` under schemes of its own over S3, a disk and memory, for tools that know no chained URLs."""

from __future__ import annotations

from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.local.looks import canonical
from rollingfs.fs.filesystem import RollingFileSystem


class RollingS3FileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+s3://bucket/x``, for tools that know no chained URLs."""

    protocol = ("rolling+s3", "rolling+s3a")
    target_default = "s3"

    @classmethod
    def _strip_default(cls, path: str) -> str:
        return path.strip("/")


class RollingLocalFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+file:///data/x``, for tools that know no chained URLs."""

    protocol = ("rolling+file", "rolling+local")
    target_default = "file"

    @classmethod
    def _strip_default(cls, path: str) -> str:
        return canonical(path)


class RollingMemoryFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+memory://x``, for tools that know no chained URLs."""

    protocol = "rolling+memory"
    target_default = "memory"

    @classmethod
    def _strip_default(cls, path: str) -> str:
        stripped: str = MemoryFileSystem._strip_protocol(path)
        return stripped
