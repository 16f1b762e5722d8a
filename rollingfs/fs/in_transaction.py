"""The methods of the filesystem that write files: within a transaction they wait for its end, or refuse."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import fsspec.transaction
from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.fs import arguments, transfers
from rollingfs.fs.patterns import Path, Paths
from rollingfs.fs.sync_async import PASSED_OVER

F = TypeVar("F", bound=Callable[..., Any])
G = TypeVar("G", bound=Callable[..., Any])


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


def outside(*methods: Callable[..., Any]) -> tuple[Any, ...]:
    """These methods, which take place at once: within a transaction each of them refuses."""
    return tuple(map(_outside, methods))


def check_outside(self: Any, name: str, path: object) -> None:
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


def _outside(method: Callable[..., Any]) -> Callable[..., Any]:
    def check(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        check_outside(self, method.__name__, next(iter((*args, *kwargs.values())), ""))

    @functools.wraps(method)
    def blocking(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        check(self, args, kwargs)
        return method(self, *args, **kwargs)

    @functools.wraps(method)
    async def awaited(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        check(self, args, kwargs)
        return await method(self, *args, **kwargs)

    return awaited if inspect.iscoroutinefunction(method) else blocking


def waiting(forms: tuple[F, G], held: Callable[..., Any]) -> tuple[F, G]:
    """The forms of a verb that writes: within a transaction `held` is called, and the awaited form refuses."""
    now: Callable[..., Any]
    now, awaited = forms

    @functools.wraps(now)
    def blocking(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return (held if self._intrans else now)(self, *args, **kwargs)

    return cast("tuple[F, G]", (blocking, _outside(awaited)))


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
    """The options that `open` is to see, or to refuse."""
    return {name: value for name, value in options.items() if name not in PASSED_OVER}


# -- within a transaction ----------------------------------------------------------------------------------------


def pipe_file(self: Any, path: str, value: Any, mode: str = arguments.OVERWRITE, **kwargs: Any) -> None:
    with self.open(path, "xb" if arguments.creates_only(mode, path) else "wb", **_meant(kwargs)) as file:
        file.write(value)


def touch(self: Any, path: str, truncate: bool = True, **kwargs: Any) -> None:
    self.open(path, "wb" if truncate else "ab", **_meant(kwargs)).close()


def put_file(
    self: Any, lpath: Path, rpath: str, callback: Any = None, mode: str = arguments.OVERWRITE, **kwargs: Any
) -> None:
    write_mode = "xb" if arguments.creates_only(mode, rpath) else "wb"
    if os.path.isdir(lpath):
        self.makedirs(rpath, exist_ok=True, **_meant(kwargs))
        return
    with self.open(rpath, write_mode, **_meant(kwargs)) as target, open(lpath, "rb") as source:
        shutil.copyfileobj(source, target)


def put(
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
