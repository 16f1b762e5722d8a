"""The verbs: each draws mostly sensible arguments, and gives a call of the model and a coroutine of the real code."""

import io
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rollingfs.errors import BadOffsetError, ConflictError, CorruptChunkError, SegmentTruncatedError, StagedExpiredError
from rollingfs.folders.collect_tree import collect_tree
from rollingfs.folders.listing import ls
from rollingfs.format.header import AGE_S_MAX
from rollingfs.format.transitions import Guard
from rollingfs.fs import cat_and_get
from rollingfs.segment.at import At
from rollingfs.segment.files.rewrite_plan import Asked, Chosen
from rollingfs.segment.verbs.append import stage
from rollingfs.segment.verbs.change import acquire, release, roll, seal
from rollingfs.segment.verbs.collect import collect
from rollingfs.segment.verbs.concat import concat
from rollingfs.segment.verbs.consolidate import consolidate
from rollingfs.segment.verbs.create import create, overwrite
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.verbs.erase import erase
from rollingfs.segment.verbs.export import export
from rollingfs.segment.verbs.offload import offload, onload
from rollingfs.segment.verbs.rename import rename
from rollingfs.segment.verbs.truncate import truncate
from tests.simulation import checks, model
from tests.simulation.draw import TOKENS_MAX, TOKENS_OF_LARGE_MAX, Handle, Op, core_of
from tests.simulation.faces import FaceVerbs
from tests.simulation.history import TOKEN
from tests.simulation.model import Call, Who
from tests.simulation.tree_verbs import TreeVerbs
from tests.simulation.witness import EXPORTS
from tests.support.segment_verbs import VERBS, append


class Verbs(TreeVerbs, FaceVerbs):
    """Draws operations for a world, one verb a method."""

    # -- one segment -------------------------------------------------------------------------------------------

    def create(self) -> Op:
        path = self.path(lambda seg: seg is None)
        policy = None if self.often(0.7) else self.world.another_policy(self.chance)
        return Op(
            Call(model.create, path),
            lambda client: create(client, path, policy),
            lambda header, doing: self.world.created(policy, header, doing),
        )

    def append(self, pieces_max: int = 1, tokens_max: int = TOKENS_MAX) -> Op:
        if not any(map(self._takes_more, self.state.values())) and self.often(0.5):
            return self.overwrite()
        path = self.path(self._takes_more)
        who, guard = self.who(path, offset=True, bound=True) if self.often(0.3) else (self._holder(path))
        data, attrs = self.data(tokens_max), self.attrs()
        cuts = sorted(self.chance.randint(0, len(data)) for _ in range(self.chance.randint(1, pieces_max) - 1))
        pieces = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        call = Call(model.append, path, {"data": data, "attrs": attrs, "who": who})
        # an iterator is taken piece by piece, so chunks are uploaded before the commit
        given: Any = pieces if pieces_max > 1 else data
        return Op(call, lambda client: append(client, path, given, attrs=attrs, guard=guard))

    def append_large(self) -> Op:
        return self.append(4, TOKENS_OF_LARGE_MAX)

    def stage(self) -> Op:
        path = self.path(self._takes_more)
        data, began_s = self.data(), self.world.now_s
        return Op(
            Call(model.look, path),
            lambda client: stage(client, path, data),
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
        return Op(call, lambda client: VERBS[verb](client, path, [receipt, between], guard=guard))

    def overwrite(self) -> Op:
        path = self.path(lambda seg: True)
        who, guard = self.who(path)
        data, attrs = self.data(), self.attrs()
        call = Call(model.overwrite, path, {"data": data, "attrs": attrs, "who": who})
        return Op(call, lambda client: overwrite(client, path, [data], attrs=attrs, guard=guard))

    def seal(self) -> Op:
        path = self.path(lambda seg: seg is not None and not seg.sealed)
        who, guard = self.who(path, bound=True)
        return Op(Call(model.seal, path, {"who": who}), lambda client: seal(client, path, guard))

    def truncate(self, verb: str = "truncate") -> Op:
        path = self.path(lambda seg: seg is not None and len(seg.data) > TOKEN)
        seg = self.state.get(path)
        who, guard = self.who(path, bound=True)
        least, most = (seg.start + 1, seg.length) if seg and seg.data else (-1, 9)
        offset = self.chance.randint(least, most + (2 if self.often(0.05) else 0))
        call = Call(model.truncate, path, {"offset": offset, "who": who})
        if verb == "truncate":
            return Op(call, lambda client: _no_value(truncate(client, path, offset, guard)))
        call = replace(call, may_also=frozenset({ConflictError, CorruptChunkError}))
        return Op(call, lambda client: erase(client, path, offset, guard), self.world.erased)

    def erase(self) -> Op:
        return self.truncate("erase")

    def delete(self) -> Op:
        path = self.path(lambda seg: seg is not None)
        who, guard = self.who(path)
        # it may find and finish one that is under way
        call = Call(model.delete, path, {"who": who}, frozenset({None}))  # type: ignore[arg-type]
        return Op(call, lambda client: _no_value(delete(client, path, guard)))

    def acquire(self) -> Op:
        lost = [path for path in self.world.paths if not self._may_write(path)]
        path = self.chance.choice(lost) if lost else self.path(lambda seg: seg is not None)
        owner = f"owner {self.world.new_number()}"

        async def start(client: At) -> int:
            return (await acquire(client, path, owner)).epoch

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
        return Op(call, lambda client: release(client, handle.path, Guard(epoch=handle.epoch)))

    # -- two segments ------------------------------------------------------------------------------------------

    def concat(self) -> Op:
        create = self.often(0.3)
        path = self.path(lambda seg: seg is None if create else self._takes_more(seg))
        sealed = [one for one, seg in self.state.items() if one != path and seg.sealed and not seg.owner]
        if not sealed and self.often(0.9):
            return self.seal()
        if sealed and self.often(0.92):
            sources = self.chance.sample(sorted(sealed), self.chance.randint(1, len(sealed)))
        else:
            sources = [self.chance.choice(self.world.paths) for _ in range(self.chance.randint(0, 2))]
        who, guard = self.who(path)
        attrs = self.attrs()
        call = Call(model.concat, path, {"sources": sources, "attrs": attrs, "who": who, "create": create})
        return Op(call, lambda client: concat(client, path, sources, attrs=attrs, guard=guard, create=create))

    def rename(self) -> Op:
        path = self.path(lambda seg: seg is not None and seg.owner is None)
        target = self.path(lambda seg: seg is None or seg.owner is None)
        call = Call(model.rename, path, {"target": target})
        if path == target:
            call = replace(call, may_also=frozenset({None}))  # type: ignore[arg-type]
        return Op(call, lambda client: _no_value(rename(client, path, target)))

    # -- what changes nothing ----------------------------------------------------------------------------------

    def collect(self) -> Op:
        path = self.chance.choice(self.world.paths)
        return self._upkeep(path, lambda client: collect(client, path))

    def consolidate(self) -> Op:
        path, grace_s = self._long(), self.chance.choice((0.0, 600.0))
        return self._upkeep(path, lambda client: consolidate(client, path, grace_s=grace_s))

    def roll(self) -> Op:
        path = self._long()
        return self._upkeep(path, lambda client: roll(client, path))

    def offload(self) -> Op:
        path, tier, lag_s = self._long(), self.chance.choice(("cold", "warm")), self._lag_s()
        chosen = Chosen(self._upto(path))
        return self._upkeep(path, lambda client: offload(client, path, Asked(tier, chosen, lag_s)), BadOffsetError)

    def onload(self) -> Op:
        path, lag_s = self._long(), self._lag_s()
        chosen = Chosen(self._upto(path))
        return self._upkeep(path, lambda client: onload(client, path, None, chosen, lag_s=lag_s), BadOffsetError)

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

        async def start(client: At) -> bytes:
            view = await client.headers.view(path)
            return bytes(await client.fetcher.read(view, begin, end))

        return Op(Call(model.read, path, {"begin": begin, "end": end}), start)

    def cat(self) -> Op:
        """A slice of a file, or a download of all of it."""
        path, verify = self._long(), self.often(0.5)
        begin, end = sorted(self.chance.randint(0, 300) for _ in range(2)) if self.often(0.7) else (None, None)

        async def start(client: At) -> bytes:
            if begin is not None:
                return await cat_and_get.cat_file(core_of(client), path, begin, end, verify)
            await cat_and_get.get_file(core_of(client), path, file := io.BytesIO(), verify=verify)
            return file.getvalue()

        may = {ConflictError} if begin is not None else {ConflictError, FileNotFoundError}  # changed while it was read
        return Op(Call(model.part, path, {"begin": begin, "end": end}, frozenset(may)), start)

    def listing(self) -> Op:
        folder = self.chance.choice(self.world.folders)
        return Op(
            Call(model.look, folder, {}, frozenset({FileNotFoundError})),
            lambda client: ls(client, folder),
            partial(checks.check_listed, self.world),
        )

    def collect_tree(self) -> Op:
        folder = self.chance.choice(self.world.folders)
        return self._upkeep(folder, lambda client: collect_tree(client, folder))

    def export(self) -> Op:
        path, target = self._long(), f"{EXPORTS}{self.world.new_number()}"

        async def start(client: At) -> bytes | None:
            view = await client.headers.view(path, fresh=True)
            await export(client, view, client.backend, target)
            return self.world.store.content(target)

        may = frozenset({FileNotFoundError, SegmentTruncatedError, ConflictError})
        return Op(Call(model.whole, path, {}, may), start)


async def _no_value(call: Coroutine[Any, Any, Any]) -> None:
    await call


WEIGHTS: Mapping[str, int] = {
    "append": 46, "append_large": 6, "stage": 3, "append_staged": 4, "create": 8, "overwrite": 4,
    "truncate": 8, "erase": 4, "seal": 6, "concat": 7, "rename": 6, "delete": 4, "acquire": 2, "release": 3,
    "drop_in": 2, "change_file": 2, "lose_page": 5,
    "collect": 3, "consolidate": 3, "roll": 2, "offload": 4, "onload": 2,
    "follow": 2, "follow_all": 2, "run": 3, "export": 2, "rebuild": 2,
    "set_retention": 2, "set_offload_policy": 1, "set_rolling": 1,
    "collect_tree": 1, "remove_tree": 1, "move_tree": 2, "copy_tree": 2,
    "subscribe": 2, "publish": 3, "unsubscribe": 2, "cut": 2, "trim": 2, "retain": 4,
    "read": 5, "cat": 5, "listing": 3, "open": 2, "crash": 1, "cancel": 1, "set_clock": 1,
}  # fmt: skip
NAMES: Sequence[str] = tuple(name for name, weight in WEIGHTS.items() for _ in range(weight))
