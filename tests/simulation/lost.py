"""Index pages that a foreign hand takes away or damages, and brings back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from fsspec.implementations.memory import MemoryFile

from rollingfs.format import names
from rollingfs.format.drops import is_own
from rollingfs.format.header import Header, Page
from tests.simulation.history import Doing, Violation
from tests.simulation.store import Store

if TYPE_CHECKING:
    from tests.simulation.world import World

FOUND_SHARE = 0.4


class Lost(dict[str, MemoryFile]):
    """The index pages that are lost, as they were, by path."""

    def change(self, world: World, chance: random.Random) -> None:
        """Lose another page, or find all."""
        headers = [(path, world.witness.headers.get(path)) for path in world.history.state]
        pages = {names.resolve(path, page.file) for path, header in headers for page in _pages(header)}
        if self and chance.random() < FOUND_SHARE:
            self.find(world.store)
        elif left := sorted(pages - self.keys()):
            file = chance.choice(left)
            self[file] = world.store.files[file]
            world.store.put_silently(file, b"damaged")
            if chance.random() < 0.5:
                dict.pop(world.store.files, file)
            world.counts["pages lost"] += 1
            for client in world.clients:
                client.pages.after_fork()  # no client has it in memory

    def find(self, store: Store) -> None:
        """Bring back all that are lost."""
        store.files.update(self)
        self.clear()

    def check_mark(self, path: str, header: Header, doing: Doing | None) -> None:
        """Whoever meets a mark must be able to undo it: nothing is marked whose folders a lost page names."""
        foreign = [page.file for page in _pages(header) if page.foreign or not is_own(page.file)]
        if any(names.resolve(path, file) in self for file in foreign):
            raise Violation(f"{path} was marked, and {[*self]} are lost, by {doing}")


def _pages(header: Header | None) -> list[Page]:
    return [] if header is None else [entry for entry in header.entries if isinstance(entry, Page)]
