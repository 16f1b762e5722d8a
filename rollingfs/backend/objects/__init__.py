"""Conditional files on object stores: S3, Azure, Google.

In: an account's credentials and connections. Out: the promises of `rollingfs.backend.contract`. An adapter (`backend`),
which each kind of store subclasses, an upload, and a table of errors serve all kinds. Each has a `bucket.Bucket`. Must
not be here: knowledge of the content of headers; signing and sockets. obstore, s3fs and gcsfs are imported only when a
store that needs them is opened.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollingfs.backend.objects.azure import open_azure
    from rollingfs.backend.objects.google import open_google
    from rollingfs.backend.objects.s3.backend import open_s3

__all__ = ["open_azure", "open_google", "open_s3"]
_MODULES = {"open_azure": "azure", "open_google": "google", "open_s3": "s3.backend"}
"""Imported at their first use: every filesystem imports the names of schemes from this package."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
