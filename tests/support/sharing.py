"""Clients that share commits, and decide by chance what they decide for speed: nothing committed depends on it."""

from __future__ import annotations

import random

import pytest

from rollingfs.commit.sharing import Sharing


def share_at_random(patch: pytest.MonkeyPatch, chance: random.Random | None = None) -> None:
    """Let each client that shares commits ask, wait and carry at random, however many writers there are."""
    draw = (chance or random).random  # looked up once: a test may seed the module
    patch.setattr(Sharing, "is_shared", lambda self, header: header is not None and draw() < 0.9)
    patch.setattr(Sharing, "waits", lambda self, header: draw() < 0.6)
    patch.setattr(Sharing, "stays", lambda self, header: draw() < 0.4)
    patch.setattr(Sharing, "is_recent", lambda self, header: draw() < 0.7)
    patch.setattr(Sharing, "pauses", property(lambda self: draw() < 0.2))
    patch.setattr(Sharing, "known", lambda self, header: [line.writer for line in header.commits])
