"""`Capability`: the optional abilities and the limits of a store, which its adapter declares."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Capability:
    """The optional abilities and the limits of a store.

    An adapter declares them as an attribute of its class; an instance that differs has a changed copy.
    The defaults are those of the poorest store that can be written.

    Attributes
    ----------
    can_write
        False: `Backend.create` and `Backend.replace` are not atomic, and no user vouched for a single writer.
    can_copy
        The server (or the disk) does `Backend.copy`, so that the bytes do not pass through this process.
    can_join
        The server does `Upload.copy`, and so joins ranges of files.
    can_delete_if
        The adapter has `Backend.delete_if`. The probe still tries what the store does.
    can_extend
        The adapter has `Backend.extend`: a commit may put a record after a header instead of replacing the file.
    can_list_uploads
        `Backend.list_uploads` finds the unfinished uploads of others.
    must_race
        The probe races writers. False where a lock of this process or kernel decides, and for a single writer.
    has_folders
        Empty folders exist (a disk). False: a folder is only a prefix (an object store).
    has_metadata
        The store keeps metadata with files. They help when a header is lost; no reader relies on them.
    has_clock
        `Backend.now` is the time of the store's own clock, not of a client's.
    has_turns
        Without `Backend.is_async`: the adapter has `Backend.take_turn`, so that a commit need not race others.
    removes_whole
        The adapter has `Backend.remove_whole` and `Backend.move_whole`: no request arrives late that a tombstone would
        have to refuse.
    shows_unflushed
        A reader sees headers that a loss of power would take back. Then `Backend.flush` makes them durable.
    finishes_aside
        Without `Backend.is_async`: a thread may wait for the end of an upload while another is written.
    conflicts_are_final
        A `ConflictError` of `Backend.replace` proves that no byte was written, because no request arrives twice.
    requests_max
        The number of simultaneous requests that makes sense.
    small_requests_max
        The same for requests of a few kilobytes, such as headers and pins; None: `requests_max`.
    join_part_bytes_min
        The smallest part, in bytes, that `Upload.copy` takes on the server; the last part may be smaller.
    date_step_s
        Two files with the same token differ in date if this time is between them; 0 if tokens never repeat.
    commit_interval_s
        Wait of a client between two writes of the same file: commits gather for as long.
    """

    can_write: bool = True
    can_copy: bool = False
    can_join: bool = False
    can_delete_if: bool = False
    can_extend: bool = False
    can_list_uploads: bool = False
    must_race: bool = True
    has_folders: bool = False
    has_metadata: bool = False
    has_clock: bool = False
    has_turns: bool = False
    removes_whole: bool = False
    shows_unflushed: bool = False
    finishes_aside: bool = False
    conflicts_are_final: bool = False
    requests_max: int = 32
    small_requests_max: int | None = None
    join_part_bytes_min: int = 0
    date_step_s: float = 0.0
    commit_interval_s: float = 0.0

    def limited(self, requests_max: int | None) -> Capability:
        """Return the same with as many simultaneous requests as a user wants; None for no wish."""
        return replace(self, requests_max=requests_max) if requests_max else self
