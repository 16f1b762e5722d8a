"""fsspec's transactions: each method that writes a file waits for the end, or refuses, on each kind of target."""

import asyncio
import gc
import gzip
import inspect

import pytest
from fsspec import AbstractFileSystem

from rollingfs import RollingFileSystem, SegmentSealedError
from tests.support.examples import slowly
from tests.support.places import new_place

NEW = b"new"
LOCAL = "local"


def put(name):
    return lambda fs, root, local: getattr(fs, name)(local, f"{root}/new")


def opened(**options):
    def write(fs, root, _):
        with fs.open(f"{root}/new", **options) as file:
            file.write(NEW if "b" in options["mode"] else NEW.decode())

    return write


WAIT = {
    "open": opened(mode="wb"),
    "open, xb": opened(mode="xb"),
    "open, ab": opened(mode="ab"),
    "open, text": opened(mode="w"),
    "open, appended text": opened(mode="at"),
    "open, not closed": lambda fs, root, _: fs.open(f"{root}/new", "wb").write(NEW),
    "open, text that is not closed": lambda fs, root, _: fs.open(f"{root}/new", "w").write(NEW.decode()),
    "pipe": lambda fs, root, _: fs.pipe(f"{root}/new", NEW),
    "pipe, several": lambda fs, root, _: fs.pipe({f"{root}/new": NEW}),
    "pipe_file": lambda fs, root, _: fs.pipe_file(f"{root}/new", NEW, mode="create"),
    "write_bytes": lambda fs, root, _: fs.write_bytes(f"{root}/new", NEW),
    "write_text": lambda fs, root, _: fs.write_text(f"{root}/new", NEW.decode()),
    "get_mapper": lambda fs, root, _: fs.get_mapper(root).__setitem__("new", NEW),
    "get_mapper, several": lambda fs, root, _: fs.get_mapper(root).setitems({"new": NEW}),
    "put_file": put("put_file"),
    "put": put("put"),
    "upload": put("upload"),
    "touch": lambda fs, root, _: fs.touch(f"{root}/old"),
    "touch, truncate=False": lambda fs, root, _: fs.touch(f"{root}/new", truncate=False),
}
"""What waits; by the method's name."""
TWO_PATHS = ("cp", "cp_file", "copy", "mv", "move", "rename")
ONE_PATH = ("rm", "rm_file", "delete")
FOLDERS = {"mkdir", "makedir", "makedirs", "mkdirs", "rmdir"}
"""Folders are made at once, as by `put` within a transaction; `rmdir` takes no file."""
READS = {
    *("cat", "cat_file", "cat_ranges", "checksum", "created", "disk_usage", "download", "du", "exists", "expand_path"),
    *("find", "get", "get_file", "glob", "head", "info", "isdir", "isfile", "lexists", "listdir", "ls", "modified"),
    *("read_block", "read_bytes", "read_text", "sign", "size", "sizes", "stat", "tail", "tree", "ukey", "walk"),
}
NO_FILES = {
    *("clear_instance_cache", "current", "end_transaction", "from_dict", "from_json", "invalidate_cache"),
    *("start_transaction", "to_dict", "to_json", "transaction_type", "unstrip_protocol"),
}


def refused(name):
    return lambda fs, root, _: getattr(fs, name)(f"{root}/old", *([f"{root}/new"] if name in TWO_PATHS else []))


REFUSE = {name: refused(name) for name in (*TWO_PATHS, *ONE_PATH)}
AWAITED = {
    "_pipe": (lambda root, _: (f"{root}/new", NEW)),
    "_pipe_file": (lambda root, _: (f"{root}/new", NEW)),
    "_put": (lambda root, local: (local, f"{root}/new")),
    "_put_file": (lambda root, local: (local, f"{root}/new")),
    "_touch": (lambda root, _: (f"{root}/new",)),
    "_copy": (lambda root, _: (f"{root}/old", f"{root}/new")),
    "_cp_file": (lambda root, _: (f"{root}/old", f"{root}/new")),
    "_mv": (lambda root, _: (f"{root}/old", f"{root}/new")),
    "_mv_file": (lambda root, _: (f"{root}/old", f"{root}/new")),
    "_rm": (lambda root, _: (f"{root}/old",)),
    "_rm_file": (lambda root, _: (f"{root}/old",)),
    "open_async": (lambda root, _: (f"{root}/new", "wb")),
}


@pytest.fixture(params=["memory", *slowly("file", "s3")])
def old(request):
    place = new_place(request.param, request, header_cache_s=0)
    place.file("old", b"old")
    return place


@pytest.fixture
def local(tmp_path):
    (tmp_path / LOCAL).write_bytes(NEW)
    return str(tmp_path / LOCAL)


def contents(place):
    return {path.removeprefix(f"{place.root}/"): place.fs.cat_file(path) for path in place.fs.find(place.root)}


def test_each_fsspec_method_is_tried_or_changes_no_file():
    public = {name for name in dir(AbstractFileSystem) if not name.startswith("_")}
    methods = {name for name in public if callable(getattr(AbstractFileSystem, name))}
    tried = {name.partition(",")[0] for name in (*WAIT, *REFUSE)}
    assert methods == tried | FOLDERS | READS | NO_FILES
    awaited = {name for name in dir(RollingFileSystem) if inspect.iscoroutinefunction(getattr(RollingFileSystem, name))}
    assert {f"_{name}" for name in tried} & awaited <= set(AWAITED)


@pytest.mark.parametrize("begin", ["with", "start_transaction"])
def test_transaction_within_another_is_refused_and_outer_goes_on(memory, begin):
    fs, folder = memory.fs, memory.root
    with fs.transaction:
        fs.pipe_file(f"{folder}/outer", b"outer")
        with pytest.raises(RuntimeError, match="has written nothing"):
            fs.transaction.__enter__() if begin == "with" else fs.start_transaction()
        fs.pipe_file(f"{folder}/later", b"later")
    assert [fs.cat_file(path) for path in fs.find(folder)] == [b"later", b"outer"]
    fs.start_transaction()
    fs.end_transaction()


@pytest.mark.parametrize("method", WAIT)
def test_what_writes_a_file_waits_for_the_end(old, local, method):
    def write(then=None):
        with old.fs.transaction:
            WAIT[method](old.fs, old.root, local)
            gc.collect()
            assert contents(old) == {"old": b"old"}
            if then is not None:
                raise then

    with pytest.raises(RuntimeError, match="roll back"):
        write(RuntimeError("roll back"))
    assert contents(old) == {"old": b"old"}
    write()
    assert contents(old) != {"old": b"old"}
    touched = {"touch": {"old": b""}, "touch, truncate=False": {"old": b"old", "new": b""}}
    assert contents(old) == touched.get(method, {"old": b"old", "new": NEW})


@pytest.mark.parametrize("method", [*REFUSE, *AWAITED])
def test_what_takes_place_at_once_refuses(old, local, method):
    def call():
        if method in REFUSE:
            REFUSE[method](old.fs, old.root, local)
        else:
            asyncio.run(getattr(old.fs, method)(*AWAITED[method](old.root, local)))

    with old.fs.transaction, pytest.raises(NotImplementedError, match=r"/\w+: within a transaction .* nothing was"):
        call()
    assert contents(old) == {"old": b"old"}
    if method in REFUSE:
        call()
        assert contents(old) != {"old": b"old"}


@pytest.mark.parametrize("mode", ["wb", "w", "ab", "at"])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_compressed_file_of_a_transaction_is_written_whole(memory, mode, is_closed):
    path, data = f"{memory.root}/x", NEW if "b" in mode else NEW.decode()
    with memory.fs.transaction:
        file = memory.fs.open(path, mode, compression="gzip")
        file.write(data)
        if is_closed:
            file.close()
        del file
        gc.collect()
    assert gzip.decompress(memory.fs.cat_file(path)) == NEW


def test_error_at_end_names_what_was_not_written(memory):
    fs, sealed = memory.fs, memory.file("sealed")

    def write():
        with fs.transaction:
            for name in ("first", "sealed", "last"):
                with fs.open(f"{memory.root}/{name}", "a") as file:
                    file.write(name)
            RollingFileSystem("memory", skip_instance_cache=True).seal(sealed)

    with pytest.raises(SegmentSealedError) as caught:
        write()
    assert caught.value.__notes__ == [
        f"this ended a transaction at {sealed}: it had committed 1 of 3 files; not written either: {memory.root}/last"
    ]
    assert contents(memory) == {"first": b"first", "sealed": b"x"}
    fs.pipe_file(f"{memory.root}/last", b"after")  # the transaction has ended
    assert contents(memory)["last"] == b"after"
