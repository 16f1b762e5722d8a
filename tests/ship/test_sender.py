"""`Sender`: one commit, once, whatever the store answers and whoever else goes on."""

import errno

import pytest

from rollingfs import RollingFileSystem
from rollingfs.errors import SegmentSealedError
from rollingfs.fs.core import core
from rollingfs.ship import sender as module
from rollingfs.ship.sender import Sender, Stopped
from tests.support.backends import Scripted, fail, private_memory, raises

PATH = "/logs/app"
HEADER = "$header"


@pytest.fixture
def backend():
    return Scripted(private_memory())


@pytest.fixture
def fs(backend):
    return RollingFileSystem(backend=backend, skip_instance_cache=True, commit_timeout_s=0.2)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(module, "RETRY_S_MIN", 0.001)
    monkeypatch.setattr(module, "RETRY_S_MAX", 0.01)


def sent(sender, before, after, data=b"one\n"):
    return sender.send(lambda: data, {"k": before}, {"k": after})


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_lost_answer_writes_once(fs, backend, how, is_new):
    sender = Sender(core(fs), PATH, say=lambda line: None)
    if not is_new:
        assert sent(sender, None, "0", b"zero\n")
    backend.plan(("create", "replace"), HEADER, **{how: fail})
    backend.plan("read", HEADER, before=fail, times=40)
    assert sent(sender, None if is_new else "0", "1")
    assert fs.cat_file(PATH) == (b"" if is_new else b"zero\n") + b"one\n"
    assert sent(sender, "1", "2", b"two\n")
    assert fs.cat_file(PATH).endswith(b"one\ntwo\n")


def test_another_program_wins(fs):
    first, second = Sender(core(fs), PATH), Sender(core(fs), PATH)
    assert sent(first, None, "1")
    assert not sent(second, None, "2")
    assert sent(second, None, "1")  # the same bytes, by another that has read the same file
    assert second.attrs() == {"k": "1"}
    assert fs.cat_file(PATH) == b"one\n"


def test_a_final_error_is_raised(fs):
    sender = Sender(core(fs), PATH)
    assert sender.attrs() == {}
    assert sent(sender, None, "1")
    fs.seal(PATH)
    with pytest.raises(SegmentSealedError):
        sent(sender, "1", "2")
    fs.rm(PATH)
    with pytest.raises(FileNotFoundError):
        sender.attrs()
    fs.pipe_file(PATH, b"another")
    with pytest.raises(FileNotFoundError, match="another has its name"):
        sent(sender, None, "1")
    assert fs.cat_file(PATH) == b"another"


def test_the_end_gives_up(fs, backend):
    said, tries = [], iter([False] * 6 + [True] * 100)
    sender = Sender(core(fs), PATH, is_stopped=lambda: next(tries), say=said.append)
    fs.create(PATH)
    backend.plan("replace", HEADER, before=raises(OSError(errno.ENOSPC, "No space left on device")), times=None)
    with pytest.raises(Stopped):
        sent(sender, None, "1")
    assert len(said) == 1
    assert PATH in said[0]
