"""What the filesystem does to files and folders, as coroutines of the core: its methods are made of them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from typing import IO, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.commit.chunk_files import Staged
from rollingfs.folders.collect_tree import Progress, TreeCollector
from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.fs import arguments
from rollingfs.fs.export_target import open_target
from rollingfs.fs.queries import Reading
from rollingfs.maintenance import Collected, Exported
from rollingfs.maintenance.steps import Progress as Bytes
from rollingfs.policy import RollingPolicy, parse_seconds
from rollingfs.read.snapshot import View
from rollingfs.write.ingest import Data, Intake


class Verbs(Reading):
    """All methods of a filesystem, over paths as its callers write them."""

    def committed(self, target: str) -> str:
        """The path of the segment that a verb with this first argument commits to."""
        return self.strip(target)

    def to_write(self, path: str) -> str:
        """The backend's path for a segment to be changed.

        Raises
        ------
        ValueError
            It is no name for a segment.
        IsADirectoryError
            It is a bucket.
        """
        path = names.check_segment_name(self.strip(path))
        if self.listings.is_top(path):
            why = f"It is a bucket, not a segment: name a key in it, as in {path}/events; nothing was written"
            raise IsADirectoryError(errno.EISDIR, why, path)
        return path

    # -- writing -------------------------------------------------------------------------------------------

    async def create(self, path: str, policy: RollingPolicy | None = None) -> None:
        """Make an empty segment.

        Parameters
        ----------
        policy
            When it rolls to a new chunk; by default as this filesystem was told.

        Raises
        ------
        FileExistsError
            A segment or a plain file is there.
        ValueError
            It is no name for a segment.
        """
        path = self.to_write(path)
        arguments.check_policy(path, policy)
        await self.client.segments.create(path, policy)

    async def append(
        self,
        path: str,
        data: Data | Intake,
        expected_offset: int | None = None,
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> int:
        """Append to a segment, all or nothing, in one commit.

        Parameters
        ----------
        data
            Bytes, a binary file, receipts of `stage`, or an iterable of these; of any size, in bounded memory.
        expected_offset
            The segment offset at which the data must begin.
        attrs
            Attributes to set in the same commit; None removes one.
        expected_attrs
            What attributes must be; None for one that must not be there.

        Returns
        -------
        int
            The segment offset at which the data begins.

        Raises
        ------
        FileNotFoundError
            There is no such segment or file.
        SegmentSealedError, FencedError, BadOffsetError, AttributeMismatchError, StagedExpiredError
            Nothing was written.
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        """
        path = self.to_write(path)
        guard = arguments.guard(path, expected_offset, expected_attrs)
        arguments.check_attrs(path, attrs)
        with arguments.saying_how_to_create(path):
            return await self.client.segments.append(path, data, attrs=attrs, guard=guard)

    async def take_addition(
        self, path: str, data: Data, expected_offset: int | None, expected_attrs: Mapping[str, str | None] | None
    ) -> Intake:
        """Take what `append` is to commit: upload what is too large for memory, commit nothing."""
        path = self.to_write(path)
        guard = arguments.guard(path, expected_offset, expected_attrs)
        with arguments.saying_how_to_create(path):
            return await _taken(self.client.segments.addition(path, guard), data)

    async def overwrite(
        self,
        path: str,
        data: Data | Intake,
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> None:
        """Create a segment or replace its content, in one commit: a new incarnation that begins at offset 0.

        The policy stays, attributes other than `attrs` do not. Data and attributes are as for `append`.

        Raises
        ------
        FencedError, AttributeMismatchError, StagedExpiredError
            Nothing was written.
        AppendOutcomeUnknown
            Whether it took place cannot be said.
        """
        path = self.to_write(path)
        guard = arguments.guard(path, None, expected_attrs)
        arguments.check_attrs(path, attrs)
        await self.client.segments.overwrite(path, data, attrs=attrs, guard=guard)

    async def take_replacement(
        self,
        path: str,
        data: Data,
        expected_attrs: Mapping[str, str | None] | None = None,
        *,
        create_only: bool = False,
    ) -> Intake:
        """Take what `overwrite` is to commit: upload what is too large for memory, commit nothing."""
        path = self.to_write(path)
        guard = arguments.guard(path, None, expected_attrs)
        intake = self.client.segments.replacement(path, guard, create_only=create_only)
        return await _taken(intake, data)

    async def stage(self, path: str, data: Data) -> Staged:
        """Upload data for a segment, which need not be there yet, and commit nothing.

        Returns
        -------
        Staged
            A small picklable receipt for this path, to be given to `append` or `overwrite` by any process.
        """
        return await self.client.segments.stage(self.to_write(path), data)

    async def pipe_file(self, path: str, value: Data | Intake, mode: str = arguments.OVERWRITE, **kwargs: Any) -> None:
        """Write a whole file, in one commit.

        Parameters
        ----------
        mode
            ``"overwrite"`` replaces what is there, a sealed segment too; ``"create"`` fails where something is.

        Raises
        ------
        FileExistsError
            With ``"create"``: a segment or a plain file is there.
        """
        path = self.to_write(path)
        await self.client.segments.overwrite(path, value, create_only=arguments.creates_only(mode, path))

    async def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty file.

        Parameters
        ----------
        truncate
            Empty a file that is there; otherwise it stays as it is, its date included.
        """
        path = self.to_write(path)
        if truncate:
            await self.client.segments.overwrite(path, b"")
            return
        with contextlib.suppress(FileExistsError):
            await self.client.segments.create(path)

    async def put_file(
        self,
        lpath: str | os.PathLike[str],
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = arguments.OVERWRITE,
        **kwargs: Any,
    ) -> None:
        """Write a file from the local disk, in bounded memory and one commit; for a folder, make one.

        Raises
        ------
        FileExistsError
            With mode ``"create"``: a segment or a plain file is there.
        """
        arguments.creates_only(mode, rpath)
        if os.path.isdir(lpath):
            await self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as file:
            callback.set_size(os.fstat(file.fileno()).st_size)
            await self.pipe_file(rpath, _Counted(file, callback), mode)

    async def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy the retained bytes of a file into a new segment; for a folder, make one.

        All chunks that they lie in are verified before the copy is committed.

        Raises
        ------
        FileNotFoundError
            Nothing is there, or it was replaced while it was copied; nothing was written.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum; nothing was written.
        """
        source, target = self.strip(path1), self.to_write(path2)
        try:
            view = await self.view(source)
        except FileNotFoundError:
            if not await self.listings.is_folder(source):
                raise
            await self.folders.make_all(target, exist_ok=True)
            return
        if source != target:
            await self._copy(view, target)

    async def _copy(self, view: View, target: str) -> None:
        intake = self.client.segments.replacement(target)
        try:
            async for data in self.pieces(view, verify=True):
                await intake.take(data)
        except BaseException:
            await intake.abort()
            raise
        await self.client.segments.overwrite(target, intake)

    # -- the life of a segment -----------------------------------------------------------------------------

    async def seal(self, path: str) -> int:
        """Let a segment take no more bytes.

        Returns
        -------
        int
            Its length (end offset).

        Raises
        ------
        FileNotFoundError
            There is no such segment or file.
        FencedError
            An exclusive owner holds it.
        """
        return await self.client.segments.seal(self.to_write(path))

    async def truncate(self, path: str, offset: int) -> int:
        """Drop the bytes of a segment before an offset, and delete the chunks that lie wholly before it.

        Returns
        -------
        int
            How many bytes wait for `collect`: those in chunks that were staged or lie in other segments' folders.

        Raises
        ------
        BadOffsetError
            The offset is negative or beyond the end.
        FileNotFoundError, FencedError
            As for `seal`.
        """
        path = self.to_write(path)
        arguments.check_offset(path, offset)
        return await self.client.segments.truncate(path, offset)

    async def concat(
        self,
        target: str,
        sources: Sequence[str],
        attrs: Mapping[str, str | None] | None = None,
        expected_attrs: Mapping[str, str | None] | None = None,
    ) -> int:
        """Append sealed segments to another, moving no bytes; they are gone afterwards.

        Returns
        -------
        int
            The offset in the target at which the first source begins.

        Raises
        ------
        FileNotFoundError
            The target or a source is not there.
        SegmentNotSealedError
            A source is not sealed.
        SegmentSealedError, FencedError, AttributeMismatchError
            As for `append`.
        ValueError
            The target is among the sources, or one of them comes twice.
        """
        target = self.to_write(target)
        if isinstance(sources, str):
            raise TypeError(f"{target}: concat takes a list of sources, not one path; nothing was changed")
        guard = arguments.guard(target, None, expected_attrs)
        arguments.check_attrs(target, attrs)
        paths = [self.to_write(source) for source in sources]
        return await self.client.concats.concat(target, paths, attrs=attrs, guard=guard)

    async def collect(
        self,
        path: str,
        grace: float | str | None = None,
        dry_run: bool = False,
        recursive: bool = False,
        progress: Progress | None = None,
    ) -> Collected:
        """Delete the files that a segment's folder, and those its chunks lie in, hold for nobody any more.

        Parameters
        ----------
        grace
            Seconds (or text like ``"1h"``) for which unreferenced files are left alone; by default 24 hours. Less is
            your word that nobody writes.
        dry_run
            Only say what would be deleted.
        recursive
            All segments at or below the path, leftovers of deleted ones among them; then the answer is a
            `CollectedTree`, which names those that failed.
        progress
            With `recursive`: called with each segment's path and what was collected of it.
        """
        grace_s = None if grace is None else parse_seconds(grace)
        if recursive:
            tree = TreeCollector(self.client)
            return await tree.collect(self.strip(path), grace_s=grace_s, dry_run=dry_run, progress=progress)
        return await self.client.collector.collect(self.to_write(path), grace_s=grace_s, dry_run=dry_run)

    async def export(
        self,
        path: str,
        target: str,
        *,
        overwrite: bool = False,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        progress: Bytes | None = None,
        callback: Callback = DEFAULT_CALLBACK,
    ) -> Exported:
        """Write the retained bytes of a segment or plain file as one plain file, under another name, for other tools.

        The file appears whole or not at all, and holds what the segment holds when the export begins. On the segment's
        own store the chunks are joined by the store, or copied within the kernel; their checksums are not compared
        then, as `verify` does it.

        Parameters
        ----------
        target
            A path on the same store, or a URL on any store that fsspec knows.
        overwrite
            Replace a file that is there.
        target_protocol, target_options
            Of another store; by default as the URL says, and without options. With options, the bytes pass through
            this client, even if the store is the same.
        progress
            Told how many more bytes are done, from whatever thread the library runs on.
        callback
            fsspec's way to be told.

        Raises
        ------
        FileNotFoundError
            There is no such segment or file, or it went meanwhile.
        FileExistsError
            A file is at the target and `overwrite` is false; or a segment is there.
        IsADirectoryError
            A folder is at the target.
        ValueError
            The target is the segment itself, or a name that is reserved.
        SegmentTruncatedError, ConflictError
            It was truncated or replaced meanwhile, or another export to the same target has begun.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum.
        """
        backend, name = open_target(self.client.backend, target, target_protocol, target_options)
        path = self.strip(path)
        if names.is_reserved(path):
            raise missing(path)
        view = await self.client.lookup.view(path, fresh=True)
        callback.set_size(view.size)

        def tell(count: int) -> None:
            callback.relative_update(count)
            if progress is not None:
                progress(count)

        return await self.client.exporter.export(view, backend, name, overwrite=overwrite, progress=tell)

    # -- folders, removing, moving -------------------------------------------------------------------------

    async def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a folder; on an object store only a bucket is really made.

        Raises
        ------
        FileExistsError
            Something of this name is there.
        """
        await self.folders.make(self.strip(path), parents=create_parents)

    async def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder and those above it."""
        await self.folders.make_all(self.strip(path), exist_ok=exist_ok)

    async def rmdir(self, path: str) -> None:
        """Remove a folder (on an object store: a bucket) in which nothing is.

        Raises
        ------
        OSError
            It is not empty (``errno.ENOTEMPTY``).
        """
        await self.folders.remove_empty(self.strip(path))

    async def rm_file(self, path: str, **kwargs: Any) -> None:
        """Delete a segment or plain file.

        Raises
        ------
        FileNotFoundError
            There is none.
        FencedError
            An exclusive owner holds it.
        """
        path = self.strip(path)
        if names.is_reserved(path):
            raise missing(path)
        await self.folders.delete_file(path)

    async def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Give a segment or plain file another name, over what may be there; no bytes are moved."""
        await self.folders.move(self.strip(path1), self.strip(path2))


async def _taken(intake: Intake, data: Data) -> Intake:
    await intake.take(data)
    await intake.flush()
    return intake


class _Counted:
    """A file that tells a callback how much of it was read."""

    def __init__(self, file: IO[bytes], callback: Callback) -> None:
        self._file = file
        self._callback = callback

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._callback.relative_update(len(data))
        return data
