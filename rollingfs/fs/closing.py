"""The end of a filesystem: it closes its connections, on the event loop that they belong to."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rollingfs.backend.contract import Backend
from rollingfs.runtime.bridge import Bridge


class Closing:
    """A filesystem that may be closed."""

    _backend: Backend
    _bridge: Bridge

    async def close(self) -> None:
        """Close the connections of this filesystem and of its tiers; a later verb opens new ones.

        For a filesystem with ``asynchronous=True``, before its event loop ends; ``async with`` closes it, too. A
        blocking filesystem needs no close.
        """
        await self._bridge.arun(self._backend.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
