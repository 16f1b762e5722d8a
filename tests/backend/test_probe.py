"""The probe believes what it sees and leaves nothing behind; its races find a store that looks first and acts then.

Rules of the protocol: P14.3 to P14.13.
"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rollingfs.backend import race as race_module
from rollingfs.backend.contract import Backend, Blob
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.patience import patience_s
from rollingfs.backend.probe import PAIRS, Abilities, probe, probe_patiently
from rollingfs.backend.race import RACERS, BrokenPromise, LostFile, judge
from rollingfs.errors import ConflictError, UnsafeBackendError
from rollingfs.runtime.concurrency import AsyncRuntime
from rollingfs.testing import BackendContract, run
from tests.support.backends import Counting, Scripted, private_memory, raises
from tests.support.careless import careless

FOLDER = "/a/x$chunks"


def liar(lie: str, verb: str) -> Scripted:
    """A store that does something else than it says, in one verb."""
    backend = Scripted(private_memory())
    inner = backend.inner

    async def overwrite(path: str, data: Any, *_: str) -> object:
        await inner.delete([path])
        return True if verb == "delete_if" else await inner.create(path, data)

    async def refuse_and_write(path: str, data: Any, *token: str) -> object:
        try:
            return await getattr(inner, verb)(path, data, *token)
        except (FileExistsError, ConflictError):
            await overwrite(path, data)
            raise

    async def refuse_and_delete(path: str, token: str) -> bool:
        await inner.delete([path])
        return False

    async def send_again(*args: Any) -> object:
        await getattr(inner, verb)(*args)
        return await getattr(inner, verb)(*args)  # refused because of what it wrote itself

    lies = {
        "ignores its condition": overwrite,
        "says no and writes": refuse_and_write,
        "says no and deletes": refuse_and_delete,
        "answer is lost": send_again,
    }
    backend.plan(verb, instead=lies[lie], times=1 if lie == "answer is lost" else None, probes=True)
    return backend


@pytest.mark.parametrize("lie", ["ignores its condition", "says no and deletes"])
def test_store_with_unconditional_deletes_allows_writes_without_deletes(lie):
    backend = liar(lie, "delete_if")
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=False)


def test_store_that_refuses_conditional_deletes_is_safe():
    """LocalStack 4.14.0 answers 501 to a DELETE with If-Match."""
    backend = Scripted(private_memory())
    backend.plan("delete_if", instead=raises(OSError(errno.ENOTSUP, "not implemented")), probes=True)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=False)


@pytest.mark.parametrize("verb", ["create", "replace", "delete_if"])
def test_a_lost_answer_is_not_held_against_the_store(verb):
    backend = liar("answer is lost", verb)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=True)


VERBS = ("create", "replace")
WAIT_S = 60.0
BODIES = [b"racer %d" % number for number in range(RACERS)]
LOST = ConflictError("lost")
BROKEN = OSError(errno.EIO, "the connection broke")


# -- what a race shows -------------------------------------------------------------------------------------------


def judged(outcomes: Sequence[Any], found: Blob | None) -> Blob:
    """The verdict on racers of which the last ones lost."""
    all_of_them = [*outcomes, *[LOST] * (RACERS - len(outcomes))]
    return judge("/a/x$header", "replace", ConflictError, BODIES, all_of_them, found)


def by(racer: int, token: str = "") -> Blob:
    """The file of a racer."""
    return Blob(BODIES[racer], token or f"t{racer}", 0.0)


RIGHT = [(["t0"], by(0)), ([LOST, "t1"], by(1)), (["t0", *[BROKEN] * (RACERS // 2)], by(0))]


@pytest.mark.parametrize(("outcomes", "found"), RIGHT, ids=["the first", "another", "half of them without an answer"])
def test_one_winner_whose_file_is_there_is_right(outcomes, found):
    assert judged(outcomes, found) is found


WON = ["t0", *[LOST] * (RACERS - 2), BROKEN]
TWO = f"let 2 of {RACERS} concurrent writers win"
FEW = "not known .* 7 got an answer .*connection broke.*nothing was written"
JUDGED: dict[str, tuple[Sequence[Any], Blob | None, type[BaseException], str]] = {
    **{f"two win, {n} unknown": (["t0", "t1", *[BROKEN] * n], by(1), BrokenPromise, TWO) for n in (0, 3, RACERS - 2)},
    "bytes of a loser": (WON, by(1, "t0"), BrokenPromise, "not its own"),
    "bytes of one without an answer": (WON, by(15), BrokenPromise, "not its own"),
    "no file": (WON, None, LostFile, "another program removed it, or the store lost it"),
    "another token": (WON, by(0, "t9"), BrokenPromise, "gave the token t0 for a file whose token is t9"),
    "few answers": (["t0", *[BROKEN] * (RACERS // 2 + 1)], by(0), OSError, FEW),
    # the winner's answer may be lost, or the transport may have sent its request twice
    **{
        f"no winner, {n} unknown, {found}": ([BROKEN] * n, found, OSError, "not known")
        for n in (0, 1)
        for found in (None, by(3), Blob(b"as before", "t", 0.0))
    },
    "the store's own error": ([PermissionError(errno.EACCES, "no")] * RACERS, None, PermissionError, "no"),
    "a bug": (["t0", RuntimeError("a bug")], by(0), RuntimeError, "a bug"),
    "an old store": (["t0", UnsafeBackendError("too old")], by(0), UnsafeBackendError, "too old"),
    "Ctrl-C": (["t0", KeyboardInterrupt("stop")], by(0), KeyboardInterrupt, "stop"),
}


@pytest.mark.parametrize(("outcomes", "found", "error", "why"), JUDGED.values(), ids=JUDGED)
def test_broken_promise_shown_nothing_and_unknown_are_separate_errors(outcomes, found, error, why):
    with pytest.raises(error, match=why) as raised:
        judged(outcomes, found)
    assert type(raised.value) is error
    assert error is not OSError or raised.value.errno == errno.EBUSY


# -- stores ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suspends", [True, False], ids=["tasks", "threads"])
@pytest.mark.parametrize("verb", VERBS)
def test_store_that_looks_first_and_acts_then_is_refused(verb, suspends):
    backend = careless(verb, suspends=suspends)
    with pytest.raises(
        UnsafeBackendError,
        match=rf"^/a/x: .* this store: {verb} let \d+ of [23] concurrent writers win .* nothing was written .* use",
    ):
        run(backend, probe(backend, FOLDER))
    assert backend.inner.fs.store == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize("suspends", [True, False], ids=["tasks", "threads"])
def test_all_racers_are_under_way_at_once(suspends):
    meeting = threading.Barrier(RACERS)
    met = Scripted(private_memory(), must_race=True)
    met.plan(VERBS, before=lambda: None if suspends else meeting.wait(WAIT_S), times=None, probes=True)
    backend = Counting(met, suspends=suspends)
    run(backend, race_module.race(backend, f"{FOLDER}/one$header"))
    assert all(backend.at_once_max[verb] >= RACERS for verb in VERBS)


def test_honest_store_passes_a_cheap_race_and_keeps_nothing(limits):
    limits(race_module, ROUNDS_S_MAX=60.0)  # a busy machine has all rounds, too
    backend = Counting(private_memory(), suspends=True, must_race=True)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=True)
    assert backend.inner.fs.store == {}  # type: ignore[attr-defined]
    counts = {verb: backend.count(verb) for verb in ("create", "replace", "read", "delete_if", "delete")}
    assert counts == {"create": 51, "replace": 158, "read": 81, "delete_if": 1, "delete": 1}  # docs/stores.md


@pytest.mark.parametrize("kind", ["memory", "disk", "single writer"])
def test_where_one_lock_decides_nobody_races(kind, tmp_path):
    inner = {
        "memory": private_memory(),
        "disk": LocalBackend(sync=False),
        "single writer": GenericBackend(private_memory().fs, single_writer=True),
    }[kind]
    backend = Counting(inner)
    assert run(backend, probe(backend, f"{tmp_path}/x$chunks")) == Abilities(delete_if=kind != "single writer")
    assert (backend.count("create"), backend.count("replace")) == (2, 2)


def test_winner_without_an_answer_is_raced_again_with_limits():
    async def patiently(backend: Backend) -> Abilities:
        return await probe_patiently(backend, FOLDER, AsyncRuntime())

    backend = Scripted(private_memory(), suspends=True, must_race=True)
    is_pair = lambda *_: (backend.count("create") - 1) % (3 + 2 * PAIRS) >= 3  # noqa: E731
    lost = backend.plan("create", after=raises(BROKEN), when=is_pair, times=1 + PAIRS, probes=True)
    assert run(backend, patiently(backend)) == Abilities(delete_if=True)
    assert backend.count("delete") == 2
    lost.times = None
    backend.plans.append(lost)
    with pytest.raises(OSError, match=r"of 2 concurrent attempts to create a file, 1 got an answer"):
        run(backend, patiently(backend))
    assert backend.count("delete") == 2 + 5
    assert backend.inner.fs.store == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize("reads", [3, 80], ids=["rounds", "pairs"])
def test_file_that_others_remove_condemns_no_store(reads, limits):
    limits(race_module, ROUNDS_S_MAX=60.0)  # a busy machine has all rounds, too
    backend = Scripted(private_memory(), suspends=True, must_race=True)
    removed = backend.plan("read", skips=reads, before=raises(FileNotFoundError()), probes=True)
    assert run(backend, probe_patiently(backend, FOLDER, AsyncRuntime())) == Abilities(delete_if=True)
    assert removed.times == 0
    assert backend.count("delete") == 2  # each probe ends with a delete


def test_store_that_loses_created_files_is_not_written_to():
    backend = Scripted(private_memory(), suspends=True, must_race=True)
    backend.plan("read", skips=3, before=raises(FileNotFoundError()), times=None, probes=True)
    with pytest.raises(
        OSError, match=r"not known .* create succeeded, and then there was no file: .*nothing"
    ) as raised:
        run(backend, probe(backend, FOLDER))
    assert raised.value.errno == errno.EBUSY
    assert backend.inner.fs.store == {}  # type: ignore[attr-defined]


def test_probe_outlasts_an_outage_while_its_client_is_patient(monkeypatch):
    monkeypatch.setattr("rollingfs.backend.probe.backoff_s", lambda _: 0.0)

    async def patiently(backend: Backend, patience: float) -> Abilities:
        patience_s.set(patience)
        return await probe_patiently(backend, FOLDER, AsyncRuntime())

    backend = Scripted(private_memory(), suspends=True, must_race=True)
    is_away = lambda *_: backend.count("delete") < 7  # noqa: E731 - each probe ends with a delete
    backend.plan("create", before=raises(OSError(errno.EIO, "dropped")), when=is_away, times=None, probes=True)
    with pytest.raises(OSError, match="dropped"):
        run(backend, patiently(backend, 0.0))
    assert backend.count("delete") == 1
    assert run(backend, patiently(backend, 3600.0)) == Abilities(delete_if=True)
    assert backend.count("delete") == 8
    backend.plan("create", before=raises(OSError(errno.EPROTO, "no trust")), times=None, probes=True)
    with pytest.raises(OSError, match="no trust"):  # what no wait can mend is told at once
        run(backend, patiently(backend, 3600.0))
    assert backend.count("delete") == 9


def test_probes_of_several_clients_do_not_disturb_each_other():
    memory = private_memory()

    async def many(backend: Backend) -> list[Abilities]:
        return await AsyncRuntime().gather([lambda: probe(backend, FOLDER)] * 8, 8)

    backend = Counting(memory, suspends=True, must_race=True)
    assert run(backend, many(backend)) == [Abilities(delete_if=True)] * 8
    assert memory.fs.store == {}


@pytest.mark.parametrize("verb", VERBS)
def test_store_where_requests_seldom_meet_is_still_refused(verb):
    refused = 0
    for _ in range(20):
        backend = careless(verb, share=0.25, gap_s=0.001)
        try:
            run(backend, probe(backend, FOLDER))
        except UnsafeBackendError:
            refused += 1
    assert refused >= 18, "one race alone finds it in 5 of 20 probes"


@pytest.mark.parametrize("kind", ["race", "race_in_rounds"])
def test_store_that_serialises_racers_is_judged_by_the_first(kind, limits):
    """SeaweedFS 4.48 lets those who wait for a file's lock wait another second."""
    limits(race_module, REPLACE_S_MAX=0.01, ROUNDS_S_MAX=0.01)
    backend, ended = Scripted(private_memory(), suspends=True), []
    replace = backend.inner.replace

    async def one_by_one(path: str, data: bytes, token: str) -> str:
        try:
            while not (b"by racer 0" in data or b"by racer 1\n" in data):
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            ended.append(path)
            raise
        return await replace(path, data, token)

    backend.plan("replace", instead=one_by_one, times=None, probes=True)
    # one round: by the clock of Windows, which ticks every 16 ms, several would begin in time
    run(backend, getattr(race_module, kind)(backend, f"{FOLDER}/one$header", *[1] * (kind == "race_in_rounds")))
    assert len(ended) == {"race": RACERS, "race_in_rounds": race_module.RIVALS}[kind] - 2


def beside_writes(backend: Scripted, mixed: Callable[[Blob, Blob], Blob]) -> None:
    """Let a read beside writes return a mixture of the file before and the file after them."""
    inner, busy, before = backend.inner, [0], {}

    async def busily(path: str, data: Any, token: str) -> str:
        before[path] = before.get(path) or await inner.read(path)
        busy[0] += 1
        await asyncio.sleep(0.001)
        try:
            return await inner.replace(path, data, token)
        finally:
            busy[0] -= 1

    async def read(path: str) -> Blob:
        if not busy[0]:
            return await inner.read(path)
        while busy[0]:
            await asyncio.sleep(0.001)
        return mixed(before[path], await inner.read(path))

    backend.plan("replace", instead=busily, times=None, probes=True)
    backend.plan("read", instead=read, times=None, probes=True)


@pytest.mark.parametrize(
    "mixed",
    [lambda old, new: replace(new, data=new.data[:9] + old.data[9:]), lambda old, new: replace(new, was_unfit=True)],
    ids=["torn", "mended by the adapter"],
)
def test_torn_read_beside_writes_is_noticed_and_no_danger(mixed):
    backend = Scripted(private_memory(), suspends=True, must_race=True)
    beside_writes(backend, mixed)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=True, reads_whole=False)


def test_rounds_that_show_nothing_count_answered_racers():
    backend = Scripted(private_memory(), suspends=True, must_race=True)
    is_first = lambda _path, data, *_: b"by racer 0" in data  # noqa: E731
    backend.plan("replace", when=is_first, before=raises(LOST), times=None, probes=True)
    backend.plan("replace", before=raises(BROKEN), times=None, probes=True)
    with pytest.raises(OSError, match=r"of 3 concurrent attempts to replace a file, 1 got an answer .*broke"):
        run(backend, race_module.race_in_rounds(backend, f"{FOLDER}/one$header"))


@pytest.mark.parametrize("verb", VERBS)
def test_the_contract_finds_it_too(verb):
    with pytest.raises(BrokenPromise, match=f"{verb} let .* of 16"):
        BackendContract().test_among_racing_writers_exactly_one_wins(careless(verb), FOLDER)


# -- a store that takes only so many writes of one file in a second ----------------------------------------------


def test_store_that_refuses_crowds_is_safe_at_its_pace():
    """It refuses a write of a file that was written a moment ago, as Google does (429)."""
    backend = Scripted(private_memory(), suspends=True, must_race=True, commit_interval_s=0.05)
    written_s: dict[str, float] = {}
    refused = []

    def is_too_soon(path: str, *_: Any) -> bool:
        now_s = time.monotonic()
        if now_s < written_s.get(path, 0.0) + 0.04:
            refused.append(path)
            return True
        written_s[path] = now_s
        return False

    too_soon = raises(OSError(errno.EBUSY, "slow down"))
    backend.plan(VERBS, when=is_too_soon, before=too_soon, times=None, probes=True)
    assert run(backend, probe(backend, FOLDER)) == Abilities(delete_if=True)
    assert refused, "the racers came too late to be refused"
