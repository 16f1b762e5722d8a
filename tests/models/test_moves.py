"""A model of one source's move, walked through all courses: its bytes are in one place, whatever a mover does not read.

Between folders there is also the *evidence*: a pin in the target's folder, from before the mark until the mover knows
what became of its commit. Nobody else writes at the target without it.

The source is merging or not. The target's header has the line `Merged`, `Aborted`, or neither; every commit gives it
another token. A mover marks and commits; another client resolves its mark at any time; a third removes lines of the
target whose source is not merging any more, and appends. A request lands at once, and each party may stop for ever.

A move that must replace nothing looks at the header that its commit replaces; another may make a segment of the name.

A look may once find no file although the file is there.

On a disk the mover deletes the header of the source, instead of making a tombstone (P11.35). A loss of power brings it
back, unless its folder was flushed, and ends the mover.

Rules of the protocol: P11.1 to P11.30, P11.34, P11.35.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from tests.models.explore import explore

Line = Literal["none", "merged", "aborted"]
TOKEN_MAX = 5


@dataclass(frozen=True)
class World:
    """All that the store and the parties know."""

    source: Literal["free", "merging", "gone"] = "free"
    line: Line = "none"
    token: int = 1
    """Of the target's header; 0 if there is none."""
    mover: Literal["begin", "marking", "marked", "looking", "ready", "committed", "undoing", "over", "never"] = "begin"
    before: int = -1
    """The token of the target's header that the mover knew before it sent the mark."""
    base: int = -1
    """The token of the header that its commit replaces."""
    resolver: Literal["idle", "seen", "noted", "looked", "bare", "aborted", "merged"] = "idle"
    was_merged: bool = False
    """Whether the target has the source's bytes."""
    evidence: bool = False
    """Whether the target's folder shows the move."""
    planted: bool = False
    """Whether the resolver has written at the target."""
    taken: bool = False
    """Whether another has made a segment of the target's name."""
    replaced: bool = False
    """Whether the mover's commit replaced that segment."""
    denied: bool = False
    """Whether a look has not found a file that is there."""
    unflushed: bool = False
    """Whether a loss of power brings the source back."""


@dataclass(frozen=True)
class Rule:
    """When the mover does not read the source again; the right rule, and wrong ones."""

    trusts: Literal["never", "token before", "any base", "absence"] = "token before"
    evidence: Literal["same folder", "before the mark", "after the mark", "none"] = "same folder"
    """When the mover leaves evidence; within a folder, the mark is the evidence."""
    forgets: Literal["known", "early"] = "known"
    """When the mover deletes it: once it knows what became of its commit, or as soon as it has the mark."""
    looks: Literal["evidence first", "target first"] = "evidence first"
    """What the resolver looks at first."""
    expires: Literal["never under way", "any time"] = "never under way"
    """When a collection deletes it: not while a commit may land that was sent, by D and G; or at any age."""
    heeds: bool = True
    """Whether the mover gives up where the target says that the mark was undone, although the source has it still."""
    refuses: Literal["never", "before the mark", "at the commit"] = "never"
    """When a mover that must replace nothing looks for a segment at the target."""
    believes: Literal["nothing", "no evidence", "no target", "no source"] = "nothing"
    """Which file counts as gone after a single look that has not found it."""
    flushes: Literal["every burial", "before a line goes", "never"] = "every burial"
    """What makes the end of the source durable: a tombstone's own commit, or the flush of who removes the line."""

    def is_denied(self, world: World, what: str) -> bool:
        """Return whether a look may be denied, and is believed."""
        return self.believes == what and not world.denied

    def holds(self, world: World) -> bool:
        is_same = world.base == world.before
        holds = {"never": False, "any base": True, "absence": is_same, "token before": is_same and world.base > 0}
        return holds[self.trusts]


def steps(world: World, rule: Rule) -> Iterator[World]:
    yield from mover(world, rule)
    yield from resolver(world, rule)
    yield from others(world, rule)
    if rule.refuses != "never" and not world.taken and world.line != "merged":  # by a create, which others may do
        yield replace(changed(world, world.line), taken=True)
    if world.unflushed:  # power is lost; the processes with it
        over = "over" if world.mover != "never" else world.mover
        yield replace(world, source="merging", unflushed=False, mover=over, resolver="idle")
    if world.evidence and (rule.expires == "any time" or world.mover in ("over", "never", "committed", "undoing")):
        yield replace(world, evidence=False)


def changed(world: World, line: Line) -> World:
    """Another header of the target; tokens never come back."""
    return replace(world, line=line, token=world.token + 1 if world.token else TOKEN_MAX + 1)


def mover(world: World, rule: Rule) -> Iterator[World]:
    if world.mover == "begin":
        if world.taken and rule.refuses == "before the mark":
            return
        yield replace(world, mover="marking", before=world.token, evidence=rule.evidence == "before the mark")
    elif world.mover == "marking" and world.source == "free":
        yield replace(world, mover="marked", source="merging")
    elif world.mover == "marked" and rule.evidence == "after the mark" and not world.evidence:
        yield replace(world, evidence=True)
    elif world.mover == "marked":
        if rule.forgets == "early" and world.evidence:
            yield replace(world, evidence=False)
        for base in {world.before, world.token}:  # the header that it knows, or the one that a look finds
            is_aborted = rule.heeds and base == world.token and world.line == "aborted"
            is_taken = rule.refuses == "at the commit" and base == world.token and world.taken
            yield replace(world, mover="undoing" if is_aborted or is_taken else "looking", base=base)
    elif world.mover == "looking":
        if rule.holds(world):
            yield replace(world, mover="ready")
        yield replace(world, mover="ready" if world.source == "merging" else "undoing")  # it reads the source
    elif world.mover == "ready":
        if world.base == world.token:
            yield replace(changed(world, "merged"), mover="committed", was_merged=True, replaced=world.taken)
        else:
            yield replace(world, mover="marked")  # lost: once more, on the header that is there now
    elif world.mover == "committed":
        if world.source == "merging":
            yield replace(world, source="gone", mover="over", unflushed=rule.flushes != "every burial")
        yield replace(world, evidence=False)
    elif world.mover == "undoing":  # its commit was not sent, and never will be
        yield replace(world, evidence=False)
        yield replace(world, source="free" if world.source == "merging" else world.source, mover="over")


def resolver(world: World, rule: Rule) -> Iterator[World]:
    if world.resolver == "idle" and world.source == "merging":
        yield replace(world, resolver="seen")
    elif world.resolver == "seen" and rule.looks == "target first" and world.line != "merged":
        yield replace(world, resolver="noted")
    elif world.resolver in ("seen", "noted"):
        if rule.evidence == "same folder" or world.evidence:
            yield replace(world, resolver="looked")
        else:
            yield replace(world, resolver="bare" if world.resolver == "seen" else "aborted")
        if world.evidence and rule.is_denied(world, "no evidence"):
            yield replace(world, resolver="bare", denied=True)
    elif world.resolver == "looked":
        if world.line == "merged":
            yield replace(world, resolver="merged")
        elif world.line == "aborted":
            yield replace(world, resolver="aborted")
        elif world.token <= TOKEN_MAX:
            yield replace(changed(world, "aborted"), resolver="aborted", planted=True)
    elif world.resolver == "bare":
        if rule.is_denied(world, "no target"):
            yield replace(world, resolver="aborted", denied=True)
        yield replace(world, resolver="merged" if world.line == "merged" else "aborted")
    elif world.resolver == "aborted":
        yield replace(world, source="free" if world.source == "merging" else world.source, resolver="idle")
    elif world.resolver == "merged":
        yield replace(world, source="gone" if world.source == "merging" else world.source, resolver="idle")


def others(world: World, rule: Rule) -> Iterator[World]:
    if 0 < world.token < TOKEN_MAX:
        yield changed(world, world.line)
        if world.source != "merging":  # the line's work is done
            is_lasting = rule.flushes == "before a line goes"
            yield replace(changed(world, "none"), unflushed=world.unflushed and not is_lasting)
        elif rule.is_denied(world, "no source"):
            yield replace(changed(world, "none"), denied=True)
    # a tombstone goes after the grace, which no request outlives that was sent before
    is_sent = world.mover == "ready"
    if world.line == "aborted" and world.source != "merging" and world.token > TOKEN_MAX and not is_sent:
        yield replace(world, line="none", token=0)  # a tombstone that is collected: there is nothing, as before


def broken(rule: Rule, token: int, first: World | None = None) -> World | None:
    """The first world in which the bytes are in two places, or in none; or a target is written that nobody moves to."""
    first = first or World(token=token)
    known, world, _ = explore(first, lambda world: steps(world, rule), problem)
    assert world is not None or len(known) > (30 if first.mover == "begin" else 3), "the model does something"
    return world


def problem(world: World) -> str:
    is_twice = world.was_merged and world.source == "free"
    is_lost = world.source == "gone" and not world.was_merged
    is_forged = world.planted and world.mover == "never"
    return "twice, lost, forged or replaced" if is_twice or is_lost or is_forged or world.replaced else ""


BETWEEN = Rule(evidence="before the mark")
"""The rule where the folders are two."""
FORGED = World(source="merging", mover="never")
"""A mark that no mover made."""
SAFE = {
    "within a folder, where only the header known before the mark is trusted": (Rule(), None),
    "between folders": (BETWEEN, None),
    "between folders, a mark that no mover made": (BETWEEN, FORGED),
    "a move that replaces nothing, by the header that its commit replaces": (Rule(refuses="at the commit"), None),
    "a header that is deleted, and flushed before a line goes": (Rule(flushes="before a line goes"), None),
    "the same between folders": (replace(BETWEEN, flushes="before a line goes"), None),
}
BROKEN = {
    "any header is trusted: a later one may have lost the line that undoes the mark": (Rule("any base"), 1, None),
    "the absence of a header is trusted: a tombstone that undid the mark may be collected": (Rule("absence"), 0, None),
    "a mover goes on over the line that undoes its mark": (Rule(heeds=False), 1, None),
    "a move that replaces nothing looks before it begins, and not at the commit": (
        Rule(refuses="before the mark"),
        0,
        None,
    ),
    "without evidence, a mark that no mover made is written at its target": (Rule(), 1, FORGED),
    "a header that is deleted, and not flushed before its line goes": (Rule(flushes="never"), 1, None),
    "a source counts as gone after one look, so that its line goes": (Rule(believes="no source"), 1, None),
}


@pytest.mark.parametrize("token", [0, 1])
@pytest.mark.parametrize(("rule", "first"), SAFE.values(), ids=SAFE)
def test_bytes_are_in_one_place_and_nothing_is_forged(rule: Rule, first: World | None, token: int) -> None:
    assert broken(rule, token, first and replace(first, token=token)) is None


@pytest.mark.parametrize(("rule", "token", "first"), BROKEN.values(), ids=BROKEN)
def test_without_part_of_rule_bytes_are_doubled_or_forged(rule: Rule, token: int, first: World | None) -> None:
    assert broken(rule, token, first) is not None


PARTS = [{"evidence": "after the mark"}, {"evidence": "none"}, {"forgets": "early"}]
PARTS += [{"looks": "target first"}, {"expires": "any time"}]
PARTS += [{"believes": "no evidence"}, {"believes": "no target"}]


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_each_part_of_the_rule_of_evidence_is_needed(part: dict[str, str]) -> None:
    assert any(broken(replace(BETWEEN, **part), token) is not None for token in (0, 1))  # type: ignore[arg-type]
