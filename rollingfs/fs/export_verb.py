"""The verbs that make a file or segment of a segment or its remains, and do not change these."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import fsspec
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.core import url_to_fs

from rollingfs.backend.contract import Backend
from rollingfs.backend.objects import clouds
from rollingfs.backend.wrapper import BackendWrapper
from rollingfs.errors import worded
from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.fs import arguments
from rollingfs.fs.core import Core
from rollingfs.fs.target import adapt
from rollingfs.runtime.bridge import Bridge

if TYPE_CHECKING:
    from rollingfs.segment.verbs.export import Exported
    from rollingfs.segment.verbs.rebuild import Rebuilt


async def export(
    core: Core,
    path: str,
    target: str,
    *,
    overwrite: bool = False,
    target_protocol: str | None = None,
    target_options: Mapping[str, Any] | None = None,
    callback: Callback = DEFAULT_CALLBACK,
) -> Exported:
    """Write the retained bytes of a segment or plain file as a plain file, under another name, for other tools.

    The file appears whole or not at all, with the bytes that the segment retains when the export begins. On the
    segment's own store, the store (or the kernel) copies the chunks. Their checksums are not compared then:
    `verify` does.

    Parameters
    ----------
    target
        A path on the same store, or a URL on any store that fsspec knows.
    overwrite
        Replace a file that exists at the target.
    target_protocol, target_options
        The protocol and the options of another store; by default the protocol of the URL, and no options. With
        options, the bytes pass through this client, even if the store is the same.
    callback
        Counts the bytes that are written, from any thread, in fsspec's way.

    Raises
    ------
    FileNotFoundError
        There is no such segment or file, or it was deleted during the export.
    FileExistsError
        A file is at the target and `overwrite` is false; or a segment is there.
    IsADirectoryError
        A folder is at the target.
    ValueError
        The target is the segment itself, or a reserved name.
    SegmentTruncatedError, ConflictError
        The segment was truncated or replaced during the export, or another export to the same target began.
    CorruptChunkError
        A chunk is missing, too short, or fails its checksum.
    """
    from rollingfs.segment.verbs.export import export

    backend, name = open_export_target(core.client.backend, target, target_protocol, target_options)
    path = core.strip(path)
    if names.is_reserved(path):
        raise missing(path)
    view = await core.client.headers.view(path, fresh=True)
    callback.set_size(view.size)
    return await export(core.client, view, backend, name, overwrite=overwrite, progress=callback.relative_update)


async def rebuild(
    core: Core,
    path: str,
    to: str,
    start: int,
    leave_out: Collection[str] = (),
    incarnations: Collection[str] = (),
    dry_run: bool = False,
    *,
    callback: Callback = DEFAULT_CALLBACK,
) -> Rebuilt:
    """Make a new segment of the chunks that a segment with a lost or damaged header left; the old files stay.

    Index pages place the chunks, else the metadata and the names of the chunks, where each begins exactly at
    the end of the chunk before. Every file is read, and every copy is compared. There is no guess: where two files
    could come next and do not have the same bytes, no segment is made. The same holds where a file is only
    expected by its writer, and a remaining file may be there as well; `pieces` of a dry run names these.

    Parameters
    ----------
    to
        The name of the new segment.
    start
        The offset at which the lost segment began, or another at which a chunk begins.
    leave_out
        Files to leave out, and index pages that are not to count: paths, last parts of paths, or patterns of last
        parts (``stage-*``).
    incarnations
        If given, take only files of these incarnations and files without an incarnation.
    dry_run
        Make no file, only return the plan.
    callback
        Counts the bytes that are read, in fsspec's way; the total is not known before.

    Raises
    ------
    FileExistsError
        The segment has a header that can be read; or something is at `to`.
    FileNotFoundError
        The segment was deleted, or no chunk begins at `start`.
    AmbiguousRebuildError
        The files allow several contents. The message names them.
    ValueError
        `start` or `to` cannot be; or what is to be left out, or an incarnation, is not there.
    """
    from rollingfs.segment.verbs.rebuild import rebuild

    path, to = (names.check_segment_name(core.strip(one)) for one in (path, to))
    arguments.check_offset(path, start, "start")
    arguments.check_switches(dry_run=dry_run)
    if isinstance(leave_out, str) or isinstance(incarnations, str):
        raise TypeError(
            f"{path}: {worded(leave_out=...)} and {worded(incarnations=...)} take lists, not one text; nothing was made"
        )

    tell = callback.relative_update
    return await rebuild(
        core.client, path, to, start, leave_out=leave_out, incarnations=incarnations, dry_run=dry_run, progress=tell
    )


# -- where an export writes ----------------------------------------------------------------------------------

_LOCAL = frozenset({"file", "local"})
_known: WeakKeyDictionary[fsspec.AbstractFileSystem, dict[bool, Elsewhere]] = WeakKeyDictionary()
"""Exports of thousands of segments share the connections to their target; by whether they come from an async store."""


def open_export_target(
    own: Backend, target: str, protocol: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Backend, str]:
    """Return the backend of a target, and its path there.

    It is `own`, the backend of the segments, unless the target's protocol is another or `options` are given.

    Parameters
    ----------
    target
        A URL, or a path on the store of the segments (of `protocol`, if that is given).
    """
    target = target.removeprefix("rolling::")
    is_chain = protocol is None and _is_chain(target)
    if protocol is None and "://" in target and not is_chain:
        protocol = target.partition("://")[0]
    if not is_chain and not options and (protocol is None or _is_same(protocol, own.unstrip("x").partition("://")[0])):
        return own, own.strip(target)
    if protocol is not None:
        clouds.require_client(protocol)
        if (opened := clouds.open_direct(protocol, options or {})) is not None:
            elsewhere = Elsewhere(opened, from_async=own.is_async)
            return elsewhere, elsewhere.strip(target)
    if is_chain:
        fs, _ = url_to_fs(target, **(options or {}))
    else:
        fs = fsspec.filesystem(protocol or own.unstrip("x").partition("://")[0], **(options or {}))
    known = _known.setdefault(fs, {})
    if own.is_async not in known:
        known[own.is_async] = Elsewhere(adapt(fs), from_async=own.is_async)
    backend = known[own.is_async]
    return backend, backend.strip(target)


def _is_chain(target: str) -> bool:
    """Whether several filesystems are meant: a name may have "::" too, and fsspec would look for it on the disk."""
    first, _, rest = target.partition("::")
    return bool(rest) and (first in fsspec.available_protocols() or "://" in rest.rpartition("::")[2])


def _is_same(protocol: str, other: str) -> bool:
    return other in clouds.names_of(protocol) or {protocol, other} <= _LOCAL


class Elsewhere(BackendWrapper):
    """A backend that coroutines over another backend call: each verb runs on its own loop, or in its own thread."""

    def __init__(self, inner: Backend, *, from_async: bool) -> None:
        super().__init__(inner)
        self._bridge = Bridge(inner)
        self._from_async = from_async

    async def call(self, verb: str, *args: Any) -> Any:
        coroutine = super().call(verb, *args)
        if not self._from_async:
            return self._bridge.run(coroutine)
        if self.inner.is_async:
            return await self._bridge.arun(coroutine)
        thread = asyncio.ensure_future(self._bridge.arun(coroutine))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            # nothing stops a thread. If `abort` closed the file under it, the thread could write into the file that
            # gets the descriptor's number next
            while not thread.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([thread])
            if not thread.cancelled():
                thread.exception()  # retrieved, or asyncio would log it
            raise
