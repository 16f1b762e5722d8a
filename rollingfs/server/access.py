"""Rights of clients: bearer tokens, for reads only or for writes, perhaps below a prefix."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from rollingfs.runtime.values import value_class

READ, WRITE = "read", "write"
TOKEN_CHARS_MIN = 16


@value_class
class Access:
    """Rights of a client."""

    may_write: bool = True
    prefix: str = ""

    def check(self, path: str, writes: bool) -> None:
        """Refuse a path outside of the prefix, or a change by a reader.

        Raises
        ------
        HTTPException
            With status 403.
        """
        if writes and not self.may_write:
            raise HTTPException(403, "this token may only read; nothing was changed")
        if self.prefix and path != self.prefix and not path.startswith(f"{self.prefix}/"):
            raise HTTPException(403, f"this token may use only what lies in {self.prefix}; nothing was changed")


Tokens = Sequence[tuple[bytes, Access]]
"""The digests of the tokens that a server knows, with their rights; without tokens, every client may do everything."""


def parse_tokens(lines: Iterable[str]) -> Tokens:
    """Return the tokens of lines.

    Parameters
    ----------
    lines
        Each is ``TOKEN [read|write] [PREFIX]``; empty lines and lines that begin with ``#`` do not count.

    Raises
    ------
    ValueError
        A line is malformed. The message names its number and never the token.
    """
    known = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token, right, prefix, *more = [*words, *[WRITE, ""][len(words) - 1 :]]
        if right not in (READ, WRITE) or more or len(token) < TOKEN_CHARS_MIN or not token.isascii():
            raise ValueError(
                f"line {number} of the tokens: it must be TOKEN [read|write] [PREFIX], with a token of at least "
                f"{TOKEN_CHARS_MIN} ASCII characters"
            )
        known.append((_digest(token), Access(right == WRITE, prefix.strip("/"))))
    return known


def access_of(tokens: Tokens, headers: Headers, delegation: str | None = None) -> Access:
    """Return the rights of the sender of a request.

    Parameters
    ----------
    delegation
        The token in WebHDFS' parameter of this name.

    Raises
    ------
    HTTPException
        With status 401.
    """
    if not tokens:
        return Access()
    given = [_digest(token) for token in (_of_header(headers.get("authorization", "")), delegation) if token]
    # all of them, so that the time tells nothing
    found = [access for digest in given for known, access in tokens if hmac.compare_digest(known, digest)]
    if not found:
        schemes = {"WWW-Authenticate": 'Bearer realm="rollingfs", Basic realm="rollingfs"'}
        raise HTTPException(401, "a valid token is needed, as Authorization: Bearer TOKEN", schemes)
    return found[-1]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _of_header(header: str) -> str | None:
    """Return the token of a header: a bearer's, or the password of Basic, which browsers can send."""
    scheme, _, value = header.strip().partition(" ")
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(value.strip(), validate=True).decode("latin-1").partition(":")[2]
    return value.strip() if scheme.lower() == "bearer" else None


def loopback_hosts(host: str) -> tuple[str, ...]:
    """Return the names by which a browser may call a server on a host.

    It is empty if other machines reach the server.
    """
    is_loopback = re.fullmatch(r"localhost|::1|127(\.[0-9]{1,3}){3}", host)
    return ("localhost", "127.0.0.1", "::1", host) if is_loopback else ()


def check_browser(headers: Headers, hosts: Iterable[str]) -> None:
    """Refuse requests of other sites' pages to a server without tokens.

    Parameters
    ----------
    hosts
        The names by which the server may be called; empty for any.

    Raises
    ------
    HTTPException
        With status 403.
    """
    host, known = headers.get("host", ""), tuple(hosts)
    if known and re.sub(r":[0-9]*$", "", host).strip("[]").lower() not in known:
        raise HTTPException(403, "this server is not known by that Host; give it by --allow-host")
    origin = headers.get("origin")
    is_foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    if (origin is not None and origin.partition("://")[2] != host) or (origin is None and is_foreign):
        raise HTTPException(403, "pages of other sites may not use this server")
