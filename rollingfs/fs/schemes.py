"""`RollingFileSystem` under schemes of its own over S3, a disk and memory, for tools that know no chained URLs."""

from __future__ import annotations

from rollingfs.fs.filesystem import RollingFileSystem


class RollingS3FileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+s3://bucket/x``, for tools that know no chained URLs."""

    protocol = ("rolling+s3", "rolling+s3a")
    target_default = "s3"


class RollingLocalFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+file:///data/x``, for tools that know no chained URLs."""

    protocol = ("rolling+file", "rolling+local")
    target_default = "file"


class RollingMemoryFileSystem(RollingFileSystem):
    """`RollingFileSystem` by the scheme ``rolling+memory://x``, for tools that know no chained URLs."""

    protocol = "rolling+memory"
    target_default = "memory"
