"""The parts of the tests' own support that skip tests, and that spare them probes."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import BACKENDS, Program, _start, require_module, shared


@pytest.mark.parametrize("name", ["surely_not_installed", "surely_not_installed.sdk", "json.surely_not_there"])
def test_module_without_package_is_skipped_missing_parents_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("ROLLINGFS_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{name} is not installed"):
        require_module(name)
    monkeypatch.setenv("ROLLINGFS_REQUIRE", "all")
    with pytest.raises(pytest.fail.Exception, match=f"{name} is not installed"):
        require_module(name)
    require_module("json.decoder")


def test_verdicts_that_spare_probes_are_of_their_class() -> None:
    """The class was renamed once. Nothing failed, and each bucket of the tests was probed, for 8 to 18 s."""
    require_module("s3fs")
    from rollingfs.backend.objects.s3.backend import S3Backend

    assert S3Backend.__name__ == BACKENDS[0]


def test_program_is_made_once_where_it_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLINGFS_CACHE", str(tmp_path))
    program = Program("copy-1", "sh", "cp text made; echo once >> ../runs", files={"text": "as given"})
    monkeypatch.delenv("ROLLINGFS_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="copy-1 is not in the cache"):
        program.installed()
    monkeypatch.setenv("ROLLINGFS_REQUIRE", "all")
    assert program.installed().read_text() == program.installed().read_text() == "as given"
    assert (tmp_path / "runs").read_text() == "once\n"
    with pytest.raises(RuntimeError, match="there is no `surely-no-tool`"):
        Program("other-1", "surely-no-tool", "true").installed()


@pytest.mark.skipif(sys.platform == "win32", reason="each worker has its own servers there")
def test_first_user_of_a_shared_server_ends_it_last(tmp_path: Path) -> None:
    seen, entered = list[str](), threading.Event()

    @contextlib.contextmanager
    def server() -> Iterator[dict[str, str]]:
        seen.append("start")
        yield {"url": f"of {seen.count('start')}"}
        seen.append("end")

    def use_as_well() -> None:
        with shared(server, tmp_path / "server") as options:
            entered.set()
            first.wait()
            seen.append(options["url"])

    first, second = threading.Event(), threading.Thread(target=use_as_well)
    with shared(server, tmp_path / "server"):
        second.start()
        entered.wait()
        threading.Timer(0.05, first.set).start()
    second.join()
    with shared(server, tmp_path / "server") as options:
        assert options == {"url": "of 2"}
    assert seen == ["start", "of 1", "end", "start", "end"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no shell")
def test_server_ends_when_its_starter_is_killed() -> None:
    server = _start(["sleep", "600"])
    server.stdin.close()  # as the end of a process closes it
    assert server.wait() == -signal.SIGKILL
