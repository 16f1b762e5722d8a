"""The command line in a real terminal: progress, the map, following, and Ctrl-C."""

import fsspec
import pytest

from tests.support.cli import terminal

pytest.importorskip("pty", reason="terminals are for Unix")

MEGABYTES = 6


@pytest.fixture
def store():
    return fsspec.filesystem("rolling", target_protocol="file", max_bytes="1MiB", header_cache_s=0)


@pytest.fixture
def programs(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


def test_people_see_progress_and_a_coloured_map(tmp_path, programs, store):
    (tmp_path / "input").write_bytes(b"x" * (MEGABYTES << 20))
    with terminal(tmp_path, programs) as shell:
        shell.type("rollingfs append log --option max_bytes=1MiB < input\n")
        shown = shell.ends()
        assert "/6.0 MiB" in shown
        assert "log: 6,291,456 bytes at offset 0" in shown
        store.truncate(f"{tmp_path}/log", 3 << 20)
        shell.type("rollingfs map log\n")
        shown = shell.ends()
        assert "start 3,145,728, length 6,291,456" in shown
        assert "\x1b[92m█" in shown
        assert "·" in shown
        shell.type("rollingfs append log < input > said\n")
        shown = shell.ends()
        assert "/6.0 MiB" in shown
        assert (tmp_path / "said").read_text() == "log: 6,291,456 bytes at offset 6,291,456\n"


def test_following_shows_what_comes_and_ends_by_a_seal_or_by_ctrl_c(tmp_path, programs, store):
    path = f"{tmp_path}/log"
    store.create(path)
    store.append(path, b"old 1\nold 2\n")
    with terminal(tmp_path, programs) as shell:
        shell.type("rollingfs tail -f -n 1 log\n")
        assert "old 1" not in shell.expect("old 2")
        store.append(path, b"new 1\n")
        shell.expect("new 1")
        shell.type("\x03")
        shown = shell.ends(130)
        assert "Traceback" not in shown
        shell.type("rollingfs tail -f -n 1 log\n")
        shell.expect("new 1")
        store.append(path, b"new 2\n")
        store.seal(path)
        shown = shell.ends()
        assert "new 2" in shown
