"""`both` makes two methods of a coroutine: a blocking and an awaited form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from rollingfs.fs.arguments import meant
from rollingfs.segment.write.ingest import is_small

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")

Verb = Callable[..., Coroutine[Any, Any, T]]


PASSED_OVER = frozenset({"batch_size", "callback", "chunksize", "fill_cache", "max_concurrency", "refresh"})
"""Options that users of fsspec give to any filesystem: what they ask for is so in any case, or is only speed."""


# The last overload is for verbs with ``**kwargs``, whose signature mypy cannot pass on.


@overload
def both(
    verb: Callable[Concatenate[V, P], Coroutine[Any, Any, T]], *, path: None = None, **options: Any
) -> tuple[Callable[Concatenate[Any, P], T], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]: ...
@overload
def both(
    verb: Callable[Concatenate[V, P], Coroutine[Any, Any, T]], *, path: str, **options: Any
) -> tuple[Callable[Concatenate[Any, str, P], T], Callable[Concatenate[Any, str, P], Coroutine[Any, Any, T]]]: ...
@overload
def both(verb: Verb[T], *, path: str | None = None, **options: Any) -> tuple[Callable[..., T], Verb[T]]: ...
def both(  # type: ignore[misc]  # an overload takes options of any name
    verb: Verb[T],
    *,
    commits: bool = False,
    takes: Verb[Any] | None = None,
    data: str = "data",
    of: str,
    path: str | None = None,
    passes: tuple[Verb[Any], ...] = (),
) -> tuple[Any, Any]:
    """Return the blocking and the awaited method for a verb; the latter runs on any event loop and does not block it.

    Parameters
    ----------
    verb
        A coroutine function.
    commits
        Whether the verb commits to the segment that is the `path` of its first argument: then Ctrl-C in the blocking
        method's error has the outcome of the commit.
    takes
        For a verb that uploads data and then commits it: a coroutine function with the parameters of the verb. It
        uploads the data, commits no byte, and returns what the verb takes instead of the data (an `Intake`). The
        blocking method calls it first, unless the data is small. Ctrl-C cancels this first call, with nothing
        committed; the second call commits. The awaited method calls only the verb, with the data itself.
    data
        With `takes`: the name of the parameter that has the data.
    of
        The attribute of the face that is the verb's first argument.
    path
        For a verb by path: the name of the method's first parameter. The attribute `of` is then a function that makes
        the verb's first argument of it.
    passes
        The verbs whose options a verb with ``**kwargs`` takes, too.
    """
    known = _known(verb, passes)
    parameters = verb.__code__.co_varnames[1:]
    place = parameters.index(data) + (path is not None) if takes is not None else -1

    def begin(face: Any, function: Verb[Any], args: Any, kwargs: Any) -> tuple[Any, Coroutine[Any, Any, Any]]:
        """The verb's first argument and the coroutine; only wrong arguments fail here, and are the method's."""
        first = getattr(face, of)
        if path is not None and args:
            first, args = first(args[0]), args[1:]
        elif path is not None:
            if path not in kwargs:
                raise TypeError(f"{_name(face, verb)}() missing 1 required positional argument: {path!r}")
            first, kwargs = first(kwargs[path]), {name: kwargs[name] for name in kwargs if name != path}
        if kwargs and known is not None:
            for name in sorted(kwargs.keys() - known):
                hint = meant(name, known - PASSED_OVER)
                raise TypeError(f"{_name(face, verb)}() has no option {name!r}{hint}; nothing was read or written")
        try:
            return first, function(first, *args, **kwargs)
        except TypeError as error:
            raise TypeError(str(error).replace(function.__qualname__, _name(face, verb), 1)) from None

    def blocking(self: Any, /, *args: Any, **kwargs: Any) -> T:
        if takes is not None and not is_small(args[place] if len(args) > place else kwargs.get(data)):
            taken = self._bridge.run(begin(self, takes, args, kwargs)[1])
            if len(args) > place:
                args = (*args[:place], taken, *args[place + 1 :])
            else:
                kwargs = {**kwargs, data: taken}
        first, running = begin(self, verb, args, kwargs)
        result: T = self._bridge.run(running, commits=first.path if commits or takes is not None else None)
        return result

    async def awaited(self: Any, /, *args: Any, **kwargs: Any) -> T:
        result: T = await self._bridge.arun(begin(self, verb, args, kwargs)[1])
        return result

    for method in (blocking, awaited):
        functools.update_wrapper(method, verb)
    if path is not None or verb.__code__.co_varnames[0] != "self":
        blocking.__signature__ = awaited.__signature__ = _signature(verb, path)  # type: ignore[attr-defined]
    return blocking, awaited


def _known(verb: Verb[Any], passes: tuple[Verb[Any], ...]) -> frozenset[str] | None:
    """The options that a verb with ``**kwargs`` takes; None of another verb, for which Python looks at the names."""
    found = [one for each in (verb, *passes) for one in inspect.signature(each).parameters.values()]
    if not any(one.kind is one.VAR_KEYWORD for one in found):
        return None
    return frozenset(one.name for one in found) | PASSED_OVER


def _signature(verb: Verb[Any], path: str | None) -> inspect.Signature:
    """The signature of a method where it is not the verb's: `self`, and a path, for the verb's first argument."""
    signature = inspect.signature(verb)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = [] if path is None else [inspect.Parameter(path, kind, annotation="str")]
    others = list(signature.parameters.values())[1:]
    return signature.replace(parameters=[inspect.Parameter("self", kind), *given, *others])


def in_order(method: Verb[T], *order: str) -> Verb[T]:
    """An awaited method that takes its arguments in another order."""

    @functools.wraps(method)
    async def ordered(self: Any, /, *args: Any, **kwargs: Any) -> T:
        return await method(self, *args[len(order) :], **dict(zip(order, args, strict=False)), **kwargs)

    return ordered


def name_for_users(cls: type, name: str) -> None:
    """Let Python's messages about wrong arguments, and tools that read docstrings, name the class that users know."""
    cls.__name__ = name
    for method in vars(cls).values():
        if inspect.isfunction(method):
            method.__module__ = cls.__module__
            method.__qualname__ = f"{name}.{method.__name__}"


def _name(face: Any, verb: Verb[Any]) -> str:
    user_class = "RollingFileSystem" if hasattr(face, "protocol") else type(face).__name__
    return f"{user_class}.{verb.__name__}"
