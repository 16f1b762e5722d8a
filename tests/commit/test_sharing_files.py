"""The files of asks: written over each other, read with their dates, and forgotten."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest

from rollingfs.backend.contract import Listing
from rollingfs.commit.sharing import files as ask_files
from rollingfs.commit.sharing.files import ASK_AGE_S_MAX, AskFiles
from rollingfs.format.asks import Ask, ask_path, format_ask
from rollingfs.runtime.concurrency import SyncRuntime, drive
from tests.support.backends import Scripted, fail, private_memory

PATH = "/logs/clicks"
FIRST = Ask("w", 1, str(uuid.UUID(int=7)), 10, b"first")
SECOND = dataclasses.replace(FIRST, number=2, data=b"second")


@pytest.fixture
def store() -> Scripted:
    return Scripted(private_memory())


@pytest.fixture
def files(store: Scripted) -> AskFiles:
    return AskFiles(store, SyncRuntime(), PATH)


def test_a_writers_ask_takes_the_place_of_the_one_before(files: AskFiles) -> None:
    for ask in (FIRST, SECOND):
        assert drive(files.write(ask))
        drive(files.read(["w", "nobody"]))
        assert files.young() == [ask]


def test_a_number_that_goes_back_is_not_believed(files: AskFiles) -> None:
    for ask in (SECOND, FIRST):
        drive(files.write(ask))
        drive(files.read(["w"]))
    assert files.young() == []


def test_an_ask_that_did_not_change_is_not_sent_again(files: AskFiles, store: Scripted) -> None:
    drive(files.write(FIRST))
    drive(files.read(["w"]))
    store.clear()
    drive(files.read(["w"]))
    assert store.verbs == ["read_if_changed"]
    assert files.young() == [FIRST]


def test_asks_grow_old_by_the_clock_of_the_store(files: AskFiles, store: Scripted) -> None:
    drive(files.write(FIRST))
    store.shift_s = ASK_AGE_S_MAX - 2
    drive(files.read(["w"]))
    assert files.young() == [FIRST]
    store.shift_s = ASK_AGE_S_MAX + 2
    other = AskFiles(store, SyncRuntime(), PATH)
    drive(other.read(["w"]))
    assert other.young() == []


def test_the_clock_of_the_store_is_read_once_in_a_while(files: AskFiles, store: Scripted, monkeypatch: Any) -> None:
    for _ in range(3):
        drive(files.read(["w"]))
    assert store.count("now") == 1
    monkeypatch.setattr(ask_files, "ASK_AGE_S_MAX", -1.0)
    drive(files.read(["w"]))
    assert store.count("now") == 2


def test_whoever_is_not_looked_for_any_more_is_forgotten(files: AskFiles) -> None:
    drive(files.write(FIRST))
    drive(files.read(["w"]))
    drive(files.read([]))
    assert files.young() == []


def test_an_ask_in_the_file_of_another_is_ignored(files: AskFiles, store: Scripted) -> None:
    drive(store.put(ask_path(PATH, "x"), format_ask(FIRST)))
    drive(files.read(["x"]))
    assert files.young() == []


def test_a_failure_to_ask_is_no_error(files: AskFiles, store: Scripted) -> None:
    store.plan("put", before=fail)
    assert not drive(files.write(FIRST))


def test_a_listing_shows_who_has_asked_of_late(files: AskFiles, store: Scripted) -> None:
    for writer in ("a", "b"):
        drive(files.write(dataclasses.replace(FIRST, writer=writer)))
    drive(store.write(f"{PATH}$chunks/other", [b"x"]))
    assert drive(files.find(1)) == {"a", "b"}
    store.shift_s = ASK_AGE_S_MAX + 2
    assert drive(files.find(1)) == set()


def test_a_listing_without_a_time_shows_no_dead_either(files: AskFiles, store: Scripted, monkeypatch: Any) -> None:
    """Through obstore and in some clouds, a listing does not say what time it is there."""
    lists = store.list_prefix

    async def timeless(folder: str, prefix: str) -> Listing:
        return dataclasses.replace(await lists(folder, prefix), now=None)

    monkeypatch.setattr(store, "list_prefix", timeless)
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


def test_a_listing_that_fails_shows_nobody(files: AskFiles, store: Scripted) -> None:
    drive(files.write(FIRST))
    store.plan("list_prefix", before=fail)
    assert drive(files.find(1)) == set()


def test_of_a_writer_that_is_skipped_the_ask_read_before_counts(files: AskFiles, store: Scripted) -> None:
    drive(files.write(FIRST))
    drive(files.read(["w"]))
    store.clear()
    drive(files.read(["w"], skipped={"w"}))
    assert store.verbs == []
    assert files.young() == [FIRST]


def test_while_the_clock_is_not_known_no_ask_can_be_carried(files: AskFiles, store: Scripted) -> None:
    drive(files.write(FIRST))
    store.plan("now", before=fail)
    drive(files.read(["w"]))
    assert files.young() == []
    drive(files.read(["w"]))
    assert files.young() == [FIRST]
