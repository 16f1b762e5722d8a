"""The backend for S3 and stores that speak its protocol: objects through obstore, the rest through s3fs.

In: an s3fs filesystem, paths that begin with a bucket. Out: what `rollingfs.backend.contract` promises.
Must not be here: anything that knows what a header says; signing, sockets and HTTP of our own.
s3fs is imported only when this package is; obstore only when the first object is read or written.
"""

from rollingfs.backend.s3.backend import S3Backend

__all__ = ["S3Backend"]
