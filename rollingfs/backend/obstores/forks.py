"""What a forked child must leave alone: connections that its parent still uses, and obstore, whose threads are gone."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

_used: weakref.WeakSet[Any] = weakref.WeakSet()
_used_while_forking: list[Any] = []
_used_by_parents: list[Any] = []
_obstore_is_lost = False


class ObstoreLostError(ConnectionError):
    """Nothing was sent, because obstore cannot be used here any more."""


def keep_from_children(thing: object) -> None:
    """Never collect a thing in a child, which would close sockets or an epoll that the parent still uses."""
    _used.add(thing)


def obstore_is_lost() -> bool:
    """Whether a parent of this process had imported obstore: its threads are not here, and a call would never end."""
    return _obstore_is_lost


def _in_child() -> None:
    global _obstore_is_lost
    _used_by_parents.extend(_used_while_forking)
    _obstore_is_lost = "obstore" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _used_while_forking.extend(_used),
        after_in_parent=_used_while_forking.clear,
        after_in_child=_in_child,
    )
