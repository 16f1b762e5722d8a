"""One backend that routes by tier, over stores of any kind."""

from dataclasses import replace
from typing import Any

import pytest

from rollingfs.backend.contract import Backend, Part
from rollingfs.backend.contract_values import PendingUpload
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.tiers import TieredBackend, TierStore, can_copy
from rollingfs.errors import UnknownTierError
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from tests.backend.test_local import OnDisk
from tests.support.backends import Counting, joined, private_memory
from tests.support.driven import Driven

FILE = "/logs/s$chunks/tier-x"
COLD = names.in_tier("cold", FILE)


class TestAHotDiskWithATier(OnDisk):
    """The hot store's own paths behave as without tiers; a disk has verbs that no other store has."""

    @pytest.fixture
    def backend(self) -> Backend:
        return tiered(LocalBackend(sync=False))

    def spawn_arguments(self) -> None:
        return None


def tiered(hot: Backend | None = None, cold: Backend | None = None) -> Any:
    """A store in memory, or another, with one tier."""
    return TieredBackend(hot or private_memory(), {"cold": TierStore(cold or private_memory(), "/archive")})


def use(backend: Any) -> None:
    """Every verb that the core uses on a tier."""
    folder, hot = names.in_tier("cold", "/logs/s$chunks"), "/logs/hot"
    backend.write(COLD, [b"01", b"23456789"])
    for name, pieces in (("two", (b"ab", b"cd")), ("three", (b"x",))):
        upload = backend.open_write(f"{folder}/{name}")
        for piece in pieces:
            upload.write(piece)
        upload.finish() if name == "two" else upload.abort()
    assert backend.read(COLD).data == b"0123456789"
    assert bytes(backend.read_range(COLD, 2, 5)) == b"234"
    info = backend.stat(COLD)
    assert (info.path, info.size) == (COLD, 10)
    for look in (backend.list, backend.list_page):
        assert [entry.path for entry in look(folder).entries] == [COLD, f"{folder}/two"]
    assert backend.now(folder) > 0
    with pytest.raises(FileNotFoundError):
        backend.stat(FILE)
    backend.write(hot, [b"hot"])
    backend.delete([COLD, hot, f"{folder}/two"])
    for path in (COLD, hot, f"{folder}/two"):
        with pytest.raises(FileNotFoundError):
            backend.stat(path)


@pytest.mark.parametrize("cold_suspends", [False, True])
@pytest.mark.parametrize("hot_suspends", [False, True])
def test_hot_store_and_tier_may_each_suspend_or_block(hot_suspends, cold_suspends):
    cold = private_memory()
    backend = tiered(Counting(private_memory(), suspends=hot_suspends), Counting(cold, suspends=cold_suspends))
    use(Driven(backend))
    assert not cold.fs.store


def test_missing_alias_is_named_before_any_store_is_asked():
    hot = Counting(private_memory())
    backend = tiered(hot)
    for verb in (backend.read, backend.stat, backend.list, backend.now):
        with pytest.raises(UnknownTierError, match="'warm' is not configured"):
            drive(verb(names.in_tier("warm", FILE)))
    with pytest.raises(UnknownTierError, match="'warm'"):
        drive(backend.delete(["/logs/x", names.in_tier("warm", FILE)]))
    assert hot.calls == []


@pytest.mark.parametrize(
    ("hot", "there"),
    [("C:/logs/s", "C/logs/s"), ("/logs/s", "logs/s"), ("//pc/share/s", "pc/share/s"), ("b/c:/s", "b/c:/s")],
)
def test_a_drive_is_a_folder_of_the_tier(hot, there):
    assert TierStore(private_memory(), "/archive").path(hot) == f"/archive/{there}"


def test_server_copies_within_the_hot_store_and_nowhere_else():
    hot = private_memory()
    backend = TieredBackend(hot, {"cold": TierStore(hot, "/archive"), "far": TierStore(private_memory(), "/archive")})
    assert backend.tiers == {"cold": True, "far": False}
    assert can_copy(backend, "/logs/a", COLD)
    assert not can_copy(backend, "/logs/a", names.in_tier("far", FILE))
    assert not can_copy(backend, COLD, names.in_tier("far", FILE))
    drive(backend.write("/logs/a", [b"0123"]))
    drive(backend.copy("/logs/a", COLD))
    drive(joined(backend, [Part(COLD, 1, 3), Part("/logs/a", 0, 1)], "/logs/b"))
    assert hot.fs.cat_file("/archive/logs/s$chunks/tier-x") == b"0123"
    assert hot.fs.cat_file("/logs/b") == b"120"
    with pytest.raises(NotImplementedError, match="another store"):
        drive(backend.copy("/logs/a", names.in_tier("far", FILE)))


def test_unfinished_tier_uploads_are_listed_and_aborted():
    aborted = []

    class Uploading(MemoryBackend):
        capability = replace(MemoryBackend.capability, can_list_uploads=True)

        async def list_uploads(self, folder, name=None):
            return (PendingUpload(f"{folder}/tier-x", 5.0, "id"),)

        async def abort_upload(self, upload):
            aborted.append(upload.path)

    backend = tiered(cold=Uploading())
    [pending] = drive(backend.list_uploads(names.in_tier("cold", "/logs/s$chunks")))
    assert pending.path == COLD
    drive(backend.abort_upload(pending))
    assert aborted == ["/archive/logs/s$chunks/tier-x"]


def test_forked_child_drops_connections_of_tiers_too(monkeypatch):
    cold, forks = private_memory(), []
    monkeypatch.setattr(cold, "after_fork", lambda: forks.append("cold"))
    tiered(cold=cold).after_fork()
    assert forks == ["cold"]
