"""Explicit-state model of a Parquet file that grows and is renewed: appends, renewals, a user who erases or replaces.

A file is a row of items behind a start: groups of rows, and footers that name groups by their offsets. An append and a
renewal look first and commit later, on conditions of what they saw. Each rule of `RULES` is such a condition, or that
offsets only grow. After every commit the last item must be a footer that names just the rows that were acknowledged
and not erased, each once.

Rules of the protocol: P8.17.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.models.explore import explore as visit

RULES = ("length", "incarnation", "start", "offsets grow")

Group = tuple[str, ...]
"""The rows of a group."""


@dataclass(frozen=True)
class Footer:
    """Names groups by the offsets of their items."""

    groups: tuple[tuple[int, Group], ...]


@dataclass(frozen=True)
class File:
    """A segment: its incarnation, the offset of its first item, and its items."""

    incarnation: int
    start: int
    items: tuple[Group | Footer, ...]

    @property
    def length(self) -> int:
        return self.start + len(self.items)

    @property
    def groups(self) -> tuple[tuple[int, Group], ...]:
        last = self.items[-1] if self.items else Footer(())
        assert isinstance(last, Footer)
        return last.groups


@dataclass(frozen=True)
class World:
    """The file, what each process has seen and has not committed yet, what is left to do, and the rows that count."""

    file: File
    seen: tuple[tuple[str, File], ...] = ()
    todo: tuple[tuple[str, int], ...] = (("a", 2), ("b", 1), ("renew", 2), ("erase", 1), ("replace", 1))
    rows: frozenset[str] = frozenset()
    next_row: int = 0


def broken(world: World) -> str:
    """Why the file is not one valid file of the rows that count; empty if it is."""
    file = world.file
    if not file.items:
        return "" if not world.rows else f"{sorted(world.rows)} are lost"
    if not isinstance(file.items[-1], Footer):
        return "no footer"
    found: list[str] = []
    for offset, group in file.groups:
        place = offset - file.start
        if not 0 <= place < len(file.items) or file.items[place] != group:
            return f"the footer names {group} at {offset}, where it is not"
        found += group
    return "" if sorted(found) == sorted(world.rows) else f"{found} are read instead of {sorted(world.rows)}"


def steps(world: World, rules: frozenset[str]) -> Iterator[World]:
    """Every world that one step of one process makes."""
    seen = dict(world.seen)
    for who, left in world.todo:
        if who in seen:
            base = seen.pop(who)
            waiting = replace(world, seen=tuple(sorted((one, file) for one, file in seen.items())))
            seen[who] = base
            fits = (
                ("length" not in rules or world.file.length == base.length)
                and ("incarnation" not in rules or world.file.incarnation == base.incarnation)
                and ("start" not in rules or world.file.start == base.start)
            )
            made = _renewed(waiting, base, rules) if who == "renew" else _appended(waiting, base, who)
            yield made if fits else waiting
        elif left:
            less = tuple((one, count - (one == who)) for one, count in world.todo)
            if who == "erase":
                gone = replace(world.file, start=world.file.length, items=())
                yield replace(world, file=gone, todo=less, rows=frozenset())
            elif who == "replace":
                first = f"{who}{world.file.incarnation}"
                new = File(world.file.incarnation + 1, 0, ((first,), Footer(((0, (first,)),))))
                yield replace(world, file=new, todo=less, rows=frozenset({first}))
            else:
                now = {**seen, who: world.file}
                yield replace(world, todo=less, seen=tuple(sorted(now.items(), key=lambda one: one[0])))


def _appended(world: World, base: File, who: str) -> World:
    """An append of one row, whose footer was made from the file that was seen."""
    row = f"{who}{world.next_row}"
    footer = Footer((*base.groups, (base.length, (row,))))
    file = replace(world.file, items=(*world.file.items, (row,), footer))
    return replace(world, file=file, rows=world.rows | {row}, next_row=world.next_row + 1)


def _renewed(world: World, base: File, rules: frozenset[str]) -> World:
    """The rows that were seen in one group, with one footer, in the place of all bytes."""
    rows = tuple(row for _, group in base.groups for row in group)
    at = base.length if "offsets grow" in rules else 0
    return replace(world, file=replace(world.file, start=at, items=(rows, Footer(((at, rows),))) if rows else ()))


def explore(rules: frozenset[str]) -> tuple[int, str, World | None]:
    """Visit every world: how many there are, and why the first bad one is bad."""
    known, world, why = visit(World(File(0, 0, ())), lambda world: steps(world, rules), broken)
    return len(known), why, world
