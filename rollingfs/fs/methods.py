"""Methods of the faces, made of verbs: `both` makes a blocking and an awaited form of a coroutine.

Within a transaction, verbs that write a file wait for its end, or refuse.
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import fsspec.transaction
from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.fs import arguments, transfers
from rollingfs.fs.arguments import meant
from rollingfs.fs.patterns import Path, Paths
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
    outside: bool = False,
    held: Callable[..., Any] | None = None,
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
    outside
        Within a transaction both methods refuse, because they take place at once.
    held
        What the blocking method does within a transaction, which holds it until its end; the awaited method refuses.
    """
    known = _known(verb, passes)
    parameters = verb.__code__.co_varnames[1:]
    place = parameters.index(data) + (path is not None) if takes is not None else -1

    def begin(face: Any, function: Verb[Any], args: Any, kwargs: Any) -> tuple[Any, Coroutine[Any, Any, Any]]:
        """Return the verb's first argument and the coroutine; only wrong arguments fail here, and are the method's."""
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

    def blocking(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if held is not None and self._intrans:
            return held(self, *args, **kwargs)
        if outside:
            check_outside(self, verb.__name__, *args, *kwargs.values())
        if takes is not None and not is_small(args[place] if len(args) > place else kwargs.get(data)):
            taken = self._bridge.run(begin(self, takes, args, kwargs)[1])
            if len(args) > place:
                args = (*args[:place], taken, *args[place + 1 :])
            else:
                kwargs = {**kwargs, data: taken}
        first, running = begin(self, verb, args, kwargs)
        return self._bridge.run(running, commits=first.path if commits or takes is not None else None)

    async def awaited(self: Any, /, *args: Any, **kwargs: Any) -> T:
        if outside or held is not None:
            check_outside(self, verb.__name__, *args, *kwargs.values())
        result: T = await self._bridge.arun(begin(self, verb, args, kwargs)[1])
        return result

    for method in (blocking, awaited):
        functools.update_wrapper(method, verb)
    if path is not None or verb.__code__.co_varnames[0] != "self":
        blocking.__signature__ = awaited.__signature__ = _signature(verb, path)  # type: ignore[attr-defined]
    return blocking, awaited


def _known(verb: Verb[Any], passes: tuple[Verb[Any], ...]) -> frozenset[str] | None:
    """Return the options that a verb with ``**kwargs`` takes; None of a verb whose names Python checks."""
    found = [one for each in (verb, *passes) for one in inspect.signature(each).parameters.values()]
    if not any(one.kind is one.VAR_KEYWORD for one in found):
        return None
    return frozenset(one.name for one in found) | PASSED_OVER


def _signature(verb: Verb[Any], path: str | None) -> inspect.Signature:
    """Return a method's signature if it is not the verb's: `self`, and a path for the verb's first argument."""
    signature = inspect.signature(verb)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = [] if path is None else [inspect.Parameter(path, kind, annotation="str")]
    others = list(signature.parameters.values())[1:]
    return signature.replace(parameters=[inspect.Parameter("self", kind), *given, *others])


def in_order(method: Verb[T], *order: str) -> Verb[T]:
    """Return an awaited method that takes its arguments in another order."""

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


# -- transactions ----------------------------------------------------------------------------------------------


class Transaction(fsspec.transaction.Transaction):
    """fsspec's transaction, whose error at the end names the files that were not written."""

    def start(self) -> None:
        """Begin, unless another transaction of the filesystem is under way."""
        check_ended(self.fs)
        super().start()

    def complete(self, commit: bool = True) -> None:
        """Commit or discard the files, and end the transaction."""
        files: list[Any] = list(self.files)
        self.files.clear()
        done = 0
        try:
            for file in files if commit else ():
                file.commit()
                done += 1
        except BaseException as error:
            others = ", ".join(file.path for file in files[done + 1 :]) or "no other file"
            error.add_note(
                f"this ended a transaction at {files[done].path}: it had committed {done} of {len(files)} files; "
                f"not written either: {others}"
            )
            raise
        finally:
            try:
                for file in files[done:]:
                    file.discard()
            finally:
                super().complete(commit)


def check_ended(fs: AbstractFileSystem) -> None:
    """Refuse a transaction within another: fsspec would forget the files of the outer transaction.

    Raises
    ------
    RuntimeError
        Neither transaction has written anything.
    """
    if fs._intrans:
        raise RuntimeError(
            "a transaction of this filesystem is under way, and another cannot begin within it (or in another thread: "
            "use a filesystem with skip_instance_cache=True there); this one has written nothing"
        )


def start_transaction(self: Any) -> Any:
    """Begin a transaction, which `end_transaction` commits."""
    check_ended(self)
    return AbstractFileSystem.start_transaction(self)


def check_outside(self: Any, name: str, path: object = "", *_: object) -> None:
    """Refuse a method that takes place at once.

    Raises
    ------
    NotImplementedError
        A transaction is under way; no byte was changed.
    """
    if self._intrans:
        raise NotImplementedError(
            f"{path}: within a transaction this {name} would take place at once, and stay if the transaction is rolled "
            "back. So nothing was changed: call it before or after the transaction. The blocking open, pipe, put and "
            "touch wait for its end"
        )


def open_to_write(self: Any, path: str, mode: str, compression: str | None, options: dict[str, Any]) -> Any:
    """Open a file for writing; a transaction holds it, with what wraps it for text and compression."""
    from rollingfs.fs.closing import open_to_write  # not before a file is written

    autocommit = options.pop("autocommit", not self._intrans)
    file = open_to_write(self._open, path, mode, compression, {**options, "autocommit": autocommit})
    if not autocommit:
        self.transaction.files.append(file)
    return file


def pipe(self: Any, path: str | Mapping[str, Any], value: Any = None, **kwargs: Any) -> None:
    """Write whole files, each in a single commit: `value` to a path, or each value of a mapping to its path."""
    if isinstance(path, Mapping) and self._backend.is_async and not self._intrans:
        self._bridge.run(self._pipe(path, **kwargs))  # side by side
    else:
        AbstractFileSystem.pipe(self, path, value, **kwargs)


def _meant(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that `open` is to see, or to refuse."""
    return {name: value for name, value in options.items() if name not in PASSED_OVER}


# -- held by a transaction until its end -----------------------------------------------------------------------


def held_pipe_file(self: Any, path: str, value: Any, mode: str = arguments.OVERWRITE, **kwargs: Any) -> None:
    with self.open(path, "xb" if arguments.creates_only(mode, path) else "wb", **_meant(kwargs)) as file:
        file.write(value)


def held_touch(self: Any, path: str, truncate: bool = True, **kwargs: Any) -> None:
    self.open(path, "wb" if truncate else "ab", **_meant(kwargs)).close()


def held_put_file(
    self: Any, lpath: Path, rpath: str, callback: Any = None, mode: str = arguments.OVERWRITE, **kwargs: Any
) -> None:
    write_mode = "xb" if arguments.creates_only(mode, rpath) else "wb"
    if os.path.isdir(lpath):
        self.makedirs(rpath, exist_ok=True, **_meant(kwargs))
        return
    with self.open(rpath, write_mode, **_meant(kwargs)) as target, open(lpath, "rb") as source:
        shutil.copyfileobj(source, target)


def held_put(
    self: Any,
    lpath: Paths,
    rpath: Paths,
    recursive: bool = False,
    callback: Callback = DEFAULT_CALLBACK,
    maxdepth: int | None = None,
    **kwargs: Any,
) -> None:
    files, folders = self._bridge.run(transfers.to_put(self._core, lpath, rpath, recursive, maxdepth))
    for folder in folders:
        self.makedirs(folder, exist_ok=True)
    callback.set_size(len(files))
    for source, target in callback.wrap(files):
        with callback.branched(source, target) as child:
            self.put_file(source, target, callback=child, **kwargs)
