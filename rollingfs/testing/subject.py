"""What is tested: a backend, and the ways around it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rollingfs.backend.contract import Backend
from rollingfs.testing.racing import Factory

CLOCK_SLACK_S = 600


class Subject:
    """What a subclass of `BackendContract` says of its backend.

    Attributes
    ----------
    tokens_tell_equal_bytes : bool
        Whether two writes of equal bytes have different tokens. Not so where a token is a hash of the bytes (S3);
        headers get by with that, since no two of them are ever equal.
    claims_atomicity : bool
        Whether the backend may be written by several processes. False: races are not run.
    """

    tokens_tell_equal_bytes = True
    claims_atomicity = True

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend under test."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `backend`")

    @pytest.fixture
    def folder(self) -> str:
        """The path of a folder that nobody has used; it need not exist."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `folder`")

    def raw_read(self, path: str) -> bytes:
        """Read a file around the backend."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_read`")

    def raw_write(self, path: str, data: bytes) -> None:
        """Write a plain file around the backend, its folder made if need be."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_write`")

    def raw_write_many(self, paths: Sequence[str], data: bytes) -> None:
        """Write many files around the backend."""
        for path in paths:
            self.raw_write(path, data)

    def spawn_arguments(self) -> Factory | None:
        """Make a backend of this store in another process: a picklable callable and its arguments.

        None if the store lives in one process.
        """
        raise NotImplementedError("a subclass of BackendContract has a method `spawn_arguments`")

    def _need(self, ability: bool, verb: str) -> None:
        if not ability:
            pytest.skip(f"this backend has no {verb} on the server")


def content(size: int) -> bytes:
    """Bytes that differ from their neighbours."""
    return bytes(number * 7 % 251 for number in range(size))
