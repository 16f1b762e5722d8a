"""Every message to users names the path, says whether anything was written, and has no internal name."""

import errno
import os
import uuid

import fsspec
import pytest

from rollingfs import RollingFileSystem, RollingPolicy, SegmentNotSealedError, SegmentSealedError, UnsafeBackendError
from rollingfs.backend.local import system
from tests.support.cli import failed, options_of
from tests.support.examples import slowly
from tests.support.messages import check_text, internal_classes, refused
from tests.support.places import new_folder
from tests.support.servers import new_bucket

CHUNK_BYTES = 4 << 20
"""More than memory may hold: it is uploaded before the commit."""


@pytest.fixture(params=["memory", "file", "s3", "generic"], scope="module")
def site(request):
    """A filesystem and a folder with a segment ``a``, a sealed one ``sealed``, and a folder ``folder``.

    All tests share them: every change is refused, except to ``growing``.
    """
    if request.param == "generic":
        below = fsspec.filesystem("dir", path=f"/{uuid.uuid4().hex}", fs=fsspec.filesystem("memory"))
        fs, root = RollingFileSystem(fs=below, single_writer=True, header_cache_s=0), "root"
    else:
        folder = new_folder(request.param, request)
        fs, root = folder.open(header_cache_s=0), folder.path
    for name in ("a", "growing", "sealed", "folder/x"):
        fs.pipe_file(f"{root}/{name}", b"12345")
    fs.seal(f"{root}/sealed")
    return fs, root


def test_the_list_of_internal_names_is_not_empty():
    assert {"GenericBackend", "Verbs", "MergeFoundError"} <= internal_classes()
    with pytest.raises(AssertionError):
        check_text("/x: GenericBackend failed; nothing was written", "/x")
    with pytest.raises(AssertionError):
        check_text("/x$chunks/probe-12 failed; nothing was written", "/x")


def opened(fs, path, mode, data=b"more"):
    with fs.open(path, mode) as file:
        file.write(data)


MANY = {str(number): "" for number in range(65)}
"""More attributes than a segment may have."""


def append_each(fs, path):
    for name in MANY:
        fs.append(path, b"x", attrs={name: ""})


CHANGES = {
    "append to what is not there": ("none", FileNotFoundError, lambda fs, path: fs.append(path, b"x")),
    "append to sealed": ("sealed", SegmentSealedError, lambda fs, path: fs.append(path, b"x")),
    "open sealed to append": ("sealed", SegmentSealedError, lambda fs, path: opened(fs, path, "ab")),
    "append at another offset": ("a", ValueError, lambda fs, path: fs.append(path, b"x", expected_offset=77)),
    "append text": ("a", TypeError, lambda fs, path: fs.append(path, "text")),
    "attributes that are numbers": ("a", TypeError, lambda fs, path: fs.append(path, b"x", attrs={"a": 1})),
    "attributes that are expected": ("a", TypeError, lambda fs, path: fs.append(path, b"x", expected_attrs={"a": 1})),
    "too many attributes": ("a", ValueError, lambda fs, path: fs.append(path, b"x", attrs=MANY)),
    "too many attributes in all": ("growing", ValueError, append_each),
    "create what is there": ("a", FileExistsError, lambda fs, path: fs.create(path)),
    "create with no policy": ("none", TypeError, lambda fs, path: fs.create(path, 5)),
    "pipe in no mode": ("a", ValueError, lambda fs, path: fs.pipe_file(path, b"x", mode="creat")),
    "truncate beyond the end": ("a", ValueError, lambda fs, path: fs.truncate(path, 77)),
    "concat of one path": ("a", TypeError, lambda fs, path: fs.concat(path, path)),
    "concat of open ones": ("a", SegmentNotSealedError, lambda fs, path: fs.concat(f"{path[:-1]}folder/x", [path])),
    "export to a segment": ("a", FileExistsError, lambda fs, path: fs.export(f"{path[:-1]}sealed", path)),
    "remove a folder": ("folder", IsADirectoryError, lambda fs, path: fs.rm(path)),
}


@pytest.mark.parametrize("site", ["file", *slowly("s3")], indirect=True)
@pytest.mark.parametrize("case", CHANGES)
def test_refused_change_names_its_place_and_the_unwritten_state(site, case):
    fs, root = site
    name, kind, change = CHANGES[case]
    before = {path: fs.info(path)["size"] for path in fs.find(root)}
    with refused(kind, f"{root}/{name}"):
        change(fs, f"{root}/{name}")
    if case != "too many attributes in all":
        assert {path: fs.info(path)["size"] for path in fs.find(root)} == before


def test_append_to_a_missing_file_explains_how_to_create(site):
    fs, root = site
    with pytest.raises(FileNotFoundError, match="create it first, or open it with mode 'ab'") as caught:
        fs.append(f"{root}/none", b"x")
    assert caught.value.filename == f"{root}/none"


LOOKS = {
    "open": lambda fs, path: fs.open(path),
    "info": lambda fs, path: fs.info(path),
    "move": lambda fs, path: fs.mv(path, path + "2"),
    "remove": lambda fs, path: fs.rm(path),
    "remove a pattern": lambda fs, path: fs.rm(path + "*"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_what_is_not_there_is_named(site, look):
    fs, root = site
    with refused(FileNotFoundError, f"{root}/none", changes=False) as caught:
        LOOKS[look](fs, f"{root}/none")
    assert caught.value.errno == errno.ENOENT


def test_a_wrong_call_names_the_class_that_users_know():
    fs = RollingFileSystem("memory")
    fs.pipe_file("/wrong/a", b"")
    for verb, options in ((fs.create, {}), (fs.segment("/wrong/a").consolidate, {"atrs": 1})):
        with refused(TypeError, "Segment." if options else "RollingFileSystem.", changes=False):
            verb(**options)


# -- stores that fail ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_full_disk_names_the_segment_and_no_commit(tmp_path, monkeypatch):
    """Disks that are full in earnest are in `tests/backend/test_local_reserve.py`."""
    is_full, write, root = [False], os.write, str(tmp_path)

    def refuse(descriptor, data, *at):
        if not is_full[0] and len(data) < CHUNK_BYTES // 16:
            return write(descriptor, data)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", refuse)
    monkeypatch.setattr(system, "write_at", refuse)
    fs = RollingFileSystem("file", header_cache_s=0, commit_timeout_s=2, skip_instance_cache=True)
    path = f"{root}/log"
    fs.pipe_file(path, b"12345")
    fs.create(f"{root}/rolled", RollingPolicy(max_bytes=16384, inline_bytes=0))
    for _ in range(3):
        fs.append(f"{root}/rolled", b"x" * 5000)
    much = bytes(CHUNK_BYTES)
    for change in (
        lambda: fs.append(path, much),
        lambda: fs.segment(path).append([much, much]),
        lambda: fs.stage(path, much),
        lambda: fs.pipe_file(path, much),
        lambda: opened(fs, path, "ab", much * 3),
        None,
        lambda: fs.append(path, b"x"),
        lambda: fs.seal(path),
        lambda: fs.truncate(path, 1),
        lambda: opened(fs, path, "ab", b"x"),
        lambda: fs.segment(path).acquire("me"),
    ):
        if change is None:
            is_full[0] = True
            continue
        with refused(OSError, path, "No space left on device") as caught:
            change()
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, path)
        assert fs.cat_file(path) == b"12345"
    with refused(OSError, f"{root}/new", "No space left on device"):
        fs.create(f"{root}/new")
    with refused(OSError, f"{root}/rolled", "No space left on device"):
        fs.segment(f"{root}/rolled").consolidate()
    os.unlink(f"{root}/rolled$header")
    monkeypatch.setattr(system, "copy_in_kernel", None)
    with refused(OSError, f"{root}/new", "nothing was committed: No space left on device"):
        fs.rebuild(f"{root}/rolled", f"{root}/new", 0)


S3_CHANGES = {
    "append": lambda fs, path: fs.append(path, b"x"),
    "pipe": lambda fs, path: fs.pipe_file(path, b"x"),
    "stage": lambda fs, path: fs.stage(path, bytes(CHUNK_BYTES)),
    "open to append": lambda fs, path: opened(fs, path, "ab"),
}


@pytest.mark.parametrize("change", S3_CHANGES)
def test_a_bucket_is_no_segment(seaweed, change):
    fs = RollingFileSystem("s3", seaweed, header_cache_s=0)
    bucket = new_bucket(seaweed)
    with refused(IsADirectoryError, bucket, f"bucket, not a segment: name a key in it, as in {bucket}/") as caught:
        S3_CHANGES[change](fs, f"s3://{bucket}")
    assert caught.value.filename == bucket
    assert fs.ls(bucket) == []


@pytest.mark.parametrize("change", S3_CHANGES)
def test_without_credentials_error_says_so_and_what_to_give(seaweed, change):
    fs = RollingFileSystem("s3", endpoint_url=seaweed["endpoint_url"])
    path = f"{new_bucket(seaweed)}/x"
    looks_first = change.startswith("open")
    said = "Unable to locate credentials; give key and secret"
    with refused(PermissionError, path, said, changes=not looks_first):
        S3_CHANGES[change](fs, path)


@pytest.mark.parametrize("change", S3_CHANGES)
def test_store_without_atomic_writes_is_refused_with_way_out(change):
    below = fsspec.filesystem("dir", path=f"/{uuid.uuid4().hex}", fs=fsspec.filesystem("memory"))
    below.pipe_file("x", b"plain")
    fs = RollingFileSystem(fs=below, skip_instance_cache=True)
    with refused((UnsafeBackendError, FileExistsError), "x", r"single_writer=True|there already"):
        S3_CHANGES[change](fs, "x")
    assert below.cat_file("x") == b"plain"


# -- the command line --------------------------------------------------------------------------------------------

COMMANDS = [
    (["append", "{}/sealed"], "{}/sealed", True),
    (["append", "--no-create", "{}/none"], "{}/none", True),
    (["truncate", "{}/a", "77"], "{}/a", True),
    (["seal", "{}/none"], "{}/none", False),
    (["concat", "{}/a", "{}/folder/x"], "{}/folder/x", True),
    (["rm", "{}/none[1]*"], "{}/none[1]*", False),
    (["tail", "{}/a", "--offset", "77"], "{}/a", False),
    (["ls", "{}/none"], "{}/none", False),
    (["export", "{}/sealed", "{}/a"], "{}/a", True),
]


@pytest.mark.parametrize("site", ["file", *slowly("s3")], indirect=True)
@pytest.mark.parametrize(("words", "path", "changes"), COMMANDS, ids=[" ".join(words) for words, *_ in COMMANDS])
def test_the_command_line_says_the_same_in_one_line(site, words, path, changes, seaweed):
    fs, root = site
    url = f"s3://{root}" if fs._backend.is_async else root
    said = failed(*[word.format(url) for word in words], *options_of(seaweed), stdin=b"data")
    assert "[Errno" not in said
    check_text(said, path.format(root), changes=changes)


@pytest.mark.parametrize(
    ("url", "why"),
    [("s3://{}", "It is a bucket, not a segment"), ("s3://{}-absent/x", "the bucket '{}-absent' does not exist")],
)
def test_the_command_line_names_the_bucket(seaweed, url, why):
    bucket = new_bucket(seaweed)
    said = failed("append", url.format(bucket), *options_of(seaweed), stdin=b"data")
    assert why.format(bucket) in said
    check_text(said, bucket)
