"""The data path to one bucket: reads of whole objects, ranges and changed objects; writes, conditional or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rollingfs.backend.contract import Buffer, Metadata, Over


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing shows it."""

    key: str
    size: int
    modified: float
    """Seconds since 1970 by the store's clock; whole seconds."""
    token: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a store sent of an object."""

    data: Buffer
    token: str
    """The ETag of the whole object, quotes included; "" if a range came without it."""
    modified: float
    """Seconds since 1970 by the store's clock; whole seconds."""


def token_of(e_tag: str | None, needed: bool = True) -> str:
    """The token in an answer.

    Raises
    ------
    ConnectionError
        The answer has none.
    """
    if needed and not e_tag:
        raise ConnectionError("the store's answer has no ETag, without which nothing can be said about the object")
    return e_tag or ""


class Objects(Protocol):
    """The objects of one bucket. Each call is one request, sent once.

    Every error is one of `rollingfs.backend.s3.errors.CLIENT_ERRORS`: a `ClientError` with the status and the code of
    an answer, or another error if no answer came.
    """

    async def get(
        self, key: str, span: tuple[int, int] | None = None, *, if_match: str = "", unless_match: str = ""
    ) -> Answer:
        """GetObject, whole or ``[start, end)``, if the token equals `if_match`, and differs from `unless_match`."""

    async def put(
        self,
        key: str,
        data: Sequence[Buffer],
        over: Over | str | None = None,
        metadata: Metadata = None,
    ) -> str:
        """PutObject; returns the token.

        Parameters
        ----------
        data
            The bytes, in pieces.
        over
            A condition: `Over.NOTHING` requires that the name is free, a token that the object has it.
        metadata
            Kept with the object, beside those that the user wants for every object.
        """

    async def list_prefix(self, folder: str, prefix: str) -> Sequence[Listed]:
        """ListObjectsV2: at most a page of what lies directly in a folder and has a name that begins so and goes on.

        Parameters
        ----------
        folder
            Its key, which ends with a slash; "" for the bucket.
        """
