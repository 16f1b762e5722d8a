"""The calls of a disk on systems that this machine is not: what XNU and the C library of macOS would be given."""

import errno
import os
import struct

import pytest

from rollingfs.backend.local import linux, macos, system
from tests.support.backends import raises

F_WRLCK = 3


def test_each_system_defines_all_names():
    for module in (linux, macos):
        assert [name for name in system.__all__ if not hasattr(module, name)] == []


def test_a_lock_has_the_layout_of_xnu_and_of_linux():
    assert struct.unpack("=qqihh", macos.lock_request(F_WRLCK)) == (0, 0, 0, F_WRLCK, os.SEEK_SET)
    assert struct.unpack_from("=hh4xqqi", linux.lock_request(1)) == (1, os.SEEK_SET, 0, 0, 0)
    assert (macos.OFD_SETLK, macos.NO_REPLACE, macos.HERE) == (90, 4, -2)


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL, errno.EIO])
def test_a_disk_without_full_flush_is_flushed_as_it_can(tmp_path, monkeypatch, number):
    flushed = []
    monkeypatch.setattr(macos.fcntl, "fcntl", raises(OSError(number, "injected")))
    monkeypatch.setattr(os, "fsync", flushed.append)
    if number == errno.EIO:
        with pytest.raises(OSError, match="injected"):
            macos.flush(7)
    else:
        macos.flush(7)
    assert flushed == ([] if number == errno.EIO else [7])
