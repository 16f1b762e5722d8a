"""Text and compression through `open`: only `close` commits."""

import gc

import pytest
from fsspec.compression import compr


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
def test_what_can_be_appended_by_a_codec_is_read_whole(fs, tmp_path, codec):
    for part in (b"first", b"second"):
        with fs.open(f"{tmp_path}/x", "ab", compression=codec) as file:
            file.write(part)
    with fs.open(f"{tmp_path}/x", compression=codec) as file:
        assert file.read() == b"firstsecond"
