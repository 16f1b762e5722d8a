"""The files of asks: written over each other, read with their dates, and forgotten."""

import dataclasses
import uuid

import pytest

from rollingfs.commit.sharing.files import ASK_AGE_S_MAX, AskFiles
from rollingfs.format.asks import Ask, ask_path, format_ask
from rollingfs.runtime.concurrency import SyncRuntime, drive
from tests.support.backends import Scripted, fail, private_memory

PATH = "/logs/clicks"
FIRST = Ask("w", 1, str(uuid.UUID(int=7)), 10, b"first")


@pytest.fixture
def store() -> Scripted:
    return Scripted(private_memory())


@pytest.fixture
def files(store: Scripted) -> AskFiles:
    return AskFiles(store, SyncRuntime(), PATH)


def test_a_number_that_goes_back_is_not_believed(files: AskFiles) -> None:
    for ask in (dataclasses.replace(FIRST, number=2, data=b"second"), FIRST):
        drive(files.write(ask))
        drive(files.read(["w"]))
    assert files.young() == []


def test_asks_grow_old_by_the_clock_of_the_store(files: AskFiles, store: Scripted) -> None:
    drive(files.write(FIRST))
    store.shift_s = ASK_AGE_S_MAX - 2
    drive(files.read(["w"]))
    assert files.young() == [FIRST]
    store.shift_s = ASK_AGE_S_MAX + 2
    other = AskFiles(store, SyncRuntime(), PATH)
    drive(other.read(["w"]))
    assert other.young() == []


def test_an_ask_in_the_file_of_another_is_ignored(files: AskFiles, store: Scripted) -> None:
    drive(store.put(ask_path(PATH, "x"), format_ask(FIRST)))
    drive(files.read(["x"]))
    assert files.young() == []


def test_a_failure_to_ask_is_no_error(files: AskFiles, store: Scripted) -> None:
    store.plan("put", before=fail)
    assert not drive(files.write(FIRST))


def test_a_listing_without_a_time_shows_no_dead_either(files: AskFiles, store: Scripted) -> None:
    """Through obstore and in some clouds, a listing does not say what time it is there."""
    store.plan("list_prefix", answers=lambda found: dataclasses.replace(found, now=None), times=None)
    assert drive(files.find(1)) == set()
    assert store.count("now") == 0, "nobody has asked"
    drive(files.write(FIRST))
    assert drive(files.find(1)) == {"w"}
    assert store.count("now") == 0, "a commit waits for the listing"
    store.shift_s = ASK_AGE_S_MAX + 2
    assert drive(files.find(1)) == {"w"}, "the clock is not known"
    drive(files.read(["w"]))
    assert files.young() == []
    assert drive(files.find(1)) == set()


def test_while_the_clock_is_not_known_no_ask_can_be_carried(files: AskFiles, store: Scripted) -> None:
    drive(files.write(FIRST))
    store.plan("now", before=fail)
    drive(files.read(["w"]))
    assert files.young() == []
    drive(files.read(["w"]))
    assert files.young() == [FIRST]
