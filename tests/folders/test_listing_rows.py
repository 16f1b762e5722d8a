"""The rows of a folder spare listings the headers, and never show anything else than the headers say.

Rules of the protocol: P13.27 to P13.33.
"""

import itertools
import json
import zlib

import pytest

from rollingfs import RollingFileSystem, RollingPolicy
from rollingfs.folders import collect_tree, listing
from rollingfs.folders.listing import REPORT
from rollingfs.segment.verbs.create import overwrite
from tests.support.backends import Scripted, private_memory, raises

COUNT = 40
FOLDER = "/d"
ROWS = f"{FOLDER}/$listing"
SMALL = RollingPolicy(max_bytes=20, inline_bytes=10)
FILES = [f"{FOLDER}/s{number:02}" for number in range(COUNT)]


@pytest.fixture(autouse=True)
def _few(limits):
    """So that a folder of 40 segments has many."""
    limits(listing, UNSEEN_MIN=4, ROWLESS_MAX=10)
    limits(collect_tree, ROWLESS_MAX=10)


@pytest.fixture
def store():
    return private_memory()


def client(store, **abilities):
    """A new client, which has seen nothing."""
    return RollingFileSystem(backend=Scripted(store, **abilities), policy=SMALL, header_cache_s=0)


def fill(store, count=COUNT):
    fs = client(store)
    for nth, path in enumerate(FILES[:count]):
        fs.pipe_file(path, b"x" * nth)
        if nth % 3 == 0:
            fs.seal(path)
        if nth % 4 == 0:
            fs.truncate(path, nth // 2)
    return fs


def listed(store, count=COUNT):
    """A folder that another client has listed, so that it has rows."""
    fs = fill(store, count)
    client(store).ls(FOLDER)
    return fs


def truth(store):
    """What the headers say, each of them read."""
    fs = client(store)
    return fs._bridge.run(listing.infos_of(fs._client, fs._bridge.run(listing.scan(fs._client, FOLDER, REPORT))))


def is_of_rows(path):
    return "$listing" in path


def shown(fs):
    return {info["name"]: info for info in fs.ls(FOLDER)}


def header_reads(fs):
    """The headers in the folder that a client has asked for."""
    calls = fs._backend.calls
    return [path for verb, path in calls if verb in ("read", "read_if_changed") and path.startswith(f"{FOLDER}/")]


def test_only_headers_that_changed_since_are_read(store):
    fs = listed(store)
    fs.append(FILES[2], b"more")
    fs.rm(FILES[5])
    new = client(store)
    assert shown(new) == truth(store)
    assert sorted(header_reads(new)) == [f"{ROWS}$header", f"{FILES[2]}$header", f"{FILES[5]}$header"]
    assert new._backend.count("list") == 1


# -- who writes, and what may go wrong -------------------------------------------------------------------------


def test_crash_at_any_call_of_writing_harms_nothing():
    for nth in itertools.count():
        world = private_memory()
        fill(world)
        fs, found = client(world), truth(world)
        # a write takes effect and its answer is lost, or it does not take place
        how = {"before" if nth % 2 else "after": raises(BrokenPipeError(32, "it broke"))}
        plan = fs._backend.plan(("create", "replace", "write", "delete"), is_of_rows, skips=nth // 2, times=None, **how)
        fs._client.commits.timeout_s = 0.05
        assert shown(fs) == found
        assert shown(client(world)) == found
        assert shown(client(world)) == found
        if plan.skips:
            break
    assert nth >= 6


def test_who_loses_race_leaves_rows_of_winner(store):
    fill(store)
    fs = client(store)
    fs._backend.plan("create", f"{ROWS}$header", before=lambda: client(store).ls(FOLDER))
    assert shown(fs) == truth(store)
    new = client(store)
    assert shown(new) == truth(store)
    assert len(header_reads(new)) == 1


def test_client_without_writes_lists_and_tries_once(store, caplog):
    fill(store)
    fs = client(store)
    refuse = raises(PermissionError(13, "you may not"))
    fs._backend.plan(("create", "replace", "write"), is_of_rows, before=refuse, times=None, probes=True)
    assert shown(fs) == truth(store)
    fs.invalidate_cache()
    fs._client.headers.forget()
    fs._backend.clear()
    assert shown(fs) == truth(store)
    assert fs._backend.count("create") == 0


@pytest.mark.parametrize("said", ["every header is read", "a row is malformed"])
def test_damaged_row_list_is_logged_and_headers_are_read(store, caplog, said):
    fs, data = listed(store), b"nonsense"
    if said == "a row is malformed":
        rows = json.loads(zlib.decompress(fs.cat_file(ROWS)))
        rows["rows"][3][-1] = 10**400
        data = zlib.compress(json.dumps(rows).encode())
    fs._bridge.run(overwrite(fs._client, ROWS, data, attrs={"rollingfs.listing": "1"}))
    assert shown(client(store)) == truth(store)
    assert f"{ROWS}: every header is read" in caplog.text
    assert said in caplog.text
    after = client(store)
    assert shown(after) == truth(store)
    assert len(header_reads(after)) == 1, "the listing has written the rows anew"


def test_a_damaged_header_of_the_rows_fails_no_listing(store, caplog):
    listed(store)
    store.fs.pipe_file(f"{ROWS}$header", b"rollingfs 1\nnonsense\n")
    assert shown(client(store)) == truth(store)
    assert set(FILES) == set(client(store).find(FOLDER))
    client(store).rm(FOLDER, recursive=True, damaged=True)
    assert not client(store).exists(FOLDER)


@pytest.mark.parametrize("is_plain", [True, False])
def test_users_file_under_name_is_neither_rows_nor_overwritten(store, is_plain):
    fs = fill(store)
    if is_plain:
        store.fs.pipe_file(ROWS, b"mine")
    else:
        fs._bridge.run(overwrite(fs._client, ROWS, b"mine"))
    for _ in range(2):
        assert shown(client(store)) == truth(store)
        client(store).collect(FOLDER, grace=0, recursive=True)
    assert client(store).cat_file(ROWS) == b"mine"
    fs.mv(FOLDER, "/elsewhere")
    assert client(store).cat_file("/elsewhere/$listing") == b"mine"
    fs.mv("/elsewhere/$listing", "/elsewhere/now-shown")
    assert "/elsewhere/now-shown" in client(store).find("/elsewhere")


def test_recursive_collection_writes_rows_of_folder_of_many_segments(store):
    fill(store)
    client(store).collect("/", grace=0, recursive=True)
    fs = client(store)
    assert shown(fs) == truth(store)
    assert len(header_reads(fs)) == 1


# -- hidden, and removed with the folder -----------------------------------------------------------------------


def test_nothing_shows_the_rows(store):
    fill(store)
    fs = client(store)
    fs.ls(FOLDER)
    assert fs._client.headers.seen(ROWS).live
    for found in (fs.ls(FOLDER, detail=False), fs.find("/"), fs.glob(f"{FOLDER}/*"), [one[2] for one in fs.walk("/")]):
        assert "$listing" not in str(found)
    assert fs.streams("/") == []
    assert sorted(fs.stream(FOLDER).cut()._offsets) == FILES
    with pytest.raises(FileNotFoundError):
        fs.segment(ROWS)


def test_folder_of_only_rows_is_absent_and_gets_collected(store):
    fs = listed(store, 12)
    for path in FILES[:12]:
        fs.rm(path)
    assert not client(store, has_folders=False).exists(FOLDER)
    fs._backend.shift_s = 200_000
    for _ in range(3):  # the tombstones, then the rows, then their tombstone
        fs.collect("/", grace=0, recursive=True)
    assert [path for path in store.fs.store if path.startswith(FOLDER)] == []


def test_a_folder_that_moves_leaves_its_rows_behind(store):
    fs = listed(store)
    before = {name: info["size"] for name, info in truth(store).items()}
    fs.mv(FOLDER, "/new")
    assert not fs._bridge.run(fs._client.headers.load(ROWS)).live
    assert "/new/$listing$header" not in store.fs.store
    found = {info["name"]: info["size"] for info in client(store).ls("/new")}
    assert found == {path.replace(FOLDER, "/new"): size for path, size in before.items()}
