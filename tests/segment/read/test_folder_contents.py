"""A segment is not made over a folder that holds something: it would hide all of that."""

import asyncio
import errno

import pytest

from rollingfs import FolderOccupiedError, RollingFileSystem
from rollingfs.segment.at import At
from rollingfs.segment.verbs.create import create
from tests.support.backends import Scripted, private_memory, raises
from tests.support.examples import slowly
from tests.support.places import new_place

LARGE = bytes(3_000_000)
"""So much is uploaded before it is committed."""


@pytest.fixture(params=["memory", "file", *slowly("s3")])
def place(request):
    return new_place(request.param, request, header_cache_s=0)


@pytest.fixture
def s3(request):
    return new_place("s3", request, header_cache_s=0)


def filled(place):
    """A folder with three segments."""
    for nth in range(3):
        place.file(f"d/part-{nth}")
    return f"{place.root}/d"


def _write(fs, path, mode, data=b"x"):
    with fs.open(path, mode) as file:
        file.write(data)


VERBS = {
    "create": lambda fs, path, other: fs.create(path),
    "append": lambda fs, path, other: fs.append(path, b"x"),
    "append large": lambda fs, path, other: fs.append(path, LARGE),
    "overwrite": lambda fs, path, other: fs.overwrite(path, b"x"),
    "pipe_file create": lambda fs, path, other: fs.pipe_file(path, b"x", mode="create"),
    "stage and append": lambda fs, path, other: fs.append(path, [fs.stage(path, b"staged")]),
    "wb large": lambda fs, path, other: _write(fs, path, "wb", LARGE),
    "ab owner": lambda fs, path, other: fs.open(path, "ab", owner="me"),
    "mv_file": lambda fs, path, other: fs.mv([other], [path]),
    "concat": lambda fs, path, other: (fs.seal(other), fs.concat(path, [other])),
}
"""Those that make a segment each by code of its own."""


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_makes_segment_over_folder_that_holds_something(place, verb):
    fs, folder, other = place.fs, filled(place), place.file("other", b"other")
    with pytest.raises(IsADirectoryError) as caught:
        VERBS[verb](fs, folder, other)
    assert isinstance(caught.value, FolderOccupiedError)
    assert caught.value.errno == errno.EISDIR
    assert caught.value.filename == folder
    assert "holds part-0, part-1, part-2;" in str(caught.value)
    assert "Nothing was written" in str(caught.value)
    assert place.found() == [*(f"/d/part-{nth}" for nth in range(3)), "/other"]
    assert fs.isdir(folder)
    assert fs.cat_file(other) == b"other"
    assert fs._client.headers.seen(other).header.merge is None, "the source is marked"


SOMETHING = {
    "e/": lambda place: place.file("d/e/deep"),
    "plain": lambda place: place.plain("d/plain"),
    "x": lambda place: place.plain("d/x$header", b"rollingfs 1\nnonsense\n"),
}


@pytest.mark.parametrize("what", SOMETHING)
def test_folders_plain_files_and_unreadable_segments_exist(place, what):
    SOMETHING[what](place)
    with pytest.raises(IsADirectoryError, match=f"holds {what};"):
        place.fs.create(f"{place.root}/d")


def test_over_folder_in_which_nothing_lives_segment_is_made(place):
    fs, folder = place.fs, filled(place)
    fs.stream(folder).cuts()
    for path in fs.find(folder):
        fs.rm(path)
    fs.create(folder)
    assert fs.info(folder)["type"] == "file"


def test_existing_file_is_written_although_folder_shares_its_name(place):
    """Nothing more would be hidden by it than is hidden already."""
    fs, folder, inner = place.fs, place.file("d", b"first"), place.file("d/inner", b"hidden")
    fs.append(folder, b", second")
    _write(fs, folder, "ab", b", third")
    assert fs.cat_file(folder) == b"first, second, third"
    place.file("d", b"again")
    assert (fs.cat_file(folder), fs.cat_file(inner)) == (b"again", b"hidden")


def test_plain_file_beside_its_folder_is_adopted_and_overwritten(s3):
    fs, folder = s3.fs, filled(s3)
    s3.plain("d", b"plain")
    assert fs.append(folder, b" and more") == 5
    fs.overwrite(folder, b"new")
    assert fs.cat_file(folder) == b"new"


def test_tree_in_which_segment_hides_folder_moves_whole(place):
    fs, names = place.fs, ("log", "log/hidden", "a")
    for name in names:
        place.file(f"from/{name}", name.encode())
    fs.mv(f"{place.root}/from", f"{place.root}/to")
    assert [fs.cat_file(f"{place.root}/to/{name}") for name in names] == [name.encode() for name in names]
    assert not fs.exists(f"{place.root}/from")


# -- what it costs -------------------------------------------------------------------------------------------


def test_async_folder_lookup_runs_beside_the_plain_files(s3, monkeypatch):
    """So that a create takes no longer: with one after the other, neither would come to its end."""
    fs = s3.fs
    fs.pipe_file(f"{s3.root}/first", b"")
    met = {"stat": asyncio.Event(), "list_page": asyncio.Event()}
    for verb, event in met.items():
        inner = getattr(fs._backend, verb)
        [other] = [one for name, one in met.items() if name != verb]

        async def call(*args, inner=inner, event=event, other=other):
            event.set()
            await asyncio.wait_for(other.wait(), 30)
            return await inner(*args)

        monkeypatch.setattr(fs._backend, verb, call)
    fs.create(f"{s3.root}/new")


def test_writer_without_listing_can_write():
    unlistable = Scripted(private_memory())
    refuse = raises(PermissionError(errno.EACCES, "you may not list"))
    unlistable.plan(("list", "list_page"), before=refuse, times=None)
    fs = RollingFileSystem(backend=unlistable, skip_instance_cache=True)
    fs.create("/new")
    assert fs.append("/new", b"x") == 0


def test_segment_made_meanwhile_is_found_before_the_folder():
    """What is concluded from a cached header (there is nothing) is concluded from it no more once it is old."""
    fs, path = RollingFileSystem(backend=private_memory(), skip_instance_cache=True), "/made"
    fs.create(path)
    fs.rm(path)  # the tombstone is cached
    other = At.of(fs._backend)
    fs._bridge.run(create(other, path))
    fs._bridge.run(create(other, f"{path}/below"))
    fs.overwrite(path, b"x")
    assert fs.cat_file(path) == b"x"
