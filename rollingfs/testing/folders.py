"""Folders: listing them, emptying them, removing them."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollingfs.backend.contract import Backend
from rollingfs.testing.subject import Subject, run

LISTING_FILES = 1005  # stores list in pages of 1,000
DELETING_THREADS = 4


class FolderListings(Subject):
    """A listing is complete and never old."""

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
        if not backend.capability.has_folders:
            pytest.skip("this store has no empty folders")
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

    def test_a_chunk_folder_can_be_removed_once_its_segment_is_gone(self, backend: Backend, folder: str) -> None:
        if not backend.capability.has_folders:
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
