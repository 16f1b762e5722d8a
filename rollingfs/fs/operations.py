"""The verbs that change one segment, as coroutines of the core."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import IO, Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.commit.chunk_files import Staged
from rollingfs.folders.collect_tree import Progress, TreeCollector
from rollingfs.format import names
from rollingfs.fs import arguments
from rollingfs.fs.arguments import Attrs
from rollingfs.fs.folder_operations import FolderOperations
from rollingfs.fs.progress import begin
from rollingfs.fs.queries import Queries
from rollingfs.maintenance import Collected
from rollingfs.policy import RollingPolicy, parse_seconds
from rollingfs.write.ingest import Data, Intake


class Operations:
    """Changes one segment at a time, over paths as callers write them."""

    def __init__(self, queries: Queries, folders: FolderOperations) -> None:
        self.queries = queries
        self.folders = folders
        self.client = queries.client
        self.strip = queries.strip
        self.is_top = queries.listings.is_top

    def committed(self, target: str) -> str:
        """The segment to which a verb with this first argument commits."""
        return self.strip(target)

    def to_write(self, path: str) -> str:
        """The backend's path of a segment, before a change.

        Raises
        ------
        ValueError
            A segment cannot have this name.
        IsADirectoryError
            It is a bucket.
        """
        path = names.check_new_name(self.strip(path))
        if "/" not in path and self.is_top(path):
            why = f"It is a bucket, not a segment: name a key in it, as in {path}/events; nothing was written"
            raise IsADirectoryError(errno.EISDIR, why, path)
        return path

    # -- writing -------------------------------------------------------------------------------------------

    async def create(self, path: str, policy: RollingPolicy | None = None) -> None:
        """Make an empty segment.

        Parameters
        ----------
        policy
            When the segment rolls to a new chunk; by default the policy of this filesystem.

        Raises
        ------
        FileExistsError
            A segment or a plain file is there.
        ValueError
            A segment cannot have this name.
        """
        path = self.to_write(path)
        arguments.check_policy(path, policy)
        await self.client.segments.create(path, policy)

    async def append(
        self,
        path: str,
        data: Data | Intake,
        expected_offset: int | None = None,
        attrs: Attrs = None,
        expected_attrs: Attrs = None,
    ) -> int:
        """Append to a segment, all or nothing, in one commit.

        Parameters
        ----------
        data
            Bytes, a binary file, receipts of `stage`, or an iterable of these; of any size, in bounded memory. A
            receipt that is given twice is appended twice.
        expected_offset
            The segment offset at which the data must begin.
        attrs
            Attributes to set in the same commit; None removes an attribute.
        expected_attrs
            The values that attributes must have; None if there must be no such attribute.

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
        ValueError
            The segment would be longer than 2**63 - 1 bytes; nothing was written.
        AppendOutcomeUnknown
            It is not known whether the commit took place.
        """
        path = self.to_write(path)
        guard = arguments.guard(path, expected_offset, expected_attrs)
        arguments.check_attrs(path, attrs)
        with arguments.saying_how_to_create(path):
            return await self.client.segments.append(path, data, attrs=attrs, guard=guard)

    async def take_append(
        self,
        path: str,
        data: Data,
        expected_offset: int | None = None,
        attrs: Attrs = None,
        expected_attrs: Attrs = None,
    ) -> Intake:
        """Upload what `append` is to commit, and commit nothing."""
        path = self.to_write(path)
        guard = arguments.guard(path, expected_offset, expected_attrs)
        with arguments.saying_how_to_create(path):
            return await _taken(self.client.segments.addition(path, guard), data)

    async def overwrite(
        self, path: str, data: Data | Intake, attrs: Attrs = None, expected_attrs: Attrs = None
    ) -> None:
        """Create a segment or replace its content, in one commit: a new incarnation that begins at offset 0.

        The policy stays; attributes other than `attrs` do not. Data and attributes are as for `append`.

        Raises
        ------
        FencedError, AttributeMismatchError, StagedExpiredError
            Nothing was written.
        AppendOutcomeUnknown
            It is not known whether the commit took place.
        """
        path = self.to_write(path)
        guard = arguments.guard(path, None, expected_attrs)
        arguments.check_attrs(path, attrs)
        await self.client.segments.overwrite(path, data, attrs=attrs, guard=guard)

    async def take_overwrite(self, path: str, data: Data, attrs: Attrs = None, expected_attrs: Attrs = None) -> Intake:
        """Upload what `overwrite` is to commit, and commit nothing."""
        path = self.to_write(path)
        guard = arguments.guard(path, None, expected_attrs)
        return await _taken(self.client.segments.replacement(path, guard), data)

    async def stage(self, path: str, data: Data) -> Staged:
        """Upload data for a segment, which need not be there yet, and commit nothing.

        Returns
        -------
        Staged
            A small picklable receipt for this path; any process can give it to `append` or `overwrite`. Each call that
            gets the receipt commits the data, a second one too: `expected_offset` or `expected_attrs` prevents that.
        """
        return await self.client.segments.stage(self.to_write(path), data)

    async def pipe_file(self, path: str, value: Data | Intake, mode: str = arguments.OVERWRITE, **kwargs: Any) -> None:
        """Write a whole file, in one commit.

        Parameters
        ----------
        mode
            ``"overwrite"`` replaces an existing file, a sealed segment too; ``"create"`` fails if one exists.

        Raises
        ------
        FileExistsError
            With ``"create"``: a segment or a plain file is there.
        """
        path = self.to_write(path)
        await self.client.segments.overwrite(path, value, create_only=arguments.creates_only(mode, path))

    async def take_pipe_file(self, path: str, value: Data, mode: str = arguments.OVERWRITE, **kwargs: Any) -> Intake:
        """Upload what `pipe_file` is to commit, and commit nothing."""
        path = self.to_write(path)
        create_only = arguments.creates_only(mode, path)
        return await _taken(self.client.segments.replacement(path, create_only=create_only), value)

    async def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty file.

        Parameters
        ----------
        truncate
            Empty a file that is there. Otherwise it stays as it is, with its date.
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
            await self.folders.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as file:
            callback.set_size(os.fstat(file.fileno()).st_size)
            await self.pipe_file(rpath, _Counted(file, callback), mode)

    async def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy the retained bytes of a file into a new segment; for a folder, make one.

        All chunks with these bytes are verified before the copy is committed.

        Raises
        ------
        FileNotFoundError
            Nothing is there, or it was replaced while it was copied; nothing was written.
        CorruptChunkError
            A chunk is missing, too short, or fails its checksum; nothing was written.
        """
        source, target = self.strip(path1), self.to_write(path2)
        if source == target:
            await self.queries.info(path1)
            return
        try:
            _, pieces = await self.queries.reads.pieces(source, verify=True)
        except FileNotFoundError:
            if not await self.queries.listings.is_folder(source):
                raise
            await self.folders.makedirs(path2, exist_ok=True)
            return
        await self._copy(pieces, target)

    async def _copy(self, pieces: AsyncIterator[bytes], target: str) -> None:
        intake = self.client.segments.replacement(target)
        try:
            async for data in pieces:
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

    async def truncate(self, path: str, offset: int, erase: bool = False) -> Any:
        """Drop the bytes of a segment before an offset, and delete the chunks that lie wholly before the offset.

        Parameters
        ----------
        erase
            Leave none of these bytes in a file of the segment, as a law may ask for: also write the chunk in which the
            offset lies anew, keep nothing for readers of older snapshots, collect, and say what is left elsewhere. To
            finish an erase that was broken off, or one whose files were too young, call it again.

        Returns
        -------
        int, or Erased with `erase`
            How many bytes wait for `collect`, because their chunks were staged or lie in folders of other segments; or
            what was erased, and each file that may still hold erased bytes, with the reason.

        Raises
        ------
        BadOffsetError
            The offset is negative or beyond the end.
        FileNotFoundError, FencedError
            The same as in `seal`.
        CorruptChunkError
            With `erase`: the chunk in which the offset lies is damaged; nothing was erased.
        """
        path = self.to_write(path)
        arguments.check_offset(path, offset)
        arguments.check_switches(erase=erase)
        if erase:
            return await self.client.eraser.erase(path, offset)
        return await self.client.segments.truncate(path, offset)

    async def concat(
        self,
        target: str,
        sources: Sequence[str],
        attrs: Attrs = None,
        expected_attrs: Attrs = None,
        as_bytes: bool = False,
    ) -> int:
        """Append sealed segments to another without moving bytes; the sources are gone afterwards.

        Parameters
        ----------
        as_bytes
            Also join sources of formats that do not join, like Parquet, ORC and zip: the bytes are there, but a reader
            of the format finds only one of the files.

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
            The same as in `append`.
        WholeFileError
            A source is a file of a format that does not join; nothing was joined.
        ValueError
            The target is among the sources, or a source comes twice.
        """
        target = self.to_write(target)
        if isinstance(sources, str):
            raise TypeError(f"{target}: concat takes a list of sources, not one path; nothing was changed")
        guard = arguments.guard(target, None, expected_attrs)
        arguments.check_attrs(target, attrs)
        arguments.check_switches(as_bytes=as_bytes)
        paths = [self.to_write(source) for source in sources]
        return await self.client.concats.concat(target, paths, attrs=attrs, guard=guard, as_bytes=as_bytes)

    async def collect(
        self,
        path: str,
        grace: float | str | None = None,
        dry_run: bool = False,
        recursive: bool = False,
        progress: Progress | None = None,
        callback: Callback = DEFAULT_CALLBACK,
    ) -> Collected:
        """Delete the files that nobody refers to any more, in a segment's folder and where its chunks lie.

        Parameters
        ----------
        grace
            How old an unreferenced file must be, in seconds or as text like ``"1h"``; by default 24 hours. Give less
            only if nobody writes. Less counts in the folders of the segments that you name, not in others to which
            their headers lead: there it is 24 hours.
        dry_run
            Only say what would be deleted.
        recursive
            Collect all segments at or below the path, and the leftovers of deleted ones. The answer is then a
            `CollectedTree`, which names the segments that failed.
        progress
            With `recursive`: called with each segment's path and what was collected of it.
        callback
            Counts the segments that are done, in fsspec's way.
        """
        grace_s = None if grace is None else parse_seconds(grace)
        if recursive:
            tree = TreeCollector(self.client)
            return await tree.collect(
                self.strip(path), grace_s=grace_s, dry_run=dry_run, progress=progress, begin=partial(begin, callback)
            )
        tell = begin(callback, 1)
        collected = await self.client.collector.collect(self.to_write(path), grace_s=grace_s, dry_run=dry_run)
        tell(1)
        return collected


async def _taken(intake: Intake, data: Data) -> Intake:
    await intake.take(data)
    await intake.flush()
    return intake


class _Counted:
    """A file that tells a callback how many of its bytes were read."""

    def __init__(self, file: IO[bytes], callback: Callback) -> None:
        self._file = file
        self._callback = callback

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._callback.relative_update(len(data))
        return data
