"""Every operation of rollingfs with mostly sensible arguments, drawn by hypothesis or by seeded chance."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from rollingfs.client import Client
from rollingfs.errors import BadOffsetError, StagedExpiredError
from rollingfs.format.header import AGE_S_MAX, GRACE_S
from rollingfs.format.transitions import Guard
from rollingfs.maintenance.consolidate import Consolidator
from rollingfs.maintenance.offload import Chosen, Offloader
from rollingfs.maintenance.roll import Roller
from rollingfs.policy import RollingPolicy
from tests.support import model
from tests.support.faults import CLOCK, NAPS_S, Fault, Store
from tests.support.model import Call, Seg, State, Who
from tests.support.world import PATHS, Handle, Op, World

T = TypeVar("T")

SEGMENTS_MIN = 3
"""With fewer, most operations would find nothing."""
QUICK = [fault for fault in Fault if fault.name not in NAPS_S]


class Draw(Protocol):
    """A source of decisions."""

    def number(self, least: int, most: int) -> int: ...


class Chooser:
    """Decisions made of numbers."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.number = draw.number

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def often(self, percent: int) -> bool:
        """True in `percent` cases of a hundred; a shrunk example has the likelier answer."""
        return self.number(0, 99) < percent if percent >= 50 else self.number(0, 99) >= 100 - percent


def also(op: Op, outcome: type[Exception] | None) -> Op:
    """Let an operation meet an error that the model cannot foresee; or, None, finish a delete that is under way."""
    return replace(op, call=replace(op.call, may_also=op.call.may_also | {outcome}))


class Rules:
    """Makes operations for a world.

    Parameters
    ----------
    append_bytes_max
        Maximum of one small append.
    size_max
        Bytes; larger segments get no more appends.
    """

    def __init__(self, world: World, append_bytes_max: int, size_max: int) -> None:
        self.world = world
        self.append_bytes_max = append_bytes_max
        self.size_max = size_max
        self._serial = itertools.count(1)

    def operation(self, verb: str, choose: Chooser) -> Op | None:
        """An operation of a kind; None if it makes no sense now."""
        op: Op | None = getattr(self, verb)(choose)
        return op

    # -- arguments -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.world.possible.states[0]

    def path(self, choose: Chooser, wanted: Callable[[Seg | None], bool]) -> str:
        """A path; mostly one that `wanted` accepts."""
        good = [path for path in PATHS if wanted(self.state.get(path)) and self._may_write(path)]
        return choose.pick(good if good and choose.often(93) else PATHS)

    def _may_write(self, path: str) -> bool:
        seg = self.state.get(path)
        return seg is None or seg.owner in {None, *(handle.owner for handle in self.world.handles)}

    def data(self, choose: Chooser, most: int) -> bytes:
        if choose.often(20):
            return b"=" * choose.number(0, most)  # equal pieces become equal chunks
        return (b"%d," % next(self._serial) * most)[: choose.number(1, most)]

    def attrs(self, choose: Chooser) -> dict[str, str | None]:
        if not choose.often(20):
            return {}
        return {choose.pick(["k", "ä ="]): str(next(self._serial)) if choose.often(75) else None}

    def who(self, choose: Chooser, path: str, *, offset: bool = False, bound: bool = False) -> tuple[Who, Guard]:
        """The conditions of the caller; mostly they hold."""
        seg = self.state.get(path)
        handles = [handle for handle in self.world.handles if handle.path == path]
        holding = [handle for handle in handles if seg is not None and seg.owner == handle.owner]
        handle = choose.pick(holding) if holding and choose.often(95) else None
        if handle is None and handles and choose.often(4):
            handle = choose.pick(handles)
        expected_offset = born = incarnation = None
        expected_attrs: dict[str, str | None] = {}
        if offset and seg is not None and choose.often(15):
            expected_offset = seg.length if choose.often(90) else choose.number(0, self.size_max)
        if choose.often(10):
            key = choose.pick(["k", "ä ="])
            known = seg.attrs.get(key) if seg else None
            expected_attrs = {key: known if choose.often(90) else "other"}
        opened = [one for one in self.world.opened if one[0] == path]
        if bound and opened and choose.often(15):
            _, incarnation, born = choose.pick(opened)
        owner, epoch = (handle.owner, handle.epoch) if handle else (None, None)
        who = Who(owner, born, expected_attrs, expected_offset)
        return who, Guard(incarnation, epoch, expected_offset, expected_attrs)

    def call(self, verb: Callable[..., Any], path: str, **args: Any) -> Call:
        if verb in (model.create, model.look, model.collect, model.read, model.release, model.delete, model.drop_in):
            return Call(verb, path, args)
        return Call(verb, path, {"born": next(self._serial), "policy": self.world.policy, **args})

    # -- one segment ---------------------------------------------------------------------------------------

    def create(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is None)
        policy = self.world.policy
        if choose.often(30):
            policy = RollingPolicy(max_bytes=choose.number(1, 9), inline_bytes=choose.number(0, 9))
        call = self.call(model.create, path, born=next(self._serial), policy=policy)
        return Op(call, lambda client: client.segments.create(path, policy))

    def append(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and not seg.sealed and len(seg.data) < self.size_max)
        who, guard = self.who(choose, path, offset=True, bound=True)
        data, attrs = self.data(choose, self.append_bytes_max), self.attrs(choose)
        call = self.call(model.append, path, data=data, attrs=attrs, who=who)
        return Op(call, lambda client: client.segments.append(path, [data], attrs=attrs, guard=guard))

    def append_large(self, choose: Chooser) -> Op:
        """More than memory may hold: chunks are uploaded first, then one commit names them."""
        path = self.path(choose, lambda seg: seg is not None and not seg.sealed and len(seg.data) < self.size_max)
        who, guard = self.who(choose, path, offset=True)
        pieces = [self.data(choose, 12) for _ in range(choose.number(2, 4))]
        call = self.call(model.append, path, data=b"".join(pieces), attrs={}, who=who)
        return Op(call, lambda client: client.segments.append(path, iter(pieces), guard=guard))

    def stage(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and not seg.sealed)
        data = self.data(choose, 12) or b"x"
        began_s = CLOCK.time()
        done = lambda receipt: self.world.receipts.append((receipt, data, began_s))  # noqa: E731
        return Op(self.call(model.look, path), lambda client: client.segments.stage(path, data), done)

    def append_staged(self, choose: Chooser) -> Op | None:
        if not self.world.receipts:
            return None
        receipt, data, began_s = choose.pick(self.world.receipts)
        path = receipt.path
        others = [one for one in self.world.receipts if one[0].path == path and one[0].id != receipt.id]
        chosen = [(receipt, data, began_s), *others[:1]]
        between = self.data(choose, 3)
        items = [item for receipt, _, _ in chosen for item in (receipt, between)]
        joined = b"".join(data + between for _, data, _ in chosen)
        who, guard = self.who(choose, path)
        expires = any(CLOCK.time() - began > AGE_S_MAX for _, _, began in chosen)
        verb = "append" if choose.often(75) else "overwrite"
        call = self.call(getattr(model, verb), path, data=joined, attrs={}, who=who)
        op = Op(call, lambda client: getattr(client.segments, verb)(path, items, guard=guard))
        return also(op, StagedExpiredError) if expires else op

    def overwrite(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: True)
        who, guard = self.who(choose, path)
        data, attrs = self.data(choose, 20), self.attrs(choose)
        call = self.call(model.overwrite, path, data=data, attrs=attrs, who=who)
        return Op(call, lambda client: client.segments.overwrite(path, [data], attrs=attrs, guard=guard))

    def seal(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and not seg.sealed)
        who, guard = self.who(choose, path, bound=True)
        return Op(self.call(model.seal, path, who=who), lambda client: client.segments.seal(path, guard))

    def truncate(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and len(seg.data) > 3)
        seg = self.state.get(path)
        who, guard = self.who(choose, path, bound=True)
        least, most = (seg.start + 1, seg.length) if seg and seg.data else (-1, 9)
        if choose.often(5):
            most += 2
        offset = choose.number(least, most)
        call = self.call(model.truncate, path, offset=offset, who=who)
        return Op(call, lambda client: client.segments.truncate(path, offset, guard))

    def delete(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None)
        who, guard = self.who(choose, path)
        call = self.call(model.delete, path, who=who)
        op = Op(call, lambda client: client.segments.delete(path, guard))
        return also(op, None) if self.world.leftovers(path) else op

    def acquire(self, choose: Chooser) -> Op:
        lost = [path for path in PATHS if not self._may_write(path)]
        path = choose.pick(lost) if lost else self.path(choose, lambda seg: seg is not None)
        owner = f"owner {next(self._serial)}"
        done = lambda header: self.world.handles.append(Handle(path, owner, header.epoch))  # noqa: E731
        return Op(
            self.call(model.acquire, path, owner=owner), lambda client: client.segments.acquire(path, owner), done
        )

    def release(self, choose: Chooser) -> Op | None:
        if not self.world.handles:
            return None
        owners = {seg.owner for seg in self.state.values()}
        good = [handle for handle in self.world.handles if handle.owner in owners]
        if not good and choose.often(90):
            return None
        handle = choose.pick(good or self.world.handles)
        guard = Guard(epoch=handle.epoch)
        call = self.call(model.release, handle.path, who=Who(handle.owner))
        return Op(call, lambda client: client.segments.release(handle.path, guard))

    def drop_in(self, choose: Chooser) -> Op | None:
        """Another program writes a plain file."""
        path = self.path(choose, lambda seg: seg is None)
        seg = self.state.get(path)
        header = self.world.header(path)
        if (seg is not None and not seg.plain) or (header is not None and not header.deleted):
            return None
        data = self.data(choose, 12) if choose.often(50) else b"as ever"

        async def start(client: Client) -> None:
            await self.world.store.delete([path])
            await self.world.store.write(path, [data])

        return Op(self.call(model.drop_in, path, data=data), start)

    # -- two segments --------------------------------------------------------------------------------------

    def concat(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and not seg.sealed and len(seg.data) < self.size_max)
        sealed = [
            p for p in PATHS if p != path and p in self.state and self.state[p].sealed and not self.state[p].owner
        ]
        if not sealed and choose.often(90):
            return self.seal(choose)
        if sealed and choose.often(92):
            first = choose.number(0, len(sealed) - 1)
            sources = [*sealed[first:], *sealed[:first]][: choose.number(1, len(sealed))]
        else:
            sources = [choose.pick(PATHS) for _ in range(choose.number(0, 2))]
        who, guard = self.who(choose, path, offset=True)
        attrs = self.attrs(choose)
        call = self.call(model.concat, path, sources=sources, attrs=attrs, who=who)
        return Op(call, lambda client: client.concats.concat(path, sources, attrs=attrs, guard=guard))

    def rename(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and seg.owner is None)
        target = self.path(choose, lambda seg: seg is None or seg.owner is None)
        op = Op(self.call(model.rename, path, target=target), lambda client: client.concats.rename(path, target))
        return also(op, None) if path == target else op  # that only reads, as `read` does

    # -- what changes nothing ------------------------------------------------------------------------------

    def collect(self, choose: Chooser, path: str | None = None) -> Op:
        return self._collected(path or choose.pick(PATHS), None)

    def collect_all_at_once(self, choose: Chooser) -> Op:
        """Collect without grace: nobody writes, no request is under way, no receipt will be committed."""
        self.world.store.land()
        self.world.receipts.clear()
        return self._collected(choose.pick(PATHS), 0.0)

    def _collected(self, path: str, grace_s: float | None) -> Op:
        op = Op(self.call(model.collect, path), lambda client: client.collector.collect(path, grace_s=grace_s))
        return also(op, None)  # leftovers of a segment that is gone let it succeed

    def consolidate(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and len(seg.data) > 9)
        op = Op(
            self.call(model.collect, path),
            lambda client: Consolidator(client.commits, client.fetcher).consolidate(path),
        )
        # a plain file, or another incarnation by now; a source whose merge took place, but is not finished
        return also(also(op, FileNotFoundError), None)

    def offload(self, choose: Chooser) -> Op:
        """Move chunks to the tier, some or all; needs a store that has one."""
        path = self.path(choose, lambda seg: seg is not None and len(seg.data) > 9)
        lag_s, upto = choose.pick((0.0, 5.0, AGE_S_MAX)), self._upto(choose, path)
        op = Op(
            self.call(model.collect, path),
            lambda client: Offloader(client.commits, client.fetcher).offload(path, "cold", Chosen(upto), lag_s=lag_s),
        )
        return also(
            also(also(op, FileNotFoundError), BadOffsetError), None
        )  # as `consolidate`; or it is shorter by now

    def onload(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and len(seg.data) > 9)
        lag_s, upto = choose.pick((0.0, 5.0, AGE_S_MAX)), self._upto(choose, path)
        op = Op(
            self.call(model.collect, path),
            lambda client: Offloader(client.commits, client.fetcher).onload(path, None, Chosen(upto), lag_s=lag_s),
        )
        return also(also(also(op, FileNotFoundError), BadOffsetError), None)

    def roll(self, choose: Chooser) -> Op:
        path = self.path(choose, lambda seg: seg is not None and len(seg.data) > 0)
        op = Op(self.call(model.collect, path), lambda client: Roller(client.commits).roll(path))
        return also(also(op, FileNotFoundError), None)  # as `consolidate`

    def _upto(self, choose: Chooser, path: str) -> int | None:
        seg = self.state.get(path)
        return choose.number(seg.start, seg.length) if seg is not None and choose.often(30) else None

    def open(self, choose: Chooser) -> Op:
        """Bind a handle to an incarnation."""
        path = self.path(choose, lambda seg: seg is not None and not seg.plain)
        header = self.world.header(path)
        births = {state[path].born for state in self.world.possible.states if path in state}
        if header is not None and not header.deleted and header.merge is None and len(births) == 1:
            self.world.opened.append((path, header.segment, births.pop()))
            del self.world.opened[:-9]

        async def start(client: Client) -> None:
            pass

        return Op(self.call(model.look, path), start)

    def read(self, choose: Chooser) -> Op | None:
        path = self.path(choose, lambda seg: seg is not None and len(seg.data) > 0)
        if any(header is not None and header.merge is not None for header in map(self.world.header, PATHS)):
            return None  # readers see a source until somebody who may write has finished the merge
        seg = self.state.get(path)
        least, most = (seg.start, seg.length) if seg else (0, 9)
        start = choose.number(least, most)
        end = choose.number(start, most)
        if choose.often(5):
            start = max(start - 3, 0)

        async def run(client: Client) -> bytes:
            view = await client.lookup.view(path, fresh=True)
            return await client.fetcher.read(view, start, end)

        return Op(self.call(model.read, path, begin=start, end=end), run)


ALONE = {"collect_all_at_once", "drop_in", "open", "read", "stage"}
"""Operations that do not overlap others: they take effect at several moments, or presume that there are none."""

WEIGHTS: Mapping[str, int] = {
    "append": 37,
    "append_large": 5,
    "stage": 3,
    "append_staged": 5,
    "create": 9,
    "overwrite": 6,
    "truncate": 12,
    "seal": 9,
    "concat": 10,
    "rename": 7,
    "delete": 5,
    "acquire": 3,
    "release": 4,
    "drop_in": 3,
    "collect": 3,
    "consolidate": 3,
    "roll": 1,
    "collect_all_at_once": 1,
    "open": 1,
    "read": 3,
}


class Driver:
    """Runs operations in a world, with faults and with others within them."""

    def __init__(
        self, policy: RollingPolicy, *, append_bytes_max: int = 9, size_max: int = 120, store: Store | None = None
    ) -> None:
        self.world = World(policy, store=store)
        self.rules = Rules(self.world, append_bytes_max, size_max)

    def act(self, verb: str, choose: Chooser) -> None:
        """One operation of a kind, unless it makes no sense now."""
        if len(self.rules.state) < SEGMENTS_MIN and choose.often(60):
            verb = "create"
        op = self.rules.operation(verb, choose)
        if op is None:
            return
        world = self.world
        if verb == "collect" and choose.often(60):
            world.store.lapse(GRACE_S + AGE_S_MAX)  # so that there is something to collect
        index = choose.number(0, len(world.clients) - 1)
        faults: dict[int, Fault] = {}
        others: dict[int, tuple[Op, int]] = {}
        always = None
        if verb not in ("drop_in", "open") and choose.often(30):
            if choose.often(8):
                always = choose.pick([Fault.BEFORE, Fault.LOST, Fault.LATE, Fault.BUSY, Fault.AFTER, Fault.CONFLICT])
            faults = {choose.number(0, 14): choose.pick(QUICK) for _ in range(choose.number(1, 3))}
        if verb not in ALONE and choose.often(60 if verb == "collect" else 12):
            others = self._others(choose, index)
            if choose.often(20):
                faults[choose.number(0, 8)] = Fault.NAP
        elif verb not in ALONE and choose.often(4):
            at = choose.number(0, 7)
            faults[at] = Fault.COMA
            others[at] = (self.rules.collect(choose, op.call.path), self._another(choose, index))
            op = also(op, StagedExpiredError)  # whatever it had uploaded before it fell asleep
        if others and op.call.verb is model.delete:
            op = also(op, None)
        world.step(op, index, faults, always, others, answers_reads=choose.often(50))

    def _others(self, choose: Chooser, index: int) -> dict[int, tuple[Op, int]]:
        """The operations of others within one operation."""
        others: dict[int, tuple[Op, int]] = {}
        for _ in range(choose.number(1, 2)):
            inner = self.rules.operation(choose.pick([verb for verb in WEIGHTS if verb not in ALONE]), choose)
            if inner is not None:
                inner = also(inner, None) if inner.call.verb is model.delete else inner
                others[choose.number(0, 9)] = (inner, self._another(choose, index))
        return others

    def _another(self, choose: Chooser, index: int) -> int:
        return (index + choose.number(1, len(self.world.clients) - 1)) % len(self.world.clients)

    def pass_time(self, choose: Chooser) -> None:
        """Let caches, marks, uploads or garbage grow old."""
        self.world.store.lapse(choose.pick([0.5, 2.0, 10.0, AGE_S_MAX + 1.0, GRACE_S + AGE_S_MAX]))
