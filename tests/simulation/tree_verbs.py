"""The verbs of streams and folders, and what other programs do."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from rollingfs.backend.contract import Over
from rollingfs.errors import BadOffsetError, ConflictError
from rollingfs.folders import folders
from rollingfs.folders.moving import move
from rollingfs.format import names
from rollingfs.format.policies import PolicyChange
from rollingfs.fs import transfers
from rollingfs.policy import FOREVER, OffloadPolicy
from rollingfs.segment.at import At
from rollingfs.segment.verbs.rebuild import rebuild
from rollingfs.stream.blocks import Move
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.follow import Followed
from rollingfs.stream.retention import RetentionPolicy
from tests.simulation import checks, model, stream_checks
from tests.simulation.draw import MOVED, TOKEN_FIRST, Draw, Op, core_of
from tests.simulation.history import Doing
from tests.simulation.lasting import kept
from tests.simulation.model import Bound, Call
from tests.simulation.witness import COPIES, LOST, REBUILT
from tests.support.small import verbs


class TreeVerbs(Draw):
    """Draws operations on streams and folders, one verb a method."""

    # -- streams -------------------------------------------------------------------------------------------------

    def _stream(self, verb: Callable[[Any], Coroutine[Any, Any, Any]], *good: str) -> tuple[str, Any]:
        """A verb of a stream; mostly of one of the good folders, if there are any."""
        folder = self.world.folders[0] if self.often(0.5) else self.chance.choice(self.world.folders)
        folder = self.chance.choice(good) if good and self.often(0.8) else folder
        return folder, lambda client: verb(verbs(client, folder))

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
        return self._upkeep(*self._stream(lambda stream: stream.set_policies(change)))

    def _name(self) -> str:
        return self.chance.choice(("one", "other"))

    def subscribe(self) -> Op:
        name = self._name()
        folder, start = self._stream(lambda stream: stream.subscribe(name))
        return self._subscribing(folder, name, start)

    def _bound(self, folder: str, name: str) -> Bound:
        return self.world.bounds.setdefault((folder, name), Bound(folder, name))

    def _subscribing(self, folder: str, name: str, start: Callable[[At], Coroutine[Any, Any, Any]]) -> Op:
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

        async def publish(stream: Any) -> None:
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
        op = self._retaining(folder, lambda client: verbs(client, folder).trim(cut), BadOffsetError)
        op = replace(op, call=replace(op.call, is_retaining=False))
        return replace(op, done=lambda did, doing: stream_checks.check_trimmed(self.world, cut, did, doing))

    def _retaining(self, folder: str, start: Callable[[At], Coroutine[Any, Any, Any]], *errors: type[Exception]) -> Op:
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
        return replace(op, done=partial(stream_checks.check_retained, self.world))

    def run(self) -> Op:
        """A round of upkeep of a tree."""
        root = self.chance.choice(("/top", "/other"))

        async def start(client: At) -> None:
            did = await kept(self.world.upkeep(client), (root,))
            self.world.counts["idle tails made a chunk"] += did.rolled

        return self._retaining(root, start)

    # -- folders -------------------------------------------------------------------------------------------------

    def _of_tree(self, folder: str, start: Callable[[At], Coroutine[Any, Any, Any]], **args: Any) -> Op:
        step = partial(model.moves if args else model.removes, folder=folder, **args)
        self.world.limited |= set(args.values()) if folder in self.world.limited else set()
        for bound in self.world.bounds.values():
            if bound.folder.startswith((folder, *args.values())):
                bound.leave()  # its memory goes, or moves
        may = frozenset({OSError, ConflictError, ValueError})
        call = Call(model.by_steps, folder, {}, may, step)
        return Op(call, start, lambda _, doing: checks.check_left_nothing(self.world, doing))

    def remove_tree(self) -> Op:
        folder = self.chance.choice(self.world.folders)
        return self._of_tree(folder, lambda client: folders.delete(client, [folder], recursive=True))

    def move_tree(self) -> Op | None:
        if MOVED not in self.world.folders:
            return None
        folder, target = self.chance.sample(("/top/sub", MOVED), 2)
        return self._of_tree(folder, lambda client: move(client, folder, target, into=False), target=target)

    def copy_tree(self) -> Op:
        """Copy a folder to a name where nothing is, or, with a slash behind the name, into a folder of that name."""
        folder, into = self.chance.choice(self.world.folders), self.often(0.5)
        target = f"{COPIES}{self.world.new_number()}"
        made = target + folder[folder.rindex("/") :] * into
        return Op(
            Call(model.copy, folder, {}, frozenset({FileNotFoundError, ConflictError})),
            lambda client: transfers.copy(core_of(client), folder, target + "/" * into, recursive=True),
            lambda _, doing: checks.check_copied(self.world, made, doing),
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
        op = self._upkeep(path, lambda client: rebuild(client, lost, made, start_at), ValueError)
        return replace(op, done=lambda did, doing: checks.check_rebuilt(self.world, made, did, doing))

    def follow(self) -> Op:
        """A look of a follower, and the block that is due."""
        path, policy = self._long(), OffloadPolicy("cold", None, None, self._lag_s(), 40, 0.0)

        async def start(client: At) -> None:
            follower = Followed(client, path, policy)
            if isinstance(due := await follower.look(), Move):
                await follower.move(due)

        return self._upkeep(path, start, ValueError)  # a plain file is not followed

    def follow_all(self) -> Op:
        """Some looks of a follower of all that lives as long as its process."""

        async def start(client: At) -> None:
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

        async def start(client: At) -> None:
            self.world.store.put_whole(path, data, Over.ANYTHING)

        return Op(Call(model.drop_in, path, {"data": data}), start)

    def change_file(self) -> Op | None:
        """Another program appends to a plain file, or deletes it."""
        plain = [path for path, seg in self.state.items() if seg.segment is None and not self.world.is_busy(path)]
        if not plain or self.world.is_waiting:
            return self.drop_in()
        path = self.chance.choice(plain)
        if self.often(0.3):

            async def remove(client: At) -> None:
                self.world.store.files.pop(path, None)

            return Op(Call(model.drop_out, path), remove)
        data = self.state[path].data + self.data(3)

        async def grow(client: At) -> None:
            self.world.store.put_whole(path, data, Over.ANYTHING)

        return Op(Call(model.drop_in, path, {"data": data}), grow)

    def lose_page(self) -> None:
        """Another program deletes or damages an index page, or all that are lost come back."""
        if not self.world.doings:
            self.world.witness.lost.change(self.world, self.chance)

    def crash(self) -> None:
        self.world.crash(self.chance)

    def cancel(self) -> None:
        self.world.cancel(self.chance)

    def set_clock(self) -> None:
        if (
            self.world.store.capability.has_clock
        ):  # G is measured by the clock that dates files: nobody may set that one
            self.chance.choice(self.world.walls).step(self.chance)
