"""The backend for S3 and stores that speak its protocol, through an s3fs filesystem.

In: paths that begin with a bucket. Out: what `rollingfs.backend.contract` promises.
Must not be here: anything that knows what a header says. s3fs is imported only when this package is.
"""

from rollingfs.backend.s3.backend import S3Backend

__all__ = ["S3Backend"]
