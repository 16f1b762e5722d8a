"""The store fails at every call of every operation of the Java side, in each way; Python finds the old or the new.

Every case is run until no call is left to be hit. What Java says of the operation must be what Python then reads, the
same operation must work when it is repeated, and collection must leave nothing but what the headers name.
"""

from __future__ import annotations

import itertools
import select
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollingfs import names
from rollingfs.backend.local import LocalBackend
from rollingfs.client import Client
from rollingfs.header import Header
from rollingfs.maintenance.verify import Verifier
from rollingfs.policy import RollingPolicy
from tests.servers import new_bucket, require, shared_backend
from tests.spark import world
from tests.spark.world import SMALL, Place

pytestmark = pytest.mark.slow

ANSWER_S_MAX = 90
LOCKED_S = 0.3
LATER_S = 60.0
"""By then the mark of a rename is taken for that of a mover who died."""
ONCE = ("BEFORE", "AFTER")
MODES = (*ONCE, "REFUSED", "DIES")
SOME = ("BEFORE", "DIES")
CALLS_MAX = 400
LARGE = RollingPolicy(max_bytes=600_000)
PAGED = RollingPolicy(max_bytes=12, inline_bytes=10)
OLD = bytes(65 + index % 26 for index in range(150))
LONG = bytes(65 + index % 26 for index in range(128 * 12))
NEW = b"what is new; " * 10
HUGE = b"0123456789abcdef" * 90_000

State = dict[str, bytes | None]
"""What is read at each name; None for nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What Java says."""

    outcome: str
    """``done``, ``failed``, ``unknown`` or ``died``; ``waits`` before there is any."""
    hit: str
    """The call that failed; ``-`` for none."""
    said: str


class Jvm:
    """`Faults.java`, which does what it is told."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()

    def ask(self, mode: str, at: int, *words: str) -> Answer:
        self.tell(mode, str(at), *words)
        return self.answer(*words)

    def answer(self, *words: str) -> Answer:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S_MAX)
        assert ready, f"no answer to {words} within {ANSWER_S_MAX} s; {self.log.read_text()}"
        line = self.process.stdout.readline()
        assert line, f"the JVM ended: {self.log.read_text()}"
        return Answer(*line.rstrip("\n").split("\t"))

    def close(self) -> None:
        with self.process:  # closes the pipes: at the end of its commands it ends
            pass


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    world.require_java()
    folder = tmp_path_factory.mktemp("faults")
    connector = [f"{found}/*" for found in Path.home().glob(".ivy2*/jars")]
    made = Jvm(world.java_command("Faults", folder, *connector), folder / "log")
    yield made
    made.close()


@dataclass(frozen=True, slots=True)
class Case:
    """An operation, and what it makes of what."""

    prepare: Callable[[Place], object]
    words: tuple[str, ...]
    """The operation and its arguments; a name of a segment begins with a slash."""
    before: State
    after: State
    is_whole: bool = True
    """Whether it is one operation, and not one for each segment of a folder."""
    is_first: bool = False
    """Whether each time another client does it."""
    modes: tuple[str, ...] = MODES


def segment(data: bytes, policy: RollingPolicy = SMALL, name: str = "log") -> Callable[[Place], object]:
    return lambda place: place.segment(name, data, policy, piece=len(data))


def tombstone_and_segment(place: Place) -> None:
    place.segment("other", b"gone" * 40)
    place.run(place.client.segments.delete(f"{place.path}/other"))
    place.segment("log", OLD)


def tombstone_and_plain(place: Place) -> None:
    place.segment("log", b"gone" * 40)
    place.run(place.client.segments.delete(f"{place.path}/log"))
    place.plain("log", OLD)


def folder(place: Place) -> None:
    place.segment("in/deep/two", NEW)
    place.plain("in/plain", b"3")
    place.plain("out/plain", b"4")


FOLDER: State = {"in/deep/two": NEW, "in/plain": b"3"}
MOVED: State = {f"out/{name}": data for name, data in FOLDER.items()}
NOWHERE: State = dict.fromkeys([*FOLDER])

CASES = {
    "a small append": Case(segment(OLD), ("append", "/log", "more"), {"log": OLD}, {"log": OLD + b"more"}),
    "an append of chunks": Case(segment(OLD), ("append", "/log", NEW.decode()), {"log": OLD}, {"log": OLD + NEW}),
    "a client's first append": Case(
        segment(OLD), ("append", "/log", "more"), {"log": OLD}, {"log": OLD + b"more"}, is_first=True, modes=SOME
    ),
    "a large append": Case(
        segment(OLD, LARGE), ("append", "/log", HUGE.decode()), {"log": OLD}, {"log": OLD + HUGE}, modes=SOME
    ),
    "an append that folds the map": Case(
        segment(LONG, PAGED),
        ("append", "/log", "more and more"),
        {"log": LONG},
        {"log": LONG + b"more and more"},
        modes=SOME,
    ),
    "an append to a plain file": Case(
        lambda place: place.plain("log", OLD), ("append", "/log", "more"), {"log": OLD}, {"log": OLD + b"more"}
    ),
    "an overwrite": Case(segment(OLD), ("overwrite", "/log", NEW.decode()), {"log": OLD}, {"log": NEW}),
    "a rename": Case(
        segment(OLD), ("rename", "/log", "/other"), {"log": OLD, "other": None}, {"log": None, "other": OLD}
    ),
    "a rename over a tombstone": Case(
        tombstone_and_segment,
        ("rename", "/log", "/other"),
        {"log": OLD, "other": None},
        {"log": None, "other": OLD},
        modes=("DIES",),
    ),
    "a delete": Case(segment(OLD), ("delete", "/log"), {"log": OLD}, {"log": None}),
    "a delete of one with index pages": Case(
        segment(LONG + NEW, PAGED), ("delete", "/log"), {"log": LONG + NEW}, {"log": None}, modes=("DIES",)
    ),
    "a delete of a plain file": Case(
        lambda place: place.plain("log", OLD), ("delete", "/log"), {"log": OLD}, {"log": None}, modes=SOME
    ),
    "a delete of a plain file over a tombstone": Case(
        tombstone_and_plain, ("delete", "/log"), {"log": OLD}, {"log": None}, modes=SOME
    ),
    "a delete of a folder": Case(folder, ("delete", "/in"), FOLDER, NOWHERE, is_whole=False, modes=SOME),
    "a rename of a folder": Case(
        folder,
        ("rename", "/in", "/out"),
        {**FOLDER, **dict.fromkeys(MOVED)},
        {**NOWHERE, **MOVED},
        is_whole=False,
        modes=SOME,
    ),
}
CASES_S3 = (
    ("an append of chunks", "BEFORE"),
    ("an append of chunks", "AFTER"),
    ("an overwrite", "BEFORE"),
    ("a rename", "BEFORE"),
    ("a rename", "DIES"),
    ("a delete", "AFTER"),
)


# -- what Python finds -------------------------------------------------------------------------------------------


def look(place: Place, case: Case) -> State:
    """What Python reads now."""
    found: State = {}
    for name in case.before:
        try:
            found[name] = place.content(name)
        except FileNotFoundError:
            found[name] = None
    return found


def settle(place: Place, case: Case) -> None:
    """What is done some time later, by another client: unfinished business, and everything that nobody needs."""
    client = Client(place.client.backend, clock=lambda: time.time() + LATER_S)
    rounds = min(len(case.before), 2)  # again, for what the first time was kept for another's sake
    for name in [*case.before] * rounds:
        try:
            place.run(client.collector.collect(f"{place.path}/{name}", grace_s=0))
        except FileNotFoundError:
            continue


def check_whole(place: Place, case: Case) -> None:
    """No chunk is damaged, and no file lies there that no header names."""
    named: set[str] = set()
    for name in case.before:
        path = f"{place.path}/{name}"
        header = place.header(name)
        if header is None or header.deleted:
            continue
        assert all(row.ok for row in place.run(Verifier(place.client).verify(path)))
        named |= {names.resolve(path, file) for file in files(place, path, header)}
    found = {(name, file) for name in case.before for file in place.chunk_files(name)}
    # a pin stays as long as its target refers to the folder, also that of an attempt before
    left = {f"{place.path}/{name}$chunks/{file}" for name, file in found if not file.startswith(names.PIN_PREFIX)}
    assert left == named


def files(place: Place, path: str, header: Header) -> set[str]:
    chunks = place.run(place.client.committer.pages.unfold(path, header.entries))
    return {entry.file for entry in (*chunks, *header.entries)}


def check_said(case: Case, answer: Answer, found: State) -> None:
    """What Java said came of it is what Python finds."""
    old, new = case.before, case.after
    if case.is_whole:
        assert found in (old, new)
        if answer.outcome == "failed":
            assert found == old
    else:
        assert merged(found) == merged(old) or all(found[name] in (old[name], new[name]) for name in found)
    if answer.outcome == "done":
        assert found == new


def merged(state: Mapping[str, bytes | None]) -> list[bytes]:
    """All bytes, wherever they are."""
    return sorted(data for data in state.values() if data is not None)


# -- one case, and all calls of it -------------------------------------------------------------------------------


def run_case(jvm: Jvm, place: Place, case: Case, mode: str, at: int) -> Answer:
    """Do the operation with a fault; find the old or the new; repeat it."""
    case.prepare(place)
    assert look(place, case) == case.before
    words = tuple(f"{place.url}{word}" if word.startswith("/") else word for word in case.words)
    if case.is_first:
        jvm.tell("new")
    answer = jvm.ask(mode, at, *words)
    assert answer.outcome != "broken", answer
    if answer.outcome == "done":
        assert answer.said != "false", answer
    if answer.outcome == "died":
        jvm.tell("new")
    found = look(place, case)
    if mode not in ONCE or (answer.outcome != "failed" and found != case.after):  # else it is repeated at once
        settle(place, case)
        found = look(place, case)
    check_said(case, answer, found)
    if found != case.after:
        again = jvm.ask("-", 0, *words)
        assert again.outcome == "done", (answer, again)
        assert look(place, case) == case.after, (answer, again)
    settle(place, case)
    assert look(place, case) == case.after
    check_whole(place, case)
    return answer


def run_all(jvm: Jvm, places: Iterator[Place], case: Case, mode: str) -> Counter[tuple[str, str]]:
    """Hit one call after the other; what came of how many."""
    seen: Counter[tuple[str, str]] = Counter()
    for at in range(1, CALLS_MAX):
        place = next(places)
        try:
            answer = run_case(jvm, place, case, mode, at)
        except AssertionError as error:
            error.add_note(f"{mode} at call {at} of {case.words[:2]}, in {place.path}")
            raise
        if answer.hit == "-":
            return seen
        seen[answer.hit, answer.outcome] += 1
    raise AssertionError(f"more than {CALLS_MAX} calls")


@pytest.fixture
def disks(jvm: Jvm, tmp_path: Path) -> Iterator[Place]:
    """Folder after folder."""
    jvm.tell("new")  # of the bucket before
    client = Client(LocalBackend(sync=False))
    return (
        Place(None, client, f"{tmp_path}/{index}", f"rolling+file://{tmp_path}/{index}") for index in itertools.count()
    )


@pytest.fixture(scope="module")
def connected(jvm: Jvm, minio: dict[str, Any]) -> tuple[Client, str]:
    """A bucket that the JVM knows as well."""
    if not world.wants_s3a():
        require("the S3 connector of Spark is not in Ivy's cache")
    from rollingfs.spark.configure import s3a_options

    for key, value in s3a_options(minio).items():
        jvm.tell("set", key.removeprefix("spark.hadoop."), value)
    return Client(shared_backend(**minio)), new_bucket(minio)


@pytest.fixture
def prefixes(jvm: Jvm, connected: tuple[Client, str]) -> Iterator[Place]:
    """Prefix after prefix in the bucket."""
    client, bucket = connected
    jvm.tell("new")  # of the disk before
    run = uuid.uuid4().hex[:8]
    return (
        Place(None, client, f"{bucket}/{run}/{index}", f"rolling+faulty://{bucket}/{run}/{index}")
        for index in itertools.count()
    )


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, case in CASES.items() for mode in case.modes])
def test_on_disk_a_failure_leaves_the_old_or_the_new_as_it_says(jvm, disks, name, mode):
    seen = run_all(jvm, disks, CASES[name], mode)
    assert seen


@pytest.mark.s3
@pytest.mark.parametrize(("name", "mode"), CASES_S3)
def test_on_s3_a_failure_leaves_the_old_or_the_new_as_it_says(jvm, prefixes, name, mode):
    seen = run_all(jvm, prefixes, CASES[name], mode)
    assert seen


def by_python(place: Place, verb: str) -> bool:
    """Whether there was still something for Python to change."""
    segments, path = place.client.segments, f"{place.path}/log"
    try:
        place.run(segments.delete(path) if verb == "delete" else segments.append(path, b"+"))
    except FileNotFoundError:
        return False
    return True


@pytest.mark.parametrize("prepare", [lambda place: place.plain("log", OLD), tombstone_and_plain])
@pytest.mark.parametrize(("words", "verb"), [(("append", "/log", "more"), "delete"), (("delete", "/log"), "append")])
def test_a_plain_file_that_one_deletes_and_the_other_adopts_is_gone(jvm, disks, prepare, words, verb):
    changed = set()
    for at in range(1, CALLS_MAX):
        place = next(disks)
        prepare(place)
        answer = jvm.ask("WAITS", at, words[0], f"{place.url}/log", *words[2:])
        if answer.outcome != "waits":
            break
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(by_python, place, verb)
            wait([call], LOCKED_S)  # in vain where Java holds the lock of the header
            jvm.tell("go on")
            changed.add(call.result())
        jvm.answer(*words)
        with pytest.raises(FileNotFoundError):
            place.content("log")
    assert True in changed, words


@pytest.mark.parametrize("operation", ["read", "list"])
def test_a_look_that_meets_a_failure_gives_what_is_there_or_fails(jvm, disks, operation):
    place = next(disks)
    place.segment("in/log", LONG, PAGED)
    place.segment("in/tail", b"tail")
    place.plain("in/plain", b"plain")
    wanted = {"read": ("/in/log", LONG.decode()), "list": ("/in", f"log:{len(LONG)} plain:5 tail:4")}
    path, expected = wanted[operation]
    outcomes: Counter[str] = Counter()
    for at in itertools.count(1):
        answer = jvm.ask("BEFORE", at, operation, f"{place.url}{path}")
        outcomes[answer.outcome] += 1
        assert answer.outcome == "failed" or (answer.outcome, answer.said) == ("done", expected)
        if answer.hit == "-":
            break
    assert outcomes["failed"]
    assert outcomes["done"]
