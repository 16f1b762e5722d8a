"""The steps of the writers in the model of asks: a look, an ask, an attempt, a withdrawal, the deadline."""

from dataclasses import dataclass

from tests.models.asks import (
    Ask,
    Attempt,
    Broken,
    Client,
    Header,
    Ids,
    Landing,
    Line,
    Rules,
    Steps,
    World,
    appended,
    choices,
    is_void,
    reborn,
    stamped,
    token_of,
)
from tests.models.asks_world import APPENDS, PLAIN, Model, Op


def steps(model: Model, world: World, index: int) -> Steps:
    """What one client may do next."""
    client, script = world.clients[index], model.scripts[index]
    if client.nth < len(script):
        op = script[client.nth]
        step = Append(model, index, op) if op.kind in APPENDS else Other(model, index, op)
        yield from step.steps(world)


MOVED = Header("M", 9, lines=frozenset(Line(writer, 0, 1) for writer in range(3)))
"""A header that another program moves here from another name, with the lines that writers have there."""


@dataclass(frozen=True)
class Step:
    """One operation of one client."""

    model: Model
    index: int
    op: Op

    @property
    def rules(self) -> Rules:
        return self.model.rules

    @property
    def name(self) -> str:
        return f"{self.index}: {self.op}: "

    def done(self, world: World, told: str = "", position: int | None = None, more: Ids = ()) -> World:
        """The operation ends: `ok`, `failed`, `unknown`, or nothing to tell."""
        ghost, client, ids = world.ghost, world.clients[self.index], self.op.ids
        if told == "ok" and position is not None:
            placed = {(one, position + nth) for nth, one in enumerate(ids + more)}
            ghost = ghost._replace(acked=ghost.acked | placed)
        if told == "failed" and self.op.kind != "recovery":
            if there := [one for one in ids if one in ghost.ever]:
                raise Broken(f"{there} reported failed, but it is committed")
            ghost = ghost._replace(failed=ghost.failed | set(ids))
        known = world.header if told == "ok" else client.known
        after = Client(nth=client.nth + 1, known=known)
        clients = (*world.clients[: self.index], after, *world.clients[self.index + 1 :])
        return world._replace(ghost=ghost, clients=clients)


class Other(Step):
    """What is no append: load the header, replace it; after a conflict, begin again."""

    def steps(self, world: World) -> Steps:
        client = world.clients[self.index]
        if self.op.kind == "remove tombstone":
            if world.header is not None and world.header.state == "deleted":
                yield self.name, self.done(self._lapsed(world))
        elif self.op.kind == "remove at once":
            if world.header is not None and world.header.state != "deleted":
                yield self.name, self.done(self._removed(world))
        elif self.op.kind == "move here":
            if world.header is None:
                yield self.name, self.done(world._replace(header=MOVED))
        elif client.at == "begin":
            yield self.name + "load", world.client(self.index, at="other", base=world.header)
        else:
            wanted, base = self._wanted(client, client.base), client.base
            if wanted is None:
                yield self.name + "not possible", self.done(world)
                return
            after = self.model.replaced(world, token_of(base), wanted, (), self.op.kind, self.index)
            if after is None:
                yield self.name + "conflict", world.client(self.index, at="begin", base=None)
            else:
                yield self.name + "committed", self.done(after)

    def _removed(self, world: World) -> World:
        """The file is gone, and nothing is left that says so."""
        after = self.model.replaced(world, token_of(world.header), None, (), self.op.kind, self.index)
        assert after is not None
        return after

    def _lapsed(self, world: World) -> World:
        """G after a delete: operations of then are older than D, and their requests have landed."""
        after = self._removed(world)
        old = self.rules.judges_age
        clients = (one._replace(is_old=old) if one.at != "begin" else one._replace(known=None) for one in after.clients)
        return after._replace(landing=frozenset(), clients=tuple(clients))

    def _wanted(self, client: Client, base: Header | None) -> Header | None:
        kind, number, me = self.op.kind, client.nth * 2 + 1, self.index
        new_name = f"I{me}{client.nth}"
        if kind == "create" and base is None:
            return Header(new_name, 1, lines=stamped(self.rules, Header(version=0), {me: number}, 1).lines)
        if base is None or (base.state == "deleted") != (kind == "create"):
            return None
        wanted = stamped(self.rules, base, {me: number}, self.model.bounds.lines_max)
        fresh = reborn(self.rules, wanted, new_name)._replace(owner=None)
        is_free = base.state == "open" and base.owner is None
        possible = {
            "create": (True, fresh._replace(owner=base.owner)),
            "delete": (base.state != "merging", wanted._replace(state="deleted", log=(), owner=None)),
            "overwrite": (base.state != "merging", fresh),
            # the `asks` line that it must not write
            "overwrite with a line": (base.state != "merging", fresh._replace(asks=1)),
            "seal": (is_free, wanted._replace(state="sealed")),
            "acquire": (base.state == "open", wanted._replace(owner=me)),
            "release": (base.owner == me, wanted._replace(owner=None)),
            "mark": (is_free, wanted._replace(state="merging")),
            "unmark": (base.state == "merging", wanted._replace(state="open")),
            "bury": (base.state == "merging", wanted._replace(state="deleted", log=())),
        }
        is_possible, made = possible[kind]
        return made if is_possible else None


class Append(Step):
    """An append, by all its ways."""

    @property
    def is_plain(self) -> bool:
        return self.op.kind in PLAIN

    def number(self, client: Client) -> int:
        """The operation's number. The next one is for its withdrawal."""
        return client.nth * 2 + 1

    def steps(self, world: World) -> Steps:
        client = world.clients[self.index]
        if client.at == "begin":
            yield from self._begin(world)
            return
        if token_of(world.header) != token_of(client.base) or client.attempt is not None:
            yield self._look(world, world.header)
        if client.ask is not None or client.attempt is not None or client.attempts or client.at == "refused":
            yield self._deadline(world)
        if client.ask is not None and client.base is not None and client.base.state != "deleted":
            yield from self._withdraw(world)
        if client.at == "clean":
            if client.ask is not None and self.rules.gives_up == "deletes" and client.attempt is None:
                without = world._replace(asks=world.asks - {client.ask})
                yield self.name + "deletes its ask, reports a failure", self.done(without, "failed")
            yield from self._ask(world)
            yield from self._compete(world)

    def _begin(self, world: World) -> Steps:
        if self.op.kind == "recovery":
            victim = world.clients[0]
            if victim.nth == 99 or (victim.nth == 0 and victim.at == "begin"):
                return
            world = world.client(0, nth=99)
        yield self._look(world, world.header)
        known = world.clients[self.index].known
        if self.is_plain and known is not None and token_of(known) != token_of(world.header):
            bases = {"base": known, "seen": known.version, "bound": known.incarnation}
            yield self.name + "believes its cache", world.client(self.index, at="clean", **bases)

    # -- the judge ----------------------------------------------------------------------------------------------

    def _look(self, world: World, header: Header | None) -> tuple[str, World]:
        """Judge a header that was loaded."""
        client, name = world.clients[self.index], self.name + "look"
        if client.ask is None and client.attempt is None and client.seen == 0:
            version, bound = (header.version, header.incarnation) if header is not None else (0, None)
            return self._ready(
                world.client(self.index, seen=version, base=header, known=header, bound=bound), header, name
            )
        if header is None or client.is_old:
            return name + ": unknown", self.done(world, "unknown")
        number, line = self.number(client), header.line_of(self.index)
        mine = number if self.rules.one_number else number + client.later
        if line is not None and line.number == mine:
            return self._mine(world, line)
        if line is not None and line.number > number and self.rules.one_number:
            return name + ": a newer line, unknown", self.done(world, "unknown")
        if self.rules.judges_eviction and line is None and header.evicted > client.seen:
            return name + ": evicted, unknown", self.done(world, "unknown")
        is_other = header.version == client.seen and token_of(header) != token_of(client.base or header)
        if self.rules.judges_version and (header.version < client.seen or is_other):
            return name + ": went back, unknown", self.done(world, "unknown")
        if self._may_be_lost(client, header, line):
            return name + ": perhaps lost, unknown", self.done(world, "unknown")
        is_dead = client.attempt is not None and token_of(header) != client.attempt.token
        attempt = None if is_dead else client.attempt
        judged = world.client(self.index, seen=header.version, base=header, known=header, attempt=attempt)
        return self._ready(judged, header, name)

    def _may_be_lost(self, client: Client, header: Header, line: Line | None) -> bool:
        """Whether the segment may have been removed, with a line that said that the ask was carried."""
        is_reborn = client.base is not None and client.base.incarnation != header.incarnation
        if client.ask is None or not is_reborn:
            return False
        assert client.base is not None
        if self.rules.judges_incarnation != "by the line":
            return line is None and self.rules.judges_incarnation == "any line"
        return line is None or line != client.base.line_of(self.index)

    def _mine(self, world: World, line: Line) -> tuple[str, World]:
        """It took place. The offset may be unknown."""
        client, name = world.clients[self.index], self.name + "look: mine"
        asked, attempt, at = client.ask, client.attempt, line.place
        if attempt is not None and (at is None or not self.rules.own_data_first):
            at = attempt.position
        if at is None:
            return name + ", offset unknown", self.done(world, "unknown")
        is_more = not self.rules.one_content and client.attempts and asked is not None
        return name, self.done(world, "ok", at, (self.op.ids[0] + "+",) if is_more else ())

    def _ready(self, world: World, header: Header | None, name: str) -> tuple[str, World]:
        """What the operation itself asks of a clean header. An error is told only when it is definite."""
        client, kind = world.clients[self.index], self.op.kind
        if header is None:
            is_free = client.ask is None and client.attempt is None
            return name + ": none", self.done(world, "failed" if is_free else "unknown")
        is_refused = (
            header.state in ("deleted", "sealed")
            or (header.owner is not None and header.owner != self.index)
            or (kind == "bound append" and client.bound != header.incarnation)
            or (kind == "owner's append" and header.owner != self.index)
        )
        if is_refused and self._is_definite(client, header):
            return name + ": refused", self.done(world, "failed")
        if is_refused:
            return name + ": refused, not definite", world.client(self.index, at="refused")
        if kind == "recovery" and self.op.instead in header.log:
            return name + ": it is there", self.done(world, "ok")
        return name, world.client(self.index, at="clean")

    def _is_definite(self, client: Client, header: Header) -> bool:
        """Whether nothing outstanding can take effect any more: neither the ask nor the own attempt."""
        asked, attempt, rules = client.ask, client.attempt, self.rules
        is_ask_dead = asked is None or is_void(header, asked) or not rules.error_needs_void_ask
        is_attempt_dead = attempt is None or token_of(header) != attempt.token or not rules.error_needs_dead_attempt
        return is_ask_dead and is_attempt_dead

    def _deadline(self, world: World) -> tuple[str, World]:
        client, rules = world.clients[self.index], self.rules
        asks = client.ask is not None and client.base is not None and not is_void(client.base, client.ask)
        tries = client.attempt is not None and rules.gives_up != "attempt"
        is_failed = not (asks or tries) or rules.gives_up == "timeout"
        return self.name + "deadline", self.done(world, "failed" if is_failed else "unknown")

    # -- requests -----------------------------------------------------------------------------------------------

    def _withdraw(self, world: World) -> Steps:
        """Commit no bytes, with a higher number, on a header that was judged."""
        client, rules = world.clients[self.index], self.rules
        assert client.base is not None
        higher = rules.withdraws_by_higher_number
        numbers = {self.index: self.number(client) + 1} if higher else {}
        wanted = stamped(rules, client.base, numbers, self.model.bounds.lines_max, plain=not higher)
        after = self.model.replaced(world, token_of(client.base), wanted, (), "withdraw", self.index)
        if after is None:
            return
        yield self.name + "withdraws", self.done(after, "failed")
        if world.faults:
            yield self.name + "withdraws, no answer", self.done(after._replace(faults=world.faults - 1), "unknown")

    def _ask(self, world: World) -> Steps:
        client, rules = world.clients[self.index], self.rules
        base = client.base
        assert base is not None
        if not self.is_plain or client.asked >= self.model.bounds.asks_max or base.state != "open":
            return
        if client.ask is not None and not is_void(base, client.ask):
            return
        version, incarnation, changes = client.seen, base.incarnation, {}
        if not rules.base_is_judged and world.header is not None:
            version, incarnation = world.header.version, world.header.incarnation
            changes = {"seen": version}
        ask = Ask(self.index, self.number(client), version, incarnation, self.op.ids)
        asked = world._replace(asks=world.asks | {ask})
        after = asked.client(self.index, ask=ask, asked=client.asked + 1, **changes)
        yield f"{self.name}asks, base {version}", after

    def _compete(self, world: World) -> Steps:
        client, rules, bounds = world.clients[self.index], self.rules, self.model.bounds
        base, ids = client.base, self.op.ids
        assert base is not None
        if base.state == "merging" or client.attempts >= bounds.attempts_max:
            return
        attempt = client.attempt
        if attempt is not None and (rules.own_data_first or not self.is_plain):
            if token_of(base) == attempt.token:  # exactly the same bytes again
                yield from self._send(world, attempt, "again: ")
            return
        if not rules.judges_first and client.ask is not None and token_of(world.header) != token_of(base):
            yield from self._unjudged(world)
        own = (*ids, ids[0] + "+") if not rules.one_content and client.ask is not None else ids
        may_carry = self.is_plain or not rules.guarded_carries_none
        carried_max = bounds.carried_max if may_carry else 0
        bound = client.bound if self.op.kind == "bound append" else None
        number = self.number(client) + (0 if rules.one_number else client.later)
        for carried in choices(rules, base, world.asks, self.index, carried_max):
            mine = (self.index, number, own)
            wanted, position = appended(rules, base, mine, carried, bounds.lines_max, plain=self.is_plain)
            added = ((own, bound), *((ask.ids, ask.incarnation) for ask in carried))
            names = ", ".join("".join(ask.ids) for ask in carried)
            yield from self._send(
                world, Attempt(token_of(base), wanted, position, added), f"commits with {names}: " * bool(names)
            )

    def _unjudged(self, world: World) -> Steps:
        """Of the rule `judges_first` left out: an attempt based on a newer header, without a look for the own line."""
        now, ids = world.header, self.op.ids
        if now is not None and now.state == "open" and now.owner is None:
            mine = (self.index, self.number(world.clients[self.index]), ids)
            wanted, position = appended(self.rules, now, mine, (), self.model.bounds.lines_max)
            before = world.client(self.index, base=now, seen=now.version)
            yield from self._send(before, Attempt(token_of(now), wanted, position, ((ids, None),)), "not looking: ")

    def _send(self, world: World, attempt: Attempt, how: str) -> Steps:
        """A replacement: it is answered, lands without an answer, or lands later."""
        client, name = world.clients[self.index], self.name + (how or "commits: ")
        sent = {"attempt": attempt, "attempts": client.attempts + 1, "at": "clean"}
        sent["later"] = 0 if self.rules.one_number else 1
        after = self.model.replaced(world, attempt.token, attempt.wanted, attempt.added, "append", self.index)
        if after is None:
            yield name + "conflict", world.client(self.index, **sent)
        else:
            more = attempt.added[0][0][len(self.op.ids) :]
            confirmed = after.client(self.index, known=attempt.wanted)
            yield name + "committed", self.done(confirmed, "ok", attempt.position, more)
            if world.faults:
                lost = after._replace(faults=world.faults - 1)
                yield name + "committed, no answer", lost.client(self.index, **sent)
        if world.faults:
            late = Landing(attempt.token, attempt.wanted, attempt.added, self.index)
            waiting = world._replace(faults=world.faults - 1, landing=world.landing | {late})
            yield name + "sent, no answer", waiting.client(self.index, **sent)
