"""`Stream`: a folder of segments that is cut, trimmed and kept within bounds as one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from rollingfs.client import Client
from rollingfs.folders.listing import REPORT, Listings, OnError
from rollingfs.runtime.bridge import Bridge
from rollingfs.stream.operations import StreamVerbs
from rollingfs.stream.retention import RetentionPolicy

P = ParamSpec("P")
T = TypeVar("T")

_Verb = Callable[Concatenate[StreamVerbs, P], Coroutine[Any, Any, T]]


def _sync(verb: _Verb[P, T]) -> Callable[Concatenate[Stream, P], T]:
    """The blocking method for a verb."""

    @functools.wraps(verb)
    def call(self: Stream, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._bridge.run(verb(self._verbs, *args, **kwargs))

    return call


def _async(verb: _Verb[P, T]) -> Callable[Concatenate[Stream, P], Coroutine[Any, Any, T]]:
    """The method for a verb that is awaited, on any loop."""

    @functools.wraps(verb)
    async def call(self: Stream, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._bridge.arun(verb(self._verbs, *args, **kwargs))

    return call


class Stream:
    """A stream: the segments directly in a folder, plain files among them.

    Every method has an async twin of its name with an underscore before it. Made by ``fs.stream(path)``, which asks
    the store nothing.

    Parameters
    ----------
    path
        The folder, as the backend names it.
    on_error
        What to do about segments whose header cannot be read: ``"report"`` goes on with the others and names them
        (in what `trim` and `retain` return, in `infos`, in the log), ``"raise"`` raises the first error. None is ever
        trimmed or deleted.
    """

    def __init__(
        self, client: Client, listings: Listings, bridge: Bridge, path: str, on_error: OnError = REPORT
    ) -> None:
        self._bridge = bridge
        self._verbs = StreamVerbs(client, listings, path, on_error)

    def __repr__(self) -> str:
        return f"<Stream {self.path!r}>"

    @property
    def path(self) -> str:
        """The folder, as the backend names it."""
        return self._verbs.path

    segments, _segments = _sync(StreamVerbs.segments), _async(StreamVerbs.segments)
    infos, _infos = _sync(StreamVerbs.infos), _async(StreamVerbs.infos)
    size, _size = _sync(StreamVerbs.size), _async(StreamVerbs.size)
    delete, _delete = _sync(StreamVerbs.delete), _async(StreamVerbs.delete)
    cut, _cut = _sync(StreamVerbs.cut), _async(StreamVerbs.cut)
    trim, _trim = _sync(StreamVerbs.trim), _async(StreamVerbs.trim)
    cuts, _cuts = _sync(StreamVerbs.cuts), _async(StreamVerbs.cuts)
    publish, _publish = _sync(StreamVerbs.publish), _async(StreamVerbs.publish)
    subscribers, _subscribers = _sync(StreamVerbs.subscribers), _async(StreamVerbs.subscribers)
    unsubscribe, _unsubscribe = _sync(StreamVerbs.unsubscribe), _async(StreamVerbs.unsubscribe)
    retain, _retain = _sync(StreamVerbs.retain), _async(StreamVerbs.retain)
    _get_retention = _async(StreamVerbs.get_retention)
    _set_retention = _async(StreamVerbs.set_retention)

    @property
    def retention(self) -> RetentionPolicy | None:
        """How much is kept; read from the stream, and stored with it when assigned. None for everything."""
        return self._bridge.run(self._verbs.get_retention())

    @retention.setter
    def retention(self, policy: RetentionPolicy | None) -> None:
        self._bridge.run(self._verbs.set_retention(policy))
