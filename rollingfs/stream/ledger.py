"""The ledger of a stream: its retention, its cuts, its subscribers, and the last trim.

The ledger is a text in a hidden segment of the stream's folder. A change replaces the whole text, on condition that
no other client replaced it first. The ledger names segments without the folder, so that a stream may be moved, and
with their incarnations, because names are used again. `ledger_codec` has its form, and at the end are its policies.
"""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from rollingfs.errors import CommitTimeoutError, ConflictError, CorruptLedgerError, worded
from rollingfs.folders.listing import is_there
from rollingfs.format import names
from rollingfs.format.header import Header
from rollingfs.format.policies import ROLLING_ATTR, Fields, format_rolling, parse_rolling
from rollingfs.format.transitions import Guard
from rollingfs.policy import OffloadPolicy, RollingPolicy
from rollingfs.runtime.concurrency import backoff_s
from rollingfs.runtime.values import value_class
from rollingfs.segment.at import At, lineage
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.segment.segment import Segment
from rollingfs.segment.verbs.create import create, overwrite
from rollingfs.stream.ledger_codec import LEDGER_BYTES_MAX, Ledger, format_ledger, parse_ledger
from rollingfs.stream.retention import RetentionPolicy

if TYPE_CHECKING:
    from rollingfs.folders.collect_tree import Tree

logger = logging.getLogger("rollingfs")

POLICIES_S_MAX = 60.0
"""Time for which the policies of folders are believed, unless a listing shows that a ledger has changed."""
LOOKS_MAX = 16
"""Maximum number of reads of a ledger that others keep replacing."""
POLICY = RollingPolicy()
"""The policy of the hidden segment, with any policy of the stream's segments."""


class Ledgers:
    """Reads and replaces the ledgers of streams; after `renew`, knows the policies of all folders in a tree."""

    def __init__(self, client: At) -> None:
        self.client = client
        self.by_folder: dict[str, Ledger] = {}
        """The resolved ledgers of the folders of a tree; without ledgers that cannot be read."""
        self.errors: dict[str, OSError] = {}
        """The errors of the other folders."""
        self._tree: Tree | None = None
        """Its listings show which folders have a ledger."""
        self._tokens: dict[str, str | None] = {}
        """The tokens of the ledgers in the tree, by segment."""
        self._asked_s = 0.0
        self._above: dict[str, Ledger] = {}
        """The policies above the folders of the tree."""
        self._parsed: tuple[Segment, Ledger] | None = None
        """The last ledger, and its header."""

    async def load(self, folder: str) -> Ledger:
        """Return the ledger of a stream; an empty ledger at first."""
        path, tree = names.ledger_path(folder), self._tree
        if tree is not None and folder in tree.listed and path not in tree.tokens:
            return Ledger()
        token = None if tree is None else tree.tokens.get(path)
        return (await self._load(path, self.client.headers.by_token(path, token)))[0]

    async def resolved(self, folder: str) -> Ledger:
        """Return the ledger of a stream, with the policies that count: each field of the nearest folder with it."""
        return (await self.load(folder)).under(await self.above(folder))

    async def above(self, folder: str) -> Ledger:
        """Return the policies that a folder inherits, as a ledger.

        A folder whose memory may not be read ends what is inherited.

        Raises
        ------
        CorruptHeaderError, CorruptLedgerError
            The memory of a folder is damaged.
        PermissionError
            A folder may no longer be read; its policies may forbid the steps that nearer folders ask for.
        """
        return resolved(await self.levels(folder))

    async def levels(self, folder: str) -> list[tuple[str, Ledger]]:
        """Return the folders that a folder inherits from, nearest first, with their policies; otherwise as `above`."""
        found, speaking = [], self.client.inherited.speaking
        for path in lineage(self.client, folder)[1:]:
            ledger = self._above.get(path)
            try:
                ledger = await self.load(path) if ledger is None else ledger
            except PermissionError as error:
                if path in speaking or self.client.headers.seen(names.ledger_path(path)) is not None:
                    raise
                logger.info("%s inherits nothing from %s, which may not be read: %s", folder, path, error)
                break
            found.append((path, Ledger(ledger.retention, offload=ledger.offload, rolling=ledger.rolling)))
        speaks = False
        for path, ledger in reversed(found):  # a refusal would hide what the folders above say, too
            speaks = speaks or ledger != Ledger()
            if speaks:
                speaking.add(path)
            else:
                speaking.discard(path)
        if self._tree is not None:
            self._above |= dict(found)
        return found

    async def _load(self, path: str, known: Segment | None = None) -> tuple[Ledger, str | None]:
        """Return a ledger, and the incarnation of its segment (None: there is no ledger yet)."""
        for _ in range(LOOKS_MAX):
            loaded, known = known or await self.client.headers.load(path), None
            if not loaded.live or loaded.header is None:
                return Ledger(), None
            header = loaded.header
            if self._parsed is not None and self._parsed[0] == loaded:
                return self._parsed[1], header.segment
            if header.size > LEDGER_BYTES_MAX:
                raise CorruptLedgerError(f"{path}: it has {header.size} bytes, a ledger at most {LEDGER_BYTES_MAX}")
            try:
                data = await self.client.fetcher.read(loaded, header.start, header.length)
            except FileNotFoundError:
                continue  # replaced while it was read
            ledger = parse_ledger(data, path) if data else Ledger()
            self._parsed = loaded, replace(ledger, rolling=_rolling(header, path))
            return self._parsed[1], header.segment
        raise ConflictError(f"{path}: others replaced it {LOOKS_MAX} times while it was read; try again")

    async def check(self, folder: str) -> None:
        """Refuse a path that is not a folder, before a ledger is made there.

        Raises
        ------
        FileNotFoundError
            There is no such folder.
        NotADirectoryError
            The path names a segment or a plain file.
        """
        if await self.client.contents.is_folder(folder):
            return
        if await is_there(self.client, folder):
            raise NotADirectoryError(errno.ENOTDIR, "This is a segment or a file; a stream is a folder of them", folder)
        raise FileNotFoundError(errno.ENOENT, "There is no such folder, so there is no stream", folder)

    async def update(self, folder: str, change: Callable[[Ledger], Ledger]) -> Ledger:
        """Replace a ledger by what `change` makes of it; `change` is called again for each newer ledger.

        Raises
        ------
        FileNotFoundError, NotADirectoryError
            There is no such folder; no byte was written.
        CommitTimeoutError
            Others kept replacing the ledger until the commit timeout; no byte was written.
        AppendOutcomeUnknown
            It is not known whether the change took place. It may be made again.
        """
        path = names.ledger_path(folder)
        deadline_s = self.client.commits.deadline_s()
        attempt = 0
        while True:
            ledger, segment = await self._load(path)
            if segment is None:
                await self.check(folder)
            changed = change(ledger)
            if changed == ledger:
                await self.client.headers.secure(path)
                return ledger
            if await self.client.with_room(path, partial(self._replace, path, segment, changed)):
                return changed
            attempt += 1
            if time.monotonic() >= deadline_s:
                raise CommitTimeoutError(f"{path}: others replaced it first {attempt} times; nothing was written")
            await self.client.runtime.sleep(backoff_s(attempt))

    async def _replace(self, path: str, segment: str | None, ledger: Ledger) -> bool:
        """Replace the ledger of an incarnation; return whether it was still there."""
        try:
            if segment is None:
                segment = (await create(self.client, path, POLICY)).segment
            attrs = {ROLLING_ATTR: format_rolling(ledger.rolling)} if ledger.rolling else None
            await overwrite(self.client, path, format_ledger(ledger), attrs=attrs, guard=Guard(segment))
        except (FileExistsError, FileNotFoundError):
            return False
        return True

    async def renew(self, tree: Tree) -> None:
        """Read the ledgers of folders, if the tree shows that a ledger has changed, or after `POLICIES_S_MAX`."""
        folders = {names.parent(path) for path in tree.segments}
        tokens = {path: token for path, token in tree.tokens.items() if names.is_ledger(path)}
        is_old = time.monotonic() - self._asked_s >= POLICIES_S_MAX
        if tokens == self._tokens and not is_old and self.by_folder.keys() >= folders:
            return
        self.by_folder, self.errors, self._above = {}, {}, {}
        self._tree, self._tokens, self._asked_s = tree, tokens, time.monotonic()
        for folder in sorted(folders):
            try:
                self.by_folder[folder] = await self.resolved(folder)
            except OSError as error:  # the reports on its segments have the error, too; the others go on
                logger.warning("%s: its policies cannot be read, so no byte is moved there: %s", folder, error)
                self.errors[folder] = error


def resolved(levels: Sequence[tuple[str, Ledger]]) -> Ledger:
    """Return the policies that count: each field of the nearest level that has it."""
    return reduce(lambda far, level: level[1].under(far), reversed(levels), Ledger())


def _rolling(header: Header, path: str) -> Fields:
    """Return a folder's fields of the rolling policy."""
    text = header.attrs.get(ROLLING_ATTR)
    try:
        return {} if text is None else parse_rolling(text)
    except (ValueError, TypeError) as error:
        raise CorruptLedgerError(f"{path}: the rolling policy of the folder cannot be read: {error}") from error


# -- offload policies: which of three levels counts, and whether it goes with the retention ----------------------


@value_class
class Policies:
    """The policies of a segment or of a folder, and where the offload policy comes from."""

    rolling: RollingPolicy | None
    """The rule by which the segment rolls to a new chunk; for a folder, of new segments in it."""
    segment: OffloadPolicy | None
    """The offload policy of the segment itself; None for a folder."""
    folder: OffloadPolicy | None
    """The policies of the segment's folder and of the folders above it, field by field."""
    filesystem: OffloadPolicy | None
    """The policy of this client."""
    retention: RetentionPolicy | None = None
    """The retention of the folder; None: everything stays."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The source of each field of ``rolling``, ``offload`` and ``retention``: ``segment``, the path of a folder, or
    ``filesystem`` (the options of the client; of a segment, of the client that made it)."""

    @property
    def offload(self) -> OffloadPolicy | None:
        """Return the policy in force: each field of the nearest level, or None."""
        found = None
        for level in (self.segment, self.folder, self.filesystem):
            if level is not None:
                found = level if found is None else found.over(level)
        return found


def policies_of(path: str, header: Header | None, ledger: Ledger, default: OffloadPolicy | None) -> Policies:
    """Return the policies of a segment, or of a folder without a header. The memory of a stream never moves.

    Parameters
    ----------
    ledger
        The ledger of the folder, resolved.
    """
    rolling, own = (None, None) if header is None else (header.policy, header.offload)
    if names.is_ledger(path):
        return Policies(rolling, None, None, None)
    return Policies(rolling, own, ledger.offload, default, ledger.retention)


def check_retention(
    path: str, asked: Asked | None, ledger: Ledger, outcome: str = "nothing was moved", *, is_policy: bool = False
) -> None:
    """Refuse an offload that the retention of a stream makes pointless, or that would undo it.

    Parameters
    ----------
    outcome
        The state after the refusal, for the message.

    Raises
    ------
    ValueError
        The old files would outlive the retention, or retention trims before an offload. The message
        has both numbers.
    """
    retention = ledger.retention
    if retention is None or asked is None:
        return
    chosen, lag_s = asked.chosen, asked.lag_s
    by = " by its policy" if is_policy else ""
    kept_bytes, kept_s = _kept(retention, is_read=not ledger.subscribers)
    if chosen.after_bytes is not None and chosen.after_bytes >= kept_bytes:
        raise ValueError(
            f"{path}: offload{by} begins {chosen.after_bytes} bytes before the end, but the retention of the "
            f"stream keeps only {kept_bytes:.0f} bytes, so nothing would ever be offloaded; {outcome}"
        )
    if lag_s > kept_s:
        raise ValueError(
            f"{path}: {worded(deletion_lag=...)}{by} is {lag_s:.0f} s, but the retention of the stream keeps "
            f"bytes for {kept_s:.0f} s: the old files would outlive them; {outcome}, give a shorter lag"
        )
    if chosen.after_age_s is not None and chosen.after_age_s >= kept_s:
        raise ValueError(
            f"{path}: offload{by} begins after {chosen.after_age_s:.0f} s, but the retention of the stream keeps bytes "
            f"for {kept_s:.0f} s, so nothing would ever be offloaded; {outcome}"
        )


def _kept(retention: RetentionPolicy, *, is_read: bool) -> tuple[float, float]:
    """Return the bytes and the seconds that a retention keeps at most, perhaps endless."""
    age_s, size = retention.max_age, retention.max_bytes
    if is_read:
        age_s, size = retention.of_read or (retention.min_age, retention.min_bytes)
    return math.inf if size is None else size, math.inf if age_s is None else age_s


def check_policy(path: str, policies: Policies, ledger: Ledger, outcome: str) -> None:
    """Refuse a policy that does not go with the retention of a stream; otherwise as `check_retention`."""
    check_retention(path, Asked.by(policies.offload), ledger, outcome, is_policy=True)
