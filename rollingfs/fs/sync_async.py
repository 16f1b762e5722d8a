"""The one way from a coroutine to the two methods that callers see: one that blocks, and one that is awaited."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from rollingfs.runtime.bridge import Bridge

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")


class Verbs(Protocol):
    """What a face is made of: coroutine methods."""

    def committed(self, target: Any) -> str:
        """The path of the segment that a verb with this first argument commits to."""
        ...


class Face(Protocol):
    """A class that users see, whose methods are made by `both`."""

    _bridge: Bridge
    _verbs: Any


# The second overload is for verbs with ``**kwargs``, whose signature mypy cannot pass on.


@overload
def both(
    verb: Callable[Concatenate[V, P], Coroutine[Any, Any, T]], *, commits: bool = False, of: str | None = None
) -> tuple[Callable[Concatenate[Any, P], T], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]: ...
@overload
def both(
    verb: Callable[..., Coroutine[Any, Any, T]], *, commits: bool = False, of: str | None = None
) -> tuple[Callable[..., T], Callable[..., Coroutine[Any, Any, T]]]: ...
def both(
    verb: Callable[..., Coroutine[Any, Any, T]], *, commits: bool = False, of: str | None = None
) -> tuple[Callable[..., T], Callable[..., Coroutine[Any, Any, T]]]:
    """The blocking method for a verb, and the one that is awaited, on any event loop, which it does not block.

    Parameters
    ----------
    verb
        A coroutine method of what the face has as `_verbs`.
    of
        The attribute of `_verbs` that has the verb instead.
    commits
        Whether the verb commits to one segment: then Ctrl-C in the blocking method says what became of the commit.
    """
    first = next(iter(list(inspect.signature(verb).parameters)[1:]), None)

    @functools.wraps(verb)
    def blocking(self: Face, /, *args: Any, **kwargs: Any) -> T:
        running = _begun(self, verb, of, args, kwargs)
        if not commits:
            return self._bridge.run(running)
        target = args[0] if args else kwargs.get(first) if first else None
        return self._bridge.run(running, commits=self._verbs.committed(target))

    @functools.wraps(verb)
    async def awaited(self: Face, /, *args: Any, **kwargs: Any) -> T:
        return await self._bridge.arun(_begun(self, verb, of, args, kwargs))

    return blocking, awaited


def name_for_users(cls: type, name: str) -> None:
    """Let what Python says of wrong arguments name the class that users know, of which this is a part."""
    for method in vars(cls).values():
        if inspect.isfunction(method):
            method.__qualname__ = f"{name}.{method.__name__}"


def _begun(
    face: Face,
    verb: Callable[..., Coroutine[Any, Any, T]],
    of: str | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Coroutine[Any, Any, T]:
    """The coroutine of a verb; wrong arguments, and nothing else can fail here, are reported as the face's."""
    try:
        return verb(getattr(face._verbs, of) if of else face._verbs, *args, **kwargs)
    except TypeError as error:
        user_class = "RollingFileSystem" if hasattr(face, "protocol") else type(face).__name__
        raise TypeError(str(error).replace(verb.__qualname__, f"{user_class}.{verb.__name__}", 1)) from None
