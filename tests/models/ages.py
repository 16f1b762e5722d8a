"""Explicit-state model of a chunk's age: a writer, a collection, and clocks that are apart, jump, and stand still.

The writer uploads a file and commits it in as many attempts as it takes. The collection looks at the file's age by the
store's clock, renews the header, and deletes the file. No header may name a file that is gone.

Rules of the protocol: P7.2, P7.4, P7.5, P7.26, P12.4.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.models.explore import explore as visit

D, G = 1, 4
RULES = ("age", "header's date", "collection's date")
JUMPS = (-G, G)


class World(NamedTuple):
    """Clocks, the file, the header, what the writer and the collection know, and how much may still happen."""

    store: int
    wall: int = 0
    boot: int = 0
    """Of the writer's machine, as `wall`."""
    date: int | None = None
    """Of the file, by the store's clock."""
    is_gone: bool = False
    began: tuple[int, int] | None = None
    """When the upload began, by the two clocks of the writer."""
    version: int = 0
    dated: int = 0
    named: bool = False
    base: int | None = None
    """The version that the writer's attempt is conditioned on; its check is done."""
    surveyed: tuple[int, int] | None = None
    """The version that the collection renews, and its "now"; the file was old."""
    deletes: bool = False
    hours: int = 2 * G
    jumps: int = 0
    stops: int = 0


def broken(world: World) -> str:
    """Why the world is bad; empty if it is not."""
    return "the header names a file that a collection has deleted" if world.named and world.is_gone else ""


def steps(world: World, rules: frozenset[str]) -> Iterator[World]:
    """Every world that one step of a clock or a process makes."""
    if world.hours:
        passed = world._replace(store=world.store + 1, hours=world.hours - 1)
        yield passed._replace(wall=world.wall + 1, boot=world.boot + 1)
        if world.stops:  # the writer's machine stands still, with its clocks
            yield passed._replace(stops=world.stops - 1)
    if world.jumps and world.date is not None:
        for by in JUMPS:
            yield world._replace(store=world.store + by, jumps=world.jumps - 1)
            yield world._replace(wall=world.wall + by, jumps=world.jumps - 1)
    yield from _written(world, rules)
    yield from _collected(world, rules)


def _written(world: World, rules: frozenset[str]) -> Iterator[World]:
    if world.date is None:
        yield world._replace(date=world.store, began=(world.wall, world.boot))
    elif world.base is not None:
        is_mine = world.base == world.version
        yield world._replace(base=None, named=is_mine, version=world.version + is_mine)
    elif not world.named and world.began is not None:
        wall, boot = world.began
        is_old = "age" in rules and max(world.wall - wall, world.boot - boot) > D
        is_old |= "header's date" in rules and world.dated - wall > D
        if not is_old:  # else it writes the file again, under another name
            yield world._replace(base=world.version)


def _collected(world: World, rules: frozenset[str]) -> Iterator[World]:
    if world.deletes:
        yield world._replace(deletes=False, is_gone=True)
    elif world.surveyed is not None:
        version, now = world.surveyed
        dated = max(world.dated, now) if "collection's date" in rules else world.dated
        is_due = version == world.version and not world.named
        renewed = world._replace(version=version + 1, dated=dated, deletes=True) if is_due else world
        yield renewed._replace(surveyed=None)
    elif world.date is not None and not world.named and not world.is_gone and world.store - world.date >= G:
        yield world._replace(surveyed=(world.version, world.store))


def explore(first: World, rules: frozenset[str]) -> tuple[int, str, World | None]:
    """Visit every world: how many there are, and why the first bad one is bad."""
    known, world, why = visit(first, lambda world: steps(world, rules), broken)
    return len(known), why, world
