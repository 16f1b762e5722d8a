"""Makes a `CloudBackend` from the options or the filesystem that a user gives."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import fsspec.asyn
from fsspec import AbstractFileSystem

from rollingfs.backend.cloud.azure_options import OPTIONS, SCOPE, azure_options
from rollingfs.backend.cloud.backend import CloudBackend, Loop
from rollingfs.backend.cloud.protocols import AZURE_PROTOCOLS, S3_PROTOCOLS

FOR_FSSPEC = frozenset(
    {
        "batch_size",
        "blocksize",
        "default_cache_type",
        "default_fill_cache",
        "listings_expiry_time",
        "max_paths",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
"""Options of adlfs that say nothing of how requests are sent."""
_NEEDED = ("obstore", "aiohttp")


def open_azure(
    scheme: str,
    options: Mapping[str, Any],
    *,
    asynchronous: bool = False,
    loop: asyncio.AbstractEventLoop | None = None,
    max_concurrency: int | None = None,
) -> CloudBackend:
    """The backend for an account of Azure, through obstore.

    Parameters
    ----------
    options
        As `azure_options` takes them, and ``client_options``, which are obstore's own.

    Raises
    ------
    ImportError
        obstore or aiohttp is not installed.
    ValueError
        An option cannot be expressed.
    """
    _require()
    from obstore.store import AzureStore

    from rollingfs.backend.cloud.obstore_service import Account, ObstoreService

    found = azure_options(options, os.environ)
    account = Account(
        kind=AzureStore,
        scheme=scheme,
        name=found.endpoint,
        url=found.endpoint,
        config=dict(found.config),
        client=_client(found.endpoint),
        credentials=None if found.credential is None else _tokens(found.credential),
        sas=found.sas,
        can_sign=found.can_sign,
    )
    return CloudBackend(ObstoreService(account), _finder(asynchronous, loop), max_concurrency)


def adapt_obstore(fs: AbstractFileSystem, max_concurrency: int | None = None) -> CloudBackend | None:
    """The backend for obstore's own filesystem; None for one of a cloud that is not known here.

    Google through obstore is not: no server to test it with is known.
    """
    scheme = str(fs.protocol)
    if scheme not in AZURE_PROTOCOLS | S3_PROTOCOLS:
        return None
    _require()
    from obstore.store import AzureStore

    from rollingfs.backend.cloud.obstore_service import Account, ObstoreService

    # obstore's filesystem has no public way to its options; a store has
    store: Any = fs._construct_store("rollingfs")
    config = {name: value for name, value in store.config.items() if name not in ("bucket", "container_name")}
    is_azure = isinstance(store, AzureStore)
    url = _azure_url(config) if is_azure else _s3_url(config)
    signed = str(config.get("skip_signature", "false")).lower() != "true" and store.credential_provider is None
    account = Account(
        kind=type(store),
        scheme=scheme,
        name=url,
        url=url,
        config=config,
        client=dict(store.client_options or {}),
        credentials=store.credential_provider,
        can_sign=signed and ("account_key" in config if is_azure else "access_key_id" in config),
    )
    return CloudBackend(ObstoreService(account), _finder(fs.asynchronous, fs.loop), max_concurrency)


def _azure_url(config: Mapping[str, Any]) -> str:
    return str(config.get("endpoint") or f"https://{config.get('account_name')}.blob.core.windows.net").rstrip("/")


def _s3_url(config: Mapping[str, Any]) -> str:
    return str(config.get("endpoint") or f"https://s3.{config.get('region', 'us-east-1')}.amazonaws.com").rstrip("/")


def _client(url: str) -> dict[str, Any]:
    return {"allow_http": True} if url.startswith("http://") else {}


def _finder(asynchronous: bool, loop: asyncio.AbstractEventLoop | None) -> Callable[[], Loop | None]:
    """Finds a loop: none where the caller has one, the one that is given, or fsspec's own, as in a forked child."""
    process = os.getpid()

    def find() -> Loop | None:
        if asynchronous:
            return None
        found: Loop = loop if loop is not None and os.getpid() == process else fsspec.asyn.get_loop()
        return found

    return find


def _tokens(credential: Any) -> Callable[[], Any]:
    """What obstore asks for a token: an object like those of azure-identity, with or without `await`."""

    async def token() -> dict[str, Any]:
        if inspect.iscoroutinefunction(credential.get_token):
            found = await credential.get_token(SCOPE)
        else:
            found = await asyncio.to_thread(credential.get_token, SCOPE)
        return {"token": found.token, "expires_at": datetime.fromtimestamp(found.expires_on, UTC)}

    return token


def _require() -> None:
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"this store needs {name}: pip install 'rollingfs[az]'")


def adapt_google(fs: AbstractFileSystem, max_concurrency: int | None = None) -> CloudBackend:
    """The backend for Google's storage, over a gcsfs filesystem; the filesystem is not altered.

    Raises
    ------
    ValueError
        The filesystem is to check what it wrote in a way that this backend has not.
    """
    from rollingfs.backend.cloud.google_service import GoogleService

    if fs.consistency not in (None, "none"):
        raise ValueError(f"consistency={fs.consistency!r} of gcsfs cannot be kept here: leave it out")
    service = GoogleService(fs)
    return CloudBackend(service, lambda: None if fs.asynchronous else service.fs.loop, max_concurrency)


def adapt_adlfs(fs: AbstractFileSystem, max_concurrency: int | None = None) -> CloudBackend:
    """The backend for the account that an adlfs filesystem is for, through obstore.

    Raises
    ------
    ImportError, ValueError
        As `open_azure`.
    """
    names = list(inspect.signature(type(fs).__init__).parameters)[1:]
    options = dict(zip(names, fs.storage_args, strict=False)) | fs.storage_options
    asynchronous, loop = options.pop("asynchronous", False), options.pop("loop", None)
    for name in FOR_FSSPEC:
        options.pop(name, None)
    unknown = sorted(name for name, value in options.items() if value is not None and name not in OPTIONS)
    if unknown:
        raise ValueError(f"{', '.join(unknown)} of adlfs cannot be expressed")
    scheme = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    return open_azure(scheme, options, asynchronous=asynchronous, loop=loop, max_concurrency=max_concurrency)
