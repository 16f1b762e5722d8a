"""Plain files whose names leave no room for that of a header: they are files that cannot become segments."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.objects.request_errors import Refusal, as_os_error
from tests.support.backends import Scripted
from tests.support.servers import new_bucket

NAMES = ("n" * 249, "ä" * 127 + "n")
"""Of 249 and 255 bytes."""
LONG = ("m" * 255, "short")


@pytest.fixture(params=NAMES, ids=["249 bytes", "255 bytes"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A filesystem, a folder with such a file and a segment, and the file."""
    fs = RollingFileSystem(backend=Scripted(LocalBackend(sync=False)), skip_instance_cache=True)
    file = tmp_path / "folder" / request.param
    file.parent.mkdir()
    file.write_bytes(b"plain")
    fs.pipe_file(f"{file.parent}/segment", b"more")
    return fs, str(file.parent), str(file)


def test_it_is_read_and_listed(place: Any) -> None:
    fs, folder, file = place
    assert fs.cat(f"{folder}/*") == {file: b"plain", f"{folder}/segment": b"more"}
    assert fs.exists(file)
    assert fs.isfile(file)
    assert not fs.exists(f"{folder}/{'x' * 255}")
    assert fs.segment(file).read(1, 3) == b"la"
    assert fs.du(folder) == 9
    assert fs.stream(folder).cut().size == 9
    with fs.open(file) as opened:
        assert opened.read() == b"plain"
    assert fs.collect(folder, recursive=True).failures == ()


@pytest.mark.parametrize("delete", ["rm", "rm_file", "rm -r", "handle"])
def test_it_is_deleted(place: Any, delete: str) -> None:
    fs, folder, file = place
    actions: dict[str, Callable[[], object]] = {
        "rm": lambda: fs.rm(file),
        "rm_file": lambda: fs.rm_file(file),
        "rm -r": lambda: fs.rm(folder, recursive=True),
        "handle": lambda: fs.segment(file).delete(),
    }
    actions[delete]()
    assert fs.find(os.path.dirname(folder)) == ([] if delete == "rm -r" else [f"{folder}/segment"])
    assert not any("tmp-" in name for _, _, files in os.walk(folder) for name in files)
    assert os.path.exists(folder) == (delete != "rm -r")


@pytest.mark.parametrize("target", LONG, ids=["long", "short"])
@pytest.mark.parametrize("verb", ["mv", "cp"])
@pytest.mark.parametrize("is_taken", [False, True])
def test_it_is_moved_and_copied_over_what_is_there(place: Any, verb: str, target: str, is_taken: bool) -> None:
    fs, folder, file = place
    to = f"{folder}/{target}"
    if is_taken:
        Path(to).write_bytes(b"old")
    getattr(fs, verb)(file, to)
    assert fs.cat_file(to) == b"plain"
    assert set(fs.find(folder)) == {to, f"{folder}/segment", *([file] if verb == "cp" else [])}
    if target == "short":
        assert fs.append(to, b"!") == 5


@pytest.mark.parametrize("verb", ["mv", "cp"])
def test_its_folder_is_moved_and_copied(place: Any, verb: str) -> None:
    fs, folder, file = place
    to = f"{folder}-2"
    getattr(fs, verb)(folder, to, recursive=True)
    found = {f"/{os.path.basename(file)}": b"plain", "/segment": b"more"}
    assert fs.cat(fs.find(to)) == {f"{to}{name}": data for name, data in found.items()}
    assert fs.exists(folder) == (verb == "cp")


def test_what_is_written_while_it_moves_is_moved_too(place: Any) -> None:
    fs, folder, file = place
    fs._backend.plan("delete_if", file, before=lambda: Path(file).write_bytes(b"written since"))
    fs.mv(file, f"{folder}/short")
    assert fs.cat_file(f"{folder}/short") == b"written since"
    assert not os.path.exists(file)


def test_it_cannot_become_segment_and_stays_as_it_is(place: Any) -> None:
    fs, folder, file = place
    refused: list[Callable[[], object]] = [
        lambda: fs.append(file, b"x"),
        lambda: fs.seal(file),
        lambda: fs.pipe_file(file, b"x"),
        lambda: fs.create(f"{folder}/{LONG[0]}"),
        lambda: fs.mv(f"{folder}/segment", f"{folder}/{LONG[0]}"),
    ]
    for verb in refused:
        with pytest.raises(OSError, match="no segment can have this name") as caught:
            verb()
        assert caught.value.errno == errno.ENAMETOOLONG
    assert fs.cat_file(file) == b"plain"
    assert fs.append(f"{folder}/segment", b"!") == 4
    assert set(fs.find(folder)) == {file, f"{folder}/segment"}


@pytest.mark.s3
@pytest.mark.slow
def test_s3_key_without_room_for_headers_is_plain(minio: dict[str, Any]) -> None:
    fs, bucket = RollingFileSystem("s3", minio, skip_instance_cache=True), new_bucket(minio)
    folder = f"{bucket}/folder"
    key = "folder/" + 4 * f"{'k' * 200}/"
    file = f"{bucket}/{key}{'z' * (1020 - len(key))}"
    fs._bridge.run(fs._backend.write(file, [b"plain"]))
    assert fs.cat_file(file) == b"plain"
    assert fs.find(folder) == [file]
    with pytest.raises(OSError, match="KeyTooLongError") as caught:
        fs.append(file, b"x")
    assert caught.value.errno == errno.ENAMETOOLONG
    fs.cp(folder, f"{bucket}/second", recursive=True)
    fs.mv(f"{bucket}/second", f"{bucket}/third", recursive=True)
    assert fs.find(f"{bucket}/third") == [file.replace("/folder/", "/third/")]
    fs.rm(folder, recursive=True)
    assert fs.find(bucket) == [file.replace("/folder/", "/third/")]


@pytest.mark.parametrize(("verb", "number"), [("reading", errno.ENOENT), ("creating", errno.ENAMETOOLONG)])
def test_too_long_key_is_absent_and_cannot_be_made(verb: str, number: int) -> None:
    assert as_os_error(Refusal(400, "KeyTooLongError", "too long"), verb, "bucket/key").errno == number
