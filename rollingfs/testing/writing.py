"""New files: uploads, copies and joins."""

from __future__ import annotations

import contextlib

import pytest

from rollingfs.backend.contract import Backend, Over, Part, Upload
from rollingfs.errors import ConflictError
from rollingfs.testing.reading import CLOCK_SLACK_S, Reading, content, run

UPLOAD_PIECE_BYTES = 1024 * 1024
UPLOAD_PIECES = 11  # two parts of 5 MiB and a rest
WHOLE_PARTS = [UPLOAD_PIECE_BYTES] * (UPLOAD_PIECES - 1)
UNFINISHED_BYTES = 17 * 1024 * 1024  # more than an adapter keeps in memory before it begins


class Writing(Reading):
    """A new file appears whole or not at all."""

    def test_write_takes_buffers_of_every_kind(self, backend: Backend, folder: str) -> None:
        run(backend, backend.write(f"{folder}/new/file", [b"ab", bytearray(b"cd"), b"", memoryview(b"xefx")[1:3]]))
        assert self.raw_read(f"{folder}/new/file") == b"abcdef"

    def test_put_takes_the_place_of_a_file(self, backend: Backend, folder: str) -> None:
        for data in (b"the first, longer", b"the second"):
            run(backend, backend.put(f"{folder}/log$chunks/pin", data))
            assert self.raw_read(f"{folder}/log$chunks/pin") == data
        listing = run(backend, backend.list(f"{folder}/log$chunks"))
        assert [info.path for info in listing.entries] == [f"{folder}/log$chunks/pin"]

    @pytest.mark.parametrize("sizes", [[], [0], [5], WHOLE_PARTS, [*WHOLE_PARTS, UPLOAD_PIECE_BYTES, 3]])
    def test_an_upload_is_whole_when_it_is_finished(self, backend: Backend, folder: str, sizes: list[int]) -> None:
        path, buffer, expected = f"{folder}/new/uploaded", bytearray(UPLOAD_PIECE_BYTES), b""
        upload = run(backend, backend.open_write(path))
        for number, size in enumerate(sizes):
            buffer[:size] = piece = bytes([number]) * size  # the caller may reuse its buffer
            expected += piece
            run(backend, upload.write(memoryview(buffer)[:size]))
        run(backend, upload.finish())
        assert self.raw_read(path) == expected
        with pytest.raises((ValueError, OSError)):
            run(backend, upload.write(b"more"))

    def test_metadata_stay_with_a_file_and_its_copy(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.has_metadata, "this backend keeps no metadata")
        given = {"rollingfsoffset": "5", "rollingfscrc32c": "00000000"}
        data = b"\r\n--line\r\n\0"  # what some stores write between metadata and bytes
        run(backend, backend.write(f"{folder}/written", [data, memoryview(b"xyz")[1:]], given))
        for name, size in (("small", 3), ("parts", UNFINISHED_BYTES)):
            upload = run(backend, backend.open_write(f"{folder}/{name}", None, given))
            run(backend, upload.write(bytes(size)))
            run(backend, upload.finish())
        run(backend, backend.copy(f"{folder}/written", f"{folder}/copy"))
        for name in ("written", "small", "parts", "copy"):
            found = run(backend, backend.metadata(f"{folder}/{name}"))
            assert {key.lower(): value for key, value in found.items()} == given, name
        assert self.raw_read(f"{folder}/written") == self.raw_read(f"{folder}/copy") == data + b"yz"
        run(backend, backend.write(f"{folder}/plain", [b"x"]))
        assert run(backend, backend.metadata(f"{folder}/plain")) == {}

    def test_unfinished_uploads_are_listed_and_aborted(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.can_list_uploads, "this backend knows of no unfinished uploads")
        paths = [f"{folder}/here", f"{folder}/here/deeper", f"{folder}-beside"]
        uploads = [run(backend, backend.open_write(path)) for path in paths]
        try:
            for upload in uploads:
                run(backend, upload.write(bytes(UNFINISHED_BYTES)))
            listed = run(backend, backend.list_uploads(folder))
            assert [found.path for found in listed] == paths[:1]
            assert list(run(backend, backend.list_uploads(folder, "here"))) == listed
            assert list(run(backend, backend.list_uploads(folder, "her"))) == []
            assert listed[0].began < run(backend, backend.now(folder)) + CLOCK_SLACK_S
            for _ in range(2):  # aborting it again is not an error
                run(backend, backend.abort_upload(listed[0]))
            assert list(run(backend, backend.list_uploads(folder))) == []
            with pytest.raises(OSError, match="here"):
                run(backend, uploads[0].finish())
            run(backend, uploads[1].finish())
            assert run(backend, backend.stat(paths[1])).size == UNFINISHED_BYTES
        finally:
            for upload in uploads:
                run(backend, upload.abort())

    def test_copy_has_bytes_and_life_of_its_own(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.can_copy, "this backend has no copy on the server")
        for name, data in (("some", content(300_000)), ("none", b"")):
            self.raw_write(f"{folder}/{name}", data)
            target = f"{folder}/{name}$chunks/copy"
            run(backend, backend.copy(f"{folder}/{name}", target, run(backend, backend.stat(f"{folder}/{name}")).token))
            run(backend, backend.delete([f"{folder}/{name}"]))
            assert self.raw_read(target) == data

    def test_a_copy_with_a_stale_token_leaves_nothing(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.can_copy, "this backend has no copy on the server")
        self.raw_write(f"{folder}/plain", b"old")
        token = run(backend, backend.stat(f"{folder}/plain")).token
        self.raw_write(f"{folder}/plain", b"newer")
        with pytest.raises(ConflictError):
            run(backend, backend.copy(f"{folder}/plain", f"{folder}/plain$chunks/copy", token))
        with pytest.raises(FileNotFoundError):
            run(backend, backend.stat(f"{folder}/plain$chunks/copy"))

    def test_a_copy_of_a_missing_file_says_so(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.can_copy, "this backend has no copy on the server")
        self.raw_write(f"{folder}/other", b"x")
        for token in (None, "token"):
            with pytest.raises(FileNotFoundError):
                run(backend, backend.copy(f"{folder}/missing", f"{folder}/copy", token))

    @pytest.mark.parametrize("pieces", [1, UPLOAD_PIECES])
    @pytest.mark.parametrize("over", Over)
    def test_upload_replaces_a_file_only_over_anything(
        self, backend: Backend, folder: str, over: Over, pieces: int
    ) -> None:
        target = f"{folder}/target"
        old, new = b"1" * UPLOAD_PIECE_BYTES, b"2" * UPLOAD_PIECE_BYTES
        self._make_over(backend, target, old, pieces, over)
        assert self.raw_read(target) == old * pieces
        with pytest.raises(FileExistsError) if over is Over.NOTHING else contextlib.nullcontext():
            self._make_over(backend, target, new, pieces, over)
        assert self.raw_read(target) == (old if over is Over.NOTHING else new) * pieces
        assert self._names(backend, folder) == ["target"]

    @pytest.mark.parametrize("count", [0, 1, UPLOAD_PIECES])
    @pytest.mark.parametrize("over", [None, *Over])
    def test_unfinished_upload_is_unseen_and_leaves_nothing(
        self, backend: Backend, folder: str, over: Over | None, count: int
    ) -> None:
        upload = run(backend, backend.open_write(f"{folder}/target", over))
        for _ in range(count):
            run(backend, upload.write(bytes(UPLOAD_PIECE_BYTES)))
        if over is not None:  # a new name may be seen, because nothing refers to it yet
            with pytest.raises(FileNotFoundError):
                run(backend, backend.stat(f"{folder}/target"))
        for _ in range(2):
            run(backend, upload.abort())
        assert self._names(backend, folder) == []

    def _make_over(self, backend: Backend, target: str, data: bytes, pieces: int, over: Over) -> None:
        upload = run(backend, backend.open_write(target, over))
        try:
            for _ in range(pieces):
                run(backend, upload.write(data))
            run(backend, upload.finish())
        finally:
            run(backend, upload.abort())

    def _names(self, backend: Backend, folder: str) -> list[str]:
        try:
            return [info.path.rpartition("/")[2] for info in run(backend, backend.list(folder)).entries]
        except FileNotFoundError:
            return []

    def test_an_upload_may_copy_ranges_of_other_files(self, backend: Backend, folder: str) -> None:
        self._need(backend.capability.can_join, "this backend has no join on the server")
        size = max(backend.capability.join_part_bytes_min, 1000) + 500
        first, second = content(size), content(size)[::-1]
        run(backend, backend.write(f"{folder}/first", [first]))
        run(backend, backend.write(f"{folder}/second", [second]))
        token = run(backend, backend.stat(f"{folder}/second")).token
        for over in (None, *Over):
            upload = run(backend, backend.open_write(f"{folder}/made", over))
            run(backend, upload.copy(Part(f"{folder}/second", 100, size, token)))
            run(backend, upload.write(first))
            run(backend, upload.write(b"more"))
            run(backend, upload.copy(Part(f"{folder}/first", 7, 9)))
            run(backend, upload.finish())
            assert self.raw_read(f"{folder}/made") == second[100:] + first + b"more" + first[7:9]
            run(backend, backend.delete([f"{folder}/made"]))

    @staticmethod
    async def _copied(upload: Upload, part: Part) -> None:
        await upload.copy(part)
        await upload.finish()

    @pytest.mark.parametrize("bad", ["missing", "replaced", "short"])
    def test_an_upload_that_misses_bytes_leaves_nothing(self, backend: Backend, folder: str, bad: str) -> None:
        self._need(backend.capability.can_join, "this backend has no join on the server")
        size = max(backend.capability.join_part_bytes_min, 1000)
        part = Part(f"{folder}/missing", 0, size)
        if bad == "replaced":
            self.raw_write(f"{folder}/plain", content(size))
            part = Part(f"{folder}/plain", 0, size, run(backend, backend.stat(f"{folder}/plain")).token)
            self.raw_write(f"{folder}/plain", content(size)[::-1])
        if bad == "short":
            self.raw_write(f"{folder}/plain", content(size))
            part = Part(f"{folder}/plain", size - 5, size + 5)
        errors = {"missing": FileNotFoundError, "replaced": ConflictError, "short": OSError}
        upload = run(backend, backend.open_write(f"{folder}/target", Over.NOTHING))
        with pytest.raises(errors[bad]):
            run(backend, self._copied(upload, part))
        run(backend, upload.abort())
        with pytest.raises(FileNotFoundError):
            run(backend, backend.stat(f"{folder}/target"))
