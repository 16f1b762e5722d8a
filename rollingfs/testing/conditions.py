"""Tokens, conditional writes, and their races."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from rollingfs.backend.contract import Backend
from rollingfs.backend.race import RACERS as RACERS_MANY, race
from rollingfs.errors import ConflictError
from rollingfs.format import names
from rollingfs.format.codec import format_header
from rollingfs.format.header import Header
from rollingfs.format.records import Record
from rollingfs.testing.reading import CLOCK_SLACK_S, Factory, content, run
from rollingfs.testing.writing import Writing

RACERS = 4
RACE_DEADLINE_S = 120
SWITCH_S = 1e-6

Racer = Callable[..., Any]
"""A function of a backend, the racer's number, the barrier of all racers, and further arguments."""


def race_path(folder: str, number: int) -> str:
    """Return the file of a round of `race_rounds`."""
    return names.header_path(f"{folder}/race-{number}")


def race_rounds(backend: Backend, racer: int, barrier: Any, folder: str, rounds: int) -> list[tuple[bool, bool]]:
    """Race to create a file, then to replace it by its token, in each round.

    Returns for each round whether this racer won each of both races.
    """
    outcomes = []
    for number in range(rounds):
        path = race_path(folder, number)
        barrier.wait(RACE_DEADLINE_S)
        created = _is_won(backend, backend.create(path, b"created by %d" % racer), FileExistsError)
        barrier.wait(RACE_DEADLINE_S)
        token = run(backend, backend.read(path)).token
        barrier.wait(RACE_DEADLINE_S)
        replaced = _is_won(backend, backend.replace(path, b"replaced by %d" % racer, token), ConflictError)
        outcomes.append((created, replaced))
    return outcomes


def _is_won(backend: Backend, verb: Coroutine[Any, Any, str], lost: type[Exception]) -> bool:
    with contextlib.suppress(lost):
        run(backend, verb)
        return True
    return False


def race_increments(backend: Backend, racer: int, barrier: Any, path: str, count: int) -> int:
    """Add 1 to the number in a file, until `count` additions were acknowledged."""
    acknowledged = 0
    # by its first write, a backend may learn what the ETags of the store are: it reads the file back, unless another
    # writer was faster, and then cannot acknowledge the write
    run(backend, backend.create(f"{path.rpartition('/')[0]}/racer-{racer}$header", b"first"))
    barrier.wait(RACE_DEADLINE_S)
    while acknowledged < count:
        blob = run(backend, backend.read(path))
        try:
            run(backend, backend.replace(path, b"%d" % (int(blob.data) + 1), blob.token))
        except ConflictError:
            continue
        acknowledged += 1
    return acknowledged


def race_threads(backend: Backend, racer: Racer, args: tuple[Any, ...]) -> dict[int, Any]:
    """Run racers in threads that share a backend; return their results."""
    barrier = threading.Barrier(RACERS)
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)  # otherwise a verb in memory ends before another thread runs
    try:
        with ThreadPoolExecutor(RACERS) as pool:
            results = {number: pool.submit(racer, backend, number, barrier, *args) for number in range(RACERS)}
    finally:
        sys.setswitchinterval(switch_s)
    return {number: result.result() for number, result in results.items()}


def race_processes(factory: Factory, racer: Racer, args: tuple[Any, ...]) -> dict[int, Any]:
    """Run racers in processes, each with its own backend; return their results."""
    context = multiprocessing.get_context("spawn")
    barrier, others = context.Barrier(RACERS), set(multiprocessing.active_children())
    with ProcessPoolExecutor(RACERS, context, _keep, (barrier,)) as pool:
        results = {pool.submit(_in_process, factory, racer, number, args): number for number in range(RACERS)}
        try:
            return {results[one]: one.result() for one in as_completed(results, RACE_DEADLINE_S)}
        except TimeoutError:
            for process in {*multiprocessing.active_children()} - others:
                process.kill()
            raise
        finally:
            barrier.abort()  # else a racer whose rival failed waits to its deadline


_barriers: list[Any] = []
"""The barrier of the racers, in a process of a race."""


def _keep(barrier: Any) -> None:
    _barriers.append(barrier)


def _in_process(factory: Factory, racer: Racer, number: int, args: tuple[Any, ...]) -> Any:
    make, arguments = factory
    return racer(make(*arguments), number, _barriers[0], *args)


RACE_ROUNDS = 10
RACES_OF_MANY = 2
RACES_OF_TWO = 10
"""A store that is fast meets two requests more often than the first two of many."""
INCREMENTS_PER_RACER = 15


class BackendContract(Writing):
    """Everything that rollingfs needs of a backend, verb by verb and in races.

    `Reading` has what a subclass must define. Here, a write that names a token replaces only that version.
    """

    # -- tokens and dates ----------------------------------------------------------------------------------

    def test_a_token_is_the_same_wherever_it_comes_from(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        token = run(backend, backend.create(path, b"content"))
        for number in range(3):
            assert run(backend, backend.read(path)).token == token
            assert run(backend, backend.stat(path)).token == token
            listed = {entry.path: entry.token for entry in run(backend, backend.list(folder)).entries}
            assert listed[path] in (None, token)
            assert token.isprintable()
            assert len(token.split()) == 1  # a header line holds it
            token = run(backend, backend.replace(path, b"content %d" % number, token))

    @pytest.mark.parametrize("contents", [1, 10])
    def test_a_token_differs_for_every_write(self, backend: Backend, folder: str, contents: int) -> None:
        self._need(contents > 1 or self.tokens_tell_equal_bytes, "tokens of this store are hashes of the bytes")
        path = f"{folder}/segment$header"
        tokens = [run(backend, backend.create(path, b"content 0"))]
        for number in range(1, 20):
            tokens.append(run(backend, backend.replace(path, b"content %d" % (number % contents), tokens[-1])))
            if not self.tokens_tell_equal_bytes and number == 9:
                break
        assert len(set(tokens)) == len(tokens)

    def test_segment_is_moved_and_removed_only_by_token(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.removes_whole, "a request may arrive late on this store")
        path, target = f"{folder}/segment$header", f"{folder}/moved$header"
        token = run(backend, backend.create(path, format_header(Header(str(uuid.uuid4()), 1))))
        assert run(backend, backend.move_whole([(path, f"{token}0", target)])) == [False]
        assert run(backend, backend.move_whole([(path, token, target)])) == [True]
        blob = run(backend, backend.read(target))
        assert run(backend, backend.remove_whole([(target, f"{blob.token}0")])) == [False]
        assert run(backend, backend.remove_whole([(target, blob.token)])) == [True]
        for gone in (path, target):
            with pytest.raises(FileNotFoundError):
                run(backend, backend.stat(gone))

    def test_extended_header_keeps_its_bytes_and_changes_token(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.can_extend, "headers of this store are replaced only")
        path, header = f"{folder}/segment$header", Header(str(uuid.uuid4()), 1)
        data = format_header(header)
        tokens = [run(backend, backend.create(path, data))]
        for version in range(2, 5):
            more = Record(version, "writer", version, 0, b"content").encode(header.segment)
            token = run(backend, backend.extend(path, more, tokens[-1]))
            assert token is not None
            for stale in ("another", *tokens):
                with pytest.raises(ConflictError):
                    run(backend, backend.extend(path, more, stale))
            rest = run(backend, backend.read_if_changed(path, tokens[-1]))
            assert rest is not None
            assert (rest.data, rest.token) == (more if rest.is_rest else data + more, token)
            data += more
            tokens.append(token)
            assert self.raw_read(path) == data
            assert run(backend, backend.read(path)).token == token
        assert len(set(tokens)) == len(tokens)
        run(backend, backend.replace(path, data, tokens[-1]))
        with pytest.raises(ConflictError):
            run(backend, backend.extend(path, b"more", tokens[-1]))

    def test_a_plain_file_that_is_overwritten_has_another_token(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/plain", b"old bytes")
        token = run(backend, backend.stat(f"{folder}/plain")).token
        self.raw_write(f"{folder}/plain", b"new")
        assert run(backend, backend.stat(f"{folder}/plain")).token != token

    def test_read_if_changed_gives_body_only_for_another_token(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        old = run(backend, backend.create(path, b"old"))
        assert run(backend, backend.read_if_changed(path, old)) is None
        new = run(backend, backend.replace(path, b"new", old))
        blob = run(backend, backend.read_if_changed(path, old))
        assert blob is not None
        assert (blob.data, blob.token) == (b"new", new)
        assert run(backend, backend.read_if_changed(path, new)) is None

    def test_dates_are_seconds_by_the_clock_that_now_tells(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        run(backend, backend.create(path, b"x"))
        listing = run(backend, backend.list(folder))
        dates = [
            run(backend, backend.read(path)).modified,
            run(backend, backend.stat(path)).modified,
            next(entry.modified for entry in listing.entries if entry.path == path),
        ]
        for now in (run(backend, backend.now(path)), listing.now):
            assert now is None or all(abs(now - date) < CLOCK_SLACK_S for date in dates)
        assert {entry.path for entry in run(backend, backend.list(folder)).entries} <= {
            path,
            f"{folder}/segment$chunks",
        }

    def test_flushing_what_was_seen_changes_nothing(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        token = run(backend, backend.create(path, b"x"))
        for seen in (path, f"{folder}/other$header", f"{folder}/nowhere/segment$header"):
            run(backend, backend.flush(seen))
        assert run(backend, backend.read(path)).token == token
        assert not run(backend, backend.is_folder(f"{folder}/nowhere"))

    def test_create_makes_parents_and_is_refused_over_a_file(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/new/deeper/segment$header"
        token = run(backend, backend.create(path, memoryview(b"first")))
        with pytest.raises(FileExistsError):
            run(backend, backend.create(path, b"second"))
        assert self.raw_read(path) == b"first"
        assert run(backend, backend.read(path)).token == token

    def test_create_is_refused_over_a_file_that_others_wrote(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/segment$header", b"")
        with pytest.raises(FileExistsError):
            run(backend, backend.create(f"{folder}/segment$header", b"ours"))
        assert self.raw_read(f"{folder}/segment$header") == b""

    def test_replace_with_stale_token_is_refused_and_changes_nothing(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        old = run(backend, backend.create(path, b"old"))
        new = run(backend, backend.replace(path, b"new", old))
        for stale in (old, "nonsense"):
            with pytest.raises(ConflictError):
                run(backend, backend.replace(path, b"lost", stale))
        assert self.raw_read(path) == b"new"
        assert run(backend, backend.read(path)).token == new

    def test_replace_of_missing_file_is_refused_and_makes_nothing(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        token = run(backend, backend.create(path, b"old"))
        run(backend, backend.delete([path]))
        with pytest.raises(ConflictError):
            run(backend, backend.replace(path, b"new", token))
        with pytest.raises(ConflictError):
            run(backend, backend.replace(f"{folder}/nowhere/segment$header", b"new", token))
        with pytest.raises(FileNotFoundError):
            run(backend, backend.read(path))
        assert not run(backend, backend.is_folder(f"{folder}/nowhere"))

    def test_file_is_replaced_by_longer_shorter_and_empty_ones(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        token = run(backend, backend.create(path, b"first"))
        for data in (content(100_000), b"x", b"", bytearray(b"last")):
            token = run(backend, backend.replace(path, data, token))
            blob = run(backend, backend.read(path))
            assert (blob.data, blob.token) == (bytes(data), token)

    def test_delete_if_deletes_only_what_has_the_token(self, backend: Backend, folder: str) -> None:
        if not backend.capability.can_delete_if:
            with pytest.raises(NotImplementedError):
                run(backend, backend.delete_if(f"{folder}/segment$header", "token"))
            return
        path = f"{folder}/segment$header"
        old = run(backend, backend.create(path, b"old"))
        new = run(backend, backend.replace(path, b"new", old))
        assert run(backend, backend.delete_if(path, old)) is False
        assert self.raw_read(path) == b"new"
        assert run(backend, backend.delete_if(path, new)) is True
        with pytest.raises(FileNotFoundError):
            run(backend, backend.read(path))
        assert run(backend, backend.delete_if(path, new)) is True
        run(backend, backend.create(path, b"again"))
        assert run(backend, backend.delete_if(path, new)) is False

    def test_plain_file_delete_if_leaves_later_writes(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.can_delete_if, "this backend does not delete conditionally")
        path = f"{folder}/plain"
        self.raw_write(path, b"adopted")
        token = run(backend, backend.read(path)).token
        self.raw_write(path, b"written since")
        assert run(backend, backend.delete_if(path, token)) is False
        assert self.raw_read(path) == b"written since"
        assert run(backend, backend.delete_if(path, run(backend, backend.read(path)).token)) is True
        self.raw_write(f"{folder}/neighbour", b"")
        entries = run(backend, backend.list(folder)).entries
        assert [entry.path for entry in entries] == [f"{folder}/neighbour"]

    # -- races ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["threads", "processes"])
    def test_every_race_of_creates_and_replaces_has_one_winner(self, backend: Backend, folder: str, kind: str) -> None:
        outcomes = self._race(kind, backend, race_rounds, folder, RACE_ROUNDS)
        for number in range(RACE_ROUNDS):
            created = [racer for racer, rounds in outcomes.items() if rounds[number][0]]
            replaced = [racer for racer, rounds in outcomes.items() if rounds[number][1]]
            assert (len(created), len(replaced)) == (1, 1), f"round {number}: {created} {replaced}"
            assert self.raw_read(race_path(folder, number)) == b"replaced by %d" % replaced[0]

    def test_among_racing_writers_exactly_one_wins(self, backend: Backend, folder: str) -> None:
        self._need(self.claims_atomicity, "this backend is for a single writer")
        for number, racers in enumerate([RACERS_MANY] * RACES_OF_MANY + [2] * RACES_OF_TWO):
            run(backend, race(backend, f"{folder}/race-{racers}-{number}$header", racers))

    @pytest.mark.parametrize("kind", ["threads", "processes"])
    def test_no_acknowledged_increment_is_lost(self, backend: Backend, folder: str, kind: str) -> None:
        path = f"{folder}/counter$header"
        run(backend, backend.create(path, b"0"))
        acknowledged = self._race(kind, backend, race_increments, path, INCREMENTS_PER_RACER)
        assert sum(acknowledged.values()) == RACERS * INCREMENTS_PER_RACER
        assert int(self.raw_read(path)) == RACERS * INCREMENTS_PER_RACER

    def _race(self, kind: str, backend: Backend, racer: Racer, *args: Any) -> dict[int, Any]:
        self._need(self.claims_atomicity, "this backend is for a single writer")
        if kind == "threads":
            return race_threads(backend, racer, args)
        factory = self.spawn_arguments()
        if factory is None:
            pytest.skip("this store lives in one process")
        return race_processes(factory, racer, args)
