"""Another process holds a lock for too long: the commit keeps its deadline, and the error names the lock."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend.local import record_lock
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.errors import AppendOutcomeUnknown, LockedError
from rollingfs.format import names
from rollingfs.runtime.concurrency import SyncRuntime, drive

WAIT_S = 60
TIMEOUT_S = 0.5


def _new_fs(timeout_s: float = TIMEOUT_S) -> RollingFileSystem:
    return RollingFileSystem("file", skip_instance_cache=True, commit_timeout_s=timeout_s, sync=False)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = f"{tmp_path}/log"
    _new_fs().pipe_file(path, b"before ")
    return path


def test_a_delete_and_a_removal_do_not_wait_for_ever_either(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_lock, "WAIT_S_MAX", 0.05)
    backend, header = LocalBackend(), names.header_path(log)
    token = drive(backend.read(header)).token
    chunks = names.chunks_folder(log)
    with record_lock.record_lock(names.lock_path(header)):
        with pytest.raises(LockedError, match="holds the lock"):
            drive(backend.delete_if(header, token))
        with pytest.raises(LockedError, match="holds the lock"):
            drive(backend.remove_folder(chunks))
    assert drive(backend.delete_if(header, token))


@pytest.mark.parametrize("has_ofd_locks", [True, False])
def test_the_time_of_a_call_bounds_its_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ofd_locks: bool
) -> None:
    if has_ofd_locks and not record_lock._HAS_OFD_LOCKS:
        pytest.skip("this system has no locks of open file descriptions")
    monkeypatch.setattr(record_lock, "_HAS_OFD_LOCKS", has_ofd_locks)
    backend, header = LocalBackend(), f"{tmp_path}/x$header"
    token = drive(backend.replace(header, b"old", drive(backend.create(header, b"x"))))
    errors: list[BaseException] = []

    def replace() -> None:
        try:
            drive(SyncRuntime().limit(backend.replace(header, b"new", token), 0.05))
        except LockedError as error:
            errors.append(error)

    with record_lock.record_lock(names.lock_path(header)):
        thread = threading.Thread(target=replace)
        thread.start()
        thread.join(WAIT_S)
    assert len(errors) == 1
    assert drive(backend.read(header)).data == b"old"
    assert record_lock._held == set()


def test_it_is_unknown_if_an_earlier_attempt_may_have_taken_place(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost answer still counts if a later attempt meets a held lock."""
    fs = _new_fs()
    real = LocalBackend.extend
    tries: list[str] = []

    async def extend(self: LocalBackend, path: str, data: Any, token: str, adapt: Any = None) -> str | None:
        if path == names.header_path(log):  # not the probe's file
            tries.append(path)
        if tries == [path]:
            raise OSError(5, "injected: nobody knows what became of it")
        return await real(self, path, data, token)

    monkeypatch.setattr(LocalBackend, "extend", extend)
    with record_lock.record_lock(names.lock_path(names.header_path(log))), pytest.raises(AppendOutcomeUnknown):
        fs.append(log, b"unknown")
    assert len(tries) > 1
