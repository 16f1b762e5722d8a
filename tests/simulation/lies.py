"""A store that lets two writers of one header win: commits that it has acknowledged and lost, and who was told.

Rules of the protocol: P14.14 to P14.19.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rollingfs.errors import LostCommitError, UnsafeBackendError
from rollingfs.format import names
from rollingfs.format.header import AGE_S_MAX, Header
from rollingfs.segment.commit.header_cache import parse_file
from tests.simulation import model
from tests.simulation.history import Doing, Violation, running

if TYPE_CHECKING:
    from tests.simulation.faults import Way
    from tests.simulation.world import World

LIE_S_MAX = 1.0
"""The store writes no later than this after the first winner, without another look at the token."""
LOSABLE = (model.create, model.append, model.seal, model.acquire, model.release)
"""Verbs whose commit leaves all as it was before, once it is lost."""


@dataclass(frozen=True)
class Loss:
    """A commit that the store has lost."""

    doing: Doing
    header: Header
    at_s: float


class Lies:
    """What the store of one world has lost, in silence so far.

    Parameters
    ----------
    share
        Of the writes that come too late, those that the store carries out all the same.
    """

    def __init__(self, world: World, share: float) -> None:
        self.world, self.share = world, share
        self.lost: list[Loss] = []
        self.told: set[Way] = set()
        self.paths: set[str] = set()
        """Where the store has ever lied."""

    def make_way(self, way: Way, verb: str, args: Sequence[Any]) -> None:
        """Take the newest commit of a header away, if this request is to take its place."""
        path = args[0]
        if verb not in ("create", "replace") or not path.endswith(names.HEADER_SUFFIX):
            return
        segment, token = names.segment_of_header(path), args[2] if verb == "replace" else None
        newest = self.world.store.replaced.get(path)
        losers = self.world.history.made.get(segment, [])
        if newest is None or newest.token != token or self.world.now_s > newest.at_s + LIE_S_MAX or not losers:
            return
        is_own = any(doing.way is way for doing in losers)
        can_lose = all(doing.call.verb in LOSABLE for doing in losers) and not self.silent(segment)
        if is_own or not can_lose or self.world.chance.random() >= self.share:
            return
        self.world.counts["lies"] += 1
        self.paths.add(names.shown(segment))
        header = self.world.witness.headers[segment]
        self.lost += [Loss(doing, header, self.world.now_s) for doing in losers]
        self.world.store.take_back(path)
        content = self.world.store.content(path)
        self.world.witness.taken_back(segment, parse_file(content, path)[0] if content else None)

    def silent(self, path: str) -> list[Loss]:
        """Return the lost commits whose writer lives and goes by their success."""
        return [
            one
            for one in self.lost
            if path in one.doing.call.paths
            and one.doing.way not in self.told
            and not one.doing.way.is_dead
            and one.doing.told in ("ok", "running")
            and not one.doing.effects
        ]

    def refuse(self, doing: Doing, error: UnsafeBackendError) -> None:
        """Check that a client which may commit no more has lost a commit; the caller that met it may be cancelled."""
        if all(one.doing.way is not doing.way for one in self.lost):
            raise Violation(f"a right store is called unsafe: {error}: {doing}") from error
        self._has_told(doing)

    def _has_told(self, doing: Doing) -> None:
        """Let a new process take the place of one that was told."""
        self.told.add(doing.way)
        if self.world.ways[doing.client] is doing.way:
            self.world.replace_client(doing.client)

    def tell(self, doing: Doing, error: LostCommitError) -> None:
        """Check that a client was told of what it has lost, with the bytes; a new process takes its place."""
        mine = [one.doing for one in self.lost if one.doing.way is doing.way]
        mine = [one for one in mine if str(error).startswith(f"{names.shown(one.call.path)}: ")]
        if not mine:
            raise Violation(f"a right store is called unsafe: {error}: {doing}") from error
        self.world.counts["lies told"] += 1
        self._has_told(doing)
        for one in mine:
            data, offset = one.call.args.get("data", b""), one.lost[1]
            if one.call.verb is not model.append or one.effects:
                continue
            is_within = error.start <= offset <= error.end - len(data)
            if not is_within or (error.data is not None and not error.data[offset - error.start :].startswith(data)):
                raise Violation(f"it was not told with its bytes: {one}, by {error}, {error.data!r}")

    def warned(self, text: str, *args: Any, **_: Any) -> None:
        """Take a warning in the log: of a commit of others, or of a creation, which may have been collected as well."""
        doing = running.get()
        if "let two commits win" in text and args[0] not in self.paths:
            self.world.fail(Violation(f"a right store has two headers of one version: {text % args}: {doing}"))
        self.world.counts["lies seen by others"] += "let two commits win" in text
        if "is not there any more" not in text or doing is None:
            return
        mine = [one for one in self.lost if one.doing.way is doing.way and names.shown(one.doing.call.path) == args[0]]
        if not mine:
            self.world.fail(Violation(f"a warning on a right store: {text % args}: {doing}"))
        self.world.counts["lies in the log"] += 1
        self.lost = [one for one in self.lost if one not in mine]

    def check(self, doing: Doing) -> None:
        """Check that no commit follows a lost one of the same writer."""
        for one in self.silent(doing.call.path) if doing.effects else ():
            is_told = one.doing.ended is not None and one.doing.ended <= doing.began
            if is_told and one.doing.way is doing.way and not self._has_gone(one):
                raise Violation(f"{one} was lost in silence, and its writer goes on: {doing}")

    async def check_end(self) -> None:
        """Check that each writer which still lives is told by its next look."""
        for path in self.world.paths:
            for one in self.silent(path):
                client = next(client for way, client in self.world.past if way is one.doing.way)
                running.set(one.doing)
                try:
                    await client.headers.load(path)
                except LostCommitError as error:
                    self.tell(one.doing, error)
                else:
                    if one in self.silent(path) and not self._has_gone(one):
                        raise Violation(f"it was lost in silence: {one}")

    def _has_gone(self, one: Loss) -> bool:
        """Whether the writer's line may have gone since: with the segment, or by the lines of others.

        Once D has passed, another incarnation may be that of a segment that was made anew.
        """
        header = self.world.witness.headers.get(one.doing.call.path)
        if header is None or header.evicted >= one.header.version:
            return True
        return header.segment != one.header.segment and self.world.now_s > one.at_s + AGE_S_MAX
