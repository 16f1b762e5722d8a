"""The segments of one stream: their names, and what each of them is now."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rollingfs.client import Client
from rollingfs.errors import CorruptHeaderError
from rollingfs.folders.listing import REPORT, Listings, OnError
from rollingfs.format import names
from rollingfs.read.contents import is_of_entry
from rollingfs.read.snapshot import Snapshot
from rollingfs.stream.ledger import Ledgers

logger = logging.getLogger("rollingfs")


@dataclass(frozen=True, slots=True)
class Found:
    """The segments of a stream, by name."""

    views: dict[str, Snapshot]
    unreadable: dict[str, OSError]

    @property
    def names(self) -> list[str]:
        """The names of all segments, sorted."""
        return sorted([*self.views, *self.unreadable])


@dataclass(frozen=True, slots=True)
class Member:
    """A segment of a stream, as a listing showed it."""

    name: str
    state: str
    """``"open"``, ``"sealed"``, ``"merging"``, or ``"unreadable"``."""
    start: int = 0
    length: int = 0


class Members:
    """Finds the segments of a stream.

    Parameters
    ----------
    path
        The stream's folder, as the backend names it. Segments directly in it are the stream's.
    on_error
        What to do about segments that cannot be read: ``"report"`` goes on with the others, ``"raise"`` raises.
    """

    def __init__(self, client: Client, listings: Listings, path: str, on_error: OnError = REPORT) -> None:
        self.client = client
        self.listings = listings
        self.path = path
        self.on_error = on_error
        self.last: Sequence[Member] | None = None
        """The segments that the last listing showed; None before it."""

    def name_of(self, path: str) -> str:
        """A segment's name within the stream.

        Raises
        ------
        ValueError
            The path is not that of a segment of this stream.
        """
        folder, _, name = path.rpartition("/")
        if folder != self.path.rstrip("/") or not name:
            raise ValueError(f"{path!r} is no segment of the stream {self.path!r}")
        return name

    def path_of(self, name: str) -> str:
        """The inverse of `name_of`."""
        return f"{self.path.rstrip('/')}/{name}"

    def is_reported(self, error: OSError) -> bool:
        """Whether to go on without the segment that this error is about."""
        return self.on_error == REPORT and is_of_entry(error)

    async def find(self) -> Found:
        """The segments as a listing shows them now.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            There is no such folder.
        """
        try:
            scan = await self.listings.scan(self.path, self.on_error)
        except (FileNotFoundError, NotADirectoryError):
            await Ledgers(self.client).check(self.path)
            raise
        views = {self.name_of(path): view for path, view in scan.listed.items()}
        errors = {self.name_of(path): error for path, error in scan.errors.items()}
        for name in list(views):
            try:
                names.check_member_name(name)
            except ValueError as error:  # a file of another tool: no ledger could name it
                del views[name]
                errors[name] = CorruptHeaderError(f"{self.path}: {error}")
        found = Found(views, errors)
        self.last = [_member(name, views.get(name)) for name in found.names]
        return found

    async def find_to_cut(self) -> Found:
        """The segments as they are now, each with its incarnation.

        Each plain file is looked at, because a listing may tell no token of it, or another than the look.
        """
        found = await self.find()
        plain = [name for name, view in found.views.items() if view.header is None]
        looks = await self.listings.gather([partial(self._look_if_there, found.views.pop(name).path) for name in plain])
        for name, seen in zip(plain, looks, strict=True):
            if isinstance(seen, Snapshot):
                found.views[name] = seen
            elif seen is not None:
                found.unreadable[name] = seen
        return found

    async def look(self, path: str) -> Snapshot | OSError:
        """A segment as it is now, or why it cannot be read.

        Raises
        ------
        FileNotFoundError
            It is not there.
        """
        try:
            return await self.client.lookup.view(path, fresh=True)
        except OSError as error:
            if not self.is_reported(error):
                raise
            return error

    async def _look_if_there(self, path: str) -> Snapshot | OSError | None:
        try:
            return await self.look(path)
        except FileNotFoundError:
            return None

    def warn(self, unreadable: Mapping[str, OSError]) -> None:
        """Name in the log the segments that an operation leaves out."""
        for name, error in unreadable.items():
            logger.warning("%s: the segment %s is left out, because it cannot be read: %s", self.path, name, error)

    def reasons(self, unreadable: Mapping[str, OSError]) -> dict[str, str]:
        """Why segments cannot be read, by path."""
        return {self.path_of(name): str(error) for name, error in unreadable.items()}


def _member(name: str, view: Snapshot | None) -> Member:
    return Member(name, "unreadable") if view is None else Member(name, view.state, view.start, view.length)
