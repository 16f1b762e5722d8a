"""`both` makes two methods of one coroutine: one blocks, the other is awaited. `plain` is for what never waits."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from rollingfs.runtime.bridge import Bridge
from rollingfs.write.ingest import is_small

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

Verb = Callable[..., Coroutine[Any, Any, T]]


class Verbs(Protocol):
    """What a face is made of: an object with coroutine methods."""

    def committed(self, target: Any) -> str:
        """The path of the segment that a verb with this first argument commits to."""
        ...


class Face(Protocol):
    """A class that users see, whose methods `both` makes of its `Verbs`: the attribute `_verbs`, or what `of` names."""

    _bridge: Bridge


# The second overload is for verbs with ``**kwargs``, whose signature mypy cannot pass on.


@overload
def both(
    verb: Callable[Concatenate[V, P], Coroutine[Any, Any, T]],
    *,
    commits: bool = False,
    takes: Verb[Any] | None = None,
    data: str = "data",
    of: str = "_verbs",
) -> tuple[Callable[Concatenate[Any, P], T], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]: ...
@overload
def both(
    verb: Verb[T], *, commits: bool = False, takes: Verb[Any] | None = None, data: str = "data", of: str = "_verbs"
) -> tuple[Callable[..., T], Verb[T]]: ...
def both(
    verb: Verb[T], *, commits: bool = False, takes: Verb[Any] | None = None, data: str = "data", of: str = "_verbs"
) -> tuple[Callable[..., T], Verb[T]]:
    """The blocking method for a verb, and the one that is awaited, on any event loop, which it does not block.

    Parameters
    ----------
    verb
        A coroutine method of the face's verbs.
    commits
        Whether the verb commits to one segment: then Ctrl-C in the blocking method says what became of the commit.
    takes
        For a verb that uploads data and then commits it: a coroutine method with the parameters of the verb. It
        uploads the data, commits nothing, and returns what the verb takes in the place of the data (an `Intake`). The
        blocking method calls it first, unless the data is small. Ctrl-C cancels this first call, with nothing
        committed; the second call commits. The awaited method calls only the verb, with the data itself.
    data
        With `takes`: the name of the parameter that has the data.
    of
        The attribute of the face that has the verbs.
    """
    names = list(inspect.signature(verb).parameters)[1:]
    place = names.index(data) if takes is not None else -1

    @functools.wraps(verb)
    def blocking(self: Face, /, *args: Any, **kwargs: Any) -> T:
        if takes is not None and not is_small(args[place] if len(args) > place else kwargs.get(data)):
            taken = self._bridge.run(_begun(self, of, verb, takes, args, kwargs))
            if len(args) > place:
                args = (*args[:place], taken, *args[place + 1 :])
            else:
                kwargs = {**kwargs, data: taken}
        running = _begun(self, of, verb, verb, args, kwargs)
        if not commits and takes is None:
            return self._bridge.run(running)
        target = args[0] if args else kwargs.get(names[0]) if names else None
        return self._bridge.run(running, commits=getattr(self, of).committed(target))

    @functools.wraps(verb)
    async def awaited(self: Face, /, *args: Any, **kwargs: Any) -> T:
        return await self._bridge.arun(_begun(self, of, verb, verb, args, kwargs))

    return blocking, awaited


def plain(method: Callable[Concatenate[V, P], T], *, of: str) -> Callable[Concatenate[Any, P], T]:
    """The method for one that never waits, which any thread and any event loop may call."""

    @functools.wraps(method)
    def called(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(getattr(self, of), *args, **kwargs)

    return called


def in_order(method: Verb[T], *order: str) -> Verb[T]:
    """An awaited method that takes its arguments in another order."""

    @functools.wraps(method)
    async def ordered(self: Face, /, *args: Any, **kwargs: Any) -> T:
        return await method(self, *args[len(order) :], **dict(zip(order, args, strict=False)), **kwargs)

    return ordered


def name_for_users(cls: type, name: str) -> None:
    """Let Python's messages about wrong arguments name the class that users know, of which this is a part."""
    for method in vars(cls).values():
        if inspect.isfunction(method):
            method.__qualname__ = f"{name}.{method.__name__}"


def _begun(
    face: Face, of: str, verb: Verb[Any], method: Verb[T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, T]:
    """The coroutine of a method; wrong arguments, and nothing else can fail here, are reported as those of the verb."""
    try:
        return method(getattr(face, of), *args, **kwargs)
    except TypeError as error:
        user_class = "RollingFileSystem" if hasattr(face, "protocol") else type(face).__name__
        raise TypeError(str(error).replace(method.__qualname__, f"{user_class}.{verb.__name__}", 1)) from None
