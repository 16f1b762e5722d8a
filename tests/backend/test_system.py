"""The calls of a disk on systems that this machine is not: what XNU and the C library of macOS would be given."""

import ast
import errno
import importlib.util
import os
import runpy
import struct
from pathlib import Path

import pytest

from rollingfs import errors
from rollingfs.backend.local import system
from tests.support.backends import raises

pytest.importorskip("fcntl")
from rollingfs.backend.local import macos, posix

F_WRLCK = 3


LOCAL = Path(system.__file__).parent


def defined(module: str) -> set[str]:
    """The names at the top of a module, which this system may be unable to import."""
    found = set[str]()
    for node in ast.parse((LOCAL / f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


@pytest.mark.parametrize("modules", [("posix",), ("posix", "macos"), ("windows",)], ids=lambda of: of[-1])
def test_each_system_defines_all_names(modules):
    names = {name for name in vars(system) if not name.startswith("_") and name != "sys"}
    assert len(names) > 25
    assert names - set().union(*map(defined, modules)) == set()


def test_lock_has_layout_of_xnu_and_of_linux():
    assert struct.unpack("=qqihh", macos.lock_request(F_WRLCK)) == (0, 0, 0, F_WRLCK, os.SEEK_SET)
    assert struct.unpack_from("=hh4xqqi", posix.lock_request(1)) == (1, os.SEEK_SET, 0, 0, 0)


@pytest.mark.parametrize("module", [posix, macos], ids=["linux", "macos"])
def test_locks_of_open_files_need_no_name(module, tmp_path, monkeypatch):
    """As in uv's Python for Linux, and as on FreeBSD."""
    monkeypatch.delattr("fcntl.F_OFD_SETLK", raising=False)
    spec = importlib.util.spec_from_file_location("again", module.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert {posix: 37, macos: 90}[module] == again._OFD_SETLK
    monkeypatch.setattr("fcntl.fcntl", raises(OSError(errno.EINVAL, "injected")))
    with pytest.raises(OSError, match="nothing was written") as caught:
        again.lock(7)
    assert caught.value.errno == errno.ENOTSUP


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL, errno.EIO])
def test_disk_without_full_flush_is_flushed_as_it_can(tmp_path, monkeypatch, number):
    flushed = []
    monkeypatch.setattr(macos.fcntl, "fcntl", raises(OSError(number, "injected")))
    monkeypatch.setattr(os, "fsync", flushed.append)
    if number == errno.EIO:
        with pytest.raises(OSError, match="injected"):
            macos.flush(7)
    else:
        macos.flush(7)
    assert flushed == ([] if number == errno.EIO else [7])


def test_macos_is_asked_for_the_name_of_a_path(monkeypatch):
    def getattrlist(path, asked, answer, size, options):
        assert (path, struct.unpack("HHIIIII", asked)[:3], size.value, options.value) == (b"/a/log", (5, 0, 1), 2048, 1)
        name = "Café\0".encode()
        struct.pack_into("=IiI", answer, 0, 12 + len(name), 8, len(name))
        answer[12 : 12 + len(name)] = name
        return 0

    monkeypatch.setattr(posix, "library_function", {"getattrlist": getattrlist}.get)
    assert macos.true_name("/a/log") == "Café"
    monkeypatch.setattr(posix, "library_function", lambda _: None)
    assert macos.true_name("/a/log") == ""


def test_what_is_not_supported_has_two_numbers_on_macos(monkeypatch):
    """A program that compares one of them takes the other for a fault of the store."""
    monkeypatch.setattr(errno, "ENOTSUP", 45)
    monkeypatch.setattr(errno, "EOPNOTSUPP", 102)
    assert runpy.run_path(errors.__file__)["UNSUPPORTED"] == {45, 102}
    package = Path(errors.__file__).parent
    told = [path.name for path in package.rglob("*.py") if compares_one_number(ast.parse(path.read_text()))]
    assert told == ["errors.py"]


def compares_one_number(tree: ast.Module) -> bool:
    numbers = {"ENOTSUP", "EOPNOTSUPP"}
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.Set | ast.Tuple)]
    return any(isinstance(node, ast.Attribute) and node.attr in numbers for one in asked for node in ast.walk(one))
