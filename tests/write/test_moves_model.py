"""A model of one source's move, walked through all courses: its bytes are in one place, whatever a mover does not read.

The source is merging or not. The target's header has the line `Merged`, `Aborted`, or neither; every commit gives it
another token. A mover marks and commits; another client resolves its mark at any time; a third removes lines of the
target whose source is not merging any more, and appends. A request lands at once, and each party may stop for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pytest

Line = Literal["none", "merged", "aborted"]
TOKEN_MAX = 5


@dataclass(frozen=True)
class World:
    """All that the store and the parties know."""

    source: Literal["free", "merging", "gone"] = "free"
    line: Line = "none"
    token: int = 1
    """Of the target's header; 0 if there is none."""
    mover: Literal["begin", "marking", "marked", "looking", "ready", "committed", "over"] = "begin"
    before: int = -1
    """The token of the target's header that the mover knew before it sent the mark."""
    base: int = -1
    """The token of the header that its commit replaces."""
    resolver: Literal["idle", "seen", "aborted", "merged"] = "idle"
    was_merged: bool = False
    """Whether the target has the source's bytes."""


@dataclass(frozen=True)
class Rule:
    """When the mover does not read the source again; the right rule, and wrong ones."""

    trusts: Literal["never", "token before", "any base", "absence"]

    def holds(self, world: World) -> bool:
        if self.trusts == "never":
            return False
        if self.trusts == "any base":
            return True
        if self.trusts == "absence":
            return world.base == world.before
        return world.base == world.before and world.base > 0


def steps(world: World, rule: Rule) -> Iterator[World]:
    yield from mover(world, rule)
    yield from resolver(world)
    yield from others(world)


def changed(world: World, line: Line) -> World:
    """Another header of the target; tokens never come back."""
    return replace(world, line=line, token=world.token + 1 if world.token else TOKEN_MAX + 1)


def mover(world: World, rule: Rule) -> Iterator[World]:
    if world.mover == "begin":
        yield replace(world, mover="marking", before=world.token)
    elif world.mover == "marking" and world.source == "free":
        yield replace(world, mover="marked", source="merging")
    elif world.mover == "marked":
        for base in {world.before, world.token}:  # the header that it knows, or the one that a look finds
            is_aborted = base == world.token and world.line == "aborted"
            yield replace(world, mover="over" if is_aborted else "looking", base=base)
    elif world.mover == "looking":
        if rule.holds(world):
            yield replace(world, mover="ready")
        yield replace(world, mover="ready" if world.source == "merging" else "over")  # it reads the source
    elif world.mover == "ready":
        if world.base == world.token:
            yield replace(changed(world, "merged"), mover="committed", was_merged=True)
        else:
            yield replace(world, mover="marked")  # lost: once more, on the header that is there now
    elif world.mover == "committed" and world.source == "merging":
        yield replace(world, source="gone", mover="over")


def resolver(world: World) -> Iterator[World]:
    if world.resolver == "idle" and world.source == "merging":
        yield replace(world, resolver="seen")
    elif world.resolver == "seen":
        if world.line == "merged":
            yield replace(world, resolver="merged")
        elif world.line == "aborted":
            yield replace(world, resolver="aborted")
        elif world.token <= TOKEN_MAX:
            yield replace(changed(world, "aborted"), resolver="aborted")
    elif world.resolver == "aborted":
        yield replace(world, source="free" if world.source == "merging" else world.source, resolver="idle")
    elif world.resolver == "merged":
        yield replace(world, source="gone" if world.source == "merging" else world.source, resolver="idle")


def others(world: World) -> Iterator[World]:
    if 0 < world.token < TOKEN_MAX:
        yield changed(world, world.line)
        if world.source != "merging":
            yield changed(world, "none")  # the line's work is done
    # a tombstone goes after the grace, which no request outlives that was sent before
    is_sent = world.mover == "ready"
    if world.line == "aborted" and world.source != "merging" and world.token > TOKEN_MAX and not is_sent:
        yield replace(world, line="none", token=0)  # a tombstone that is collected: there is nothing, as before


def broken(rule: Rule, token: int) -> World | None:
    """The first world in which the bytes are in two places, or in none."""
    first = World(token=token)
    known, queue = {first}, deque([first])
    while queue:
        world = queue.popleft()
        is_twice = world.was_merged and world.source == "free"
        is_lost = world.source == "gone" and not world.was_merged
        if is_twice or is_lost:
            return world
        for after in steps(world, rule):
            if after not in known:
                known.add(after)
                queue.append(after)
    assert len(known) > 30, "the model does something"
    return None


@pytest.mark.parametrize("token", [0, 1])
def test_bytes_are_in_one_place_if_the_mover_trusts_only_the_header_that_it_knew_before_the_mark(token: int) -> None:
    assert broken(Rule("token before"), token) is None


def test_a_mover_that_trusts_any_header_doubles_the_bytes() -> None:
    """A later header may have lost the line that says that the mark was undone."""
    assert broken(Rule("any base"), 1) is not None


def test_a_mover_that_trusts_the_absence_of_a_header_doubles_the_bytes() -> None:
    """A tombstone that said so may have been collected."""
    assert broken(Rule("absence"), 0) is not None
