"""What the tests of the command line share: a way to run it, and a terminal to type into."""

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
from typing import Any

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
POLL_S = 0.05

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
        return self.out.decode().replace(os.linesep, "\n")

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


def failed(*words: object, code: int = 1, stdin: bytes | None = None) -> str:
    """Run a command that must fail; returns its one line on standard error."""
    found = Run(*words, stdin=stdin)
    assert found.code == code
    assert found.out == b""
    assert found.err.startswith("rollingfs: ")
    assert found.err.count("\n") == 1
    return found.err


def options_of(store: dict[str, Any]) -> list[str]:
    """The options of a store on S3, in the words of a command."""
    return [word for name, value in store.items() for word in ("--option", f"s3.{name}={value}")]


def environment(**more: str) -> dict[str, str]:
    """The environment of a separate process."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **more}


def python(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program, which must end well."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment(**variables), capture_output=True, check=True, text=True)


def started(*words: object, **variables: str) -> subprocess.Popen[bytes]:
    """A command in a process of its own."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*COMMAND, *map(str, words)], env=environment(**variables), **pipes)


@contextlib.contextmanager
def running(*words: object, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process of its own, which ends with the block."""
    with started(*words, **variables) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def running_program(program: str, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A program of this interpreter, which ends with the block."""
    command, pipe = [sys.executable, "-c", program, *map(str, words)], subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


class Terminal:
    """A command with a controlling terminal: Ctrl-C works as it does for people."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.master, self.process = master, process
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, wait_s: float) -> bool:
        """Take what came; whether something did."""
        found = bool(select.select([self.master], [], [], wait_s)[0])
        self.seen += os.read(self.master, 65536).decode(errors="replace") if found else ""
        return found

    def expect(self, pattern: str) -> str:
        """Wait for a text; returns what came up to its end."""
        end = time.monotonic() + EXPECT_S_MAX
        while (match := re.search(pattern, self.seen)) is None:
            found = self.read(EXPECT_S_MAX) and time.monotonic() < end
            assert found, f"{pattern!r} did not come; seen was {self.seen[-SHOWN_MAX:]!r}"
        before, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return before

    def ends(self, code: int = 0) -> str:
        """Wait for the command's end by this exit code; returns what was shown of it."""
        while self.process.poll() is None or self.read(0):
            self.read(POLL_S)
        assert self.process.returncode == code, self.seen
        return self.seen


@contextlib.contextmanager
def terminal(folder: Path, words: str) -> Iterator[Terminal]:
    """A command in a folder, with the words and redirections as a shell takes them."""
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    name = os.ttyname(slave)
    # a session leader without a terminal gets the first one that it opens
    script = f'exec <{name} >{name} 2>&1; exec "{sys.executable}" -m rollingfs.cli {words}'
    # rich prefers the first two to the terminal's size, and libraries that ran in this process leave them behind
    settings = environment(COLUMNS="", LINES="", TERM="xterm-256color", LC_ALL="C.UTF-8")
    process = subprocess.Popen(["sh", "-c", script], cwd=folder, env=settings, start_new_session=True)
    try:
        yield Terminal(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(slave)  # not earlier: a terminal ends when nobody has it open
        os.close(master)
