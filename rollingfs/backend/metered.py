"""A backend that counts the calls of another: the only place where requests are counted."""

from __future__ import annotations

from operator import attrgetter
from time import perf_counter_ns
from typing import Any

from rollingfs.backend.contract import VERBS, Backend, Blob, Buffer
from rollingfs.backend.patience import PATIENCE_S, patience_s
from rollingfs.backend.wrapper import BackendWrapper, Verb, given
from rollingfs.runtime.meters import REQUEST, Meters

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
        """`open_write` and the verbs of its upload. The other verbs take no detour through here."""
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
