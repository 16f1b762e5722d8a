"""The test class that a backend must pass.

Subclass `BackendContract` in a test module, say how the backend and a fresh folder are made, and pytest does the
rest::

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend(self):
            return MyBackend("http://localhost:9000")

        @pytest.fixture
        def folder(self):
            return f"bucket/{uuid.uuid4().hex}"

        def raw_read(self, path): ...
        def raw_write(self, path, data): ...

        def spawn_arguments(self):
            return MyBackend, ("http://localhost:9000",)
"""

from __future__ import annotations

import errno
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rollingfs.backend.contract import Backend, Part
from rollingfs.errors import ConflictError
from rollingfs.racing import (
    RACERS,
    Factory,
    Racer,
    race_increments,
    race_path,
    race_processes,
    race_rounds,
    race_threads,
    run,
)

__all__ = ["BackendContract", "Factory", "run"]

RACE_ROUNDS = 10
INCREMENTS_PER_RACER = 15
LISTING_FILES = 1005  # stores answer a listing in pages of 1,000
DELETING_THREADS = 4
UPLOAD_PIECE_BYTES = 1024 * 1024
UPLOAD_PIECES = 11  # two parts and a rest, where parts are of 5 MiB
UNFINISHED_BYTES = 17 * 1024 * 1024  # more than an adapter keeps in memory before it begins
CLOCK_SLACK_S = 600

ODD_NAMES = [
    "date=2026-11-20",
    "a&b",
    "100%",
    "50%25%2F",
    "two words",
    " space around ",
    "#1",
    "why?",
    "plus+plus",
    "naïve-日本語-😀",
    "[x]*",
    "semi;colon:comma,",
    "quote'd",
    "~tilde",
    "..dots..",
    "a$b",
]


class BackendContract:
    """What rollingfs relies on, verb by verb and in races.

    Attributes
    ----------
    tokens_tell_equal_bytes : bool
        Whether two writes of equal bytes have different tokens. Not so where a token is a hash of the bytes (S3);
        headers get by with that, since no two of them are ever equal.
    claims_atomicity : bool
        Whether the backend may be written by several processes. False: races are not run.
    """

    tokens_tell_equal_bytes = True
    claims_atomicity = True

    # -- what a subclass says ------------------------------------------------------------------------------

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend under test."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `backend`")

    @pytest.fixture
    def folder(self) -> str:
        """The path of a folder that nobody has used; it need not exist."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `folder`")

    def raw_read(self, path: str) -> bytes:
        """Read a file around the backend."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_read`")

    def raw_write(self, path: str, data: bytes) -> None:
        """Write a plain file around the backend, its folder made if need be."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_write`")

    def raw_write_many(self, paths: Sequence[str], data: bytes) -> None:
        """Write many files around the backend."""
        for path in paths:
            self.raw_write(path, data)

    def spawn_arguments(self) -> Factory | None:
        """Make a backend of this store in another process: a picklable callable and its arguments.

        None if the store lives in one process.
        """
        raise NotImplementedError("a subclass of BackendContract has a method `spawn_arguments`")

    # -- reading -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 5000, 300_000])
    def test_what_is_written_is_read_whole_and_has_its_size(self, backend: Backend, folder: str, size: int) -> None:
        path, data = f"{folder}/file", _bytes(size)
        run(backend, backend.write(path, [data]))
        assert run(backend, backend.read(path)).data == data
        assert run(backend, backend.stat(path)).size == size
        assert self.raw_read(path) == data

    def test_what_others_wrote_is_read(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/plain", b"not ours")
        blob = run(backend, backend.read(f"{folder}/plain"))
        info = run(backend, backend.stat(f"{folder}/plain"))
        assert (blob.data, info.size, info.token, info.is_folder) == (b"not ours", 8, blob.token, False)

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (0, 10, b"0123456789"),
            (3, 5, b"34"),
            (9, 10, b"9"),
            (8, 100, b"89"),
            (0, 10**9, b"0123456789"),
            (10, 11, b""),
            (10, 10**9, b""),
            (500, 600, b""),
        ],
    )
    def test_ranges_are_clipped_at_the_end(
        self, backend: Backend, folder: str, start: int, end: int, expected: bytes
    ) -> None:
        run(backend, backend.write(f"{folder}/digits", [b"0123456789"]))
        assert run(backend, backend.read_range(f"{folder}/digits", start, end)) == expected

    def test_any_range_of_an_empty_file_is_empty(self, backend: Backend, folder: str) -> None:
        run(backend, backend.write(f"{folder}/empty", []))
        assert run(backend, backend.read_range(f"{folder}/empty", 0, 1)) == b""
        assert run(backend, backend.read_range(f"{folder}/empty", 7, 10)) == b""

    def test_reading_a_missing_file_says_so(self, backend: Backend, folder: str) -> None:
        run(backend, backend.write(f"{folder}/other", [b"x"]))
        for path in (f"{folder}/missing", f"{folder}/missing/deeper", f"{folder}/other/deeper"):
            for verb in _reading_verbs(backend, path):
                with pytest.raises(FileNotFoundError):
                    run(backend, verb)

    def test_a_folder_is_no_file(self, backend: Backend, folder: str) -> None:
        run(backend, backend.write(f"{folder}/inner/file", [b"x"]))
        for verb in _reading_verbs(backend, f"{folder}/inner"):
            with pytest.raises(FileNotFoundError):
                run(backend, verb)

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, backend: Backend, folder: str, name: str) -> None:
        path, header = f"{folder}/{name}", f"{folder}/{name}$header"
        run(backend, backend.write(path, [b"plain"]))
        token = run(backend, backend.create(header, b"old"))
        run(backend, backend.replace(header, b"new", token))
        run(backend, backend.write(f"{folder}/{name}$chunks/chunk", [b"chunk"]))
        assert run(backend, backend.read(path)).data == b"plain"
        assert run(backend, backend.read_range(path, 1, 3)) == b"la"
        assert self.raw_read(header) == b"new"
        paths = [entry.path for entry in run(backend, backend.list(folder)).entries]
        assert paths == sorted([path, header, f"{folder}/{name}$chunks"])
        assert backend.strip(path) == path
        assert backend.strip(backend.unstrip(path)) == path
        if backend.can_copy:
            run(backend, backend.copy(path, f"{folder}/{name}$chunks/copy"))
            assert run(backend, backend.read(f"{folder}/{name}$chunks/copy")).data == b"plain"
        run(backend, backend.delete([path, header]))
        assert [entry.path for entry in run(backend, backend.list(folder)).entries] == [f"{folder}/{name}$chunks"]

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

    def test_a_token_differs_for_every_write(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        tokens = [run(backend, backend.create(path, b"content 0"))]
        for number in range(1, 20):
            tokens.append(run(backend, backend.replace(path, b"content %d" % (number % 10), tokens[-1])))
            if not self.tokens_tell_equal_bytes and number == 9:
                break
        assert len(set(tokens)) == len(tokens)

    def test_two_writes_of_equal_bytes_have_different_tokens(self, backend: Backend, folder: str) -> None:
        if not self.tokens_tell_equal_bytes:
            pytest.skip("tokens of this store are hashes of the bytes")
        path = f"{folder}/segment$header"
        tokens = [run(backend, backend.create(path, b"equal"))]
        for _ in range(20):
            tokens.append(run(backend, backend.replace(path, b"equal", tokens[-1])))
        assert len(set(tokens)) == len(tokens)

    def test_a_plain_file_that_is_overwritten_has_another_token(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/plain", b"old bytes")
        token = run(backend, backend.stat(f"{folder}/plain")).token
        self.raw_write(f"{folder}/plain", b"new")
        assert run(backend, backend.stat(f"{folder}/plain")).token != token

    def test_read_if_changed_gives_a_body_only_for_another_token(self, backend: Backend, folder: str) -> None:
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
        for now in (run(backend, backend.now()), listing.now):
            assert all(abs(now - date) < CLOCK_SLACK_S for date in dates)

    # -- conditional writes --------------------------------------------------------------------------------

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

    def test_replace_with_a_stale_token_is_refused_and_changes_nothing(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        old = run(backend, backend.create(path, b"old"))
        new = run(backend, backend.replace(path, b"new", old))
        for stale in (old, "nonsense"):
            with pytest.raises(ConflictError):
                run(backend, backend.replace(path, b"lost", stale))
        assert self.raw_read(path) == b"new"
        assert run(backend, backend.read(path)).token == new

    def test_replace_of_a_missing_file_is_refused_and_makes_nothing(self, backend: Backend, folder: str) -> None:
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

    def test_a_file_is_replaced_by_longer_shorter_and_empty_ones(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/segment$header"
        token = run(backend, backend.create(path, b"first"))
        for data in (_bytes(100_000), b"x", b"", bytearray(b"last")):
            token = run(backend, backend.replace(path, data, token))
            blob = run(backend, backend.read(path))
            assert (blob.data, blob.token) == (bytes(data), token)

    def test_delete_if_deletes_only_what_has_the_token(self, backend: Backend, folder: str) -> None:
        if not backend.can_delete_if:
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

    def test_delete_if_of_a_plain_file_leaves_what_was_written_since(self, backend: Backend, folder: str) -> None:
        if not backend.can_delete_if:
            pytest.skip("this backend does not delete conditionally")
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
    def test_every_race_of_creates_and_of_replaces_has_one_winner(
        self, backend: Backend, folder: str, kind: str
    ) -> None:
        outcomes = self._race(kind, backend, race_rounds, folder, RACE_ROUNDS)
        for number in range(RACE_ROUNDS):
            created = [racer for racer, rounds in outcomes.items() if rounds[number][0]]
            replaced = [racer for racer, rounds in outcomes.items() if rounds[number][1]]
            assert (len(created), len(replaced)) == (1, 1), f"round {number}: {created} {replaced}"
            assert self.raw_read(race_path(folder, number)) == b"replaced by %d" % replaced[0]

    @pytest.mark.parametrize("kind", ["threads", "processes"])
    def test_no_acknowledged_increment_is_lost(self, backend: Backend, folder: str, kind: str) -> None:
        path = f"{folder}/counter$header"
        run(backend, backend.create(path, b"0"))
        acknowledged = self._race(kind, backend, race_increments, path, INCREMENTS_PER_RACER)
        assert sum(acknowledged.values()) == RACERS * INCREMENTS_PER_RACER
        assert int(self.raw_read(path)) == RACERS * INCREMENTS_PER_RACER

    def _race(self, kind: str, backend: Backend, racer: Racer, *args: Any) -> dict[int, Any]:
        if not self.claims_atomicity:
            pytest.skip("this backend is for a single writer")
        if kind == "threads":
            return race_threads(backend, racer, args)
        factory = self.spawn_arguments()
        if factory is None:
            pytest.skip("this store lives in one process")
        return race_processes(factory, racer, args)

    # -- new files -----------------------------------------------------------------------------------------

    def test_write_takes_buffers_of_every_kind(self, backend: Backend, folder: str) -> None:
        run(backend, backend.write(f"{folder}/new/file", [b"ab", bytearray(b"cd"), b"", memoryview(b"xefx")[1:3]]))
        assert self.raw_read(f"{folder}/new/file") == b"abcdef"

    def test_an_upload_is_whole_when_it_is_finished(self, backend: Backend, folder: str) -> None:
        path = f"{folder}/new/uploaded"
        upload = run(backend, backend.open_write(path))
        piece = bytearray(UPLOAD_PIECE_BYTES)
        for number in range(UPLOAD_PIECES):
            piece[:] = bytes([number]) * UPLOAD_PIECE_BYTES  # the caller may use his buffer again
            run(backend, upload.write(piece))
        run(backend, upload.write(b"end"))
        run(backend, upload.finish())
        expected = b"".join(bytes([number]) * UPLOAD_PIECE_BYTES for number in range(UPLOAD_PIECES)) + b"end"
        assert self.raw_read(path) == expected
        with pytest.raises((ValueError, OSError)):
            run(backend, upload.write(b"more"))

    @pytest.mark.parametrize("pieces", [[], [b""], [b"small"]])
    def test_a_small_upload_is_a_file(self, backend: Backend, folder: str, pieces: list[bytes]) -> None:
        upload = run(backend, backend.open_write(f"{folder}/uploaded"))
        for piece in pieces:
            run(backend, upload.write(piece))
        run(backend, upload.finish())
        assert self.raw_read(f"{folder}/uploaded") == b"".join(pieces)

    @pytest.mark.parametrize("count", [0, 1, UPLOAD_PIECES])
    def test_an_aborted_upload_leaves_nothing(self, backend: Backend, folder: str, count: int) -> None:
        upload = run(backend, backend.open_write(f"{folder}/uploaded"))
        for _ in range(count):
            run(backend, upload.write(bytes(UPLOAD_PIECE_BYTES)))
        run(backend, upload.abort())
        run(backend, upload.abort())
        with pytest.raises(FileNotFoundError):
            run(backend, backend.stat(f"{folder}/uploaded"))

    def test_unfinished_uploads_are_listed_and_aborted(self, backend: Backend, folder: str) -> None:
        if not backend.can_list_uploads:
            pytest.skip("this backend knows of no unfinished uploads")
        paths = [f"{folder}/here", f"{folder}/here/deeper", f"{folder}-beside"]
        uploads = [run(backend, backend.open_write(path)) for path in paths]
        try:
            for upload in uploads:
                run(backend, upload.write(bytes(UNFINISHED_BYTES)))
            listed = run(backend, backend.list_uploads(folder))
            assert [found.path for found in listed] == paths[:1]
            assert listed[0].began < run(backend, backend.now()) + CLOCK_SLACK_S
            for _ in range(2):  # one that is gone is no error
                run(backend, backend.abort_upload(listed[0]))
            assert list(run(backend, backend.list_uploads(folder))) == []
            with pytest.raises(OSError, match="here"):
                run(backend, uploads[0].finish())
            run(backend, uploads[1].finish())
            assert run(backend, backend.stat(paths[1])).size == UNFINISHED_BYTES
        finally:
            for upload in uploads:
                run(backend, upload.abort())

    def test_a_copy_has_the_bytes_and_a_life_of_its_own(self, backend: Backend, folder: str) -> None:
        self._need(backend.can_copy, "copy")
        for name, data in (("some", _bytes(300_000)), ("none", b"")):
            self.raw_write(f"{folder}/{name}", data)
            target = f"{folder}/{name}$chunks/copy"
            run(backend, backend.copy(f"{folder}/{name}", target, run(backend, backend.stat(f"{folder}/{name}")).token))
            run(backend, backend.delete([f"{folder}/{name}"]))
            assert self.raw_read(target) == data

    def test_a_copy_with_a_stale_token_leaves_nothing(self, backend: Backend, folder: str) -> None:
        self._need(backend.can_copy, "copy")
        self.raw_write(f"{folder}/plain", b"old")
        token = run(backend, backend.stat(f"{folder}/plain")).token
        self.raw_write(f"{folder}/plain", b"newer")
        with pytest.raises(ConflictError):
            run(backend, backend.copy(f"{folder}/plain", f"{folder}/plain$chunks/copy", token))
        with pytest.raises(FileNotFoundError):
            run(backend, backend.stat(f"{folder}/plain$chunks/copy"))

    def test_a_copy_of_a_missing_file_says_so(self, backend: Backend, folder: str) -> None:
        self._need(backend.can_copy, "copy")
        self.raw_write(f"{folder}/other", b"x")
        for token in (None, "token"):
            with pytest.raises(FileNotFoundError):
                run(backend, backend.copy(f"{folder}/missing", f"{folder}/copy", token))

    def test_a_join_is_its_ranges_in_their_order(self, backend: Backend, folder: str) -> None:
        self._need(backend.can_join, "join")
        size = max(backend.join_part_bytes_min, 1000) + 500
        first, second = _bytes(size), _bytes(size)[::-1]
        run(backend, backend.write(f"{folder}/first", [first]))
        run(backend, backend.write(f"{folder}/second", [second]))
        parts = [
            Part(f"{folder}/second", 100, size),
            Part(f"{folder}/first", 0, size - 1),
            Part(f"{folder}/second", 7, 9),
        ]
        run(backend, backend.join(parts, f"{folder}/joined"))
        assert self.raw_read(f"{folder}/joined") == second[100:] + first[:-1] + second[7:9]

    def test_a_join_that_misses_bytes_leaves_nothing(self, backend: Backend, folder: str) -> None:
        self._need(backend.can_join, "join")
        size = max(backend.join_part_bytes_min, 1000)
        run(backend, backend.write(f"{folder}/first", [_bytes(size)]))
        for bad in (Part(f"{folder}/missing", 0, 10), Part(f"{folder}/first", size - 5, size + 5)):
            with pytest.raises(OSError):  # noqa: PT011  (each store has its own)
                run(backend, backend.join([Part(f"{folder}/first", 0, size), bad], f"{folder}/joined"))
            with pytest.raises(FileNotFoundError):
                run(backend, backend.stat(f"{folder}/joined"))

    def _need(self, ability: bool, verb: str) -> None:
        if not ability:
            pytest.skip(f"this backend has no {verb} on the server")

    # -- listing, deleting, folders ------------------------------------------------------------------------

    def test_a_listing_shows_files_and_folders_directly_in_it(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/b", b"12345")
        self.raw_write(f"{folder}/a/deep/deeper", b"x")
        self.raw_write(f"{folder}/a-b", b"")
        self.raw_write(f"{folder}2/beside", b"x")
        entries = run(backend, backend.list(folder)).entries
        assert [(entry.path, entry.size, entry.is_folder) for entry in entries] == [
            (f"{folder}/a", 0, True),
            (f"{folder}/a-b", 0, False),
            (f"{folder}/b", 5, False),
        ]
        assert [run(backend, backend.is_folder(entry.path)) for entry in entries] == [True, False, False]

    def test_a_listing_is_never_old(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/first", b"1")
        run(backend, backend.list(folder))
        self.raw_write(f"{folder}/second", b"22")
        self.raw_write(f"{folder}/first", b"333")
        entries = run(backend, backend.list(folder)).entries
        assert [(entry.path, entry.size) for entry in entries] == [(f"{folder}/first", 3), (f"{folder}/second", 2)]

    def test_listing_and_deleting_are_complete_past_a_page(self, backend: Backend, folder: str) -> None:
        paths = [f"{folder}/{number:05d}" for number in range(LISTING_FILES)]
        self.raw_write_many(paths, b"x")
        self.raw_write(f"{folder}/zz", b"x")
        assert [entry.path for entry in run(backend, backend.list(folder)).entries] == [*paths, f"{folder}/zz"]
        run(backend, backend.delete(paths))
        assert [entry.path for entry in run(backend, backend.list(folder)).entries] == [f"{folder}/zz"]

    def test_a_missing_folder_and_a_file_are_not_listed(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/file", b"x")
        with pytest.raises(FileNotFoundError):
            run(backend, backend.list(f"{folder}/missing"))
        with pytest.raises(NotADirectoryError):
            run(backend, backend.list(f"{folder}/file"))
        assert not run(backend, backend.is_folder(f"{folder}/missing"))
        assert not run(backend, backend.is_folder(f"{folder}/fil"))

    def test_missing_files_are_deleted_without_an_error(self, backend: Backend, folder: str) -> None:
        run(backend, backend.write(f"{folder}/kept", [b"x"]))
        run(backend, backend.write(f"{folder}/gone", [b"x"]))
        run(backend, backend.delete([]))
        run(backend, backend.delete([f"{folder}/never", f"{folder}/gone", f"{folder}/nowhere/x"]))
        run(backend, backend.delete([f"{folder}/gone"]))
        assert [entry.path for entry in run(backend, backend.list(folder)).entries] == [f"{folder}/kept"]

    def test_the_same_files_are_deleted_by_several_threads(self, backend: Backend, folder: str) -> None:
        paths = [f"{folder}/{number}" for number in range(50)]
        self.raw_write_many([*paths, f"{folder}/kept"], b"x")
        with ThreadPoolExecutor(DELETING_THREADS) as pool:
            results = [pool.submit(run, backend, backend.delete(paths)) for _ in range(DELETING_THREADS)]
        assert [result.result() for result in results] == [None] * DELETING_THREADS
        assert [entry.path for entry in run(backend, backend.list(folder)).entries] == [f"{folder}/kept"]

    def test_empty_folders_are_made_and_removed(self, backend: Backend, folder: str) -> None:
        if not backend.has_folders:
            pytest.skip("this store has no empty folders")
        inner = f"{folder}/outer/inner"
        run(backend, backend.make_folder(inner))
        run(backend, backend.make_folder(inner))
        assert run(backend, backend.list(inner)).entries == ()
        with pytest.raises(OSError, match=r".") as raised:
            run(backend, backend.remove_folder(f"{folder}/outer"))
        assert raised.value.errno == errno.ENOTEMPTY
        run(backend, backend.remove_folder(inner))
        with pytest.raises(FileNotFoundError):
            run(backend, backend.remove_folder(inner))
        assert run(backend, backend.is_folder(f"{folder}/outer"))
        assert not run(backend, backend.is_folder(inner))

    def test_a_folder_outlives_its_files(self, backend: Backend, folder: str) -> None:
        run(backend, backend.write(f"{folder}/inner/file", [b"x"]))
        run(backend, backend.delete([f"{folder}/inner/file"]))
        assert run(backend, backend.is_folder(f"{folder}/inner")) == backend.has_folders

    def test_a_chunk_folder_can_be_removed_once_its_segment_is_gone(self, backend: Backend, folder: str) -> None:
        if not backend.has_folders:
            pytest.skip("this store has no empty folders")
        header, chunks = f"{folder}/segment$header", f"{folder}/segment$chunks"
        token = run(backend, backend.create(header, b"old"))
        run(backend, backend.replace(header, b"new", token))
        run(backend, backend.write(f"{chunks}/chunk", [b"x"]))
        run(backend, backend.delete([header]))
        with pytest.raises(OSError, match=r".") as raised:
            run(backend, backend.remove_folder(chunks))
        assert raised.value.errno == errno.ENOTEMPTY
        run(backend, backend.delete([f"{chunks}/chunk"]))
        run(backend, backend.remove_folder(chunks))
        assert run(backend, backend.list(folder)).entries == ()
        run(backend, backend.create(header, b"again"))
        assert self.raw_read(header) == b"again"

    def test_one_root_has_one_name(self, backend: Backend, folder: str) -> None:
        assert backend.root(f"{folder}/a/b") == backend.root(f"{folder}/c")


def _bytes(size: int) -> bytes:
    return bytes(number * 7 % 251 for number in range(size))


def _reading_verbs(backend: Backend, path: str) -> list[Coroutine[Any, Any, Any]]:
    return [
        backend.read(path),
        backend.read_if_changed(path, "token"),
        backend.read_range(path, 0, 10),
        backend.stat(path),
    ]
