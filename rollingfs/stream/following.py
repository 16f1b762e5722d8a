"""The segments that a follower follows: the given segments, and all below the given folders.

A look around lists each folder once. It shows which segments are new, which have changed, and which are gone; the
others cost no request. Of a segment that has ended, or for which no policy counts, only the header's token is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rollingfs.folders.collect_tree import tree_below
from rollingfs.format import names
from rollingfs.policy import TIER_DEFAULT, OffloadPolicy
from rollingfs.segment.at import At
from rollingfs.segment.files.rewrite_plan import Asked
from rollingfs.stream.follow import Followed
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.ledger_codec import Ledger
from rollingfs.stream.offload_policy import Policies

logger = logging.getLogger("rollingfs")


class Following:
    """The segments that are followed, by path.

    Parameters
    ----------
    given
        Options that count before all policies; with a tier, no policy counts.
    """

    def __init__(self, client: At, given: OffloadPolicy) -> None:
        self.client = client
        self.given = given
        self.folders: set[str] = set()
        self.followed: dict[str, Followed] = {}
        self._named: set[str] = set()
        """The given segments and folders. A segment without a policy goes to the default tier."""
        self._ended: dict[str, str | None] = {}
        """The tokens of the headers of segments that need no step."""
        self._tokens: Mapping[str, str | None] = {}
        """The tokens of all headers that the last look around has met."""
        self._ledgers = Ledgers(client)

    def add(self, path: str) -> None:
        """Follow a segment, or all below a folder.

        Raises
        ------
        ValueError
            It is the memory of a stream, or no name of a segment.
        """
        if self.client.contents.is_top(path):
            self.folders.add(path)
        else:
            self.followed[names.check_new_name(path)] = Followed(self.client, path, self._ask)
            self._named.add(path)

    async def _ask(self, path: str, own: OffloadPolicy | None, ledger: Ledger | None) -> Asked | None:
        if self.given.tier is not None:
            return Asked.by(self.given)
        if ledger is None and path not in self._named:
            ledger = self._ledgers.by_folder.get(names.parent(path))
        if ledger is None:
            ledger = await Ledgers(self.client).resolved(names.parent(path))
        default = self.client.offload_policy
        if path in self._named:
            named = OffloadPolicy(TIER_DEFAULT)
            default = named if default is None else default.over(named)
        return Asked.by(self.given.over(Policies(None, own, ledger.offload, default).offload))

    def is_named(self, path: str) -> bool:
        """Return whether this path was given to the follower."""
        return path in self._named

    def unnamed(self) -> list[Followed]:
        """The segments that it has found below folders."""
        return [one for path, one in self.followed.items() if path not in self._named]

    async def is_folder(self, path: str) -> bool:
        """Whether a path that is no segment is a folder; its segments are followed then."""
        if path in self._named and await self.client.backend.is_folder(path):
            self.folders.add(path)
            self.followed.pop(path, None)
            return True
        return False

    def listed(self, path: str) -> str | None:
        """The token of a header in the last look around."""
        return self._tokens.get(path)

    def end(self, one: Followed, listed: str | None) -> None:
        """Follow a segment no more, until its header is another.

        Parameters
        ----------
        listed
            The answer of `listed` before the look at the segment; a later token may belong to a new segment.
        """
        if one.path not in self._named:
            self._ended[one.path] = one.token or listed
            self.followed.pop(one.path, None)

    async def look_around(self) -> list[Followed]:
        """List the folders; returns the segments to look at, because they are new or have changed.

        Raises
        ------
        OSError
            A folder cannot be listed.
        """
        tree = await tree_below(self.client, *sorted(self.folders))
        for path, error in tree.unlisted.items():
            logger.info("%s: not followed now, because it cannot be listed: %s", path, error)
        self._tokens = tree.tokens
        changed = await self._ledgers.renew(tree)
        wanted = {path for path in tree.segments if not names.is_hidden_segment(path)}
        for path in self.followed.keys() - wanted - self._named:
            del self.followed[path]
        self._ended = {path: token for path, token in self._ended.items() if path in wanted}
        due = []
        for path in sorted(wanted - self._named):
            token, is_asked_anew = tree.tokens.get(path), names.parent(path) in changed
            if path in self._ended and self._ended[path] == token is not None and not is_asked_anew:
                continue
            self._ended.pop(path, None)
            one = self.followed.get(path)
            if one is None:
                one = self.followed[path] = Followed(self.client, path, self._ask)
            elif one.token == token is not None and not is_asked_anew:
                continue
            elif is_asked_anew:
                one.token = None
            due.append(one)
        return due
