"""Operations on a tree in which a hostile party leaves mutants of every kind of file, at random.

Each operation succeeds or raises an error of ours, and nothing outside of the hostile folder changes but small pins
(``SECURITY.md``). A course is replayed by its seed.
"""

import random
from collections.abc import Callable

import pytest

from rollingfs.errors import RollingError
from rollingfs.format.codec import format_header
from rollingfs.format.header import Header
from rollingfs.format.side_files import pin_path
from tests.support.examples import MANY, nightly, slowly
from tests.support.mutants import KINDS, UUID, mutant
from tests.system.test_hostile import TXN, Store

STEPS = 400
STEPS_OF_CI = 5_000
TIMES_OF_NIGHTLY = 100
COURSE_S_MAX = 3 * 3600
SEEDS_OF_CI, SEEDS_OF_NIGHTLY = (1,), range(2, 9)
TREE_STEPS = 40
"""A tree gets this number of operations; after them all other bytes are compared."""
LEAVES = 0.6
"""How often a hostile file comes before an operation."""
FILES = ["00000000000000000000-5f3a9c21e0b4", "stage-0f1e2d3c4b5a69788796a5b4c3d2e1f0", "lock", "x"]


class Course:
    """One tree, with its hostile party and somebody who works there with all rights."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.store = Store()
        self.fs, self.folder = self.store.fs, self.store.mallory

    def path(self) -> str:
        return f"{self.folder}/{self.chance.choice('stu')}"

    def leave(self) -> None:
        """Leave one hostile file, where a file of its kind belongs."""
        kind = self.chance.choice(["header", "records", "page", "pin", "ledger", "rows", "chunk"])
        path, put = self.path(), self.store.put
        chunks = f"{path}$chunks"
        if kind == "chunk":
            put(f"{chunks}/{self.chance.choice(FILES)}", self.chance.randbytes(9))
            return
        data = mutant(KINDS[kind], self.chance)
        if kind in ("header", "records"):
            segment = self.chance.choice([path, path, path, f"{self.folder}/$stream", f"{self.folder}/$listing"])
            put(f"{segment}$header", data)
        elif kind == "page":
            put(f"{chunks}/index-5f3a9c21e0b4", data)
        elif kind == "pin":
            put(pin_path(chunks, TXN), data)
        elif data:
            name = "$stream" if kind == "ledger" else "$listing"
            put(f"{self.folder}/{name}$header", format_header(Header(UUID, 3, tail=data)))

    def work(self) -> None:
        """One operation; its error, if there is one, is of ours."""
        try:
            self.chance.choice(self.verbs())()
        except (RollingError, OSError):
            pass
        except ValueError as error:
            if self.folder not in str(error):  # what a call means that cannot be done names its path
                raise

    def verbs(self) -> list[Callable[[], object]]:
        fs, folder, path, other = self.fs, self.folder, self.path(), self.path()
        offset = self.chance.randint(0, 20)
        return [
            lambda: fs.append(path, b"more"),
            lambda: fs.pipe_file(path, b"anew"),
            lambda: fs.touch(path),
            lambda: fs.seal(path),
            lambda: fs.truncate(path, offset),
            lambda: fs.truncate(path, offset, erase=True),
            lambda: fs.concat(path, [other]),
            lambda: fs.mv(path, other),
            lambda: fs.copy(path, other),
            lambda: fs.rm(path),
            lambda: fs.rm(folder, recursive=True, damaged=True),
            lambda: fs.cat_file(path),
            lambda: fs.info(path),
            lambda: fs.ls(folder),
            lambda: fs.find(folder),
            lambda: fs.states(folder),
            lambda: fs.collect(path, grace=0),
            lambda: fs.collect(folder, recursive=True, grace=0),
            lambda: fs.roll(path),
            lambda: fs.segment(path).consolidate(grace=0),
            lambda: fs.segment(path).verify(),
            lambda: fs.segment(path).acquire("somebody"),
            lambda: fs.export(path, f"{other}-export", overwrite=True),
            lambda: fs.rebuild(path, f"{other}-rebuilt", 0),
            lambda: fs.get_policy(path),
            lambda: fs.set_policy(folder, max_bytes="1MiB"),
            lambda: fs.stream(folder).cut(),
            lambda: fs.stream(folder).cuts(),
            lambda: fs.stream(folder).subscribers(),
            lambda: fs.stream(folder).retain(),
            self.store.keep,
        ]

    def check(self) -> None:
        others = {path: data for path, data in self.store.bytes_of_others().items() if "$chunks/pin-" not in path}
        assert others == self.store.before
        self.store.backend.fs.rm(self.store.root, recursive=True)


@pytest.mark.fuzz
@pytest.mark.timeout(COURSE_S_MAX)
@pytest.mark.parametrize("seed", [0, *slowly(*SEEDS_OF_CI), *nightly(*SEEDS_OF_NIGHTLY)])
def test_hostile_files_change_nothing_and_raise_our_errors(seed: int) -> None:
    chance, steps = random.Random(seed), STEPS_OF_CI if seed else STEPS
    for _ in range(0, steps * (TIMES_OF_NIGHTLY if MANY else 1), TREE_STEPS):
        course = Course(chance)
        for _ in range(TREE_STEPS):
            if chance.random() < LEAVES:
                course.leave()
                course.fs.invalidate_cache()
            course.work()
        course.check()
