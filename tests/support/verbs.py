"""A call of every verb of the backend contract."""

from typing import Any

import pytest

from rollingfs.backend.contract import VERBS, Backend
from rollingfs.backend.values import PendingUpload
from rollingfs.backend.wrapper import NOT_FORWARDED
from tests.support.driven import Driven

MISSING_IN_MEMORY: dict[str, Any] = {
    "abort_upload": PendingUpload("/uploading", 0.0, "id"),
    "remove_whole": [("/x$header", "1")],
    "move_whole": [("/x$header", "1", "/y$header")],
}
"""What a store in memory has not, with what it takes: the verb raises."""
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


def forwarded_verbs() -> set[str]:
    """The verbs that a wrapper hands on, as the contract has them."""
    return set(VERBS) - NOT_FORWARDED


def call_every_verb(backend: Backend) -> None:
    """Call each verb of the contract once, and those of an upload, over a store in memory."""
    driven, header = Driven(backend), "/x$header"
    token = driven.create(header, b"1")
    token = driven.replace(header, memoryview(b"22"), token)
    token = driven.extend(header, b"", token) or token
    for verb in ("read", "stat", "is_folder", "now", "keeps_versions", "metadata", "take_turn", "flush"):
        getattr(driven, verb)(header)
    driven.read_if_changed(header, "another")
    driven.write("/chunk", [b"12", b"3"])
    driven.read_range("/chunk", 1, 3)
    driven.copy("/chunk", "/copy")
    driven.take_link("/copy")
    driven.put("/ask", b"12")
    driven.delete_if(header, token)
    driven.delete(["/chunk"])
    driven.make_folder("/folder")
    driven.list_prefix("/folder", "a")
    for verb in ("list", "list_page", "list_uploads", "remove_folder"):
        getattr(driven, verb)("/folder")
    for verb, argument in MISSING_IN_MEMORY.items():
        with pytest.raises(NotImplementedError):
            getattr(driven, verb)(argument)
    upload = driven.open_write("/uploaded")
    upload.write(b"xyz")
    upload.finish()
    upload.abort()
