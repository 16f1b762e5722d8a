"""The backend under test, and access to its files without it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rollingfs.backend.contract import Backend
from rollingfs.testing.racing import Factory

CLOCK_SLACK_S = 600


class Subject:
    """Definitions that a subclass of `BackendContract` gives.

    Attributes
    ----------
    tokens_tell_equal_bytes : bool
        Whether two writes of equal bytes have different tokens. False where a token is a hash of the bytes (S3). That
        is enough for headers, because no two headers are equal.
    claims_atomicity : bool
        Whether several processes may write by the backend. If not, races are not run.
    """

    tokens_tell_equal_bytes = True
    claims_atomicity = True

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend under test."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `backend`")

    @pytest.fixture
    def folder(self) -> str:
        """Return the path of a folder that was never used; it need not exist."""
        raise NotImplementedError("a subclass of BackendContract has a fixture `folder`")

    def raw_read(self, path: str) -> bytes:
        """Read a file without the backend."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_read`")

    def raw_write(self, path: str, data: bytes) -> None:
        """Write a plain file, and its folder if it is missing, without the backend."""
        raise NotImplementedError("a subclass of BackendContract has a method `raw_write`")

    def raw_write_many(self, paths: Sequence[str], data: bytes) -> None:
        """Write many files without the backend."""
        for path in paths:
            self.raw_write(path, data)

    def spawn_arguments(self) -> Factory | None:
        """Return the recipe for a backend in another process: a callable, arguments.

        Both can be pickled. None if the store exists in this process only.
        """
        raise NotImplementedError("a subclass of BackendContract has a method `spawn_arguments`")

    def _need(self, ability: bool, verb: str) -> None:
        if not ability:
            pytest.skip(f"this backend has no {verb} on the server")


PATTERN = bytes(number * 7 % 251 for number in range(251))


def content(size: int) -> bytes:
    """Return bytes that differ from their neighbours."""
    return (PATTERN * (size // len(PATTERN) + 1))[:size]
