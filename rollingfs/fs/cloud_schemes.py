"""`RollingFileSystem` under schemes of its own over Azure and Google, as `rolling+s3` is over S3."""

from __future__ import annotations

from rollingfs.fs.filesystem import RollingFileSystem


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
