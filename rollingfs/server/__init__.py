"""``rollingfs serve``: segments and streams over HTTP, for any language, and for Hadoop's own client.

In: a filesystem, the root that clients see, tokens, limits. Out: an ASGI application, and a process that serves it.
Must not be here: state that outlives a request, except counts and shared looks. State is in the headers of segments.
"""

from __future__ import annotations

from rollingfs.server.app import make_app
from rollingfs.server.process import serve

__all__ = ["make_app", "serve"]
