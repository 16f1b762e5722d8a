"""Makes an `AzureBackend` from options named as adlfs names them, from an adlfs filesystem, or from obstore's own."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem

from rollingfs.backend.objects.azure_options import OPTIONS, AzureAccount, azure_options
from rollingfs.backend.objects.clouds import FSSPEC_OPTIONS, OBSTORE, cloud_of, is_of, options_of

if TYPE_CHECKING:
    from rollingfs.backend.objects.backend import ObjectBackend

FOR_FSSPEC = FSSPEC_OPTIONS | {"blocksize", "default_cache_type", "default_fill_cache"}
"""Options of adlfs without effect on requests."""
Loop = asyncio.AbstractEventLoop
_NEEDED = ("obstore", "aiohttp")


def open_azure(
    scheme: str,
    options: Mapping[str, Any],
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
    return _opened(scheme, azure_options(options, os.environ), asynchronous, loop, max_concurrency)


open_options = open_azure


def open_filesystem(fs: AbstractFileSystem, max_concurrency: int | None = None) -> ObjectBackend:
    """Return the backend for the account that a filesystem of adlfs or of obstore is for.

    Raises
    ------
    ImportError, ValueError
        As `open_azure`; or obstore's filesystem is open on another store.
    """
    if is_of(OBSTORE, type(fs)):
        return _open_obstore(fs, max_concurrency)
    options = options_of(fs)
    given = {name: value for name, value in options.items() if value is not None and name not in FOR_FSSPEC}
    if unknown := sorted(given.keys() - OPTIONS):
        raise ValueError(f"{', '.join(unknown)} of adlfs cannot be expressed")
    scheme = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    return open_azure(scheme, given, options.get("asynchronous", False), options.get("loop"), max_concurrency)


def _open_obstore(fs: AbstractFileSystem, max_concurrency: int | None) -> ObjectBackend:
    scheme = str(fs.protocol)
    cloud = cloud_of(scheme)
    if cloud is None or not cloud.is_direct:
        raise ValueError(f"obstore's own filesystem is taken for Azure only: name {scheme} by protocol and options")
    # obstore's filesystem has no public way to its options; a store has
    store: Any = fs._construct_store("rollingfs")
    config = {name: value for name, value in store.config.items() if name != "container_name"}
    url = str(config.get("endpoint") or f"https://{config.get('account_name')}.blob.core.windows.net").rstrip("/")
    account = AzureAccount(url, config, dict(store.client_options or {}), store.credential_provider)
    return _opened(scheme, account, fs.asynchronous, fs.loop, max_concurrency)


def options_of_url(url: str) -> dict[str, Any]:
    """Return the options that a URL names: the account of ``abfss://container@account.dfs.core.windows.net/key``."""
    _, at, host = url.partition("://")[2].partition("/")[0].partition("@")
    return {"account_name": host.partition(".")[0]} if at else {}


def _opened(
    scheme: str, account: AzureAccount, asynchronous: bool, loop: Loop | None, max_concurrency: int | None
) -> ObjectBackend:
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"this store needs {name}: pip install 'rollingfs[az]'")
    from rollingfs.backend.objects.azure import AzureBackend

    return AzureBackend(scheme, account, asynchronous, loop, max_concurrency)
