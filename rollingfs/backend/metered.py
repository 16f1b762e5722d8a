"""A backend that counts the calls of another: the one place where requests are counted."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from time import perf_counter_ns
from typing import Any

from rollingfs.backend.contract import Backend, Blob, Buffer, Metadata
from rollingfs.backend.patience import PATIENCE_S, patience_s
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.runtime.meters import REQUEST, Meters

READ, READ_IF_CHANGED, READ_RANGE = REQUEST + "read", REQUEST + "read_if_changed", REQUEST + "read_range"
FIXED = ("is_async", "conflicts_are_final")
"""Abilities that never change and that every call asks for."""
CREATE, REPLACE, WRITE = REQUEST + "create", REQUEST + "replace", REQUEST + "write"


class MeteredBackend(BackendWrapper):
    """Forwards every verb, and counts it, its bytes, its time and how it ended. Each has the patience of the client.

    Its abilities are those of the other backend, also if they change.

    Parameters
    ----------
    inner
        The backend that does the work; of a metered one, the backend below it.
    patience
        For how many seconds a request that may be repeated is sent again while the store fails.
    """

    def __init__(self, inner: Backend, meters: Meters, patience: float = PATIENCE_S) -> None:
        self.inner = _bare(inner)
        self.meters = meters
        self._patience_s = patience
        self.shift_s = 0.0
        for ability in FIXED:
            setattr(self, ability, getattr(self.inner, ability))

    async def call(self, verb: str, *args: Any) -> Any:
        patience_s.set(self._patience_s)
        size = _bytes_of(args[2]) if verb == "upload.write" else _bytes_of(args[1]) if verb == "put" else 0
        return await self.meters.measure(REQUEST + verb, super().call(verb, *args), size)

    # the verbs on the way of an append or a read, without a detour
    async def read(self, path: str) -> Blob:
        patience_s.set(self._patience_s)
        began_ns = perf_counter_ns()
        try:
            blob = await self.inner.read(path)
        except BaseException as error:
            self.meters.failed(READ, began_ns, error)
            raise
        self.meters.count(READ, began_ns, len(blob.data))
        return blob

    async def read_if_changed(self, path: str, token: str) -> Blob | None:
        patience_s.set(self._patience_s)
        began_ns = perf_counter_ns()
        try:
            blob = await self.inner.read_if_changed(path, token)
        except BaseException as error:
            self.meters.failed(READ_IF_CHANGED, began_ns, error)
            raise
        self.meters.count(READ_IF_CHANGED, began_ns, 0 if blob is None else len(blob.data))
        return blob

    async def read_range(self, path: str, start: int, end: int, token: str | None = None) -> Buffer:
        patience_s.set(self._patience_s)
        began_ns = perf_counter_ns()
        try:
            if token is None:  # not every adapter of others has the parameter
                data = await self.inner.read_range(path, start, end)
            else:
                data = await self.inner.read_range(path, start, end, token)
        except BaseException as error:
            self.meters.failed(READ_RANGE, began_ns, error)
            raise
        self.meters.count(READ_RANGE, began_ns, len(data))
        return data

    async def read_into(self, path: str, start: int, target: memoryview, token: str | None = None) -> int:
        patience_s.set(self._patience_s)
        began_ns = perf_counter_ns()
        try:
            if token is None:
                size = await self.inner.read_into(path, start, target)
            else:
                size = await self.inner.read_into(path, start, target, token)
        except BaseException as error:
            self.meters.failed(READ_RANGE, began_ns, error)  # it is the same request
            raise
        self.meters.count(READ_RANGE, began_ns, size)
        return size

    async def create(self, path: str, data: Buffer) -> str:
        return await self.meters.measure(CREATE, self.inner.create(path, data), _bytes_of(data))

    async def replace(self, path: str, data: Buffer, token: str) -> str:
        began_ns = perf_counter_ns()
        try:
            new_token = await self.inner.replace(path, data, token)
        except BaseException as error:
            self.meters.failed(REPLACE, began_ns, error)
            raise
        self.meters.count(REPLACE, began_ns, _bytes_of(data))
        return new_token

    async def write(self, path: str, data: Sequence[Buffer], metadata: Metadata = None) -> None:
        patience_s.set(self._patience_s)
        done = self.inner.write(path, data) if metadata is None else self.inner.write(path, data, metadata)
        await self.meters.measure(WRITE, done, sum(map(_bytes_of, data)))

    async def store_name(self, path: str) -> str | None:
        return await self.inner.store_name(path)


def is_same(one: Backend, other: Backend) -> bool:
    """Whether two backends are the same, counted or not."""
    return _bare(one) is _bare(other)


def _bare(backend: Backend) -> Backend:
    return backend.inner if isinstance(backend, MeteredBackend) else backend


def _bytes_of(data: Buffer) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)


for _ability in Backend.__annotations__.keys() - set(FIXED):
    setattr(MeteredBackend, _ability, property(attrgetter(f"inner.{_ability}")))
del _ability
