"""Makes an `ObjectBackend` from the options or the filesystem that a user gives."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import fsspec.asyn
from fsspec import AbstractFileSystem

from rollingfs.backend.objects import schemes
from rollingfs.backend.objects.azure.options import OPTIONS, Account, azure_options

if TYPE_CHECKING:
    from rollingfs.backend.objects.backend import ObjectBackend

FOR_FSSPEC = schemes.FSSPEC_OPTIONS | {"blocksize", "default_cache_type", "default_fill_cache"}
"""Options of adlfs without effect on requests."""
Loop = asyncio.AbstractEventLoop
_NEEDED = ("obstore", "aiohttp")

logger = logging.getLogger("rollingfs")


def open_s3(fs: AbstractFileSystem, max_concurrency: int | None = None, *, use_obstore: bool = True) -> ObjectBackend:
    """Return the backend for S3, over an s3fs filesystem; the filesystem is not altered.

    Parameters
    ----------
    fs : s3fs.S3FileSystem
        A private clone uses its class and all its storage options. The first verb connects.
    max_concurrency : int, optional
        Requests under way at once for one purpose; by default 64 for data, 128 for headers, or a request for each
        connection.
    use_obstore : bool, optional
        False to read and write objects through s3fs, which is slower.

    Raises
    ------
    ValueError
        The user's `config_kwargs` allow fewer connections than `max_concurrency`.
    """
    from rollingfs.backend.objects.s3.backend import S3Backend

    return S3Backend(fs, max_concurrency, use_obstore)


def open_azure(
    scheme: str,
    options: Mapping[str, Any],
    *,
    asynchronous: bool = False,
    loop: Loop | None = None,
    max_concurrency: int | None = None,
) -> ObjectBackend:
    """Return the backend for an account of Azure, through obstore.

    Parameters
    ----------
    options
        Named as adlfs names them.

    Raises
    ------
    ImportError
        obstore or aiohttp is not installed.
    ValueError
        An option cannot be expressed.
    """
    _require()
    from rollingfs.backend.objects.azure.backend import AzureBackend

    account = azure_options(options, os.environ)
    return AzureBackend(scheme, account, _finder(asynchronous, loop), max_concurrency)


def open_obstore(fs: AbstractFileSystem, max_concurrency: int | None = None) -> ObjectBackend:
    """Return the backend for the account of Azure that obstore's own filesystem is open on.

    Raises
    ------
    ValueError
        It is open on another store.
    """
    scheme = str(fs.protocol)
    if scheme not in schemes.AZURE_PROTOCOLS:
        raise ValueError(f"obstore's own filesystem is taken for Azure only: name {scheme} by protocol and options")
    _require()
    from rollingfs.backend.objects.azure.backend import AzureBackend

    # obstore's filesystem has no public way to its options; a store has
    store: Any = fs._construct_store("rollingfs")
    config = {name: value for name, value in store.config.items() if name != "container_name"}
    url = str(config.get("endpoint") or f"https://{config.get('account_name')}.blob.core.windows.net").rstrip("/")
    account = Account(url, config, dict(store.client_options or {}), store.credential_provider)
    return AzureBackend(scheme, account, _finder(fs.asynchronous, fs.loop), max_concurrency)


def _finder(asynchronous: bool, loop: Loop | None) -> Callable[[], Loop | None]:
    """Return a finder of the loop: the caller's, the given, or fsspec's own."""
    process = os.getpid()

    def find() -> Loop | None:
        if asynchronous:
            return None
        found: Loop = loop if loop is not None and os.getpid() == process else fsspec.asyn.get_loop()
        return found

    return find


def _require() -> None:
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"this store needs {name}: pip install 'rollingfs[az]'")


def open_google(fs: AbstractFileSystem, max_concurrency: int | None = None) -> ObjectBackend:
    """Return the backend for Google's storage, over a gcsfs filesystem; the filesystem is not altered.

    Raises
    ------
    ValueError
        The filesystem is to check what it wrote in a way that this backend has not.
    """
    from rollingfs.backend.objects.google.backend import GoogleBackend

    if fs.consistency not in (None, "none"):
        raise ValueError(f"consistency={fs.consistency!r} of gcsfs cannot be kept here: leave it out")
    return GoogleBackend(fs, max_concurrency)


def open_adlfs(fs: AbstractFileSystem, max_concurrency: int | None = None) -> ObjectBackend:
    """Return the backend for the account that an adlfs filesystem is for, through obstore.

    Raises
    ------
    ImportError, ValueError
        As `open_azure`.
    """
    options = schemes.options_of(fs)
    asynchronous, loop = options.pop("asynchronous", False), options.pop("loop", None)
    for name in FOR_FSSPEC:
        options.pop(name, None)
    unknown = sorted(name for name, value in options.items() if value is not None and name not in OPTIONS)
    if unknown:
        raise ValueError(f"{', '.join(unknown)} of adlfs cannot be expressed")
    scheme = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    return open_azure(scheme, options, asynchronous=asynchronous, loop=loop, max_concurrency=max_concurrency)


def open_cloud(fs: AbstractFileSystem, max_concurrency: int | None = None) -> ObjectBackend | None:
    """Return the backend for a filesystem of a cloud, or None.

    None: it is of no cloud, or has options that its backend lacks.

    Raises
    ------
    ValueError
        As `open_s3`.
    """
    if schemes.is_of(schemes.S3FS, type(fs)):
        return open_s3(fs, max_concurrency)
    for module, opened in ((schemes.OBSTORE, open_obstore), (schemes.GCSFS, open_google), (schemes.ADLFS, open_adlfs)):
        if schemes.is_of(module, type(fs)):
            try:
                return opened(fs, max_concurrency)
            except (ImportError, ValueError) as error:
                logger.info("%s is used as a store without conditional writes: %s", type(fs).__name__, error)
    return None
