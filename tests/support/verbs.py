"""A call of every verb of the backend contract."""

from typing import Any

import pytest

from rollingfs.backend.contract import VERBS, Backend
from rollingfs.backend.values import PendingUpload
from rollingfs.backend.wrapper import NOT_FORWARDED
from rollingfs.testing import run

MISSING_IN_MEMORY = {"abort_upload", "remove_whole", "move_whole"}
"""What a store in memory has not: the verb raises."""
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
    token = run(backend, backend.create("/x$header", b"1"))
    token = run(backend, backend.replace("/x$header", memoryview(b"22"), token))
    token = run(backend, backend.extend("/x$header", b"", token)) or token
    for coroutine in (
        backend.write("/chunk", [b"12", b"3"]),
        backend.read("/x$header"),
        backend.read_if_changed("/x$header", "another"),
        backend.read_range("/chunk", 1, 3),
        backend.stat("/x$header"),
        backend.is_folder("/x"),
        backend.now("/x$header"),
        backend.keeps_versions("/x$header"),
        backend.metadata("/x$header"),
        backend.take_turn("/x$header"),
        backend.flush("/x$header"),
        backend.put("/ask", b"12"),
        backend.copy("/chunk", "/copy"),
        backend.delete_if("/x$header", token),
        backend.delete(["/chunk"]),
        backend.make_folder("/folder"),
        backend.list("/folder"),
        backend.list_page("/folder"),
        backend.list_prefix("/folder", "a"),
        backend.list_uploads("/folder"),
        backend.remove_folder("/folder"),
        backend.take_link("/copy"),
    ):
        run(backend, coroutine)
    for refused in (
        backend.abort_upload(PendingUpload("/uploading", 0.0, "id")),
        backend.remove_whole([("/x$header", token)]),
        backend.move_whole([("/x$header", token, "/y$header")]),
    ):
        with pytest.raises(NotImplementedError):
            run(backend, refused)
    upload = run(backend, backend.open_write("/uploaded"))
    run(backend, upload.write(b"xyz"))
    run(backend, upload.finish())
    run(backend, upload.abort())
