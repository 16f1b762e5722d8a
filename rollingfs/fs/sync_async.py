"""From a coroutine of the core to the two methods that callers see: one that blocks, and one that is awaited."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from rollingfs.fs.operations import Verbs
from rollingfs.runtime.bridge import Bridge

P = ParamSpec("P")
T = TypeVar("T")


class Face(Protocol):
    """What has such methods."""

    _bridge: Bridge
    _verbs: Verbs


# The second form of each is for verbs with ``**kwargs``, whose signature mypy cannot pass on.


@overload
def blocking(
    verb: Callable[Concatenate[Verbs, P], Coroutine[Any, Any, T]], *, commits: bool = False
) -> Callable[Concatenate[Any, P], T]: ...
@overload
def blocking(verb: Callable[..., Coroutine[Any, Any, T]], *, commits: bool = False) -> Callable[..., T]: ...
def blocking(verb: Callable[..., Coroutine[Any, Any, T]], *, commits: bool = False) -> Callable[..., T]:
    """The method for a verb that blocks.

    Parameters
    ----------
    commits
        Whether the verb commits to the segment that is its first argument: then Ctrl-C says what became of it.
    """
    _, segment, *_ = inspect.signature(verb).parameters

    @functools.wraps(verb)
    def call(self: Face, *args: Any, **kwargs: Any) -> T:
        running = _begun(verb, self._verbs, args, kwargs)
        if not commits:
            return self._bridge.run(running)
        return self._bridge.run(running, commits=self._verbs.strip(args[0] if args else kwargs[segment]))

    return call


@overload
def awaited(
    verb: Callable[Concatenate[Verbs, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
@overload
def awaited(verb: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]: ...
def awaited(verb: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    """The method for a verb that is awaited, on any event loop, which it does not block."""

    @functools.wraps(verb)
    async def call(self: Face, *args: Any, **kwargs: Any) -> T:
        return await self._bridge.arun(_begun(verb, self._verbs, args, kwargs))

    return call


def name_for_users(cls: type, name: str) -> None:
    """Let what Python says of wrong arguments name the class that users know, of which this is a part."""
    for method in vars(cls).values():
        if inspect.isfunction(method):
            method.__qualname__ = f"{name}.{method.__name__}"


def _begun(
    verb: Callable[..., Coroutine[Any, Any, T]], verbs: Verbs, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, T]:
    """The coroutine of a verb; wrong arguments, and nothing else can fail here, are said of the method."""
    try:
        return verb(verbs, *args, **kwargs)
    except TypeError as error:
        raise TypeError(str(error).replace(verb.__qualname__, f"RollingFileSystem.{verb.__name__}", 1)) from None
