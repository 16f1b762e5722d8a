"""Clients that share commits, and decide by chance what they decide for speed: nothing committed depends on it."""

import random

import pytest

from rollingfs.commit.sharing.others import Others
from rollingfs.commit.sharing.share import Share


def share_at_random(patch: pytest.MonkeyPatch, chance: random.Random | None = None) -> None:
    """Let each client that shares commits ask, wait and carry at random, however many writers there are."""
    draw = (chance or random).random  # looked up once: a test may seed the module
    patch.setattr(Share, "_is_recent", lambda self, base: base.header is not None and draw() < 0.7)
    patch.setattr(Share, "_must_ask", lambda self, header: draw() < 0.6)
    patch.setattr(Others, "are_carrying", lambda self, header: draw() < 0.8)
    patch.setattr(Others, "leads", lambda self, header: draw() < 0.4)
    patch.setattr(Others, "must_list", property(lambda self: draw() < 0.1))
    patch.setattr(Others, "known", lambda self, header: [line.writer for line in header.commits])
