"""Open files for reading and writing, handles on segments, and streams."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from io import BufferedReader
from typing import TYPE_CHECKING, Any

from rollingfs.folders.listing import check_on_error
from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.fs import arguments
from rollingfs.fs.arguments import meant
from rollingfs.fs.core import Core

if TYPE_CHECKING:
    from rollingfs.fs.read_file import ReadFile
    from rollingfs.fs.segment_handle import SegmentHandle
    from rollingfs.fs.stream_handle import Stream
    from rollingfs.fs.write_buffer import CommitOnGiven
    from rollingfs.fs.write_file import WriteFile

APPEND_OPTIONS = frozenset({"expected_attrs", "expected_offset"})
PASSED_OVER = frozenset({"buffering", "default_cache", "encoding", "errors", "fill_cache", "newline", "size"})
"""Options that users of fsspec give to any filesystem, and that have no meaning here."""


def open_file(
    core: Core,
    path: str,
    mode: str,
    *,
    block_size: int | str | None = None,
    autocommit: bool = True,
    cache_options: dict[str, Any] | None = None,
    absolute: bool | None = None,
    owner: str | None = None,
    attrs: arguments.Attrs = None,
    cache_type: str | None = None,
    follow: bool = False,
    max_concurrency: int | None = None,
    prefetch: bool | None = None,
    max_memory: int | str | None = None,
    verify: bool = False,
    commit_on: CommitOnGiven | None = None,
    **unknown: Any,
) -> ReadFile | WriteFile | BufferedReader:
    """Open a binary file; see `RollingFileSystem.open`."""
    path, tuning = core.strip(path), core.tuning
    is_absolute = core.absolute if absolute is None else absolute
    if unknown:
        check_known(path, unknown)
    if max_concurrency is not None or prefetch is not None or max_memory is not None:
        tuning = tuning.with_given(max_concurrency=max_concurrency, prefetch=prefetch, max_memory=max_memory)
    if mode in arguments.WRITE_MODES:
        if tuning != core.tuning or verify or follow:
            raise ValueError(
                f"{path}: follow, max_concurrency, prefetch, max_memory and verify are for reading, not "
                f"for mode {mode!r}"
            )
        path = core.to_write(path)
        arguments.check_attrs(path, attrs)
        from rollingfs.fs.write_file import WriteFile

        choices: dict[str, Any] = {"absolute": is_absolute, "autocommit": autocommit, "commit_on": commit_on}
        return WriteFile(core, path, mode, owner=owner, attrs=attrs, **choices)
    if mode != "rb":
        raise ValueError(f"{path}: there is no mode {mode!r}: open a segment by 'rb', 'wb', 'xb' or 'ab'")
    if names.is_reserved(path):
        raise missing(path)
    if attrs is not None or owner is not None or commit_on is not None:
        raise ValueError(f"{path}: attrs, commit_on and owner are for writing, not for mode {mode!r}")
    if follow and verify:
        raise ValueError(f"{path}: a followed file is verified chunk by chunk as it grows; leave out verify=True")
    if follow:
        from rollingfs.fs.tail import open_follow

        return open_follow(core, path)
    from rollingfs.fs.read_file import ReadFile

    return ReadFile(
        core,
        path,
        absolute=is_absolute,
        block_size=block_size,
        cache_type=cache_type,
        cache_options=cache_options,
        tuning=tuning,
        verify=verify,
    )


async def segment(core: Core, path: str) -> SegmentHandle:
    """A handle on a segment, which speaks segment offsets.

    Raises
    ------
    FileNotFoundError
        There is no such segment or file.
    """
    path = core.strip(path)
    if names.is_reserved(path) or names.is_listing(path):  # a handle could append to it
        raise missing(path)
    from rollingfs.fs.segment_handle import SegmentHandle

    return await SegmentHandle.open(core, path)


def stream(core: Core, path: str, on_error: str) -> Stream:
    """The segments directly in a folder; see `RollingFileSystem.stream`."""
    from rollingfs.fs.stream_handle import Stream  # a tenth of the modules: most users open no stream

    return Stream(core, core.strip(path), check_on_error(on_error))


OPTIONS = frozenset(inspect.signature(open_file).parameters) - {"core", "path", "mode", "unknown"} | {"compression"}
"""The options of `RollingFileSystem.open`."""


def check_known(path: str, unknown: Iterable[str], verb: str = "open") -> None:
    """Refuse options that `open`, or another verb, does not have: a mistyped condition would be no condition.

    Raises
    ------
    TypeError
        With the option's name.
    """
    for name in unknown:
        if name not in PASSED_OVER:
            hint = "" if name in OPTIONS else meant(name, OPTIONS)
            why = "; append() takes it" if name in APPEND_OPTIONS else hint
            raise TypeError(f"{path}: {verb} has no option {name!r}{why}; nothing was written")
