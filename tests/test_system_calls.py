"""Two modules know the system: all others take facts and calls from them."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollingfs.runtime.system import read_at

ROLLINGFS = Path(__file__).parents[1] / "rollingfs"
ROOMS = {"runtime/system.py", *(f"backend/local/{name}.py" for name in ("system", "posix", "macos", "windows"))}
MODULES = frozenset({"fcntl", "msvcrt", "resource", "ctypes"})
ATTRIBUTES = re.compile(
    r"sys.platform|platform.system|socket.AF_UNIX|select.poll|time.clock_gettime"
    r"|os.(name|uname|register_at_fork|fork|get[eg]?[ug]id|getpgrp|tcgetpgrp|killpg|setsid|p(read|write)v?|fch(mod|own)"
    r"|chown|statvfs|posix_\w+|mkfifo|SEEK_DATA|O_(NOFOLLOW|DIRECTORY|NONBLOCK|CLOEXEC|PATH|TMPFILE))"
    r"|signal.(SIGKILL|SIGHUP|SIGALRM|SIGCHLD|SIGPIPE|SIGURG|setitimer)"
)
"""What a system may lack, or answers differently."""
EXCEPTIONS = {
    "backend/local/record_lock.py": {"select.poll"},  # where `system.notifier` gives a library
    "cli/output.py": {"select.poll"},  # after a look whether it is there
    "cli/top.py": {"os.getpgrp", "os.tcgetpgrp"},  # after the import of termios, which Windows has not
    "spark/source/places.py": {"os.getuid"},  # where files have owners
}


def asked(tree: ast.AST) -> Iterator[str]:
    """The questions about the system in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name in MODULES)
            case ast.ImportFrom(module=str(module)) if module in MODULES:
                yield module
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if ATTRIBUTES.fullmatch(f"{owner}.{attr}"):
                yield f"{owner}.{attr}"
            case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[ast.Name(id="os" | "signal" | "sys"), *_]):
                yield ast.unparse(node)
            case ast.Constant(value=str(text)) if text.startswith(("/proc/", "/dev/fd")):
                yield text


def test_two_modules_know_the_system() -> None:
    files = {path.relative_to(ROLLINGFS).as_posix(): path for path in ROLLINGFS.rglob("*.py")}
    found = {name: set(asked(ast.parse(path.read_text()))) for name, path in files.items() if name not in ROOMS}
    wrong = {name: here - EXCEPTIONS.get(name, set()) for name, here in found.items()}
    assert {name: here for name, here in wrong.items() if here} == {}
    assert files.keys() >= ROOMS


@pytest.mark.parametrize(
    "line", ["sys.platform", "os.pread(1, 2, 3)", "import fcntl", "hasattr(os, 'fork')", "x = f'/proc/self/{n}'"]
)
def test_a_question_about_the_system_is_found(line: str) -> None:
    assert list(asked(ast.parse(line)))


@pytest.mark.parametrize("has_pread", [True, False])
def test_bytes_are_read_at_an_offset(has_pread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_pread:
        monkeypatch.delattr(os, "pread", raising=False)
    (tmp_path / "log").write_bytes(b"0123456789")
    with open(tmp_path / "log", "rb") as file:
        assert [read_at(file.fileno(), 3, offset) for offset in (4, 0, 9)] == [b"456", b"012", b"9"]
