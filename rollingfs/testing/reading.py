"""The backend under test, access to its files without it, and reading: whole files, ranges, missing files, folders."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from fsspec.asyn import sync

from rollingfs.backend.contract import Backend
from rollingfs.errors import ConflictError
from rollingfs.format.side_files import read_bytes_max
from rollingfs.runtime.concurrency import drive

T = TypeVar("T")

CLOCK_SLACK_S = 600
LISTING_FILES = 1005  # stores list in pages of 1,000
DELETING_THREADS = 4
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


Factory = tuple[Callable[..., Backend], tuple[Any, ...]]
"""Recipe for the backend in another process: a picklable callable and its arguments."""


def run(backend: Backend, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a verb to its end: directly over a sync backend, on ``backend.loop`` over an async backend."""
    if not backend.is_async:
        return drive(coroutine)
    result: T = sync(backend.loop, _awaited, coroutine)  # type: ignore[attr-defined]
    return result


async def _awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    return await coroutine


PATTERN = bytes(number * 7 % 251 for number in range(251))


def content(size: int) -> bytes:
    """Return bytes that differ from their neighbours."""
    return (PATTERN * (size // len(PATTERN) + 1))[:size]


class Reading:
    """Check that a read returns the written bytes, or a missing file, and that a listing is complete and never old.

    A subclass of `BackendContract` gives the definitions at the beginning.

    Attributes
    ----------
    tokens_tell_equal_bytes : bool
        Whether two writes of equal bytes have different tokens. False where a token is a hash of the bytes (S3). That
        is enough for headers, because no two headers are equal.
    claims_atomicity : bool
        Whether several processes may write by the backend. If not, races are not run.
    """

    tokens_tell_equal_bytes = True
    claims_atomicity = True

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend under test."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `backend`")

    @pytest.fixture
    def folder(self) -> str:
        """Return the path of a folder that was never used; it need not exist."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `folder`")

    def raw_read(self, path: str) -> bytes:
        """Read a file without the backend."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_read`")

    def raw_write(self, path: str, data: bytes) -> None:
        """Write a plain file, and its folder if it is missing, without the backend."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_write`")

    def raw_write_many(self, paths: Sequence[str], data: bytes) -> None:
        """Write many files without the backend."""
        for path in paths:
            self.raw_write(path, data)

    def spawn_arguments(self) -> Factory | None:
        """Return the recipe for a backend in another process: a callable, arguments.

        Both can be pickled. None if the store exists in this process only.
        """
        raise NotImplementedError("a subclass of BackendContract has a method `spawn_arguments`")

    def _need(self, ability: bool, why_not: str) -> None:
        if not ability:
            pytest.skip(why_not)

    # -- files ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 5000, 300_000])
    def test_written_bytes_are_read_whole_with_their_size(self, backend: Backend, folder: str, size: int) -> None:
        path, data = f"{folder}/file", content(size)
        run(backend, backend.write(path, [data]))
        assert run(backend, backend.read(path)).data == data
        assert run(backend, backend.stat(path)).size == size
        assert self.raw_read(path) == data

    def test_what_others_wrote_is_read(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/plain", b"not ours")
        blob = run(backend, backend.read(f"{folder}/plain"))
        info = run(backend, backend.stat(f"{folder}/plain"))
        assert (blob.data, info.size, info.token, info.is_folder) == (b"not ours", 8, blob.token, False)

    @pytest.mark.parametrize("name", ["file$header", "pin-c0ffee00-0000-4000-8000-000000000001"])
    def test_overlong_file_may_be_read_with_an_extra_byte(self, backend: Backend, folder: str, name: str) -> None:
        path = f"{folder}/{name}"
        limit = read_bytes_max(path)
        assert limit is not None
        self.raw_write(path, data := content(limit + 100_000))
        blob = run(backend, backend.read(path))
        assert (len(blob.data), blob.token) == (limit, run(backend, backend.stat(path)).token)
        assert blob.data == data[:limit]
        assert run(backend, backend.read_if_changed(path, blob.token)) is None

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

    @pytest.mark.parametrize("size", [10, 3_000_000])
    def test_range_with_token_is_of_file_that_has_it(self, backend: Backend, folder: str, size: int) -> None:
        path, old, new = f"{folder}/plain", content(size), content(size + 1)[1:]
        self.raw_write(path, old)
        token = run(backend, backend.stat(path)).token
        assert token is not None
        target = bytearray(size - 1)
        assert run(backend, backend.read_range(path, 1, size, token)) == old[1:]
        assert run(backend, backend.read_into(path, 1, memoryview(target), token)) == size - 1
        assert target == old[1:]
        self.raw_write(path, new)
        for start in (0, 5):
            with pytest.raises(ConflictError):
                run(backend, backend.read_range(path, start, size, token))
            with pytest.raises(ConflictError):
                run(backend, backend.read_into(path, start, memoryview(target), token))
        assert run(backend, backend.read_range(path, 0, size)) == new
        run(backend, backend.delete([path]))
        with pytest.raises(FileNotFoundError):
            run(backend, backend.read_range(path, 0, size, token))

    def test_file_that_is_held_stays_same_for_its_reader(self, backend: Backend, folder: str) -> None:
        path, old = f"{folder}/plain", content(1000)
        self.raw_write(path, old)
        token = run(backend, backend.stat(path)).token or ""
        held = backend.hold(path, token)
        if held is None:
            pytest.skip("this backend holds no files")
        run(backend, backend.delete([path]))
        self.raw_write(path, content(900))
        assert run(backend, backend.read_range(path, 10, 1000, token)) == old[10:]
        with pytest.raises(ConflictError):
            backend.hold(path, "another")
        del held
        with pytest.raises(ConflictError):
            run(backend, backend.read_range(path, 10, 1000, token))

    @pytest.mark.parametrize("name", ["missing", "missing/deeper", "file/deeper", "inner"])
    def test_missing_file_and_folder_are_not_read(self, backend: Backend, folder: str, name: str) -> None:
        for written in ("file", "inner/file"):
            run(backend, backend.write(f"{folder}/{written}", [b"x"]))
        path = f"{folder}/{name}"
        reads: list[Coroutine[Any, Any, object]] = [backend.read(path), backend.read_if_changed(path, "token")]
        for verb in [*reads, backend.read_range(path, 0, 10), backend.stat(path)]:
            with pytest.raises(FileNotFoundError):
                run(backend, verb)

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, backend: Backend, folder: str, name: str) -> None:
        path, header = f"{folder}/{name}", f"{folder}/{name}$header"
        try:
            run(backend, backend.write(path, [b"plain"]))
        except OSError as error:
            if error.errno != errno.EILSEQ:
                raise
            pytest.skip("this system has no such names")
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
        if backend.capability.can_copy:
            run(backend, backend.copy(path, f"{folder}/{name}$chunks/copy"))
            assert run(backend, backend.read(f"{folder}/{name}$chunks/copy")).data == b"plain"
        run(backend, backend.delete([path, header]))
        assert [entry.path for entry in run(backend, backend.list(folder)).entries] == [f"{folder}/{name}$chunks"]

    # -- folders: listed, emptied, removed -----------------------------------------------------------------------

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

    def test_pages_together_are_the_listing(self, backend: Backend, folder: str) -> None:
        for name in ("a/deep", "a-b", "b$c", "b"):
            self.raw_write(f"{folder}/{name}", b"x")
        page = run(backend, backend.list_page(folder))
        entries = list(page.entries)
        while page.next_place is not None:
            page = run(backend, backend.list_page(folder, page.next_place))
            entries += page.entries
        assert sorted(entries, key=lambda entry: entry.path) == list(run(backend, backend.list(folder)).entries)

    def test_a_missing_folder_and_a_file_are_not_listed(self, backend: Backend, folder: str) -> None:
        self.raw_write(f"{folder}/file", b"x")
        with pytest.raises(FileNotFoundError):
            run(backend, backend.list(f"{folder}/missing"))
        with pytest.raises(FileNotFoundError):
            run(backend, backend.list_page(f"{folder}/missing"))
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
        self._need(backend.capability.has_folders, "this store has no empty folders")
        inner = f"{folder}/outer/inner"
        made = [run(backend, backend.make_folder(inner)) for _ in range(2)]
        assert made == [backend.capability.has_folders, False]
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
        assert run(backend, backend.is_folder(f"{folder}/inner")) == backend.capability.has_folders

    def test_chunk_folder_can_be_removed_after_its_segment(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.has_folders, "this store has no empty folders")
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
