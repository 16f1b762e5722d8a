"""A random life of segments on a real store, against the model of the simulation.

Several clients take turns. After each verb another client looks at all that the verb touched.
"""

import itertools
import random
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

from rollingfs import core
from rollingfs.errors import RollingError
from rollingfs.fs.core import Core
from rollingfs.segment.at import At
from tests.simulation import model
from tests.simulation.draw import Op
from tests.simulation.history import Violation
from tests.simulation.model import Call, Refused, Seg, State
from tests.simulation.verbs import WEIGHTS, Verbs
from tests.simulation.world import World
from tests.soak.plan import Place

STEPS = 300
CLIENTS = 3
NAMES = ("top/a", "top/b", "top/sub/c", "top/sub/d e%", "other/f")
LEFT_OUT = (
    "change_file", "lose_page", "follow", "follow_all", "run", "export", "rebuild", "set_retention",
    "set_offload_policy", "set_rolling", "remove_tree", "move_tree", "copy_tree", "subscribe", "publish",
    "unsubscribe", "cut", "trim", "retain", "listing", "open", "crash", "cancel", "set_clock",
)  # fmt: skip
"""Verbs that need the simulation's own store, clock or folders."""
DRAWN = {name: weight for name, weight in WEIGHTS.items() if name not in LEFT_OUT}


class LifeVerbs(Verbs):
    """Draws operations for a life."""

    def drop_in(self) -> Op | None:
        """Another program writes a plain file where no segment is."""
        path = self.chance.choice(self.world.paths)
        if path in self.state:
            return None
        data = self.data()

        async def start(client: At) -> None:
            await client.backend.put(path, data)

        return Op(Call(model.drop_in, path, {"data": data}), start)


class Life:
    """The part of a simulated world that the draw of verbs needs, on a real place."""

    another_policy = World.another_policy

    def __init__(self, place: Place, seed: int) -> None:
        self.chance = random.Random(seed)
        self.place, self.root = place, place.root
        self.paths = tuple(f"{place.root}/{name}" for name in NAMES)
        self.folders = tuple(sorted({path.rpartition("/")[0] for path in self.paths}))
        self.history = SimpleNamespace(state={})
        self.handles: list[Any] = []
        self.opened: list[tuple[str, str]] = []
        self.receipts: list[Any] = []
        self.tokens = 1
        self._numbers = itertools.count(1)
        self.cores = [core(place.open()) for _ in range(CLIENTS)]
        self.counts = Counter[str]()

    @property
    def now_s(self) -> float:
        return time.monotonic()

    def new_number(self) -> int:
        return next(self._numbers)

    def created(self, *_: object) -> None:
        """The world looks at the policy of a new segment."""

    def erased(self, *_: object) -> None:
        """The world looks at all bytes of its store."""

    def step(self, verb: str) -> None:
        """Draw a verb, run it by a client, compare its answer, and look at its segments by another client."""
        one, other = self.chance.sample(self.cores, 2)
        op: Op | None = getattr(LifeVerbs(self, self.chance), verb)()  # type: ignore[arg-type]
        if op is None:
            return
        try:
            value, error = one.run(op.start(one.client)), None
        except (FileNotFoundError, FileExistsError, RollingError, ValueError) as raised:
            value, error = None, raised
        self.counts["refused" if error else "done"] += 1
        after = self._judged(op.call, value, error)
        for path in op.call.paths:
            if path in self.paths:
                after = model.put(after, path, self._seen(other, op.call, path, after.get(path)))
        self.history.state = after
        if op.done is not None and error is None:
            op.done(value, None)  # type: ignore[arg-type]

    def _judged(self, call: Call, value: Any, error: Exception | None) -> State:
        """The state after a call; a wrong answer is raised."""
        before, may = self.history.state, tuple(kind for kind in call.may_also if kind is not None)
        try:
            after, expected = call.apply(before)
        except Refused as refused:
            is_right = isinstance(error, tuple(refused.errors)) or (error is None and None in call.may_also)
            after, expected = before, None
        else:
            is_right = error is None and expected in (None, value)
            after = before if error is not None else after
        if not is_right and not (error is not None and isinstance(error, may)):
            raise Violation(f"{call} gave {value!r}, {error!r}; expected {expected!r} in {before}") from error
        return after

    def _seen(self, by: Core, call: Call, path: str, expected: Seg | None) -> Seg | None:
        """What a client sees at a path, which must be what the model has."""
        seen = by.run(_seg(by.client, path))
        if seen != expected:
            raise Violation(f"after {call}, {path} is {seen}; expected {expected}")
        return seen

    def end(self) -> None:
        """Look at all, by a verification and by a listing."""
        fs, state = self.place.open(), self.history.state
        found = fs.find(self.root)
        if sorted(found) != sorted(state):
            raise Violation(f"the listing has {found}; expected {sorted(state)}")
        for path, seg in state.items():
            if fs.cat_file(path) != seg.data:
                raise Violation(f"{path} has other bytes")
            if bad := [row for row in fs.segment(path).verify() if not row.ok]:
                raise Violation(f"{path}: damaged: {bad}")


async def _seg(client: At, path: str) -> Seg | None:
    try:
        view = await client.headers.view(path, fresh=True)
    except FileNotFoundError:
        return None
    data = bytes(await client.fetcher.read(view, view.start, view.length))
    header, ids = view.header, view.incarnations
    if header is None:
        return Seg(data, ids=ids)
    rest = header.owner, header.segment, header.root, ids, header.epoch
    return Seg(data, view.start, view.sealed, view.attrs, *rest)


def lived(place: Place, steps: int = STEPS, seed: int = 1) -> str:
    """Live so many steps; a broken promise as text."""
    life = Life(place, seed)
    verbs = life.chance.choices(list(DRAWN), list(DRAWN.values()), k=steps)
    try:
        for verb in verbs:
            life.step("create" if not life.history.state else verb)
        life.end()
    except Violation as violation:
        return f"**{violation}**"
    return f"kept ({life.counts.total()})"
