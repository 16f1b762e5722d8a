"""Conditional files on object stores: S3, Azure, Google.

In: an account's credentials and connections. Out: the promises of `rollingfs.backend.contract`. An adapter (`backend`),
which each kind of store subclasses, an upload, and a table of errors serve all kinds. Each has a `bucket.Bucket`. Must
not be here: knowledge of the content of headers; signing and sockets. obstore, s3fs and gcsfs are imported only when a
store that needs them is opened.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from rollingfs.backend.objects.azure import open_azure as open_azure
    from rollingfs.backend.objects.google import open_google as open_google
    from rollingfs.backend.objects.s3.backend import open_s3 as open_s3

# every filesystem imports the names of schemes from this package
_MODULES = {"azure": ["open_azure"], "google": ["open_google"], "s3.backend": ["open_s3"]}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_MODULES)
