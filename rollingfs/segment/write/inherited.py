"""The rolling policy of a new segment: each field of the nearest folder that has it, else this client's.

A folder's fields are in the header of its memory (`ROLLING_ATTR`), so a look is a read of a header, which is most often
missing.
"""

from __future__ import annotations

import logging
import time
from functools import partial

from rollingfs.errors import RollingError
from rollingfs.format import names
from rollingfs.format.policies import ROLLING_ATTR, Fields, parse_rolling
from rollingfs.policy import RollingPolicy
from rollingfs.segment.commit.store import Store

logger = logging.getLogger("rollingfs")

BELIEVED_S = 60.0
"""Seconds for which the policy of a folder counts without another look."""
LASTING = (PermissionError, RollingError, ValueError, TypeError)
"""Errors that a look soon after would find again; any other may be over."""
FOLDERS_MAX = 4096
"""Maximum number of folders that a client remembers."""


def lineage(store: Store, folder: str) -> list[str]:
    """Return a folder and the folders above it from which it inherits, nearest first.

    Above the folder itself, the first folder into which any user of the machine may write ends them.
    """
    found = [folder]
    while (above := names.parent(folder)) not in ("", folder) and not store.backend.is_shared(above):
        found.append(above)
        folder = above
    return found


class Inherited:
    """The policies that new segments inherit.

    Parameters
    ----------
    default
        The policy of this client, for fields that no folder has.
    """

    def __init__(self, store: Store, default: RollingPolicy) -> None:
        self.store = store
        self.default = default
        self._seen: dict[str, tuple[float, Fields]] = {}
        self.speaking: set[str] = set()
        """Folders from which this client has seen others inherit policies; a refusal there is an error."""

    async def policy(self, path: str, default: RollingPolicy | None = None) -> RollingPolicy:
        """Return the policy of a new segment; fields that no folder has are by default this client's."""
        folders = lineage(self.store, names.parent(path))
        calls = [partial(self._fields, folder) for folder in folders]
        policy = default or self.default
        for fields in reversed(await self.store.runtime.gather(calls, self.store.backend.capability.requests_max)):
            policy = policy.inheriting(fields)
        return policy

    def forget(self) -> None:
        """Look again at all folders; results of looks that are under way are not remembered either."""
        self._seen = {}

    async def _fields(self, folder: str) -> Fields:
        seen = self._seen
        at_s, fields = seen.get(folder, (-BELIEVED_S, {}))
        if time.monotonic() - at_s < BELIEVED_S:
            return fields
        if len(seen) >= FOLDERS_MAX:
            seen.clear()
        path, fields = names.ledger_path(folder), {}
        try:
            loaded = await self.store.headers.load(path)
            if loaded.live and loaded.header is not None and ROLLING_ATTR in loaded.header.attrs:
                fields = parse_rolling(loaded.header.attrs[ROLLING_ATTR])
        except (OSError, ValueError, TypeError) as error:  # a segment is made as if the folder said nothing
            logger.info("%s: what it says of new segments cannot be read, so it does not count: %s", path, error)
            if not isinstance(error, LASTING):
                return fields  # the next segment asks again
        seen[folder] = time.monotonic(), fields
        return fields
