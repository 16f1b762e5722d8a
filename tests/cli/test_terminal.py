"""The command line in a real terminal: progress, the map, following, and Ctrl-C."""

import pytest

from tests.support.cli import terminal

pytest.importorskip("pty", reason="terminals are for Unix")


def test_people_see_progress_and_a_coloured_map(tmp_path, store):
    (tmp_path / "input").write_bytes(b"x" * (6 << 20))
    with terminal(tmp_path, "append log --option max_bytes=1MiB < input") as shell:
        shown = shell.ends()
    assert "/6.0 MiB" in shown
    assert "log: 6,291,456 bytes at offset 0" in shown
    store.truncate(f"{tmp_path}/log", 3 << 20)
    with terminal(tmp_path, "map log") as shell:
        shown = shell.ends()
    assert "start 3,145,728, length 6,291,456" in shown
    assert "\x1b[92m█" in shown
    assert "·" in shown
    with terminal(tmp_path, "append log < input > said") as shell:
        assert "/6.0 MiB" in shell.ends()
    assert (tmp_path / "said").read_text() == "log: 6,291,456 bytes at offset 6,291,456\n"


def test_following_ends_by_a_seal_or_ctrl_c(tmp_path, store):
    path = f"{tmp_path}/log"
    store.create(path)
    store.append(path, b"old 1\nold 2\n")
    with terminal(tmp_path, "tail -f -n 1 log") as shell:
        assert "old 1" not in shell.expect("old 2")
        store.append(path, b"new 1\n")
        shell.expect("new 1")
        shell.type("\x03")
        assert "Traceback" not in shell.ends(130)
    with terminal(tmp_path, "tail -f -n 1 log") as shell:
        shell.expect("new 1")
        store.append(path, b"new 2\n")
        store.seal(path)
        assert "new 2" in shell.ends()
