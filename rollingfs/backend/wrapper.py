"""A backend over a backend, whose hook sees every verb: for counts, tiers, and for faults and traces of tests.

`MeteredBackend` is the only place where requests are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import isfunction
from operator import attrgetter
from time import perf_counter_ns
from typing import Any

from rollingfs.backend.contract import VERBS, Backend, Blob, Buffer, Metadata, Over, Part, Upload
from rollingfs.backend.patience import PATIENCE_S, patience_s
from rollingfs.runtime.meters import REQUEST, Meters

_ABILITIES = tuple(Backend.__annotations__)
NOT_FORWARDED = frozenset({"read_into", "store_name"})
"""`read_into` calls `read_range`. A wrapper may decide otherwise than its store, so it has no name of its own."""
NAMING = [name for name, attribute in vars(Backend).items() if isfunction(attribute) and name not in VERBS]
"""Functions of the contract that are no verbs."""

Verb = Callable[..., Coroutine[Any, Any, Any]]


def given(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a verb up to the last that is given.

    Not every adapter has the optional arguments.
    """
    while args[-1] is None:
        args = args[:-1]
    return args


def _forwarding(verb: str) -> Verb:
    code = getattr(Backend, verb).__code__
    names = code.co_varnames[1 : code.co_argcount]

    async def forward(self: BackendWrapper, *args: Any, **more: Any) -> Any:
        if more:
            args = (*args, *map(more.get, names[len(args) :]))
        return await self.call(verb, *given(args))

    return forward


def _naming(name: str) -> Callable[..., Any]:
    def forward(self: BackendWrapper, *args: str) -> Any:
        return getattr(self.inner, name)(*args)

    return forward


_Forwarding: Any = type(
    "_Forwarding",
    (),
    {verb: _forwarding(verb) for verb in VERBS if verb not in NOT_FORWARDED} | {name: _naming(name) for name in NAMING},
)


class BackendWrapper(_Forwarding, Backend):
    """Forwards every verb of the contract's list to another backend, through `call`.

    Attributes
    ----------
    inner : Backend
        The backend that does the work.
    """

    inner: Backend

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        for ability in _ABILITIES:
            setattr(self, ability, getattr(inner, ability))

    async def call(self, verb: str, *args: Any) -> Any:
        """Do a verb. A subclass overrides it to fail before or after the verb, to count or to wait.

        Parameters
        ----------
        verb : str
            The name of the method, or ``"upload.write"``, ``"upload.copy"``, ``"upload.finish"``, ``"upload.abort"``.
        args
            Its arguments, without optional ones that are not given. For an upload: the path, the inner `Upload`, and
            the bytes of a write or the part of a copy.
        """
        if verb.startswith("upload."):
            _path, upload, *rest = args
            return await getattr(upload, verb.removeprefix("upload."))(*rest)
        return await getattr(self.inner, verb)(*args)

    def __getattr__(self, name: str) -> Any:
        # for what a backend has beyond the contract, such as `loop`; "inner" is missing while unpickling
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def open_write(self, path: str, over: Over | None = None, metadata: Metadata = None) -> Upload:
        upload: Upload = await _Forwarding.open_write(self, path, over, metadata)
        return _WrappedUpload(self, path, upload)


class _WrappedUpload(Upload):
    def __init__(self, wrapper: BackendWrapper, path: str, inner: Upload) -> None:
        self._wrapper = wrapper
        self._path = path
        self._inner = inner

    @property
    def held_bytes(self) -> int:
        return self._inner.held_bytes

    async def write(self, data: Buffer) -> None:
        await self._wrapper.call("upload.write", self._path, self._inner, data)

    async def copy(self, part: Part) -> None:
        await self._wrapper.call("upload.copy", self._path, self._inner, part)

    async def finish(self) -> None:
        await self._wrapper.call("upload.finish", self._path, self._inner)

    async def abort(self) -> None:
        await self._wrapper.call("upload.abort", self._path, self._inner)


# -- counts -------------------------------------------------------------------------------------------------

FIXED = ("is_async", "root", "strip")
"""Abilities that never change and that every call asks for."""
READING = frozenset({"read", "read_if_changed", "read_range", "read_into"})
WRITING = frozenset({"create", "replace", "extend", "put"})
"""Verbs whose second argument is the bytes."""
COUNTED_AS = {"read_into": "read_range"}
"""It is the same request."""


class MeteredBackend(BackendWrapper):
    """Forwards every verb, and counts it, its bytes, its time and how it ended. Each has the patience of the client.

    It has the abilities of the other backend, also if they change.

    Parameters
    ----------
    inner
        The backend that does the work; of a metered backend, the backend below it.
    patience
        Seconds for which a request that may be repeated is sent again while the store fails.
    """

    def __init__(self, inner: Backend, meters: Meters, patience: float = PATIENCE_S) -> None:
        self.inner = _bare(inner)
        self.meters = meters
        self._patience_s = patience
        for name in FIXED:
            setattr(self, name, getattr(self.inner, name))

    async def call(self, verb: str, *args: Any) -> Any:
        """Call `open_write` or a verb of its upload. The other verbs take no detour through here."""
        patience_s.set(self._patience_s)
        size = _bytes_of(args[2]) if verb == "upload.write" else 0
        return await self.meters.measure(REQUEST + verb, super().call(verb, *args), size)

    async def store_name(self, path: str) -> str | None:
        return await self.inner.store_name(path)


def _counted(verb: str) -> Verb:
    counted_as = REQUEST + COUNTED_AS.get(verb, verb)

    async def forward(self: MeteredBackend, *args: Any, **more: Any) -> Any:
        patience_s.set(self._patience_s)
        began_ns = perf_counter_ns()
        if args[-1] is None:
            args = given(args)
        try:
            answer = await getattr(self.inner, verb)(*args, **more)
        except BaseException as error:
            self.meters.failed(counted_as, began_ns, error)
            raise
        size = 0
        if verb in WRITING:
            size = len(args[1]) if isinstance(args[1], bytes) else _bytes_of(args[1])
        elif verb == "write":
            size = sum(map(_bytes_of, args[1]))
        elif verb in READING and answer is not None:
            size = answer if isinstance(answer, int) else len(answer.data if isinstance(answer, Blob) else answer)
        self.meters.count(counted_as, began_ns, size)
        return answer

    return forward


def is_same(one: Backend, other: Backend) -> bool:
    """Return whether two backends are the same, counted or not."""
    return _bare(one) is _bare(other)


def _bare(backend: Backend) -> Backend:
    return backend.inner if isinstance(backend, MeteredBackend) else backend


def _bytes_of(data: Buffer) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)


for _verb in VERBS:
    if _verb not in ("open_write", "store_name"):
        setattr(MeteredBackend, _verb, _counted(_verb))
for _ability in Backend.__annotations__.keys() - set(FIXED):
    setattr(MeteredBackend, _ability, property(attrgetter(f"inner.{_ability}")))
del _verb, _ability
