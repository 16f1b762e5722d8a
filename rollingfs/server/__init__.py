"""``rollingfs serve``: segments and streams over HTTP, for any language, and for Hadoop's own client.

In: a filesystem, the root that clients see, tokens, limits. Out: an ASGI application, and a process that serves it.
Must not be here: state that outlives a request, but counts and shared looks: all of it lies in the headers of segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollingfs.server.app import make_app
    from rollingfs.server.run import serve

__all__ = ["make_app", "serve"]


def __getattr__(name: str) -> object:
    """Import Starlette and uvicorn only for those who serve."""
    if name == "make_app":
        from rollingfs.server.app import make_app

        return make_app
    if name == "serve":
        from rollingfs.server.run import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
