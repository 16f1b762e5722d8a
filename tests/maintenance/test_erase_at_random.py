"""After an erase no file of any store holds an erased byte, unless the report names the file: random lives of segments.

Every character that is ever appended is another one. In UTF-8 each has three bytes, and no two overlap to a third.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest

from rollingfs import RollingPolicy
from rollingfs.format import merging
from rollingfs.format.header import GRACE_S
from rollingfs.maintenance.erased import Erased
from rollingfs.maintenance.offload import Offloader
from rollingfs.maintenance.roll import Roller
from rollingfs.maintenance.survey import Survey
from rollingfs.runtime.concurrency import drive
from tests.support.examples import examples
from tests.support.faults import CLOCK, Store, hurry
from tests.support.life import World

WIDTH = 3
FIRST = 0x4E00
CHARACTERS = re.compile("[\u4e00-\u9fff]")
PATHS = ("/s/a", "/s/b", "/s/sub/c", "/t/d")
LAGS_S = (0.0, 3600.0, 7 * 86400.0)
PAUSES_S = (60.0, 7200.0, GRACE_S + 60.0, 3 * 86400.0)
STEPS = 30


class TwoTiers(Store):
    tiers = MappingProxyType({"cold": True, "warm": True})


@dataclass
class Life:
    """What a segment holds, and all that ever was part of it."""

    kept: str = ""
    start: int = 0
    gone: str = ""
    """What was truncated, also from the segments that were joined to it."""
    is_sealed: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.kept)


@dataclass
class Course:
    """One random course of verbs, and the model that says what each segment holds."""

    seed: int
    store: TwoTiers = field(default_factory=TwoTiers)
    lives: dict[str, Life] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    erases: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.world = World(self.store, RollingPolicy(max_bytes=8 * WIDTH, inline_bytes=4 * WIDTH), CLOCK.time)
        self.client = self.world.client

    def run(self) -> None:
        verbs: list[Callable[[str, Life], None]] = [
            self.append, self.append, self.stage, self.offload, self.offload, self.onload, self.consolidate, self.roll,
            self.move, self.move, self.concat, self.truncate, self.erase, self.erase, self.erase, self.remove,
            self.collect, self.overwrite,
        ]  # fmt: skip
        for _ in range(STEPS):
            known = [one for one in PATHS if one in self.lives]
            path = self.random.choice(known if known and self.random.random() < 0.8 else PATHS)
            if path not in self.lives:
                self.world.create(path)
                self.lives[path] = Life()
                self.log.append(f"create {path}")
            verb = self.random.choice(verbs)
            self.log.append(f"{verb.__name__} {path}")
            verb(path, self.lives[path])
            if self.random.random() < 0.3:
                pause_s = self.random.choice(PAUSES_S)
                self.log.append(f"pause {pause_s}")
                self.store.lapse(pause_s)
        for path, life in self.lives.items():
            assert self.world.content(path).decode() == life.kept, self.log
            self.erase(path, life)

    # -- verbs ---------------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        first = FIRST + self.written
        self.written += self.random.randint(1, 30)
        return "".join(map(chr, range(first, FIRST + self.written)))

    def append(self, path: str, life: Life) -> None:
        if not life.is_sealed:
            text = self.fresh()
            self.world.append(path, text.encode())
            life.kept += text

    def stage(self, path: str, life: Life) -> None:
        if life.is_sealed:
            return
        texts = [self.fresh() for _ in range(3)]
        staged = drive(self.client.segments.stage(path, texts[1].encode()))
        drive(self.client.segments.append(path, [texts[0][:2].encode(), staged, texts[2][:2].encode()]))
        life.kept += texts[0][:2] + texts[1] + texts[2][:2]

    def offload(self, path: str, life: Life) -> None:
        tier = self.random.choice(["cold", "warm"])
        drive(Offloader(self.client.commits, self.client.fetcher).offload(path, tier, lag_s=self.random.choice(LAGS_S)))

    def onload(self, path: str, life: Life) -> None:
        drive(Offloader(self.client.commits, self.client.fetcher).onload(path, lag_s=self.random.choice(LAGS_S)))

    def consolidate(self, path: str, life: Life) -> None:
        self.world.consolidate(path)

    def roll(self, path: str, life: Life) -> None:
        drive(Roller(self.client.commits).roll(path))

    def move(self, path: str, life: Life) -> None:
        target = self.random.choice([one for one in PATHS if one != path])
        self.log.append(f"  to {target}")
        drive(self.client.concats.rename(path, target))
        self.lives[target] = self.lives.pop(path)

    def concat(self, path: str, life: Life) -> None:
        sources = [one for one in PATHS if one != path and one in self.lives and self.random.random() < 0.6]
        if life.is_sealed or not sources:
            return
        self.log.append(f"  of {sources}")
        for source in sources:
            self.world.seal(source)
        drive(self.client.concats.concat(path, sources))
        for source in sources:
            found = self.lives.pop(source)
            life.kept += found.kept
            life.gone += found.gone

    def cut(self, life: Life) -> int:
        return self.random.choice([self.random.randint(life.start, life.end), life.start, life.end])

    def truncate(self, path: str, life: Life, offset: int | None = None) -> None:
        offset = self.cut(life) if offset is None else offset
        self.world.truncate(path, offset * WIDTH)
        self.shorten(life, offset)

    def shorten(self, life: Life, offset: int) -> None:
        life.gone += life.kept[: offset - life.start]
        life.kept, life.start = life.kept[offset - life.start :], offset

    def remove(self, path: str, life: Life) -> None:
        drive(self.client.segments.delete(path))
        del self.lives[path]

    def collect(self, path: str, life: Life) -> None:
        drive(self.client.collector.collect(path))

    def overwrite(self, path: str, life: Life) -> None:
        text = self.fresh()
        drive(self.client.segments.overwrite(path, [text.encode()]))
        self.lives[path] = Life(text)

    def erase(self, path: str, life: Life) -> None:
        offset = self.cut(life)
        did = drive(self.client.eraser.erase(path, offset * WIDTH))
        self.log.append(f"  at {offset} of {life.start} to {life.end}")
        self.shorten(life, offset)
        self.erases += 1
        self.check(life, did)

    def check(self, life: Life, did: Erased) -> None:
        named = {one.file for one in did.remains}
        assert set(life.gone).isdisjoint(life.kept)
        for file, data in self.store.snapshot().items():
            left = set(CHARACTERS.findall(data.decode(errors="ignore"))) & set(life.gone)
            assert not left or file in named, (self.seed, file, sorted(left)[:3], did, *self.log)


@pytest.fixture(autouse=True)
def _virtual_time(monkeypatch):
    hurry(monkeypatch)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_after_an_erase_no_file_holds_an_erased_byte_unless_the_report_names_it(seed):
    Course(seed).run()


@pytest.mark.parametrize(("without", "seed"), [("hints that travel", 1), ("files that tombstones keep", 54)])
def test_such_courses_find_what_is_left_where_a_rule_is_left_out(without, seed, monkeypatch):
    if without == "hints that travel":
        monkeypatch.setattr(merging, "with_waiting", lambda header, *_: header)
    else:
        monkeypatch.setattr(Survey, "kept", {})
    with pytest.raises(AssertionError, match="chunks/"):
        Course(seed).run()
