"""`At`: the store that verbs work at, made once for each filesystem, and the rolling policy of new segments there.

Each field of a new segment's policy comes from the nearest folder that has it, else from this client. A folder's fields
are in the header of its memory (`ROLLING_ATTR`), so a look is a read of a header, which is most often missing.
"""

from __future__ import annotations

import logging
import time
from functools import partial

from rollingfs.backend.contract import Backend
from rollingfs.backend.verdicts import Verdicts
from rollingfs.backend.wrapper import MeteredBackend
from rollingfs.errors import RollingError
from rollingfs.format import names
from rollingfs.format.policies import ROLLING_ATTR, Fields, parse_rolling
from rollingfs.policy import OffloadPolicy, RollingPolicy
from rollingfs.runtime.concurrency import AsyncRuntime, Runtime, SyncRuntime
from rollingfs.runtime.meters import Meters
from rollingfs.runtime.system import Clock
from rollingfs.runtime.values import value_class
from rollingfs.segment.commit.commits import Commits
from rollingfs.segment.commit.header_cache import Headers
from rollingfs.segment.commit.index_pages import Pages
from rollingfs.segment.commit.store import Store
from rollingfs.segment.commit.turns import Slots
from rollingfs.segment.read.folder_contents import Contents
from rollingfs.segment.read.ranges import Fetcher
from rollingfs.segment.write.budget import WRITE_MEMORY_BYTES_DEFAULT, Budget, check_write_memory

HEADER_CACHE_S = 0.0
COMMIT_TIMEOUT_S = 60.0
PATIENCE_SHARE = 0.9
"""Share of the timeout for which a request is repeated, so that a commit has time left to raise the cause."""

logger = logging.getLogger("rollingfs")

BELIEVED_S = 60.0
"""Seconds for which the policy of a folder counts without another look."""
LASTING = (PermissionError, RollingError, ValueError, TypeError)
"""Errors that a look soon after would find again; any other may be over."""
FOLDERS_MAX = 4096
"""Maximum number of folders that a client remembers."""


@value_class(slots=False)  # with slots it is another class than `super` looks for, and takes no weak reference
class At(Store):
    """The store that verbs work at, with all that they need: a writer with an id of its own."""

    commits: Commits
    """Replaces headers."""
    fetcher: Fetcher
    """Reads ranges."""
    contents: Contents
    """Lists folders."""
    inherited: Inherited
    """The policies of new segments."""
    budget: Budget
    """Bounds the bytes that writers hold."""
    offload_policy: OffloadPolicy | None
    """The chunks that move to a tier, if neither a segment nor its folder has a policy."""

    @staticmethod
    def of(
        backend: Backend,
        policy: RollingPolicy | None = None,
        *,
        offload_policy: OffloadPolicy | None = None,
        header_cache_s: float = HEADER_CACHE_S,
        commit_timeout_s: float = COMMIT_TIMEOUT_S,
        probe_cache: str | bool = False,
        max_write_memory: int | str = WRITE_MEMORY_BYTES_DEFAULT,
        clock: Clock = time.time,
    ) -> At:
        """Return the value for a backend.

        Parameters
        ----------
        policy
            The policy of the segments that it creates.
        header_cache_s
            Seconds for which a reader believes a header without a request; 0 to ask always.
        commit_timeout_s
            A commit gives up after this many seconds, and so does a read while the store fails.
        probe_cache
            The local file or folder that keeps the verdicts of probes for other processes; True for the user's cache
            folder.
        max_write_memory
            The bytes (or text like ``"256MiB"``) that all open writers and appends hold together, at most.
        clock
            The wall clock, seconds since 1970.
        """
        runtime: Runtime = AsyncRuntime() if backend.is_async else SyncRuntime()
        meters, kind = Meters(), type(backend).__name__
        backend = MeteredBackend(backend, meters, PATIENCE_SHARE * commit_timeout_s)
        headers, pages = Headers(backend, runtime, header_cache_s), Pages(backend, runtime)
        verdicts = Verdicts(backend, runtime, probe_cache, kind)
        headers.condemn, headers.store_shown = verdicts.condemn, verdicts.store_shown
        parts = backend, runtime, headers, pages, verdicts, Slots(runtime), meters, clock
        commits = Commits(Store(*parts), commit_timeout_s)
        fetcher = Fetcher(backend, runtime, headers, pages, meters)
        contents = Contents(backend, runtime, headers)
        budget = Budget(runtime, check_write_memory(max_write_memory))
        inherited = Inherited(commits.store, policy or RollingPolicy())
        return At(*parts, commits, fetcher, contents, inherited, budget, offload_policy)

    def after_fork(self) -> None:
        """Become another writer in a child process, without a connection or lock of the parent's."""
        super().after_fork()
        self.budget.after_fork()


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
