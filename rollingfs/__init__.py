"""Append, seal, truncate and zero-copy concat for files on object stores and disks."""

import logging as _logging

import lazy_loader
from fsspec import register_implementation

from rollingfs.runtime import system as _system  # noqa: F401 - from now on, forks wait for imports

# the stub beside this file has the public names; each is imported at its first use, because `fsspec` may import this
# package and use no name of it
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.2.0"

# `logging` is the name of a module of this package, which `logging.config` finds by its name
_logging.getLogger(__name__).addHandler(_logging.NullHandler())

STORES = {
    "S3": ("s3", "s3a"),
    "Azure": ("az", "abfs", "abfss"),
    "Google": ("gs", "gcs"),
    "Local": ("file", "local"),
    "Memory": ("memory",),
}
"""The schemes of each kind of store. ``rolling+s3`` and ``rollings3`` are schemes of this package over it."""

# an installed package has entry points for fsspec; these lines serve a package that is only on the path
for _kind, _stores in STORES.items():
    for _scheme in _stores:
        for _alias in (f"rolling+{_scheme}", f"rolling{_scheme}"):
            register_implementation(_alias, f"rollingfs.fs.schemes.Rolling{_kind}FileSystem", clobber=True)
register_implementation("rolling", "rollingfs.fs.filesystem.RollingFileSystem", clobber=True)
