"""Two modules know the system: all others take facts and calls from them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROLLINGFS = Path(__file__).parents[1] / "rollingfs"
ROOMS = {
    "runtime/system.py",
    *(f"backend/local/{name}.py" for name in ("system", "posix", "linux", "macos", "windows")),
}
MODULES = frozenset({"fcntl", "msvcrt", "resource", "ctypes"})
ATTRIBUTES = frozenset({"sys.platform", "os.name", "platform.system", "os.uname", "os.register_at_fork", "os.geteuid"})
EXCEPTIONS = {
    "backend/local/bell.py": "ctypes"  # the buffer of inotify, whose library `system.notifier` gives
}


def asked(tree: ast.AST) -> Iterator[str]:
    """The questions about the system in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name in MODULES)
            case ast.ImportFrom(module=str(module)) if module in MODULES:
                yield module
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if f"{owner}.{attr}" in ATTRIBUTES:
                yield f"{owner}.{attr}"
            case ast.Call(func=ast.Name(id="hasattr" | "getattr"), args=[ast.Name(id="os" | "signal" | "sys"), *_]):
                yield ast.unparse(node)
            case ast.Constant(value=str(text)) if text.startswith(("/proc/", "/dev/fd")):
                yield text


def test_two_modules_know_the_system() -> None:
    files = {path.relative_to(ROLLINGFS).as_posix(): path for path in ROLLINGFS.rglob("*.py")}
    found = {name: set(asked(ast.parse(path.read_text()))) for name, path in files.items() if name not in ROOMS}
    wrong = {name: here - {EXCEPTIONS.get(name)} for name, here in found.items()}
    assert {name: here for name, here in wrong.items() if here} == {}
    assert files.keys() >= ROOMS


@pytest.mark.parametrize("line", ["sys.platform", "import fcntl", "hasattr(os, 'fork')", "x = f'/proc/self/{n}'"])
def test_a_question_about_the_system_is_found(line: str) -> None:
    assert list(asked(ast.parse(line)))
