"""The programs on top as clients: handlers of the server, commands, growing Parquet and `RollingHandler`.

Each runs on a filesystem over a simulated client, so at each call of the store others go on.
"""

import contextlib
import io
import json
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

from fsspec.callbacks import Callback
from starlette.requests import Request

from rollingfs import RollingFileSystem
from rollingfs.cli import change
from rollingfs.cli.session import Session, StorePath
from rollingfs.errors import AppendOutcomeUnknown, CommitTimeoutError, RollingError
from rollingfs.format.transitions import Guard
from rollingfs.fs.binding import Binding
from rollingfs.fs.core import Core
from rollingfs.logging import RollingHandler
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.server import segment_routes, webhdfs
from rollingfs.server.access import Access
from rollingfs.server.operations import Call as RestCall
from rollingfs.server.problems import UNCHANGED, truth_of
from rollingfs.server.served_store import ServedStore
from rollingfs.server.tails import Watches
from tests.simulation import baton, model
from tests.simulation.draw import Draw, Op
from tests.simulation.history import SILENT
from tests.simulation.logs import SEGMENT
from tests.simulation.model import Call, Declined, State, Who
from tests.simulation.tables import Tables

T = TypeVar("T")

TOLD = (RollingError, FileNotFoundError, FileExistsError, ValueError)
"""Errors that the model must justify."""


class FaceBridge:
    """Stands in for `Bridge`: the loop of the world runs the coroutines of blocking and of awaiting callers."""

    is_async = False

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def run(self, coroutine: Coroutine[Any, Any, T], *, commits: str | None = None, waits: bool = True) -> T:
        here = baton.current()
        return drive(coroutine) if here is None or not waits else here.ask(coroutine)

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine

    def check_process(self) -> None: ...


def filesystem_of(client: At) -> RollingFileSystem:
    """A filesystem whose verbs are those of a simulated client."""
    fs = RollingFileSystem(backend=client.backend, asynchronous=True, skip_instance_cache=True)
    bridge: Any = FaceBridge(client.backend)
    fs._client, fs._bridge = client, bridge
    fs._core = Core(client, bridge, fs)
    fs._at = partial(Binding, fs._core)
    return fs


# -- the server ------------------------------------------------------------------------------------------------------


async def truly(call: Coroutine[Any, Any, T]) -> T:
    """What a handler gives; an error that tells clients that nothing was changed is held to its word."""
    try:
        return await call
    except Exception as error:
        if truth_of(error, True) == UNCHANGED and not isinstance(error, TOLD):
            raise CommitTimeoutError(f"{error}; nothing was written") from error
        raise


def request_of(method: str, path: str, body: bytes, query: dict[str, str]) -> Request:
    scope = {"type": "http", "method": method, "path": path, "headers": [(b"host", b"localhost")], "scheme": "http"}
    scope |= {"query_string": urlencode(query).encode(), "path_params": {"path": quote(path.strip("/"))}}
    scope |= {"server": ("localhost", 80), "root_path": "", "state": {"access": Access()}}
    messages = iter([{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    return Request(scope, receive)


async def hdfs(fs: RollingFileSystem, method: str, path: str, op: str, body: bytes = b"", **query: str) -> Any:
    """An answer of WebHDFS, without its redirect."""
    store = ServedStore(fs, "/")
    request = request_of(method, path, body, {"op": op, "data": "true", **query})
    answer = await truly(webhdfs.handle(store, Watches(store), request))
    return json.loads(answer.body or b"null")


async def rest(fs: RollingFileSystem, operation: Callable[..., Any], path: str, body: bytes = b"", **given: Any) -> Any:
    """The fields of an answer of REST."""
    store = ServedStore(fs, "/")
    call = RestCall(request_of("POST", path, body, {}), store, Watches(store), Access(), path.strip("/"), True)
    answer = await truly(operation(call, **given))
    return json.loads(answer.body) if hasattr(answer, "body") else answer


# -- commands --------------------------------------------------------------------------------------------------------


class Terminal:
    """A session of the command line, whose paths all lie on one filesystem."""

    def __init__(self, fs: RollingFileSystem) -> None:
        self.fs, self.reported, self.interrupted, self.json = fs, {}, "", True

    def place(self, text: str) -> StorePath:
        return StorePath(self.fs, text)

    def places(self, texts: Sequence[str]) -> tuple[RollingFileSystem, list[str]]:
        return self.fs, [*texts]

    def report(self, value: dict[str, Any], line: str) -> None:
        self.reported = value

    @contextlib.contextmanager
    def progress(self, *_: Any, **__: Any) -> Iterator[Callback]:
        yield Callback()


async def command(fs: RollingFileSystem, body: Callable[..., None], *given: Any, **options: Any) -> dict[str, Any]:
    """Run a command; what it reports."""
    terminal = Terminal(fs)
    await baton.Baton(lambda: body(cast(Session, terminal), *given, **options)).run()
    return terminal.reported


async def command_append(fs: RollingFileSystem, path: str, data: bytes) -> int:
    """The command ``append``, with its standard input."""
    source = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    call = partial(change._append, StorePath(fs, path), source, Guard(), True, Callback())
    offset, _ = await baton.Baton(call).run()
    return cast(int, offset)


# -- logging ---------------------------------------------------------------------------------------------------------


class Handler(RollingHandler):
    """Commits in the thread that flushes it."""

    def _begin(self) -> None:
        super()._begin()
        self.setFormatter(logging.Formatter("%(message)s"))
        self.terminator = ""

    def _close_at_end(self) -> None: ...

    def _has_thread(self) -> bool:
        return False


async def log(fs: RollingFileSystem, path: str, data: bytes) -> str:
    """Log one record and flush; what the handler counts must be so."""

    def write() -> None:
        handler = Handler(path, fs=fs, encoding="latin-1")
        handler.emit(logging.LogRecord("world", logging.INFO, "", 0, data.decode("latin-1"), None, None))
        handler.flush()
        if handler.unknown:
            raise AppendOutcomeUnknown(str(handler._failure))
        if handler.lost or handler._queue:
            raise handler._failure or AssertionError("a record is lost, and no failure says why")

    await baton.Baton(write).run()
    return SILENT


# -- what is drawn ---------------------------------------------------------------------------------------------------


def _is_made(before: State, after: State, path: str) -> bool:
    """Whether an empty segment was made, and nothing else changed."""
    return path not in before and after.get(path) == model.NOTHING and model.put(after, path, None) == before


class FaceVerbs(Draw):
    """Draws operations of programs on top."""

    def face(self) -> Op | None:
        op: Op | None = getattr(self, self.chance.choice(FACES))()
        return op

    def _op(self, call: Call, start: Callable[[RollingFileSystem], Coroutine[Any, Any, Any]]) -> Op:
        self.world.counts["calls of faces"] += 1
        return Op(call, lambda client: start(self.world.face_of(client)))

    def _adding(
        self, start: Callable[[RollingFileSystem, str, bytes], Coroutine[Any, Any, Any]], *, create: bool, steps: bool
    ) -> Op:
        is_new = create and self.often(0.3)
        path, data = self.path((lambda seg: seg is None) if is_new else self._takes_more), self.data()
        call = Call(
            model.append,
            path,
            {"data": data, "attrs": {}, "who": Who(), "create": create},
            frozenset({FileNotFoundError}) if steps else frozenset(),  # another may delete it between the steps
            partial(_is_made, path=path) if steps else None,
        )
        return self._op(call, lambda fs: start(fs, path, data))

    def append_by_rest(self) -> Op:
        async def start(fs: RollingFileSystem, path: str, data: bytes) -> int:
            return cast(int, (await rest(fs, segment_routes.append, path, data, create=True))["offset"])

        return self._adding(start, create=True, steps=False)

    def append_by_hdfs(self) -> Op:
        async def start(fs: RollingFileSystem, path: str, data: bytes) -> str:
            await hdfs(fs, "POST", path, "APPEND", data)
            return SILENT

        return self._adding(start, create=False, steps=False)

    def append_by_command(self) -> Op:
        return self._adding(command_append, create=True, steps=False)

    def log_record(self) -> Op:
        return self._adding(log, create=True, steps=True)

    def write_by_hdfs(self) -> Op:
        overwrite, data = self.often(0.4), self.data()
        path = self.path(lambda seg: overwrite == (seg is not None))
        verb, args = (model.overwrite, {"attrs": {}, "who": Who()}) if overwrite else (model.write_new, {})
        call = Call(verb, path, {"data": data, **args})
        query = {"overwrite": str(overwrite).lower()}
        return self._op(call, lambda fs: _no(hdfs(fs, "PUT", path, "CREATE", data, **query)))

    def _renaming(self, start: Callable[[RollingFileSystem, str, str], Coroutine[Any, Any, Any]]) -> Op | None:
        path = self.path(lambda seg: seg is not None and seg.owner is None)
        others = [one for one in self.world.paths if one != path]
        free = [one for one in others if one not in self.state]
        if not others:
            return None
        target = self.chance.choice(free[:1] if free and self.often(0.8) else others)
        call = Call(model.rename, path, {"target": target, "overwrite": False}, frozenset({ValueError}))
        return self._op(call, lambda fs: _no(start(fs, path, target)))

    def rename_by_hdfs(self) -> Op | None:
        options = {"renameoptions": "NONE"} if self.often(0.3) else {}

        async def start(fs: RollingFileSystem, path: str, target: str) -> None:
            did = await hdfs(fs, "PUT", path, "RENAME", destination=target, **options)
            if did == {"boolean": False}:
                raise Declined(path)

        return self._renaming(start)

    def rename_by_rest(self) -> Op | None:
        return self._renaming(lambda fs, path, to: rest(fs, segment_routes.rename, path, to=to.strip("/")))

    def move_by_command(self) -> Op | None:
        return self._renaming(lambda fs, path, to: command(fs, change.mv, [path], to))

    def _deleting(self, start: Callable[[RollingFileSystem, str], Coroutine[Any, Any, Any]]) -> Op:
        path = self.path(lambda seg: seg is not None and seg.owner is None)
        call = Call(model.delete, path, {"who": Who()}, frozenset({None}))  # type: ignore[arg-type]
        return self._op(call, lambda fs: _no(start(fs, path)))

    def delete_by_hdfs(self) -> Op:
        async def start(fs: RollingFileSystem, path: str) -> None:
            if await hdfs(fs, "DELETE", path, "DELETE") == {"boolean": False}:
                raise FileNotFoundError(path)

        return self._deleting(start)

    def delete_by_command(self) -> Op:
        return self._deleting(lambda fs, path: command(fs, change.rm, [path]))

    def delete_empty_folder(self) -> Op:
        """Delete a folder without `recursive`: no segment may go, whatever is made in it meanwhile."""
        folder = self.chance.choice(self.world.folders[1:])
        call = Call(model.look, folder, {}, frozenset({FileNotFoundError}))
        return self._op(call, lambda fs: _no(hdfs(fs, "DELETE", folder, "DELETE")))

    def concat_by_command(self) -> Op | None:
        path = self.path((lambda seg: seg is None) if self.often(0.6) else self._takes_more)
        sealed = [one for one, seg in self.state.items() if one != path and seg.sealed and not seg.owner]
        open_ = [one for one, seg in self.state.items() if one != path and not seg.sealed]
        sources = sorted(self.chance.sample(sorted(sealed), self.chance.randint(1, len(sealed)))) if sealed else []
        if open_ and (not sealed or self.often(0.3)):
            sources.append(self.chance.choice(sorted(open_)))  # it is refused
        if not sources:
            return None
        call = Call(model.concat, path, {"sources": sources, "attrs": {}, "who": Who(), "create": True})

        async def start(fs: RollingFileSystem) -> int:
            return cast(int, (await command(fs, change.concat, path, sources, create=True, as_bytes=True))["offset"])

        return self._op(call, start)

    def ship(self) -> Op:
        """Write to a log or rotate it, and let a shipper, perhaps that of another process, look."""
        shipping = self.world.shipping
        shipping.change(self.chance)
        call = Call(model.look, SEGMENT, {}, frozenset({FileNotFoundError}))
        return self._op(call, lambda fs: baton.Baton(partial(shipping.ship, fs)).run())

    def grow_table(self) -> Op:
        tables = cast(Tables, self.world.tables)
        path, rows = tables.draw(self.chance, self.world.new_number())
        call = Call(model.look, path, {}, frozenset({FileNotFoundError}))
        if rows is None:
            return self._op(call, lambda fs: baton.Baton(partial(tables.rewrite, fs, path)).run())
        return self._op(call, lambda fs: baton.Baton(partial(tables.append, fs, path, rows)).run())


async def _no(call: Coroutine[Any, Any, Any]) -> None:
    await call


FACES = (
    *("append_by_rest", "append_by_rest", "append_by_hdfs", "append_by_command", "append_by_command", "log_record"),
    *("log_record", "write_by_hdfs", "write_by_hdfs", "rename_by_hdfs", "rename_by_hdfs", "rename_by_hdfs"),
    *("rename_by_rest", "move_by_command", "delete_by_hdfs", "delete_by_command", "delete_empty_folder"),
    *("delete_empty_folder", "concat_by_command", "concat_by_command", "grow_table"),
)
