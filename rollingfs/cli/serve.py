"""The command ``serve``: segments over HTTP, for any language, and for Hadoop's own client."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from rollingfs.cli import output
from rollingfs.cli.command import FolderOf, Size, Time
from rollingfs.cli.output import WrongUsage
from rollingfs.cli.session import ExpectMark, Session, check_mark
from rollingfs.errors import in_python, worded_by
from rollingfs.runtime.system import allow_files

TOKEN = "ROLLINGFS_SERVER_TOKEN"
"""A token that may do everything, in the environment."""
READ_BYTES = 4096


def serve(
    session: Session,
    root: FolderOf,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 9870,
    socket: Path | None = None,
    tokens: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    allow_host: list[str] | None = None,
    max_requests: Annotated[int, typer.Option(min=1)] = 256,
    max_tails: Annotated[int, typer.Option(min=0)] = 5000,
    max_body: Size = None,
    stall: Time = "30s",
    grace: Time = "30s",
    until_eof: bool = False,
    expect_mark: ExpectMark = None,
) -> None:
    """Serve the segments below FOLDER over HTTP, until stopped: REST at /v1, WebHDFS at /webhdfs/v1, a page at /.

    Any number of servers may serve a folder: all state is in the segments.

    Parameters
    ----------
    host : HOST
        Address to listen at; all except the loopback need tokens.
    socket : PATH
        Unix socket to listen on, in place of the host and port.
    tokens : FILE
        Lines TOKEN [read|write] [PREFIX]; or $ROLLINGFS_SERVER_TOKEN.
    certificate : FILE
        For TLS, as PEM.
    key : FILE
        The key of the certificate.
    allow_host : NAME
        Another Host to answer to.
    max_body : SIZE
        Most bytes of a body; by default any.
    stall : TIME
        A client that lets the server wait longer is cut off.
    grace : TIME
        Time for requests that run when the server is stopped.
    until_eof
        Stop at the end of standard input: with the program that holds it.
    port
        0 for a free one.
    max_requests
        Requests at once; more get 429.
    max_tails
        Clients that follow segments; more get 429.
    """
    try:
        from rollingfs.server import make_app, serve as run
        from rollingfs.server.access import loopback_hosts
        from rollingfs.server.process import Limits
    except ImportError as error:
        raise WrongUsage(
            f"serve needs Starlette, uvicorn, Pydantic and Jinja: pip install 'rollingfs[server]' ({error})"
        ) from error
    lines, hosts = [] if tokens is None else tokens.read_text().splitlines(), loopback_hosts(host)
    lines += [os.environ[TOKEN]] if os.environ.get(TOKEN) else []
    if not lines and not hosts:
        raise WrongUsage(f"--host {host}: other machines reach it, so give --tokens or set {TOKEN}")
    place = session.place(root)
    check_mark(place, expect_mark)
    allow_files()
    limits = Limits(max_requests, max_tails, math.inf if max_body is None else max_body, stall, grace)
    try:
        names, check = (*hosts, *(allow_host or ())), partial(check_mark, place, expect_mark)
        app = make_app(place.fs, place.path, tokens=lines, limits=limits, hosts=names, check=check)
    except ValueError as error:
        raise WrongUsage(f"--tokens: {error}") from error
    if until_eof:
        threading.Thread(target=_stop_at_eof, name="rollingfs-eof", daemon=True).start()
    where = f"http{'s' if certificate else ''}://{f'[{host}]' if ':' in host else host}"
    uds = None if socket is None else str(socket)

    def started(bound: int) -> None:
        url = f"{where}:{bound}/" if uds is None else f"http+unix://{quote(uds, safe='')}/"
        session.report({"url": url}, f"serving at {url}")
        output.flush()

    with worded_by(in_python):  # clients of HTTP know no command line
        run(app, host, port, started, uds=uds, ssl_certfile=certificate, ssl_keyfile=key)


def _stop_at_eof() -> None:
    while os.read(sys.stdin.fileno(), READ_BYTES):
        pass
    signal.raise_signal(signal.SIGTERM)  # `os.kill` ends a process of Windows at once
