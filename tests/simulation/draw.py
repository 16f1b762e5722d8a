"""Draws the arguments of operations, mostly sensible ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from rollingfs.errors import ConflictError, CorruptChunkError
from rollingfs.format.header import AGE_S_MAX
from rollingfs.format.transitions import Guard
from rollingfs.fs.core import Core
from rollingfs.segment.at import At
from tests.simulation import model
from tests.simulation.history import Doing, tokens_of
from tests.simulation.model import Call, Seg, Who

if TYPE_CHECKING:
    from tests.simulation.world import World

KEYS = ("k", "ä =")
TOKEN_FIRST = b"\xf0"
"""The first byte of each token."""
TOKENS_MAX = 24
TOKENS_OF_LARGE_MAX = 40
MOVED = "/aside"
"""The folder to which another moves."""
SIZE_MAX = 1500
"""Bytes; longer segments get no more appends, and are truncated instead."""


@dataclass(frozen=True)
class Op:
    """An operation: for the model, and for a client."""

    call: Call
    start: Callable[[At], Coroutine[Any, Any, Any]]
    done: Callable[[Any, Doing], None] | None = None
    """Called with the value after a success."""


@dataclass(frozen=True)
class Handle:
    """The handle of an exclusive writer."""

    path: str
    owner: str
    epoch: int


def core_of(client: At) -> Core:
    """The way in for verbs of files."""
    return Core(client, cast("Any", SimpleNamespace(backend=client.backend)))


class Draw:
    """Draws the arguments of operations."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world, self.chance = world, chance
        self.state = world.history.state

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def path(self, wanted: Callable[[Seg | None], bool]) -> str:
        """A path; mostly one that `wanted` accepts and that no dead owner holds."""
        good = [path for path in self.world.paths if wanted(self.state.get(path)) and self._may_write(path)]
        return self.chance.choice(good if good and self.often(0.95) else self.world.paths)

    def _may_write(self, path: str) -> bool:
        seg = self.state.get(path)
        return seg is None or seg.owner in {None, *(handle.owner for handle in self.world.handles)}

    def data(self, most: int = TOKENS_MAX) -> bytes:
        count = self.chance.randint(1, most)
        first, self.world.tokens = self.world.tokens, self.world.tokens + count
        return tokens_of(first, count)

    def attrs(self) -> dict[str, str | None]:
        if not self.often(0.15):
            return {}
        return {self.chance.choice(KEYS): str(self.world.tokens) if self.often(0.75) else None}

    def who(self, path: str, *, offset: bool = False, bound: bool = False) -> tuple[Who, Guard]:
        """The conditions of the caller; mostly they hold."""
        seg = self.state.get(path)
        handles = [handle for handle in self.world.handles if handle.path == path]
        holding = [handle for handle in handles if seg is not None and seg.owner == handle.owner]
        handle = self.chance.choice(holding) if holding and self.often(0.95) else None
        if handle is None and handles and self.often(0.04):
            handle = self.chance.choice(handles)
        expected_offset = segment = None
        expected_attrs: dict[str, str | None] = {}
        if offset and seg is not None and self.often(0.15):
            expected_offset = seg.length if self.often(0.9) else self.chance.randint(0, SIZE_MAX)
        if self.often(0.1):
            key = self.chance.choice(KEYS)
            expected_attrs = {key: seg.attrs.get(key) if seg and self.often(0.9) else None}
        opened = [one for one in self.world.opened if one[0] == path]
        if bound and opened and self.often(0.15):
            _, segment = self.chance.choice(opened)
        owner, epoch = (handle.owner, handle.epoch) if handle else (None, None)
        return Who(owner, segment, expected_attrs, expected_offset), Guard(
            segment, epoch, expected_offset, expected_attrs
        )

    @staticmethod
    def _takes_more(seg: Seg | None) -> bool:
        return seg is not None and not seg.sealed and len(seg.data) < SIZE_MAX

    def _upkeep(self, path: str, start: Callable[[At], Coroutine[Any, Any, Any]], *errors: type[Exception]) -> Op:
        may = frozenset({FileNotFoundError, ConflictError, CorruptChunkError, *errors})
        return Op(Call(model.look, path, {}, may), start)

    def _long(self) -> str:
        return self.path(lambda seg: seg is not None and len(seg.data) > 9)

    def _lag_s(self) -> float:
        return self.chance.choice((0.0, 5.0, AGE_S_MAX))

    def _holder(self, path: str) -> tuple[Who, Guard]:
        """The owner, if a segment has one that lives."""
        seg = self.state.get(path)
        for handle in self.world.handles:
            if seg is not None and handle.path == path and handle.owner == seg.owner:
                return Who(handle.owner), Guard(epoch=handle.epoch)
        return Who(), Guard()
