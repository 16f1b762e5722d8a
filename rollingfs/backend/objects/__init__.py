"""Conditional files on object stores: S3, Azure, Google.

In: an account (`bucket.Service`) and its buckets (`bucket.Bucket`), each for one kind of store. Out: what
`rollingfs.backend.contract` promises. One adapter (`backend`), one upload, one table of errors serve all kinds.
Must not be here: anything that knows what a header says; signing and sockets. obstore, s3fs and gcsfs are imported only
when a store that needs them is opened.
"""

from rollingfs.backend.objects.opening import open_azure, open_google, open_s3

__all__ = ["open_azure", "open_google", "open_s3"]
