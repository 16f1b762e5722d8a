"""How many examples hypothesis tries: few in the fast suite, all with ``ROLLINGFS_EXAMPLES=many`` (CI's slow step)."""

from __future__ import annotations

import os

MANY = os.environ.get("ROLLINGFS_EXAMPLES") == "many"
USUAL = 100
FEW_SHARE = 5
FEW_MIN = 10


def examples(many: int = USUAL) -> int:
    """The number of examples of a test that is worth `many`."""
    return many if MANY else max(many // FEW_SHARE, FEW_MIN)
