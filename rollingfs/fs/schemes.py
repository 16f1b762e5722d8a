"""`RollingFileSystem` under schemes of its own over each store, for tools that know no chained URLs.

Each has a form of only letters (``rollings3``), for tools to which a scheme has no ``+``. The classes are made of the
table `rollingfs.STORES`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsspec.implementations.memory import MemoryFileSystem

from rollingfs import STORES
from rollingfs.backend.local.looks import canonical
from rollingfs.fs.filesystem import RollingFileSystem


def _in_bucket(path: str) -> str:
    """Return a path of an object store, without the account in ``container@account.dfs.core.windows.net/key``."""
    bucket, slash, key = path.strip("/").partition("/")
    return f"{bucket.partition('@')[0]}{slash}{key}"


STRIPS = {"file": canonical, "memory": MemoryFileSystem._strip_protocol}
"""Functions that return the path in a URL without its scheme, by store; `_in_bucket` for all others."""


def _over(name: str, stores: Sequence[str]) -> type[RollingFileSystem]:
    """Return the class of filesystems for the schemes of a kind of store."""
    first = stores[0]
    values = {
        "__doc__": f"`RollingFileSystem` by the scheme ``rolling+{first}://``, for tools that know no chained URLs.",
        "__module__": __name__,
        "protocol": tuple(f"rolling{plus}{store}" for plus in ("+", "") for store in stores),
        "target_default": first,
        "_strip_default": staticmethod(STRIPS.get(first, _in_bucket)),
    }
    return type(name, (RollingFileSystem,), values)


for _kind, _stores in STORES.items():
    _name = f"Rolling{_kind}FileSystem"
    globals()[_name] = _over(_name, _stores)
