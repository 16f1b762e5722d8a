"""`Session`: values that all commands share in a run; SIGTERM, Ctrl-C and ``--expect-mark`` of commands that go on."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import has_magic
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.cli import output
from rollingfs.cli.output import ReaderGone, WrongUsage
from rollingfs.cli.stores import Stores, parse_options, split
from rollingfs.errors import AppendInterrupted, NoSegmentError, visible, worded_by
from rollingfs.fs.core import Core, core
from rollingfs.runtime.values import value_class

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from rollingfs.fs.filesystem import RollingFileSystem

BAR_COLUMNS = 24


@value_class
class StorePath:
    """A path on a store."""

    fs: RollingFileSystem
    path: str

    @property
    def core(self) -> Core:
        """Return the core below the filesystem."""
        return core(self.fs)

    @property
    def name(self) -> str:
        """Return the path as the backend names it."""
        name: str = self.core.strip(self.path)
        return name


@dataclass
class Session:
    """The options that every command has, and its exit code.

    Parameters
    ----------
    option
        Texts ``name=value``.
    json
        Whether the output is for machines.
    debug
        Whether errors come with their tracebacks.
    is_recursive
        Whether the command has the option ``-r``, with which it takes folders.
    """

    option: Sequence[str] = ()
    json: bool = False
    debug: bool = False
    is_recursive: bool = False
    code: int = output.DONE
    interrupted: str = ""
    """Message after Ctrl-C, if the library has no message."""
    _places: list[StorePath] = field(default_factory=list)
    _opener: Stores | None = None
    _bar: Progress | None = None

    def place(self, text: str) -> StorePath:
        """Return the store and path for a path on the command line."""
        protocol, path = split(text)
        self._opener = self._opener or Stores(parse_options(self.option, os.environ))
        self._places.append(StorePath(self._opener.open(protocol, path), path))
        return self._places[-1]

    def each(self, texts: Sequence[str]) -> Iterator[tuple[str, StorePath]]:
        """Yield the paths of a command line, with patterns expanded: each as people read it, and its place."""
        for text in texts:
            place = self.place(text)
            if not has_magic(place.path):
                yield text, place
                continue
            before = text[: text.index("://") + len("://")] if "://" in text else ""
            for path in place.fs.expand_path(place.path):
                yield before + path, StorePath(place.fs, path)

    def places(self, texts: Sequence[str]) -> tuple[RollingFileSystem, list[str]]:
        """Return several paths, which must be on the same store."""
        found = [self.place(text) for text in texts]
        if any(place.fs is not found[0].fs for place in found):
            raise WrongUsage(f"{', '.join(texts)} lie on different stores: give paths on one store")
        return found[0].fs, [place.path for place in found]

    def report(self, value: dict[str, Any], line: str) -> None:
        """Report the result: the value as JSON, or the line for people."""
        if self.json:
            output.write_json(value)
        else:
            output.say(line)

    @property
    def is_watched(self) -> bool:
        """Return whether people watch, on a terminal."""
        return not self.json and sys.stderr.isatty()

    # -- progress ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def progress(
        self, what: str, total: int | None = None, *, of_bytes: bool = False, shown: bool = True
    ) -> Iterator[Callback]:
        """Show progress on standard error, if people watch.

        Parameters
        ----------
        total
            The number to reach; None if it is not known.
        of_bytes
            Whether the numbers are bytes.
        shown
            False if the bar would disturb other output on the terminal.
        """
        if not shown or not self.is_watched:
            yield DEFAULT_CALLBACK
            return
        bar = _bar(of_bytes=of_bytes, counted=total is not None)
        self._bar = bar
        try:
            with bar:
                task = bar.add_task(visible(what), total=total)
                yield Callback(hooks={"bar": lambda _, done, **given: bar.update(task, completed=done)})
        finally:
            self._bar = None

    def say(self, line: str) -> None:
        """Print a line while a progress bar is shown."""
        if self._bar is not None:
            self._bar.stop()
        output.say(line)
        output.flush()
        if self._bar is not None:
            self._bar.start()

    # -- the end -------------------------------------------------------------------------------------------

    def run(self, body: Callable[[], None]) -> int:
        """Run a command's body, print its error if it fails, and return the exit code."""
        try:
            with worded_by(output.as_typed):
                body()
            output.flush()
        except ReaderGone:
            output.silence()
        except KeyboardInterrupt as interrupt:
            said = str(interrupt) if isinstance(interrupt, AppendInterrupted) else self.interrupted
            if said:
                output.complain(said)
            return output.INTERRUPTED
        except WrongUsage as error:
            output.complain(output.in_one_line(error))
            return output.WRONG_USAGE
        except Exception as error:  # noqa: BLE001 - the last frame: any error becomes one line
            if self.debug:
                traceback.print_exc()
            output.complain(output.in_one_line(self._explained(error)))
            return output.FAILED
        return self.code

    def _explained(self, error: Exception) -> Exception:
        """Return the error, with a hint if a folder or no bucket is there."""
        if isinstance(error, NoSegmentError):
            for place in self._places:
                if (path := place.name) == error.filename:
                    with contextlib.suppress(Exception):  # if the look fails, the error stays as it is
                        why = self._instead(place.fs, path) or error.strerror
                        return FileNotFoundError(error.errno, why, path or place.path)
        return error

    def _instead(self, fs: RollingFileSystem, path: str) -> str | None:
        """Return a hint on a path without a segment: a folder, or no bucket."""
        if fs.isdir(path):
            hint = "give -r for all segments in it" if self.is_recursive else "this command takes segments"
            what = "a folder" if path else "a whole store, without a bucket or a folder"
            return f"It is {what}, not a segment: {hint}"
        bucket = path.partition("/")[0]
        is_absent = bucket and not core(fs).backend.capability.has_folders and not fs.isdir(bucket)
        return f"the bucket {bucket!r} does not exist" if is_absent else None


def _bar(*, of_bytes: bool, counted: bool) -> Progress:
    """Return a bar that goes away when its work is done."""
    from rich import progress

    numbers: list[ProgressColumn] = [progress.MofNCompleteColumn()] if counted else []
    if of_bytes:
        numbers = [progress.DownloadColumn(binary_units=True), progress.TransferSpeedColumn()]
    bar = [progress.BarColumn(BAR_COLUMNS)] if numbers else []
    text = progress.TextColumn("{task.description}", markup=False)
    columns = [progress.SpinnerColumn(), text, *bar, *numbers, progress.TimeElapsedColumn()]
    screen = output.Screen(stderr=True)
    # nothing is redirected: standard output may be a file
    return progress.Progress(*columns, console=screen, transient=True, redirect_stdout=False, redirect_stderr=False)


# -- commands that run until they are stopped -------------------------------------------------------------


SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOK_S = 0.2
"""Time between two looks during a pause."""


class Stop:
    """Whether the command is to end. A second signal ends it at once, as Ctrl-C ends any command.

    Parameters
    ----------
    tell
        Called by the first signal. A second signal then ends the process, whatever its threads do.
    is_over
        Whether the command is to end without a signal.
    """

    def __init__(self, tell: Callable[[], None] | None = None, is_over: Callable[[], bool] = bool) -> None:
        self.is_wanted = False
        self._tell, self._is_over = tell, is_over

    def __call__(self) -> bool:
        return self.is_wanted or self._is_over()

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than the command is to go on."""
        deadline_s = time.monotonic() + seconds
        while not self() and (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Note a signal."""
        if self.is_wanted:
            raise KeyboardInterrupt
        self.is_wanted = True
        if self._tell is not None:
            for one in SIGNALS:
                signal.signal(one, signal.SIG_DFL)
            self._tell()


@contextlib.contextmanager
def stopping(tell: Callable[[], None] | None = None, is_over: Callable[[], bool] = bool) -> Iterator[Stop]:
    """Turn the first SIGTERM or Ctrl-C into a wish to end, as of `Stop`. Only the main thread can."""
    stop = Stop(tell, is_over)
    before = {number: signal.signal(number, stop.on_signal) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, former in before.items():
            signal.signal(number, former)


ExpectMark = Annotated[
    str | None, typer.Option(metavar="FILE", help="Change nothing unless this file is in FOLDER: is it mounted?")
]


def check_mark(place: StorePath, mark: str | None) -> None:
    """Refuse a folder that lacks the file by which its store is known.

    Raises
    ------
    FileNotFoundError
        It is missing, as where a disk is not mounted.
    """
    if mark is None or place.fs.isfile(path := f"{place.path.rstrip('/')}/{mark}"):
        return
    why = "The store is not there (its mark is missing): is it mounted? Nothing was changed"
    raise FileNotFoundError(errno.ENOENT, why, path)
