"""Arguments of verbs of the backend contract."""

from typing import Any

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "read": (),
    "read_range": (0, 10),
    "stat": (),
    "list": (),
    "create": (b"x",),
    "replace": (b"x", "1"),
    "write": ([b"x"],),
    "delete_if": ("1",),
    "now": (),
}
"""What some verbs take after the path."""
