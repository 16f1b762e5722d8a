"""The store in the model of asks: how large the world is, what a replacement does, and what must hold of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.models.asks import Added, Broken, Client, Ghost, Header, Ids, Rules, Steps, Token, World, token_of

APPENDS = ("append", "bound append", "guarded append", "owner's append", "recovery")
PLAIN = ("append", "bound append")
"""Appends that may ask, and may carry asks."""


@dataclass(frozen=True)
class Op:
    """An operation of a script.

    A *bound* append is one of a handle that has opened an incarnation; a *guarded* one, or one of a client that does
    not share, voids all asks. A *recovery* of client 0, which is dead from then on, appends `ids` guarded, unless
    `instead` is there.
    """

    kind: str
    ids: Ids = ()
    instead: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {''.join(self.ids)}".strip()


@dataclass(frozen=True)
class Bounds:
    """How large the world is."""

    faults: int = 1
    lines_max: int = 3
    attempts_max: int = 2
    """Own attempts of an operation."""
    asks_max: int = 1
    """Asks of an operation."""
    carried_max: int = 2
    states_max: int = 1_500_000


@dataclass(frozen=True)
class Model:
    """A world, its scripts and its rules."""

    scripts: Sequence[Sequence[Op]]
    rules: Rules = field(default_factory=Rules)
    bounds: Bounds = field(default_factory=Bounds)

    def begin(self) -> World:
        clients = tuple(Client() for _ in self.scripts)
        return World(Header(), frozenset(), frozenset(), clients, Ghost(), self.bounds.faults)

    def landed(self, world: World) -> Steps:
        """What late requests may do next."""
        for late in world.landing:
            rest = world._replace(landing=world.landing - {late})
            after = self.replaced(rest, late.token, late.wanted, late.added, "append", late.writer)
            if after is not None:
                yield f"the late request of {late.writer} lands", after
            yield f"the late request of {late.writer} is void", rest

    # -- the store, and what must hold of each replacement ------------------------------------------------------

    def replaced(
        self, world: World, token: Token, wanted: Header | None, added: Added, kind: str, writer: int
    ) -> World | None:
        """The world after a conditional replacement; None if the condition fails."""
        if token_of(world.header) != token:
            return None
        if wanted is not None and len(wanted.lines) > self.bounds.lines_max:
            raise Broken("too many commit lines")
        old, ghost = world.header, world.ghost
        if kind == "append":
            assert wanted is not None
            ghost = self._grown(world, wanted, added, writer)
        elif old is not None and (wanted is None or wanted.incarnation != old.incarnation or wanted.state == "deleted"):
            if wanted is None and old.state != "deleted" and kind != "remove at once":
                raise Broken("a segment is destroyed")
            ghost = ghost._replace(gone=ghost.gone | set(old.log))
        elif old is not None and wanted is not None and wanted.log != old.log:
            raise Broken(f"the log is changed by {kind}")
        return world._replace(header=wanted, ghost=ghost)

    def _grown(self, world: World, wanted: Header, added: Added, writer: int) -> Ghost:
        old, ghost = world.header, world.ghost
        if old is None or old.state != "open":
            raise Broken("an append to what is not open")
        if old.owner is not None and old.owner != writer:
            raise Broken("an append of another than the owner")
        if wanted.log[: len(old.log)] != old.log:
            raise Broken("what was there is changed")
        new = wanted.log[len(old.log) :]
        if sorted(new) != sorted(one for ids, _ in added for one in ids):
            raise Broken("bytes lost or made up")
        for ids, incarnation in added:
            if incarnation not in (None, old.incarnation):
                raise Broken(f"{ids} appended to another incarnation")
            if twice := [one for one in ids if one in ghost.ever]:
                raise Broken(f"{twice} committed twice")
            if failed := [one for one in ids if one in ghost.failed]:
                raise Broken(f"{failed} reported failed, committed later")
        ever = ghost.ever + new
        self._check_order(ever)
        places = {(one, len(old.log) + nth) for nth, one in enumerate(new)}
        return ghost._replace(ever=ever, positions=ghost.positions | places)

    def _check_order(self, ever: Ids) -> None:
        for script in self.scripts:
            for op in script:
                if op.instead and op.instead in ever and op.ids[0] in ever:
                    raise Broken(f"{op.instead} came to life after its recovery as {op.ids[0]}")
            plain = [op.ids[0] for op in script if op.kind in PLAIN and len(op.ids) == 1]
            there = [ever.index(one) for one in plain if one in ever]
            if there != sorted(there):
                raise Broken(f"{plain} of one writer in another order")


def check(world: World) -> None:
    """What must hold in every state."""
    header, ghost = world.header, world.ghost
    for one, position in ghost.acked:
        if one not in ghost.ever:
            raise Broken(f"{one} acknowledged, never committed")
        if (one, position) not in ghost.positions:
            raise Broken(f"{one} acknowledged at {position}, it is elsewhere")
        if one not in ghost.gone and (header is None or one not in header.log):
            raise Broken(f"{one} acknowledged and lost")
