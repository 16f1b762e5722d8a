"""What was opened is gone, and something else has its name: it is not taken for what was opened."""

import contextlib
import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rollingfs.fs import opening
from rollingfs.fs.core import Core
from rollingfs.fs.segment_handle import SegmentHandle
from rollingfs.fs.tail import Tail
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.files.adopt import adopt
from rollingfs.segment.verbs.create import overwrite
from rollingfs.segment.verbs.delete import delete
from tests.support.backends import Scripted, private_memory, raises
from tests.support.faults import CLOCK, HashingStore, hurry
from tests.support.life import World
from tests.support.segment_verbs import append
from tests.support.site import Site

ANOTHER = b"another, longer than what was there"
CALLS_MAX = 60


def plain_site() -> Site:
    site = Site(Scripted(private_memory()), "")
    site.run(site.backend.write(site.path, [b"plain"]))
    return site


def another_file(site: Site) -> None:
    site.run(site.backend.delete([site.path]))
    site.run(site.backend.write(site.path, [ANOTHER]))


def another_segment(site: Site) -> None:
    site.run(overwrite(site.other(), site.path, ANOTHER))


def another_adopted(site: Site) -> None:
    another_file(site)
    site.run(adopt(site.other(), site.path))


def nothing(site: Site) -> None:
    site.run(site.backend.delete([site.path]))


CHANGES: dict[str, list[Any]] = {"append": [b"!"], "truncate": [2], "acquire": ["me"], "concat": [[]]}
CHANGES |= {"seal": [], "delete": []}


@pytest.mark.parametrize("verb", CHANGES)
@pytest.mark.parametrize("change", [another_file, another_segment, another_adopted, nothing])
def test_plain_file_handle_changes_nothing_else_of_its_name(verb: str, change: Callable[[Site], None]) -> None:
    site = plain_site()
    handle = site.segment()
    change(site)
    was_live = site.is_there()
    with pytest.raises(FileNotFoundError):
        getattr(handle, verb)(*CHANGES[verb])
    if change is not nothing:
        assert site.content() == ANOTHER
    assert site.is_there() == was_live


@pytest.mark.parametrize("verb", CHANGES)
@pytest.mark.parametrize("at", ["copy", "create", "replace"])
def test_plain_file_handle_spares_files_that_come_during_adoption(verb: str, at: str) -> None:
    site = plain_site()
    handle = site.segment()
    site.backend.plan(at, before=lambda: another_file(site))
    try:
        getattr(handle, verb)(*CHANGES[verb])
    except FileNotFoundError:
        assert site.content() == ANOTHER
    else:
        assert verb == "delete" or site.content() == {"append": b"plain!", "truncate": b"ain"}.get(verb, b"plain")


@pytest.mark.parametrize("verb", CHANGES)
def test_plain_file_handle_continues_with_the_adopted_segment(verb: str) -> None:
    site = plain_site()
    handle = site.segment()
    site.run(append(site.other(), site.path, b" and more"))
    getattr(handle, verb)(*CHANGES[verb])
    assert site.is_there() == (verb != "delete")


def test_plain_file_handle_does_not_read_overwritten_bytes() -> None:
    site = plain_site()
    handle = SegmentHandle(Core(site.other(header_cache_s=0.0), site.bridge), site.segment()._snapshot)
    another_segment(site)
    for look in (partial(handle.read, 0, 5), handle.refresh):
        with pytest.raises(FileNotFoundError):
            look()


@pytest.mark.parametrize("data", [b"", b"oth", b"other", b"longer than what was there"])
def test_plain_file_snapshot_does_not_read_overwritten_tails(data: bytes) -> None:
    site = plain_site()
    view = drive(site.client.headers.view(site.path))
    site.run(overwrite(site.other(), site.path, data))
    drive(site.backend.delete([site.path]))  # as collection does a day later
    for start in (0, 2):
        with pytest.raises(FileNotFoundError, match="open it again"):
            drive(site.client.fetcher.read(view, start, 5))


def segment_site() -> Site:
    site = Site(Scripted(private_memory()), "")
    site.run(overwrite(site.client, site.path, b"a segment"))
    return site


def plain_after_segment(site: Site) -> None:
    site.run(delete(site.other(), site.path))
    site.run(site.backend.write(site.path, [b"something longer"]))


@pytest.mark.parametrize("of_handle", [True, False])
@pytest.mark.parametrize(
    ("before", "after"),
    [(plain_site, another_segment), (segment_site, another_segment), (segment_site, plain_after_segment)],
)
def test_follower_of_a_name_does_not_continue_in_another(before: Any, after: Any, of_handle: bool) -> None:
    site = before()
    tail = site.segment().tail() if of_handle else Tail(Core(site.client, site.bridge), site.path)
    if not of_handle:
        assert next(tail) == site.content()
    after(site)
    with pytest.raises(FileNotFoundError, match="another has its name"):
        next(tail)


def test_plain_file_handle_spares_a_later_equal_file(monkeypatch: Any) -> None:
    """On a store whose tokens are hashes of the bytes; but for the time between the last look and the delete."""
    hurry(monkeypatch)
    path = "/folder/file"
    for at in range(2, CALLS_MAX):  # the first two open the handle
        store = HashingStore()
        drive(store.write(path, [b"plain"]))

        def write_again(store: HashingStore = store) -> None:
            CLOCK.sleep(1.0)
            drive(store.delete([path]))
            drive(store.write(path, [b"plain"]))

        backend = Scripted(store)
        backend.plan(before=write_again, skips=at, probes=True)
        world = World(backend, clock=CLOCK.time)
        handle: SegmentHandle = drive(opening.segment(Core(world.client, world.bridge), path))
        with contextlib.suppress(FileNotFoundError):
            handle.delete()
        if len(backend.calls) <= at:
            break
        assert path in store.files() or backend.calls[at] == ("delete_if", path)
    assert 10 < at < CALLS_MAX - 1
    assert path not in store.files()


def test_list_only_plain_file_of_a_stream_is_named() -> None:
    backend = Scripted(private_memory())
    world = World(backend)
    world.create("/stream/a", [b"abc"])
    drive(world.backend.write("/stream/plain", [b"plain"]))
    whole = world.stream().cut()
    forbidden = raises(PermissionError(errno.EACCES, "forbidden", "/stream/plain"))
    backend.plan("stat", "/stream/plain", before=forbidden, times=None)  # it may be listed, but not looked at
    assert dict(world.stream().cut()) == {"/stream/a": 3}
    trimmed = world.stream().trim(whole)
    assert (trimmed.bytes, list(trimmed.failed)) == (3, ["/stream/plain"])
