"""What the tests of the command line share: a way to run it, and a terminal to type into."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import require_module

require_module("typer")
require_module("rich")

from typer import testing
from typer.testing import CliRunner

from rollingfs.cli.app import app

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "rollingfs.cli"]
EXPECT_S_MAX = 60
SHOWN_MAX = 1000
PROMPT = "ready> "

# each run would make the command again, from the types of all its parameters
testing._get_command = functools.cache(testing._get_command)


class Run:
    """A command that ran in this process: its exit code and what it wrote."""

    def __init__(self, *words: object, stdin: bytes | None = None) -> None:
        result = CliRunner().invoke(app, [str(word) for word in words], input=stdin, prog_name="rollingfs")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        self.code = result.exit_code
        self.out = result.stdout_bytes
        self.err = result.stderr

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self):
        """The one JSON value that it wrote."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list:
        """The JSON values that it wrote, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


def done(*words: object, stdin: bytes | None = None) -> Run:
    """Run a command that must succeed."""
    found = Run(*words, stdin=stdin)
    assert (found.code, found.err) == (0, ""), found.err
    return found


def failed(*words: object, code: int = 1) -> str:
    """Run a command that must fail; returns its one line on standard error."""
    found = Run(*words)
    assert found.code == code
    assert found.out == b""
    assert found.err.startswith("rollingfs: ")
    assert found.err.count("\n") == 1
    return found.err


def environment(**more: str) -> dict[str, str]:
    """The environment of a separate process."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **more}


class Terminal:
    """A shell with a controlling terminal: Ctrl-C works as it does for people."""

    def __init__(self, master: int) -> None:
        self.master = master
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, pattern: str) -> str:
        """Wait for a text; returns what came up to its end."""
        deadline_s = time.monotonic() + EXPECT_S_MAX
        while (match := re.search(pattern, self.seen)) is None:
            if not select.select([self.master], [], [], max(0, deadline_s - time.monotonic()))[0]:
                pytest.fail(f"{pattern!r} did not come; seen was {self.seen[-SHOWN_MAX:]!r}")
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        before, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return before

    def ends(self, code: int = 0) -> str:
        """Wait for the command's end by this exit code; returns what was shown of it."""
        shown = self.expect(re.escape(PROMPT))
        self.type("echo code=$?\n")
        assert f"code={code}\r" in self.expect(r"code=\d+[\s\S]*" + re.escape(PROMPT)), shown
        return shown


@contextlib.contextmanager
def terminal(folder: Path, programs: Path) -> Iterator[Terminal]:
    """A shell in a folder. Its `rollingfs` is a script in the folder `programs`."""
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    name = os.ttyname(slave)
    script = programs / "rollingfs"
    # "exec": a shell between the terminal and the command would take Ctrl-C, and end before the command
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rollingfs.cli "$@"\n')
    script.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    settings = environment(PS1="", TERM="xterm-256color", LC_ALL="C.UTF-8", PATH=path)
    # a session leader without a terminal gets the first one that it opens
    shell = subprocess.Popen(
        ["sh", "-c", f"exec sh -i <{name} >{name} 2>&1"], cwd=folder, env=settings, start_new_session=True
    )
    found = Terminal(master)
    try:
        found.type("stty -echo\n")
        found.type(f"PS1='{PROMPT[:3]}''{PROMPT[3:]}'; echo begun=$((40 + 2))\n")
        found.expect(r"begun=42[\s\S]*" + re.escape(PROMPT))
        yield found
        found.type("exit\n")
        shell.wait(EXPECT_S_MAX)
    finally:
        shell.kill()
        shell.wait()
        os.close(slave)  # not earlier: a terminal ends when nobody has it open
        os.close(master)
