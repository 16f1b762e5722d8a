"""One container of Azure, or bucket of another cloud: the requests that a `CloudBackend` needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rollingfs.backend.contract import Buffer, Metadata, Over


@dataclass(frozen=True, slots=True)
class Answer:
    """What a store sent of a file."""

    data: Buffer
    token: str
    modified: float
    """Seconds since 1970 by the store's clock."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file as the store describes it."""

    key: str
    size: int
    modified: float
    """Seconds since 1970 by the store's clock."""
    token: str


class Parts(Protocol):
    """A new file that is sent in parts, which nobody sees before it is complete. A part may be sent again."""

    async def write(self, part: Buffer) -> None:
        """Send a part, or begin to; all but the last have `CloudBackend`'s size."""

    async def complete(self, last: Buffer) -> None:
        """Send the last part, and make the file of all."""

    async def abort(self) -> None:
        """Have the store forget the parts, if it can be told to. The file is not made after that."""


class Container(Protocol):
    """The files of one container. What fails is one of `rollingfs.backend.cloud.errors.CLOUD_ERRORS`.

    Each `get`, `put` and `delete_if` is one request, sent once.
    """

    async def get(
        self, key: str, span: tuple[int, int] | None = None, *, if_token: str = "", unless_token: str = ""
    ) -> Answer | None:
        """A file, or its bytes ``[start, end)``, if its token is the one; None if its token is still the other.

        A store may ignore the conditions: the answer has the token.
        """

    async def put(self, key: str, data: Sequence[Buffer], over: Over | str, metadata: Metadata = None) -> str:
        """Write a whole file over what may be there, or over a file with this token; returns the new token."""

    async def head(self, key: str) -> Found:
        """What the store knows of a file."""

    async def metadata(self, key: str) -> Mapping[str, str]:
        """The metadata that a file was written with; names may have ``_`` for ``-``, which Azure does not take."""

    async def list(self, prefix: str) -> tuple[Sequence[Found], Sequence[str]]:
        """The files directly below a folder, "" or one that ends with a slash, and its folders, without their slash."""

    async def has_any(self, prefix: str) -> bool:
        """Whether there is anything below a folder; "" asks whether the container exists."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete files; a missing one is no error."""

    async def delete_if(self, key: str, token: str) -> None:
        """Delete a file if it has this token."""

    async def copy(self, source: str, target: str, token: str | None) -> None:
        """Copy a file of this container within it, if it has this token; the copy is whole when this returns."""

    def parts(self, key: str, over: Over, metadata: Metadata = None) -> Parts:
        """Begin a new file of unknown size. It asks nothing yet."""

    async def now(self) -> float:
        """The store's clock, in seconds since 1970."""


class Service(Protocol):
    """One account of a cloud: its containers, and what all of them can do."""

    scheme: str
    """The scheme of its URLs."""
    schemes: frozenset[str]
    """All schemes of such URLs."""
    account: str
    """What tells it from other accounts."""
    can_delete_if: bool
    date_step_s: float
    commit_interval_s: float

    def container(self, name: str) -> Container:
        """A container of this name, which need not exist."""

    async def containers(self) -> Sequence[str]:
        """The names of all containers."""

    async def make_container(self, name: str) -> None:
        """Make a container; one that exists is no error."""

    async def remove_container(self, name: str) -> None:
        """Remove an empty container."""

    def container_name(self, first: str) -> str:
        """The container that the first part of a URL's path names.

        Raises
        ------
        ValueError
            It names another account.
        """

    def check_key(self, key: str) -> str:
        """Why no file of this store can have this name; "" if it can."""

    def after_fork(self) -> None:
        """Drop connections, in a child process."""
