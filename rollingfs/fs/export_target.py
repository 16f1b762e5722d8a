"""Where an export writes: a path on the segments' own store, or on any other that fsspec knows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import fsspec
from fsspec.core import url_to_fs

from rollingfs.backend.contract import Backend
from rollingfs.backend.objects.schemes import goes_straight_to_azure
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.fs.target import ALIASES, adapt, open_azure_target, require_client
from rollingfs.runtime.bridge import Bridge

_SAME = (*ALIASES, frozenset({"file", "local"}))
"""Protocols that are names of one store."""
_known: WeakKeyDictionary[fsspec.AbstractFileSystem, dict[bool, Elsewhere]] = WeakKeyDictionary()
"""Exports of thousands of segments share the connections to their target; by whether they come from an async store."""


def open_export_target(
    own: Backend, target: str, protocol: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Backend, str]:
    """The backend that a target lies on, and its path there.

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
    if not is_chain and not options and (protocol is None or _is_same(protocol, own.unstrip("x").partition("://")[0])):
        return own, own.strip(target)
    if protocol is not None:
        require_client(protocol)
        if goes_straight_to_azure(protocol):
            azure = Elsewhere(open_azure_target(protocol, options or {}), from_async=own.is_async)
            return azure, azure.strip(target)
    if is_chain:
        fs, _ = url_to_fs(target, **(options or {}))
    else:
        fs = fsspec.filesystem(protocol or own.unstrip("x").partition("://")[0], **(options or {}))
    known = _known.setdefault(fs, {})
    if own.is_async not in known:
        known[own.is_async] = Elsewhere(adapt(fs), from_async=own.is_async)
    backend = known[own.is_async]
    return backend, backend.strip(target)


def _is_chain(target: str) -> bool:
    """Whether several filesystems are meant: a name may have "::" too, and fsspec would look for it on the disk."""
    first, _, rest = target.partition("::")
    return bool(rest) and (first in fsspec.available_protocols() or "://" in rest.rpartition("::")[2])


def _is_same(protocol: str, other: str) -> bool:
    return protocol == other or any({protocol, other} <= several for several in _SAME)


class Elsewhere(BackendWrapper):
    """A backend that coroutines over another backend call: each verb runs on its own loop, or in its own thread."""

    def __init__(self, inner: Backend, *, from_async: bool) -> None:
        super().__init__(inner)
        self._bridge = Bridge(inner)
        self._from_async = from_async

    async def call(self, verb: str, *args: Any) -> Any:
        coroutine = super().call(verb, *args)
        if not self._from_async:
            return self._bridge.run(coroutine)
        if self.inner.is_async:
            return await self._bridge.arun(coroutine)
        thread = asyncio.ensure_future(self._bridge.arun(coroutine))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            # nothing stops a thread. If `abort` closed the file under it, the thread could write into the file that
            # gets the descriptor's number next
            while not thread.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([thread])
            if not thread.cancelled():
                thread.exception()  # retrieved, or asyncio would log it
            raise
