"""Text and compression through `open`: only `close` commits."""

import gc
import gzip
import io
import os
import tarfile
import zipfile

import fsspec
import pytest
from fsspec.compression import compr

from rollingfs import RollingFileSystem


def write_and_fail(fs, path, options, data):
    with fs.open(path, **options) as file:
        file.write(data)
        raise RuntimeError("mine")


def write_and_forget(fs, path, options, data):
    fs.open(path, **options).write(data)
    gc.collect()


# gzip of Python 3.14 speaks up as well when a file is let go
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed GzipFile:ResourceWarning")
@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"mode": "w"}, {"mode": "w", "compression": "gzip"}])
def test_an_exception_or_garbage_collection_commits_nothing(fs, tmp_path, options):
    path, options = f"{tmp_path}/x", {"mode": "wb", **options}
    data = "text" if options["mode"] == "w" else b"bytes"
    with pytest.raises(RuntimeError, match="mine"):
        write_and_fail(fs, path, options, data)
    assert not fs.exists(path)
    with pytest.warns(ResourceWarning, match=f"{len(data)} bytes"):
        write_and_forget(fs, path, options, data)
    assert not fs.exists(path)


@pytest.mark.parametrize("mode", ["ab", "at"])
def test_an_archive_cannot_be_appended_to(fs, tmp_path, mode):
    path = f"{tmp_path}/x.zip"
    with fs.open(path, "wb", compression="zip") as file:
        file.write(b"first")
    for codec in ("zip", "infer"):
        with pytest.raises(ValueError, match="only one of several zip archives"):
            fs.open(path, mode, compression=codec)
    with fs.open(path, compression="zip") as file:
        assert file.read() == b"first"


@pytest.mark.parametrize("codec", sorted(name for name in compr if name and name != "zip"))
def test_what_can_be_appended_by_codec_is_read_whole(fs, tmp_path, codec):
    for part in (b"first", b"second"):
        with fs.open(f"{tmp_path}/x", "ab", compression=codec) as file:
            file.write(part)
    with fs.open(f"{tmp_path}/x", compression=codec) as file:
        assert file.read() == b"firstsecond"


def through_fsspec(path, **options):
    return fsspec.open(f"rolling::file://{path}", **options)


def through_a_wrapper(path, mode, encoding):  # as pandas
    return io.TextIOWrapper(RollingFileSystem("file").open(path, f"{mode}b"), encoding=encoding)


OPENS = {
    "fs": lambda path, mode, encoding: RollingFileSystem("file").open(path, mode, encoding=encoding),
    "fsspec": lambda path, mode, encoding: through_fsspec(path, mode=f"{mode}t", encoding=encoding),
    "a wrapper": through_a_wrapper,
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("how", OPENS)
def test_text_equals_pythons_with_one_mark_and_positions(tmp_path, how, encoding):
    for mode in ("w", "a", "a"):
        places = []
        for opened, name in ((OPENS[how], "x"), (open, "plain")):
            with opened(f"{tmp_path}/{name}", mode, encoding=encoding) as file:
                places.append(file.seek(0, os.SEEK_END))
                file.write("ä\n")
                places.append(file.tell())
        assert places[:2] == places[2:]
    written = RollingFileSystem("file").cat_file(f"{tmp_path}/x")
    assert written == (tmp_path / "plain").read_bytes()
    assert written.decode(encoding) == f"ä{os.linesep}" * 3


def test_compressed_text_that_is_appended_has_one_mark(fs, tmp_path):
    for text in ("first", "second"):
        with fs.open(f"{tmp_path}/x", "a", encoding="utf-8-sig", compression="gzip") as file:
            file.write(text)
    assert gzip.decompress(fs.cat_file(f"{tmp_path}/x")).decode("utf-8-sig") == "firstsecond"


def add_to_zip(file):
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("name", "text")


BACK = {
    "zip": add_to_zip,
    "tar": lambda file: tarfile.TarFile(fileobj=file, mode="a"),
    "seek": lambda file: file.seek(0),
    "truncate": lambda file: file.truncate(),
    "read": lambda file: file.read(),
}


@pytest.mark.parametrize("mode", ["wb", "ab", "w", "a"])
@pytest.mark.parametrize("way", BACK)
def test_seek_in_a_written_file_names_reason_and_remedy(fs, tmp_path, way, mode):
    fs.pipe_file(path := f"{tmp_path}/x", b"before")

    def use():
        with fs.open(path, mode) as file:
            BACK[way](file if way in ("seek", "truncate") else getattr(file, "buffer", file))

    with pytest.raises(io.UnsupportedOperation) as caught:
        use()
    assert str(caught.value).startswith(f"{path}: ")
    assert ("open it by 'rb'" if way == "read" else "call put(local, path)") in str(caught.value)
    assert fs.cat_file(path) == b"before"
