"""Choose the backend for a URL or protocol, and make it and its tiers from options; also the backend of an export."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import fsspec
from fsspec import AbstractFileSystem
from fsspec.asyn import reset_lock
from fsspec.config import apply_config
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rollingfs.backend.contract import Backend
from rollingfs.backend.objects import clouds
from rollingfs.backend.objects.clouds import FSSPEC_OPTIONS, require_client
from rollingfs.backend.tiers import TieredBackend, TierStore
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.fs.arguments import CHAIN_OPTIONS, accepted_by, listed, meant, unknown
from rollingfs.policy import check_alias
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import AsyncRuntime, drive
from rollingfs.runtime.system import at_fork

ANON = "anon"
"""pandas adds this option, for any store, after a read was refused: an error about it would hide the refusal."""

at_fork(in_child=reset_lock)  # fsspec itself forgets its loop only (2026.9.0)


def open_target(
    protocol: str | None,
    options: Mapping[str, Any],
    fs: AbstractFileSystem | None,
    backend: Backend | None,
    *,
    sync: bool,
    single_writer: bool,
    asynchronous: bool,
    loop: Any,
    max_concurrency: int | None,
) -> Backend:
    """Return the backend for the target that the caller names: by protocol and options, by filesystem, or by backend.

    Raises
    ------
    ValueError
        There is no target, or there are several; or the backend cannot have this `max_concurrency`.
    """
    named = {"target_protocol": protocol, "fs": fs, "backend": backend}
    given = [name for name, value in named.items() if value is not None]
    if not given:
        raise ValueError(
            "rolling needs a target: open 'rolling::s3://bucket/x' or 'rolling::file:///data/x', "
            "or give target_protocol='s3' (or 'file', 'memory', ...) with target_options, or fs=..."
        )
    if len(given) > 1:
        raise ValueError(f"rolling needs one target, but {' and '.join(given)} are given: leave out all but one")
    if backend is not None:
        if max_concurrency is not None:
            raise ValueError(
                "max_concurrency cannot be set for a backend that is given: set the requests_max of its own capability"
            )
        return backend
    if protocol is not None:
        options = dict(options)
        opened = clouds.open_direct(protocol, options, asynchronous, loop, max_concurrency)
        if opened is not None:
            return opened
        if getattr(fsspec.get_filesystem_class(protocol), "async_impl", False):
            # zarr and others say only to the outermost filesystem on which loop they use it
            if asynchronous:
                options.setdefault("asynchronous", True)
            if loop is not None:
                options.setdefault("loop", loop)
        fs = _hadoop(options) if protocol == "hdfs" else fsspec.filesystem(protocol, **options)
    assert fs is not None
    return adapt(fs, sync=sync, single_writer=single_writer, max_concurrency=max_concurrency)


def _hadoop(options: Mapping[str, Any]) -> AbstractFileSystem:
    """Return HDFS through pyarrow.

    Raises
    ------
    ImportError
        pyarrow or Hadoop's client is missing.
    """
    try:
        return fsspec.filesystem("hdfs", **options)
    except (ImportError, OSError) as error:
        raise ImportError(
            f"HDFS cannot be reached through pyarrow ({str(error).partition(chr(10))[0]}); nothing was read or "
            "written. It needs pyarrow, Hadoop's libhdfs.so (in ARROW_LIBHDFS_DIR, or lib/native of HADOOP_HOME), "
            "a JVM (JAVA_HOME), and in CLASSPATH what `hadoop classpath --glob` prints; or write webhdfs://HOST:PORT/..."
        ) from error


OF_URLS = frozenset({"host", "password", "port", "user", "username"})
"""Options that a URL may name."""


def options_of_url(protocol: str, url: str) -> dict[str, Any]:
    """Return the options of a store that a URL names: the host of ``hdfs://name:8020/x``, an account of Azure."""
    if (module := clouds.direct(protocol)) is not None:
        of_url: dict[str, Any] = module.options_of_url(url)
        return of_url
    found = fsspec.get_filesystem_class(protocol)._get_kwargs_from_urls(url)
    return {name: value for name, value in found.items() if name in OF_URLS}


def adapt(
    fs: AbstractFileSystem, *, sync: bool = True, single_writer: bool = False, max_concurrency: int | None = None
) -> Backend:
    """Return the adapter for a filesystem; the filesystem is not altered.

    Raises
    ------
    ValueError
        The filesystem is a rolling filesystem, or has fewer connections than `max_concurrency`.
    """
    if "rolling" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol):
        raise ValueError("the target of rolling is itself a rolling filesystem: name the filesystem below it")
    if isinstance(fs, LocalFileSystem):
        from rollingfs.backend.local.backend import LocalBackend

        return LocalBackend(sync=sync)
    if isinstance(fs, MemoryFileSystem):
        from rollingfs.backend.memory import MemoryBackend

        return MemoryBackend(fs)
    backend = clouds.open_filesystem(fs, max_concurrency)
    if backend is not None:
        return backend
    from rollingfs.backend.generic import GenericBackend

    generic = GenericBackend(fs, single_writer=single_writer)
    generic.capability = generic.capability.limited(max_concurrency)
    return generic


def take_store_options(
    protocol: str | None,
    given: Mapping[str, Any] | None,
    options: dict[str, Any],
    own: frozenset[str],
    shared: Mapping[str, Any],
) -> dict[str, Any]:
    """Take the options of the store out of all options of a filesystem.

    A caller gives them in `given`, in `options` under the store's name (``s3={"key": …}``), or in `options` by
    themselves if only a single store can be meant. An option under a name replaces an option without it.

    Parameters
    ----------
    given
        `target_options`.
    options
        All options that are not rolling's. The store's are removed; fsspec's own are left.
    own
        The names of rolling's options.
    shared
        Options of rolling that stores have too, with their values.

    Raises
    ------
    TypeError
        Neither rolling nor the store has an option; or both have it, and it is not clear which is meant. The message
        has the name, not the value, which may be secret.
    """
    if protocol is None:
        _refuse(options, own)
        return dict(given or {})
    clouds.require_client(protocol)
    accepted = accepted_by(protocol)
    nested = {**(given or {}), **_under_name(protocol, options)}
    accepted.check(nested)
    flat = {name: options.pop(name) for name in options.keys() - FSSPEC_OPTIONS}
    is_chain = not CHAIN_OPTIONS.isdisjoint(nested)
    if ANON in flat and ANON not in accepted.names and not is_chain:
        del flat[ANON]
    for name in sorted(flat):
        if not accepted.knows(name, own):
            raise TypeError(f"{unknown(name, own, accepted)}, also under its name, as in {protocol}={{...}}")
        if is_chain:
            raise TypeError(
                f"option {name!r} may be meant for several filesystems of the chain: give it under the name of one, "
                f"as in {protocol}={{{name!r}: ...}}"
            )
    both = sorted(name for name, value in shared.items() if value is not None and name in accepted.names)
    if both and flat.keys() - {ANON}:
        raise TypeError(
            f"{both[0]!r} is an option of rolling and of {protocol}: give those of {protocol} under its name, as in "
            f"{protocol}={{{sorted(flat)[0]!r}: ...}}; then what stands beside them is rolling's"
        )
    return flat | nested


def _under_name(protocol: str, options: dict[str, Any]) -> dict[str, Any]:
    """Remove from `options` the options under the store's name, or another name of the same store."""
    found: dict[str, Any] = {}
    for name in (protocol, *sorted(clouds.names_of(protocol) - {protocol})):
        found |= options.pop(name, None) or {}
    return found


def _refuse(options: Mapping[str, Any], own: frozenset[str]) -> None:
    """Refuse options of a store that the caller gave as an object."""
    for name in sorted(options.keys() - FSSPEC_OPTIONS):
        raise TypeError(
            f"rolling has no option {name!r}{meant(name, own)}; it takes {listed(own)}; options of a store need its "
            "target_protocol, and go under its name, as in s3={...}"
        )


# -- how fsspec's configuration meets what a caller gives by position ----------------------------------------

_BY_POSITION = ("target_protocol", "target_options", "fs")


class Configured(type(AbstractFileSystem)):  # type: ignore[misc]  # the class of fsspec's classes
    """Makes filesystems. The caller's options count before the configuration, by position as by name.

    fsspec hands on the options of its configuration by name, together with an argument that has the same name.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(_BY_POSITION, args, strict=False))
        if len(given) == len(args) and given.keys() & apply_config(cls, {}).keys() and not given.keys() & kwargs.keys():
            return super().__call__(**given, **kwargs)
        return super().__call__(*args, **kwargs)


SETTINGS = frozenset({"backend", "fs", "options", "protocol", "root"})


def with_tiers(
    hot: Backend, protocol: str | None, tiers: Mapping[str, Any] | None, *, sync: bool, asynchronous: bool
) -> Backend:
    """Return the hot store with its tiers; without tiers the hot store itself.

    A tier is a URL of its root, or a mapping with `root` and, for a store of its own, `protocol` and `options` (or
    `fs`, or `backend`). With the protocol of the hot store and without options, it is on the hot store.

    Raises
    ------
    ValueError
        An alias or a root is invalid.
    TypeError
        A setting is missing, or of another type.
    ImportError
        The client of a store is not installed.
    """
    if tiers is None:
        return hot
    if not isinstance(tiers, Mapping):
        raise TypeError(
            f"tiers is a {type(tiers).__name__}: it must map aliases to tiers, as {{'cold': 's3://archive/logs'}}"
        )
    if not tiers:
        return hot
    stores = {}
    for alias, given in tiers.items():
        check_alias(str(alias))
        try:
            stores[alias] = _store(hot, protocol, _settings(alias, given), sync=sync, asynchronous=asynchronous)
        except ValueError as error:
            raise ValueError(f"tier {alias!r}: {error}") from error
    return TieredBackend(hot, stores)


def _settings(alias: str, given: Any) -> dict[str, Any]:
    settings = {"root": given} if isinstance(given, str) else given
    if not isinstance(settings, Mapping):
        kind = type(given).__name__  # its value may hold a secret
        raise TypeError(f"tier {alias!r} is a {kind}: it must be the URL of its root, or a mapping with 'root'")
    for name in sorted(settings.keys() - SETTINGS):
        raise TypeError(f"tier {alias!r} has no setting {name!r}{meant(name, SETTINGS)}; it takes {listed(SETTINGS)}")
    if not isinstance(settings.get("root"), str):
        raise TypeError(f"tier {alias!r} needs the setting 'root', a path or URL of the folder of its files")
    return dict(settings)


def _store(
    hot: Backend, hot_protocol: str | None, settings: Mapping[str, Any], *, sync: bool, asynchronous: bool
) -> TierStore:
    root, options = settings["root"], settings.get("options")
    named = [name for name in ("backend", "fs", "protocol") if settings.get(name) is not None]
    protocol = settings.get("protocol")
    if not named and "://" in root:
        protocol = root.partition("://")[0]
    is_same = protocol is None or protocol == hot_protocol
    if options is None and is_same and not set(named) & {"backend", "fs"}:
        return TierStore(hot, hot.strip(root))
    if protocol is None and options is not None:
        raise ValueError("it has options, but no protocol that they are meant for")
    if protocol is not None:
        require_client(protocol)
        accepted_by(protocol).check(options or {})
    backend = open_target(
        protocol,
        options or {},
        settings.get("fs"),
        settings.get("backend"),
        sync=sync,
        single_writer=False,
        # on the loop of the hot store, if the user runs that; else on fsspec's own
        asynchronous=asynchronous and hot.is_async,
        loop=getattr(hot, "loop", None) if asynchronous and hot.is_async else None,
        max_concurrency=None,
    )
    return TierStore(backend, backend.strip(root))


# -- where an export writes ----------------------------------------------------------------------------------

_LOCAL = frozenset({"file", "local"})
_known: WeakKeyDictionary[fsspec.AbstractFileSystem, dict[bool, Elsewhere]] = WeakKeyDictionary()
"""Exports of thousands of segments share the connections to their target; by whether they come from an async store."""


def open_export_target(
    own: Backend, target: str, protocol: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Backend, str]:
    """Return the backend of a target, and its path there.

    It is `own`, the backend of the segments, unless the target's protocol is another or `options` are given.

    Parameters
    ----------
    target
        A URL, or a path on the store of the segments (of `protocol`, if that is given).
    """
    target = target.removeprefix("rolling::")
    is_chain = protocol is None and _is_chain(target)
    if protocol is None and "://" in target and not is_chain:
        protocol = target.partition("://")[0]
    here = own.unstrip("x").partition("://")[0]
    is_same = protocol is None or here in clouds.names_of(protocol) or {protocol, here} <= _LOCAL
    if is_same and not is_chain and not options:
        return own, own.strip(target)
    if protocol is not None:
        clouds.require_client(protocol)
        if (opened := clouds.open_direct(protocol, options or {})) is not None:
            elsewhere = Elsewhere(opened, from_async=own.is_async)
            return elsewhere, elsewhere.strip(target)
    if is_chain:
        fs, _ = url_to_fs(target, **(options or {}))
    else:
        fs = fsspec.filesystem(protocol or here, **(options or {}))
    known = _known.setdefault(fs, {})
    if own.is_async not in known:
        known[own.is_async] = Elsewhere(adapt(fs), from_async=own.is_async)
    backend = known[own.is_async]
    return backend, backend.strip(target)


def _is_chain(target: str) -> bool:
    """Return whether several filesystems are meant: a name may contain '::' too, which fsspec looks for on a disk."""
    first, _, rest = target.partition("::")
    return bool(rest) and (first in fsspec.available_protocols() or "://" in rest.rpartition("::")[2])


class Elsewhere(BackendWrapper):
    """A backend that coroutines over another backend call: each verb runs on its own loop, or in its own thread."""

    def __init__(self, inner: Backend, *, from_async: bool) -> None:
        super().__init__(inner)
        self._bridge = Bridge(inner)
        self._from_async = from_async
        self._threads = AsyncRuntime()

    async def call(self, verb: str, *args: Any) -> Any:
        coroutine = super().call(verb, *args)
        if not self._from_async:
            return self._bridge.run(coroutine)
        if self.inner.is_async:
            return await self._bridge.arun(coroutine)
        return await self._threads.in_thread(partial(drive, coroutine))
