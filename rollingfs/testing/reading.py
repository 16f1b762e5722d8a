"""Reading: whole files, ranges, missing files."""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from typing import Any

import pytest

from rollingfs.backend.contract import Backend
from rollingfs.errors import ConflictError
from rollingfs.format.sizes import read_bytes_max
from rollingfs.testing.subject import Subject, content, run

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


class Reading(Subject):
    """Check that a read returns the written bytes, or a missing file."""

    @pytest.mark.parametrize("size", [0, 1, 5000, 300_000])
    def test_what_is_written_is_read_whole_and_has_its_size(self, backend: Backend, folder: str, size: int) -> None:
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
    def test_of_a_file_that_is_longer_than_its_kind_may_be_a_byte_too_many_is_read(
        self, backend: Backend, folder: str, name: str
    ) -> None:
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
    def test_a_range_with_a_token_is_of_the_file_that_has_it(self, backend: Backend, folder: str, size: int) -> None:
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

    def test_a_file_that_is_held_stays_the_same_for_its_reader(self, backend: Backend, folder: str) -> None:
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


def _reading_verbs(backend: Backend, path: str) -> list[Coroutine[Any, Any, Any]]:
    return [
        backend.read(path),
        backend.read_if_changed(path, "token"),
        backend.read_range(path, 0, 10),
        backend.stat(path),
    ]
