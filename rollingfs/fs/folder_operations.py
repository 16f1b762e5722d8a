"""The verbs of files and folders by name: they make, remove, rename, collect and export, as coroutines of the core."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.utils import stringify_path

from rollingfs.errors import worded
from rollingfs.folders import folders
from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.fs import arguments, patterns
from rollingfs.fs.core import Core, without_scheme
from rollingfs.fs.patterns import Paths, as_list, is_one
from rollingfs.fs.target import open_export_target
from rollingfs.policy import parse_seconds

if TYPE_CHECKING:
    from rollingfs.segment.files.survey import Collected
    from rollingfs.segment.verbs.export import Exported
    from rollingfs.segment.verbs.rebuild import Rebuilt

MODE = 0o777
"""The rights of a folder before the umask, as pathlib and `os.mkdir` have them."""


async def mkdir(core: Core, path: str, create_parents: bool = True, mode: int = MODE, **kwargs: Any) -> None:
    """Make a folder; on an object store only a bucket is really made.

    Parameters
    ----------
    mode
        `UPath.mkdir` and pathlib have it. A folder has the rights that the umask leaves, so no other value is taken.

    Raises
    ------
    FileExistsError
        Something of this name is there.
    ValueError
        Another mode is given; no segment was made.
    """
    if mode != MODE:
        raise ValueError(f"{path}: mkdir takes no mode but {MODE:#o}: the umask decides the rights; nothing was made")
    await folders.make(core.client, core.strip(path), parents=create_parents)


async def makedirs(core: Core, path: str, exist_ok: bool = False) -> None:
    """Make a folder and those above it."""
    await folders.make_all(core.client, core.strip(path), exist_ok=exist_ok)


async def rmdir(core: Core, path: str) -> None:
    """Remove an empty folder (on an object store: an empty bucket).

    Raises
    ------
    OSError
        It is not empty (``errno.ENOTEMPTY``).
    """
    await folders.remove_empty(core.client, core.strip(path))


async def rm_file(core: Core, path: str, **kwargs: Any) -> None:
    """Delete a segment or plain file.

    Raises
    ------
    FileNotFoundError
        There is no such path.
    FencedError
        An exclusive owner holds it.
    """
    path = core.strip(path)
    if names.is_reserved(path):
        raise missing(path)
    await folders.delete_file(core.client, path)


async def rm(
    core: Core,
    path: Paths,
    recursive: bool = False,
    maxdepth: int | None = None,
    damaged: bool = False,
    batch_size: int | None = None,
) -> None:
    """Delete segments and plain files; with `recursive`, folders with all that is in them.

    Parameters
    ----------
    path
        A path, several, or patterns; a path like a pattern is a pattern only if no file has that name.
    recursive
        Folders too.
    maxdepth
        Maximum levels of a folder to empty; with a number, the folders stay.
    damaged
        Also delete segments whose header is damaged or too new, with all their bytes. The header is deleted, and
        with it all knowledge of the content; the chunks are left to `collect`.
    batch_size
        Ignored; fsspec has this parameter.

    Raises
    ------
    FileNotFoundError
        A path does not exist.
    IsADirectoryError
        A path is a folder, and `recursive` is false.
    FencedError
        An exclusive owner holds a segment.
    CorruptHeaderError
        The header of a segment cannot be read, and `damaged` is false; no file of its folder was deleted.
    """
    paths = await patterns.chosen(core, path)
    await folders.delete(core.client, paths, recursive=recursive, depth_max=maxdepth, damaged=damaged)


async def mv_file(core: Core, path1: str, path2: str, overwrite: bool = True, **kwargs: Any) -> None:
    """Give a segment or plain file another name, as `mv` does; no bytes are moved."""
    from rollingfs.folders.moving import move

    await move(core.client, core.strip(path1), without_scheme(path2), overwrite=overwrite)


async def mv(
    core: Core,
    path1: Paths,
    path2: Paths,
    recursive: bool = False,
    maxdepth: int | None = None,
    overwrite: bool = True,
    **kwargs: Any,
) -> None:
    """Give segments, plain files and folders other names; no bytes are moved.

    A segment keeps its offsets, seal, policy and attributes. A source goes into a target folder that exists, under its
    own name. Each segment moves by itself, as a whole or not at all.

    Parameters
    ----------
    path1
        A path, several, or patterns, as for `rm`.
    path2
        The target; a folder, for several. If it is a list, as long as `path1`.
    overwrite
        Replace what has the new name, as fsspec does. Otherwise the commit that makes the new name refuses: of several
        moves to the same name, a single move takes place.

    Raises
    ------
    FileNotFoundError
        `path1` does not exist.
    FileExistsError
        Without `overwrite`: something has the new name.
    FencedError
        An exclusive owner holds a segment.
    NotImplementedError
        `maxdepth` is given: half a folder cannot be moved.
    """
    from rollingfs.folders.moving import move

    if maxdepth is not None:
        raise NotImplementedError(f"{path1}: mv takes no maxdepth: half a folder cannot be moved; nothing was moved")
    sources = await patterns.chosen(core, path1)
    if not is_one(path2):
        for source, target in zip(sources, as_list(path2), strict=True):
            await move(core.client, source, without_scheme(target), into=False, overwrite=overwrite)
        return
    into: bool | None = None  # the move itself looks whether the target is a folder
    if not is_one(path1) or sources != patterns.listed(core, path1) or stringify_path(path2).endswith("/"):
        into = True  # several sources, or a pattern: a pattern never stands for its own name
    elif stringify_path(path1).endswith("/"):
        into = False  # as with cp: the folder's content
    for source in sources:
        await move(core.client, source, without_scheme(path2), into=into, overwrite=overwrite)


async def collect(
    core: Core,
    path: str,
    grace: float | str | None = None,
    dry_run: bool = False,
    recursive: bool = False,
    callback: Callback = DEFAULT_CALLBACK,
) -> Collected:
    """Delete the files without a reference, in a segment's folder and its chunks' folders.

    Parameters
    ----------
    grace
        Age at which an unreferenced file may be deleted, in seconds or as text like ``"1h"``; by default 24 hours.
        Give less
        only if no client writes. Less counts in the folders of the segments that you name, not in others to which
        their headers lead: there it is 24 hours.
    dry_run
        Only return the files that would be deleted.
    recursive
        Collect all segments at or below the path, and the leftovers of deleted segments. The answer then names the
        segments that failed, too.
    callback
        Counts the segments that are done, in fsspec's way.
    """
    from rollingfs.segment.verbs.collect import collect

    grace_s = None if grace is None else parse_seconds(grace)
    if recursive:
        from rollingfs.folders.collect_tree import collect_tree

        return await collect_tree(core.client, core.strip(path), grace_s=grace_s, dry_run=dry_run, callback=callback)
    callback.set_size(1)
    collected = await collect(core.client, core.to_write(path), grace_s=grace_s, dry_run=dry_run)
    callback.relative_update(1)
    return collected


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
