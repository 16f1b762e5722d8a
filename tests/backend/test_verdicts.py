"""Verdicts of the probe: kept for the process, in a file on request, and never believed where they cannot be right."""

import errno
import json
import logging
import os
import re
import time
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rollingfs import RollingFileSystem
from rollingfs.backend import verdicts
from rollingfs.backend.contract import Backend
from rollingfs.backend.probe import PROBE_VERSION, Abilities
from rollingfs.backend.verdicts import CACHE_NAME, CACHE_S_MAX, Verdicts
from rollingfs.errors import UnsafeBackendError
from rollingfs.runtime.concurrency import AsyncRuntime, SyncRuntime
from rollingfs.segment.at import At
from rollingfs.testing import run
from tests.support.backends import Counting, Scripted, forget_verdicts, private_memory, raises
from tests.support.careless import careless

pytestmark = pytest.mark.usefixtures("nothing_known")
PATH = "/logs/x"
NAME = "http://store/bucket"


class Named(Scripted):
    """A store with a name that every process knows."""

    name = NAME

    async def store_name(self, path: str) -> str:
        return self.name


def probes_of(backend: Counting) -> int:
    """How often the store was probed: each probe deletes once."""
    return backend.count("delete")


def ask(backend: Backend, cache: object = None, path: str = PATH) -> Abilities:
    """What a new client finds."""
    found = Verdicts(backend, At.of(backend).runtime, False if cache is None else str(cache))
    return run(backend, found.abilities(path))


# -- for the process ---------------------------------------------------------------------------------------------


def test_clients_of_one_store_share_a_probe_readers_none():
    backend = Named(private_memory())
    assert [ask(backend) for _ in range(3)] == [Abilities(delete_if=True)] * 3
    assert probes_of(backend) == 1
    with pytest.raises(UnsafeBackendError, match="single_writer=True"):
        ask(Named(private_memory(), can_write=False))


def test_store_without_a_name_is_probed_by_every_client(tmp_path):
    backend = Counting(private_memory())
    ask(backend, tmp_path / "cache")
    ask(backend, tmp_path / "cache")
    assert probes_of(backend) == 2
    assert not (tmp_path / "cache").exists()


def test_segments_that_begin_together_share_one_probe():
    backend = Counting(private_memory(), suspends=True, must_race=True)
    found = Verdicts(backend, AsyncRuntime())

    async def many() -> list[Abilities]:
        return await AsyncRuntime().gather([lambda n=n: found.abilities(f"/logs/{n}") for n in range(20)], 20)

    assert run(backend, many()) == [Abilities(delete_if=True)] * 20
    assert probes_of(backend) == 1


@pytest.mark.parametrize("verb", ["create", "replace"])
def test_a_refusal_is_not_kept(verb, tmp_path):
    for _ in range(2):
        backend = careless(verb)
        backend.store_name = Named(private_memory()).store_name  # type: ignore[method-assign]
        with pytest.raises(UnsafeBackendError, match=f"the store {NAME}: {verb} let"):
            ask(backend, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_client_remembers_an_unsafe_store():
    backend = careless("replace")
    found = Verdicts(backend, At.of(backend).runtime)
    said = []
    for path in ("/logs/x", "/logs/x", "/logs/y"):
        with pytest.raises(UnsafeBackendError, match="it is not safe to write to") as caught:
            run(backend, found.abilities(path))
        said.append(str(caught.value))
    assert backend.count("delete") == 1
    assert said[0] == said[1] == said[2].replace("/logs/y", "/logs/x")
    assert said[2].startswith("/logs/y: ")


def test_a_failed_probe_is_made_again():
    backend = Named(private_memory())
    backend.plan("create", before=raises(OSError(5, "the network is down")), times=1, probes=True)
    found = Verdicts(backend, SyncRuntime())
    with pytest.raises(OSError, match="down"):
        run(backend, found.abilities(PATH))
    assert run(backend, found.abilities(PATH)) == Abilities(delete_if=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_child_does_not_wait_for_a_parent_threads_lock():
    backend = Counting(private_memory())
    found = Verdicts(backend, SyncRuntime())
    found._locks["memory"] = held = SyncRuntime().lock(PATH)
    held.lock.acquire()
    found.after_fork()
    assert run(backend, found.abilities(PATH)) == Abilities(delete_if=True)


# -- in a file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cache.json", "new/folder/cache.json", "", "new/"])
def test_another_process_believes_the_file(tmp_path, name):
    cache = f"{tmp_path}/{name}"
    ask(Named(private_memory()), cache)
    forget_verdicts()
    backend = Named(private_memory())
    assert ask(backend, cache) == Abilities(delete_if=True)
    assert backend.calls == []
    file = Path(cache) / CACHE_NAME if name in ("", "new/") else Path(cache)
    assert list(file.parent.iterdir()) == [file], "no temporary file stays"


def test_the_file_keeps_several_stores(tmp_path):
    cache = tmp_path / "cache"
    for name in "ab":
        backend = Named(private_memory())
        backend.name = name
        ask(backend, cache)
    assert set(json.loads(cache.read_text())["stores"]) == {"Named a", "Named b"}


def stored(**changes: Any) -> str:
    row = {"delete_if": False, "at": int(time.time()), **changes}
    return json.dumps({"rollingfs_probe": PROBE_VERSION, "stores": {f"Named {NAME}": row}})


def write(cache: Path, content: str | bytes) -> None:
    """Write a cache file that only its owner may write."""
    cache.write_bytes(content if isinstance(content, bytes) else content.encode())
    cache.chmod(0o644)


NOT_BELIEVED: dict[str, tuple[str | bytes, str]] = {
    "old": (stored(at=int(time.time()) - CACHE_S_MAX - 60), ""),
    "of the future": (stored(at=int(time.time()) + 3600), ""),
    "without a date": (stored(at="today"), ""),
    "without an answer": (stored(delete_if="yes"), ""),
    "no row": (json.dumps({"rollingfs_probe": PROBE_VERSION, "stores": {f"Named {NAME}": True}}), ""),
    "absurd": (stored(at=10**400), ""),
    "no text": (b"\xff\xfe", "cannot be read"),
    "torn": (b'{"rollingfs_probe"', "cannot be read"),
    "deep": (b"[" * 100_000, "cannot be read"),
    "no mapping": (b"[]", "version None"),
    "of version 1": (stored().replace(f": {PROBE_VERSION},", ": 1,"), "version 1"),
    "of version 2": (b'{"rollingfs_probe": 2}', "version 2"),
}
"""Rows and whole files, and what is said of the latter."""


@pytest.mark.parametrize(("content", "said"), NOT_BELIEVED.values(), ids=NOT_BELIEVED)
def test_unbelievable_verdict_is_rewritten_and_reported_for_whole_files(tmp_path, content, said, caplog):
    write(tmp_path / "cache", content)
    backend = Named(private_memory())
    with caplog.at_level(logging.WARNING, "rollingfs"):
        assert ask(backend, tmp_path / "cache") == Abilities(delete_if=True)
    assert [f"{tmp_path}/cache" in text and said in text for text in caplog.messages] == [True] * bool(said)
    assert json.loads((tmp_path / "cache").read_text())["stores"][f"Named {NAME}"]["delete_if"] is True
    forget_verdicts()
    ask(backend, tmp_path / "cache")
    assert probes_of(backend) == 1, "the file is believed now"


needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no owner and mode of POSIX")


def owned_by(patch: pytest.MonkeyPatch, call: str, uid: int) -> None:
    """Let a call of `os` say that files have another owner."""
    real = getattr(os, call)

    def changed(*of: Any, **how: Any) -> os.stat_result:
        found = real(*of, **how)
        return os.stat_result([*found[:4], uid, *found[5:]])

    patch.setattr(verdicts.os, call, changed)


@needs_owners
@pytest.mark.parametrize(
    ("mode", "owner", "why"), [(0o664, 0, "mode 664"), (0o646, 0, "mode 646"), (0o644, 1, "uid [0-9]+.* owns it")]
)
def test_file_that_others_may_write_is_ignored_with_warning(tmp_path, monkeypatch, caplog, mode, owner, why):
    cache = tmp_path / "cache"
    write(cache, stored())
    cache.chmod(mode)
    owned_by(monkeypatch, "fstat", os.geteuid() + owner)
    with caplog.at_level(logging.WARNING, "rollingfs"):
        for _ in range(2):
            forget_verdicts()
            backend = Named(private_memory())
            assert ask(backend, cache) == Abilities(delete_if=True)
            assert probes_of(backend) == 1
    (said,) = caplog.messages
    assert str(cache) in said
    assert re.search(why, said)
    assert cache.read_text() == stored(at=json.loads(cache.read_text())["stores"][f"Named {NAME}"]["at"]), "left alone"


@needs_owners
def test_a_file_of_root_is_believed(tmp_path, monkeypatch):
    write(tmp_path / "cache", stored())
    monkeypatch.setattr(verdicts.os, "geteuid", lambda: 1000)
    owned_by(monkeypatch, "fstat", 0)
    assert ask(Named(private_memory()), tmp_path / "cache") == Abilities(delete_if=False)


def test_unwritable_cache_is_no_error_and_is_reported(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "rollingfs"):
        assert ask(Named(private_memory()), tmp_path / "file" / "cache") == Abilities(delete_if=True)
    assert "not kept for other processes" in caplog.messages[-1]


# -- in the user's cache folder ----------------------------------------------------------------------------------


def kept(backend: Backend, *, by_default: bool = True) -> int:
    """How often a filesystem probes, with the verdicts as they are by default, in a process that knows nothing."""
    forget_verdicts()
    options = {} if by_default else {"probe_cache": False}
    counted = Named(backend)
    RollingFileSystem(backend=counted, skip_instance_cache=True, **options).create(f"/{uuid.uuid4().hex}")
    return probes_of(counted)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user who has never used rollingfs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rollingfs"


def test_by_default_another_process_of_user_believes_verdict(cache):
    mask = os.umask(0)
    try:
        assert [kept(private_memory()) for _ in range(2)] == [1, 0]
    finally:
        os.umask(mask)
    assert list(cache.iterdir()) == [cache / CACHE_NAME]
    if hasattr(os, "geteuid"):
        assert (cache.stat().st_mode & 0o777, (cache / CACHE_NAME).stat().st_mode & 0o777) == (0o700, 0o600)


def test_without_xdg_the_folder_lies_in_the_home(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert [kept(private_memory()) for _ in range(2)] == [1, 0]
    assert (tmp_path / ".cache" / "rollingfs" / CACHE_NAME).exists()


def test_without_a_cache_nothing_is_kept_and_nothing_believed(cache):
    assert kept(private_memory(), by_default=False) == 1
    assert not cache.exists()
    kept(private_memory())
    assert kept(private_memory(), by_default=False) == 1


def _no_home(cache: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delenv("XDG_CACHE_HOME")
    patch.setattr(verdicts.os.path, "expanduser", lambda path: path)  # nobody knows where this user is at home


def _no_folder_can_be_made(cache: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verdicts.os, "makedirs", raises(OSError(errno.EROFS, "Read-only file system", str(cache))))


def _a_file_is_there(cache: Path, patch: pytest.MonkeyPatch) -> None:
    cache.parent.write_text("")


def _others_may_write(cache: Path, patch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)


def _another_user_owns_it(cache: Path, patch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True, mode=0o700)
    patch.setattr(verdicts.os, "geteuid", lambda: 1000)
    owned_by(patch, "stat", 1001)


def _root_in_the_home_of_another(cache: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verdicts.os, "geteuid", lambda: 0)
    owned_by(patch, "stat", 7)


PREPARED = [_no_home, _no_folder_can_be_made, _a_file_is_there, _others_may_write, _another_user_owns_it]


@needs_owners
@pytest.mark.parametrize("prepare", [*PREPARED, _root_in_the_home_of_another])
def test_user_without_a_folder_probes_in_each_process(cache, monkeypatch, prepare):
    prepare(cache, monkeypatch)
    assert [kept(private_memory()) for _ in range(2)] == [1, 1]
    monkeypatch.undo()
    assert not (cache / CACHE_NAME).exists()


# -- the option --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [7, b"cache", "", "s3://bucket/cache"])
def test_the_option_is_a_local_path(value):
    with pytest.raises((TypeError, ValueError), match=r"probe_cache is .*local file or folder"):
        fsspec.filesystem("rolling", target_protocol="memory", probe_cache=value, skip_instance_cache=True)


# -- unsafe beats safe ------------------------------------------------------------------------------------------


def test_unsafe_beats_safe(tmp_path):
    """Of two processes, the first finds the store unsafe; another had found it safe, or finds it safe later."""
    cache, safe = f"{tmp_path}/{CACHE_NAME}", Named(private_memory())
    ask(safe, cache)
    verdicts._of_process.clear()  # from here on, another process
    Verdicts(safe, SyncRuntime(), cache).condemn(PATH, "it is of no name that is known")
    assert ask(safe, cache).delete_if
    first = Verdicts(safe, SyncRuntime(), cache)
    run(safe, first.abilities(PATH))
    first.condemn(PATH, "two writers won")
    for path in (PATH, "/logs/other"):
        with pytest.raises(UnsafeBackendError, match=f"{path}: two writers won$"):
            ask(safe, cache, path)
    verdicts._of_process.clear()
    verdicts._unsafe.clear()
    probes = probes_of(safe)
    with pytest.raises(UnsafeBackendError, match=r"two writers won \(found at .*delete .*\.unsafe\)"):
        ask(safe, cache)
    assert probes_of(safe) == probes
    os.unlink(f"{cache}.unsafe")
    assert ask(safe, cache).delete_if


def test_running_client_learns_what_another_process_found(tmp_path, monkeypatch):
    cache, safe, now_s = f"{tmp_path}/{CACHE_NAME}", Named(private_memory()), [1000.0]
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: now_s[0])
    going_on = Verdicts(safe, SyncRuntime(), cache)
    assert run(safe, going_on.abilities(PATH)).delete_if
    run(safe, going_on.abilities(PATH))
    other = Verdicts(safe, SyncRuntime(), cache)
    run(safe, other.abilities(PATH))
    other.condemn(PATH, "two writers won")
    verdicts._unsafe.clear()  # it was another process
    assert run(safe, going_on.abilities(PATH)).delete_if
    now_s[0] += verdicts.LOOK_S
    with pytest.raises(UnsafeBackendError, match=r"two writers won .found at"):
        run(safe, going_on.abilities(PATH))


def test_store_refused_by_a_probe_is_refused_without_one(tmp_path):
    cache = f"{tmp_path}/{CACHE_NAME}"
    unsafe = Named(private_memory())
    unsafe.plan("create", instead=lambda *_: "token", times=None, probes=True)
    for _ in range(2):
        with pytest.raises(UnsafeBackendError, match="condition that does not hold did not fail"):
            ask(unsafe, cache)
    assert unsafe.count("create") == 2
