"""The store fails at every call of every Java operation: no segment ever changes.

Each case runs until every call has failed once.
"""

import itertools
import select
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollingfs.backend.local.backend import LocalBackend
from rollingfs.policy import RollingPolicy
from rollingfs.segment.at import At
from rollingfs.segment.verbs.delete import delete
from tests.support import spark as world
from tests.support.segment_verbs import append
from tests.support.servers import new_bucket, shared_backend
from tests.support.spark import Place

pytestmark = pytest.mark.slow

ANSWER_S_MAX = 90
CALLS_MAX = 100
MODES = ("BEFORE", "AFTER")
PAGED = RollingPolicy(max_bytes=12, inline_bytes=10)
OLD = bytes(65 + index % 26 for index in range(150))
LONG = bytes(65 + index % 26 for index in range(128 * 12))


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of Java."""

    outcome: str
    """``done`` or ``failed``; ``waits`` before there is any."""
    hit: str
    """The call that failed; ``-`` for none."""
    said: str


class Jvm:
    """A process that runs `Faults.java`, and does one command after the other."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, text=True, **pipes)

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


@pytest.fixture(params=["disks", pytest.param("prefixes", marks=pytest.mark.s3)])
def places(jvm: Jvm, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Folder after folder of the disk, or prefix after prefix in a bucket that the JVM knows as well."""
    jvm.tell("new")  # of the store before
    client, root, scheme = At.of(LocalBackend(sync=False)), str(tmp_path), "rolling+file"
    if request.param == "prefixes":
        world.require_s3a()
        from rollingfs.spark.configure import s3a_options

        options = request.getfixturevalue("minio")
        for key, value in s3a_options(options).items():
            jvm.tell("set", key.removeprefix("spark.hadoop."), value)
        client, root, scheme = At.of(shared_backend(**options)), new_bucket(options), "rolling+faulty"
    return (Place(None, client, f"{root}/{nth}", f"{scheme}://{root}/{nth}") for nth in itertools.count())


def full(place: Place) -> None:
    """A segment, plain files, and a folder with a segment below."""
    place.segment("log", OLD)
    place.segment("in/deep/log", OLD)
    for name in ("plain", "in/plain", "out/plain"):
        place.plain(name, b"plain")


def remains(place: Place) -> None:
    """Plain files, and a folder with plain files and the rest of a deleted segment."""
    place.segment("in/deep/log", OLD)
    place.run(delete(place.client, f"{place.path}/in/deep/log"))
    for name in ("plain", "other", "in/plain", "in/deep/plain"):
        place.plain(name, b"plain")


def words_of(place: Place, words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{place.url}{word}" if word.startswith("/") else word for word in words)


REFUSED = (
    ("append", "/log", "more"),
    ("overwrite", "/log", "new"),
    ("rename", "/log", "/new"),
    ("rename", "/plain", "/log"),
    ("rename", "/in", "/new"),
    ("delete", "/log"),
    ("delete", "/in"),
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_refused_touches_nothing_whatever_fails(jvm, places, words, mode):
    place = next(places)
    full(place)
    before = place.tree()
    for at in range(1, CALLS_MAX):
        answer = jvm.ask(mode, at, *words_of(place, words))
        assert place.tree() == before, (mode, at, answer)
        assert answer.outcome == "failed", (mode, at, answer)
        if answer.hit == "-":
            assert "nothing was changed" in answer.said
            return
        assert "injected" in answer.said or "nothing was changed" in answer.said
    raise AssertionError(f"more than {CALLS_MAX} calls")


PLAIN: dict[tuple[str, ...], Callable[[dict[str, bytes]], dict[str, bytes]]] = {
    ("overwrite", "/plain", "new"): lambda old: {**old, "plain": b"new"},
    ("overwrite", "/in/deep/log", "new"): lambda old: {**old, "in/deep/log": b"new"},
    ("rename", "/plain", "/new"): lambda old: moved(old, "plain", "new"),
    ("delete", "/plain"): lambda old: moved(old, "plain"),
    ("delete", "/in"): lambda old: moved(old, "in/"),
    ("rename", "/in", "/new"): lambda old: moved(old, "in/", "new/"),
}
"""Operations on plain files, and the files after each."""


def moved(old: dict[str, bytes], begin: str, to: str | None = None) -> dict[str, bytes]:
    """The files where those whose names begin so have another beginning, or are gone."""
    named = {name: name if not name.startswith(begin) else to and to + name[len(begin) :] for name in old}
    return {new: old[name] for name, new in named.items() if new}


def plain_files(place: Place) -> dict[str, bytes]:
    return {name: data for name, data in place.tree().items() if "$" not in name and not name.endswith("/")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_failed_plain_file_spares_rollingfs_and_other_files(jvm, places, words, mode):
    for at in range(1, CALLS_MAX):
        place = next(places)
        remains(place)
        held, old = place.held(), plain_files(place)
        new = PLAIN[words](old)
        answer = jvm.ask(mode, at, *words_of(place, words))
        found = plain_files(place)
        assert place.held() == held, (mode, at, answer)
        if answer.outcome == "done":
            assert found == new, (mode, at, answer)
        kept = {name: data for name, data in old.items() if new.get(name) == data}
        assert {name: found.get(name) for name in kept} == kept, (mode, at, answer)
        if words[0] == "rename":
            assert sorted(found.values()) == sorted(old.values()), (mode, at, answer)
        if answer.hit == "-":
            assert answer.outcome == "done"
            return
    raise AssertionError(f"more than {CALLS_MAX} calls")


@pytest.mark.parametrize("places", ["disks"], indirect=True)
def test_plain_file_adopted_during_javas_delete_stays_consistent(jvm, places):
    outcomes: Counter[str] = Counter()
    for at in range(1, CALLS_MAX):
        place = next(places)
        place.plain("log", OLD)
        answer = jvm.ask("WAITS", at, "delete", f"{place.url}/log")
        if answer.outcome != "waits":
            break
        adopted = True
        try:
            place.run(append(place.client, f"{place.path}/log", b"+"))
        except FileNotFoundError:
            adopted = False
        jvm.tell("go on")
        answer = jvm.answer("delete")
        outcomes[answer.outcome] += 1
        assert answer.outcome == ("failed" if adopted else "done")
        if adopted:
            assert "rollingfs rm" in answer.said
            assert place.content("log") == OLD + b"+"
        else:
            with pytest.raises(FileNotFoundError):
                place.content("log")
    assert set(outcomes) == {"done", "failed"}


@pytest.mark.parametrize("places", ["disks"], indirect=True)
@pytest.mark.parametrize("kind", ["segment", "plain"])
@pytest.mark.parametrize("has_rest", [False, True])
def test_removed_folder_takes_nothing_along_that_comes_into_it(
    jvm: Jvm, places: Iterator[Place], kind: str, has_rest: bool
) -> None:
    """Before any of its calls; a folder may hold the rest of deleted segments."""
    answers = Counter[str]()
    for at in range(1, CALLS_MAX):
        place = next(places)
        if has_rest:
            place.segment("in/other", OLD)
            place.run(delete(place.client, f"{place.path}/in/other"))
        place.run(place.client.backend.make_folder(f"{place.path}/in"))
        words = words_of(place, ("rmdir", "/in"))
        answer = jvm.ask("WAITS", at, *words)
        if answer.outcome != "waits":
            break
        getattr(place, kind)("in/new", OLD)
        jvm.tell("go on")
        answer = jvm.answer("rmdir")
        answers[answer.outcome] += 1
        assert place.content("in/new") == OLD, (at, answer)
    assert answers["failed"] > 0


@pytest.mark.parametrize("places", ["disks"], indirect=True)
@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [("read", "/in/log", LONG.decode()), ("list", "/in", f"log:{len(LONG)} plain:5 tail:4")],
    ids=["read", "list"],
)
def test_failing_look_gives_what_is_there_or_fails(jvm, places, operation, path, expected):
    place = next(places)
    place.segment("in/log", LONG, PAGED)
    place.segment("in/tail", b"tail")
    place.plain("in/plain", b"plain")
    outcomes: Counter[str] = Counter()
    for at in itertools.count(1):
        answer = jvm.ask("BEFORE", at, operation, f"{place.url}{path}")
        outcomes[answer.outcome] += 1
        assert answer.outcome == "failed" or (answer.outcome, answer.said) == ("done", expected)
        if answer.hit == "-":
            break
    assert outcomes.keys() >= {"failed", "done"}
