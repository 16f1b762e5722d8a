"""The option `tiers` of the filesystem: opens the stores of tiers, and adds them to the hot store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollingfs.backend.contract import Backend
from rollingfs.backend.objects.clouds import require_client
from rollingfs.backend.tiers import TieredBackend, TierStore
from rollingfs.fs.store_options import accepted_by, listed, meant
from rollingfs.fs.target import open_target
from rollingfs.policy import OffloadPolicy, check_alias

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


def check_default(backend: Backend, policy: OffloadPolicy | Mapping[str, Any] | None) -> OffloadPolicy | None:
    """The offload policy of a filesystem, which names a tier of it, if any.

    Raises
    ------
    ValueError
        It names another, or a value is outside its range.
    TypeError
        It is not a policy.
    """
    if policy is None:
        return None
    found = OffloadPolicy.of(policy, "offload_policy")
    if found.tier and found.tier not in backend.tiers:
        raise ValueError(
            f"offload_policy moves chunks to the tier {found.tier!r}, which is none of `tiers`: give its root"
        )
    return found


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
