"""The verb that writes a segment as a plain file for other tools, as a coroutine of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK, Callback

from rollingfs.format import names
from rollingfs.format.transitions import missing
from rollingfs.fs.export_target import open_export_target
from rollingfs.fs.progress import begin
from rollingfs.fs.queries import Queries
from rollingfs.maintenance import Exported
from rollingfs.maintenance.steps import Progress


class ExportVerb:
    """Exports one segment or plain file, over paths as callers write them."""

    def __init__(self, queries: Queries) -> None:
        self.client = queries.client
        self.strip = queries.strip

    async def export(
        self,
        path: str,
        target: str,
        *,
        overwrite: bool = False,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        callback: Callback = DEFAULT_CALLBACK,
    ) -> Exported:
        """Write the retained bytes of a segment or plain file as one plain file, under another name, for other tools.

        The file appears whole or not at all, with the bytes that the segment retains when the export begins. On the
        segment's own store, the store (or the kernel) copies the chunks. Nobody compares their checksums then:
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
        progress
            Called with the number of bytes since the last call, from any thread of the library.
        callback
            The same, in fsspec's way.

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
        backend, name = open_export_target(self.client.backend, target, target_protocol, target_options)
        path = self.strip(path)
        if names.is_reserved(path):
            raise missing(path)
        view = await self.client.lookup.view(path, fresh=True)
        tell = begin(callback, view.size, progress)
        return await self.client.exporter.export(view, backend, name, overwrite=overwrite, progress=tell)
