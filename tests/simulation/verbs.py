"""The verbs: each draws mostly sensible arguments, and gives a call of the model and a coroutine of the real code."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rollingfs.backend.contract import Over
from rollingfs.client import Client
from rollingfs.errors import (
    BadOffsetError,
    ConflictError,
    CorruptChunkError,
    SegmentTruncatedError,
    StagedExpiredError,
)
from rollingfs.folders.collect_tree import TreeCollector
from rollingfs.folders.folders import Folders
from rollingfs.folders.listing import Listings
from rollingfs.format import names
from rollingfs.format.header import AGE_S_MAX
from rollingfs.format.policies import PolicyChange
from rollingfs.format.transitions import Guard
from rollingfs.maintenance.consolidate import Consolidator
from rollingfs.maintenance.offload import Chosen, Offloader
from rollingfs.maintenance.roll import Roller
from rollingfs.policy import FOREVER, OffloadPolicy
from rollingfs.stream.blocks import Move
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.follow import Followed, fixed
from rollingfs.stream.offload_policy import Asked
from rollingfs.stream.retention import RetentionPolicy
from rollingfs.stream.stream_verbs import StreamVerbs
from tests.simulation import model
from tests.simulation.history import TOKEN, Doing, tokens_of
from tests.simulation.lasting import kept
from tests.simulation.model import Bound, Call, Seg, Who
from tests.simulation.witness import EXPORTS, LOST, REBUILT

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

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
    start: Callable[[Client], Coroutine[Any, Any, Any]]
    done: Callable[[Any, Doing], None] | None = None
    """Called with the value after a success."""


@dataclass(frozen=True)
class Handle:
    """The handle of an exclusive writer."""

    path: str
    owner: str
    epoch: int


class Verbs:
    """Draws operations for a world, one verb a method."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world, self.chance = world, chance
        self.state = world.history.state

    # -- arguments ---------------------------------------------------------------------------------------------

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

    # -- one segment -------------------------------------------------------------------------------------------

    def create(self) -> Op:
        path = self.path(lambda seg: seg is None)
        policy = None if self.often(0.7) else self.world.another_policy(self.chance)
        return Op(
            Call(model.create, path),
            lambda client: client.segments.create(path, policy),
            lambda header, doing: self.world.created(policy, header, doing),
        )

    def append(self, pieces_max: int = 1, tokens_max: int = TOKENS_MAX) -> Op:
        path = self.path(self._takes_more)
        who, guard = self.who(path, offset=True, bound=True) if self.often(0.3) else (self._holder(path))
        data, attrs = self.data(tokens_max), self.attrs()
        cuts = sorted(self.chance.randint(0, len(data)) for _ in range(self.chance.randint(1, pieces_max) - 1))
        pieces = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        call = Call(model.append, path, {"data": data, "attrs": attrs, "who": who})
        # an iterator is taken piece by piece, so chunks are uploaded before the commit
        given: Any = pieces if pieces_max > 1 else data
        return Op(call, lambda client: client.segments.append(path, given, attrs=attrs, guard=guard))

    def _holder(self, path: str) -> tuple[Who, Guard]:
        """The owner, if a segment has one that lives."""
        seg = self.state.get(path)
        for handle in self.world.handles:
            if seg is not None and handle.path == path and handle.owner == seg.owner:
                return Who(handle.owner), Guard(epoch=handle.epoch)
        return Who(), Guard()

    def append_large(self) -> Op:
        return self.append(4, TOKENS_OF_LARGE_MAX)

    def stage(self) -> Op:
        path = self.path(self._takes_more)
        data, began_s = self.data(), self.world.now_s
        return Op(
            Call(model.look, path),
            lambda client: client.segments.stage(path, data),
            lambda receipt, _: self.world.receipts.append((receipt, data, began_s)),
        )

    def append_staged(self) -> Op | None:
        if not self.world.receipts:
            return self.stage()
        receipt, data, began_s = self.chance.choice(self.world.receipts)
        self.world.receipts.remove((receipt, data, began_s))  # given twice, its tokens would come twice
        path = receipt.path
        between = self.data(6)
        who, guard = self._holder(path)
        verb = "append" if self.often(0.75) else "overwrite"
        call = Call(getattr(model, verb), path, {"data": data + between, "attrs": {}, "who": who})
        if self.world.now_s - began_s > AGE_S_MAX / 2:
            call = replace(call, may_also=frozenset({StagedExpiredError}))
        return Op(call, lambda client: getattr(client.segments, verb)(path, [receipt, between], guard=guard))

    def overwrite(self) -> Op:
        path = self.path(lambda seg: True)
        who, guard = self.who(path)
        data, attrs = self.data(), self.attrs()
        call = Call(model.overwrite, path, {"data": data, "attrs": attrs, "who": who})
        return Op(call, lambda client: client.segments.overwrite(path, [data], attrs=attrs, guard=guard))

    def seal(self) -> Op:
        path = self.path(lambda seg: seg is not None and not seg.sealed)
        who, guard = self.who(path, bound=True)
        return Op(Call(model.seal, path, {"who": who}), lambda client: client.segments.seal(path, guard))

    def truncate(self, verb: str = "truncate") -> Op:
        path = self.path(lambda seg: seg is not None and len(seg.data) > TOKEN)
        seg = self.state.get(path)
        who, guard = self.who(path, bound=True)
        least, most = (seg.start + 1, seg.length) if seg and seg.data else (-1, 9)
        offset = self.chance.randint(least, most + (2 if self.often(0.05) else 0))
        call = Call(model.truncate, path, {"offset": offset, "who": who})
        if verb == "truncate":
            return Op(call, lambda client: _no_value(client.segments.truncate(path, offset, guard)))
        call = replace(call, may_also=frozenset({ConflictError, CorruptChunkError}))
        return Op(call, lambda client: client.eraser.erase(path, offset, guard), self.world.erased)

    def erase(self) -> Op:
        return self.truncate("erase")

    def delete(self) -> Op:
        path = self.path(lambda seg: seg is not None)
        who, guard = self.who(path)
        # it may find and finish one that is under way
        call = Call(model.delete, path, {"who": who}, frozenset({None}))  # type: ignore[arg-type]
        return Op(call, lambda client: _no_value(client.segments.delete(path, guard)))

    def acquire(self) -> Op:
        lost = [path for path in self.world.paths if not self._may_write(path)]
        path = self.chance.choice(lost) if lost else self.path(lambda seg: seg is not None)
        owner = f"owner {self.world.new_number()}"

        async def start(client: Client) -> int:
            return (await client.segments.acquire(path, owner)).epoch

        return Op(
            Call(model.acquire, path, {"owner": owner}),
            start,
            lambda epoch, _: self.world.handles.append(Handle(path, owner, epoch)),
        )

    def release(self) -> Op | None:
        owners = {seg.owner for seg in self.state.values()}
        good = [handle for handle in self.world.handles if handle.owner in owners]
        if not good and not (self.world.handles and self.often(0.1)):
            return None
        handle = self.chance.choice(good or self.world.handles)
        call = Call(model.release, handle.path, {"who": Who(handle.owner)})
        return Op(call, lambda client: client.segments.release(handle.path, Guard(epoch=handle.epoch)))

    # -- two segments ------------------------------------------------------------------------------------------

    def concat(self) -> Op:
        path = self.path(self._takes_more)
        sealed = [one for one, seg in self.state.items() if one != path and seg.sealed and not seg.owner]
        if not sealed and self.often(0.9):
            return self.seal()
        if sealed and self.often(0.92):
            sources = self.chance.sample(sorted(sealed), self.chance.randint(1, len(sealed)))
        else:
            sources = [self.chance.choice(self.world.paths) for _ in range(self.chance.randint(0, 2))]
        who, guard = self.who(path)
        attrs = self.attrs()
        call = Call(model.concat, path, {"sources": sources, "attrs": attrs, "who": who})
        return Op(call, lambda client: client.concats.concat(path, sources, attrs=attrs, guard=guard))

    def rename(self) -> Op:
        path = self.path(lambda seg: seg is not None and seg.owner is None)
        target = self.path(lambda seg: seg is None or seg.owner is None)
        call = Call(model.rename, path, {"target": target})
        if path == target:
            call = replace(call, may_also=frozenset({None}))  # type: ignore[arg-type]
        return Op(call, lambda client: _no_value(client.concats.rename(path, target)))

    # -- what changes nothing ----------------------------------------------------------------------------------

    def _upkeep(self, path: str, start: Callable[[Client], Coroutine[Any, Any, Any]], *errors: type[Exception]) -> Op:
        may = frozenset({FileNotFoundError, ConflictError, CorruptChunkError, *errors})
        return Op(Call(model.look, path, {}, may), start)

    def collect(self) -> Op:
        path = self.chance.choice(self.world.paths)
        return self._upkeep(path, lambda client: client.collector.collect(path))

    def _long(self) -> str:
        return self.path(lambda seg: seg is not None and len(seg.data) > 9)

    def consolidate(self) -> Op:
        path, grace_s = self._long(), self.chance.choice((0.0, 600.0))
        return self._upkeep(
            path, lambda client: Consolidator(client.commits, client.fetcher).consolidate(path, grace_s=grace_s)
        )

    def roll(self) -> Op:
        path = self._long()
        return self._upkeep(path, lambda client: Roller(client.commits).roll(path))

    def offload(self) -> Op:
        path, tier, lag_s = self._long(), self.chance.choice(("cold", "warm")), self._lag_s()
        chosen = Chosen(self._upto(path))
        return self._upkeep(
            path,
            lambda client: Offloader(client.commits, client.fetcher).offload(path, tier, chosen, lag_s=lag_s),
            BadOffsetError,
        )

    def onload(self) -> Op:
        path, lag_s = self._long(), self._lag_s()
        chosen = Chosen(self._upto(path))
        return self._upkeep(
            path,
            lambda client: Offloader(client.commits, client.fetcher).onload(path, None, chosen, lag_s=lag_s),
            BadOffsetError,
        )

    def _lag_s(self) -> float:
        return self.chance.choice((0.0, 5.0, AGE_S_MAX))

    def _upto(self, path: str) -> int | None:
        seg = self.state.get(path)
        return self.chance.randint(seg.start, seg.length) if seg is not None and self.often(0.3) else None

    def read(self) -> Op | None:
        path = self.path(lambda seg: seg is not None and len(seg.data) > 0)
        seg = self.state.get(path)
        least, most = (seg.start, seg.length) if seg else (0, 9)
        begin = self.chance.randint(least, most)
        end = self.chance.randint(begin, most)
        if self.often(0.05):
            begin = max(begin - 3, 0)

        async def start(client: Client) -> bytes:
            view = await client.lookup.view(path)
            return bytes(await client.fetcher.read(view, begin, end))

        return Op(Call(model.read, path, {"begin": begin, "end": end}), start)

    def listing(self) -> Op:
        folder = self.chance.choice(self.world.folders)
        return Op(
            Call(model.look, folder, {}, frozenset({FileNotFoundError})),
            lambda client: Listings(client).ls(folder),
            self.world.listed,
        )

    def collect_tree(self) -> Op:
        folder = self.chance.choice(self.world.folders)
        return self._upkeep(folder, lambda client: TreeCollector(client).collect(folder))

    def export(self) -> Op:
        path, target = self._long(), f"{EXPORTS}{self.world.new_number()}"

        async def start(client: Client) -> bytes | None:
            view = await client.lookup.view(path, fresh=True)
            await client.exporter.export(view, client.backend, target)
            return self.world.store.content(target)

        may = frozenset({FileNotFoundError, SegmentTruncatedError, ConflictError})
        return Op(Call(model.whole, path, {}, may), start)

    # -- streams -------------------------------------------------------------------------------------------------

    def _stream(self, verb: Callable[[StreamVerbs], Coroutine[Any, Any, Any]], *good: str) -> tuple[str, Any]:
        """A verb of a stream; mostly of one of the good folders, if there are any."""
        folder = self.world.folders[0] if self.often(0.5) else self.chance.choice(self.world.folders)
        folder = self.chance.choice(good) if good and self.often(0.8) else folder
        return folder, lambda client: verb(StreamVerbs(client, Listings(client), folder))

    def set_retention(self) -> Op:
        min_age = self.chance.choice((None, None, None, None, 60, 60, 60, 4000, FOREVER))
        keep = self.chance.choice(({}, {}, {"keep_bytes": 200}, {"keep_age": 9000}))
        most = self.chance.choice(({}, {}, {"max_bytes": 200}, {"max_age": 9000}))
        if min_age == FOREVER:  # no age is more
            keep, most = ({name: value for name, value in one.items() if name[-3:] != "age"} for one in (keep, most))
        policy = RetentionPolicy(
            min_bytes=self.chance.choice((0, 20, 100, None)),
            min_age=min_age,
            **keep,
            **most,
            every=self.chance.choice((0, 0, 900)),
            align=self._align(),
        )
        folder, start = self._stream(lambda stream: stream.set_retention(policy if policy.as_fields() else None))
        self.world.limited |= {one for one in self.world.folders if most and one.startswith(folder)}
        op = self._upkeep(folder, start, ValueError)  # what a client offloads by default may not go with it
        return replace(op, done=lambda _, doing: self.world.expect(doing, lambda found: found.retention == policy))

    def set_offload_policy(self) -> Op:
        """What a folder and those below it offload, in rounds of upkeep."""
        some = {"max_delay": 5, "after_bytes": 30, "after_age": 60, "block_bytes": 50, "deletion_lag": self._lag_s()}
        fields = {name: some[name] for name in self.chance.sample(sorted(some), self.chance.randint(0, 3))}
        policy = self.chance.choice((None, OffloadPolicy(""), OffloadPolicy("cold", **fields), OffloadPolicy(**fields)))
        policy = None if policy == OffloadPolicy() else policy
        folder, start = self._stream(lambda stream: stream.set_offload_policy(policy))
        op = self._upkeep(folder, start, ValueError)
        return replace(op, done=lambda _, doing: self.world.expect(doing, lambda found: found.offload == policy))

    def set_rolling(self) -> Op:
        """What new segments of a folder and of those below it are made with."""
        fields = {"max_bytes": self.chance.choice((9, 33, 90)), "inline_bytes": self.chance.choice((0, 40))}
        fields |= {"max_age": self.chance.choice((1, 60))}
        given = self.chance.sample(sorted(fields), self.chance.randint(0, 3))
        change = PolicyChange(**{name: fields[name] for name in given}, inherit=tuple(fields.keys() - set(given)))
        return self._upkeep(*self._stream(lambda stream: stream.set_rolling(change)))

    def _name(self) -> str:
        return self.chance.choice(("one", "other"))

    def subscribe(self) -> Op:
        name = self._name()
        folder, start = self._stream(lambda stream: stream.subscribe(name))
        return self._subscribing(folder, name, start)

    def _bound(self, folder: str, name: str) -> Bound:
        return self.world.bounds.setdefault((folder, name), Bound(folder, name))

    def _subscribing(self, folder: str, name: str, start: Callable[[Client], Coroutine[Any, Any, Any]]) -> Op:
        bound = self._bound(folder, name)
        left = bound.left

        def done(_: object, doing: Doing) -> None:
            bound.is_stored |= bound.left == left and not bound.leaving
            self.world.expect(doing, lambda found: name in found.subscribers)

        op = self._retaining(folder, start)  # it may finish a trim that is under way
        return replace(op, call=replace(op.call, is_retaining=False), done=done)

    def unsubscribe(self) -> Op:
        name = self._name()
        folder, start = self._stream(lambda stream: stream.unsubscribe(name))
        bound = self._bound(folder, name)
        bound.leave()

        def done(_: object, doing: Doing) -> None:
            bound.leaving -= 1  # after another end it may still come true
            self.world.expect(doing, lambda found: name not in found.subscribers)

        return replace(self._upkeep(folder, start), done=done)

    def publish(self) -> Op:
        name = self._name()

        async def publish(stream: StreamVerbs) -> None:
            cut = await stream.cut()
            read = self._bound(folder, name).read
            for path, incarnation in cut.incarnations.items():
                read[incarnation] = max(cut[path], read.get(incarnation, 0))
            await stream.publish(name, cut)

        folder, start = self._stream(publish)
        return self._subscribing(folder, name, start)

    def _align(self) -> bytes | None:
        """A delimiter: of each token, or of few."""
        return self.chance.choice((None, None, None, TOKEN_FIRST, bytes((self.chance.randrange(128),))))

    def cut(self) -> Op:
        align = self._align()
        op = self._upkeep(*self._stream(lambda stream: stream.cut(align=align)))
        return replace(op, done=lambda cut, doing: self.world.cut_taken(cut, doing, align))

    def trim(self) -> Op:
        if not self.world.cuts:
            return self.cut()
        folder, cut = self.chance.choice(self.world.cuts)
        if self.often(0.3):
            cut = StreamCut({path: self.chance.randint(0, cut[path]) for path in cut}, cut.at, 0, cut.incarnations)
        trims = self.world.trims
        for path, incarnation in cut.incarnations.items():
            trims[incarnation] = max(cut[path], trims.get(incarnation, 0))
        op = self._retaining(
            folder, lambda client: StreamVerbs(client, Listings(client), folder).trim(cut), BadOffsetError
        )
        op = replace(op, call=replace(op.call, is_retaining=False))
        return replace(op, done=lambda did, doing: self.world.trimmed(cut, did, doing))

    def _retaining(
        self, folder: str, start: Callable[[Client], Coroutine[Any, Any, Any]], *errors: type[Exception]
    ) -> Op:
        world = self.world
        op = self._upkeep(folder, start, ValueError, *errors)
        is_step = partial(model.retains, folder=folder, is_unread=world.is_unread, limited=world.limited)
        return Op(replace(op.call, verb=model.by_steps, is_step=is_step, is_retaining=True), op.start)

    def retain(self) -> Op:
        if self.often(0.15):
            return self._upkeep(*self._stream(lambda stream: stream.retain(dry_run=True)), ValueError)
        held = {names.parent(path) for path, seg in self.state.items() if seg.data}
        good = [folder for folder in self.world.policies() if folder in held]
        if not good and self.often(0.6):
            return self.set_retention()
        op = self._retaining(*self._stream(lambda stream: stream.retain(), *good))
        return replace(op, done=self.world.retained)

    def run(self) -> Op:
        """A round of upkeep of a tree."""
        root = self.chance.choice(("/top", "/other"))

        async def start(client: Client) -> None:
            did = await kept(self.world.upkeep(client), (root,))
            self.world.counts["idle tails made a chunk"] += did.rolled

        return self._retaining(root, start)

    # -- folders -------------------------------------------------------------------------------------------------

    def _of_tree(self, folder: str, start: Callable[[Client], Coroutine[Any, Any, Any]], **args: Any) -> Op:
        step = partial(model.moves if args else model.removes, folder=folder, **args)
        self.world.limited |= set(args.values()) if folder in self.world.limited else set()
        for bound in self.world.bounds.values():
            if bound.folder.startswith((folder, *args.values())):
                bound.leave()  # its memory goes, or moves
        may = frozenset({OSError, ConflictError, ValueError})
        call = Call(model.by_steps, folder, {}, may, step)
        return Op(call, start, lambda _, doing: self.world.left_nothing(doing))

    def remove_tree(self) -> Op:
        folder = self.chance.choice(self.world.folders)
        return self._of_tree(folder, lambda client: Folders(client, Listings(client)).delete(folder, recursive=True))

    def move_tree(self) -> Op | None:
        if MOVED not in self.world.folders:
            return None
        folder, target = self.chance.sample(("/top/sub", MOVED), 2)
        return self._of_tree(
            folder,
            lambda client: Folders(client, Listings(client)).move(folder, target, into=False),
            target=target,
        )

    def rebuild(self) -> Op | None:
        """Make a segment of the chunks of another whose header is lost: of a copy of its chunk folder."""
        path, number = self._long(), self.world.new_number()
        made = f"{REBUILT}{number}"
        # as deep as the segment: references that leave its folder lead to the same files
        lost = f"{LOST}{'deep/' * (path.count('/') - 2)}{number}"
        starts = self.world.copy_chunks(path, lost)
        if not starts:
            return None
        start_at = self.chance.choice(starts) if self.often(0.3) else starts[0]
        op = self._upkeep(path, lambda client: client.rebuilder.rebuild(lost, made, start_at), ValueError)
        return replace(op, done=lambda did, doing: self.world.rebuilt(made, did, doing))

    def follow(self) -> Op:
        """A look of a follower, and the block that is due."""
        path, asked = self._long(), Asked("cold", Chosen(), self._lag_s(), 40, 0.0)

        async def start(client: Client) -> None:
            follower = Followed(client, path, fixed(asked))
            if isinstance(due := await follower.look(), Move):
                await follower.move(due)

        return self._upkeep(path, start)

    def follow_all(self) -> Op:
        """Some looks of a follower of all that lives as long as its process."""

        async def start(client: Client) -> None:
            for _ in range(self.chance.randint(1, 4)):
                await self.world.follower(client).follow()
                await asyncio.sleep(self.chance.choice((0.0, 2.0, 40.0)))

        return self._upkeep("/", start)

    def open(self) -> None:
        """Bind a handle to an incarnation; that is no operation."""
        path = self.path(lambda seg: seg is not None and seg.segment is not None)
        seg = self.state.get(path)
        if seg is not None and seg.segment is not None:
            self.world.opened.append((path, seg.segment))
            del self.world.opened[:-9]

    # -- what is no operation of rollingfs -----------------------------------------------------------------------

    def drop_in(self) -> Op | None:
        """Another program writes a plain file where no segment is."""
        path = self.path(lambda seg: seg is None)
        header = self.world.witness.headers.get(path)
        if path in self.state or (header is not None and not header.deleted) or self.world.is_busy(path):
            return None
        data = self.data()

        async def start(client: Client) -> None:
            self.world.store.put_whole(path, data, Over.ANYTHING)

        return Op(Call(model.drop_in, path, {"data": data}), start)

    def change_file(self) -> Op | None:
        """Another program appends to a plain file, or deletes it."""
        plain = [path for path, seg in self.state.items() if seg.segment is None and not self.world.is_busy(path)]
        if not plain or self.world.is_waiting:
            return self.drop_in()
        path = self.chance.choice(plain)
        if self.often(0.3):

            async def remove(client: Client) -> None:
                self.world.store.files.pop(path, None)

            return Op(Call(model.drop_out, path), remove)
        data = self.state[path].data + self.data(3)

        async def grow(client: Client) -> None:
            self.world.store.put_whole(path, data, Over.ANYTHING)

        return Op(Call(model.drop_in, path, {"data": data}), grow)

    def crash(self) -> None:
        self.world.crash(self.chance)

    def cancel(self) -> None:
        self.world.cancel(self.chance)

    def set_clock(self) -> None:
        if self.world.store.has_clock:  # G is measured by the clock that dates files: nobody may set that one
            self.chance.choice(self.world.walls).step(self.chance)


async def _no_value(call: Coroutine[Any, Any, Any]) -> None:
    await call


WEIGHTS: Mapping[str, int] = {
    "append": 46,
    "append_large": 6,
    "stage": 3,
    "append_staged": 4,
    "create": 8,
    "overwrite": 4,
    "truncate": 8,
    "erase": 4,
    "seal": 6,
    "concat": 7,
    "rename": 6,
    "delete": 4,
    "acquire": 2,
    "release": 3,
    "drop_in": 2,
    "change_file": 2,
    "collect": 3,
    "consolidate": 3,
    "roll": 2,
    "offload": 4,
    "onload": 2,
    "export": 2,
    "set_retention": 2,
    "set_offload_policy": 1,
    "set_rolling": 1,
    "collect_tree": 1,
    "subscribe": 2,
    "publish": 3,
    "unsubscribe": 2,
    "cut": 2,
    "trim": 2,
    "remove_tree": 1,
    "move_tree": 2,
    "rebuild": 2,
    "retain": 4,
    "run": 3,
    "follow": 2,
    "follow_all": 2,
    "read": 8,
    "listing": 3,
    "open": 2,
    "crash": 1,
    "cancel": 1,
    "set_clock": 1,
}
NAMES: Sequence[str] = tuple(name for name, weight in WEIGHTS.items() for _ in range(weight))
assert asyncio
