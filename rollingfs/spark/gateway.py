"""A gateway for a Spark session: `rollingfs serve` on the loopback, through which Hadoop's own client works."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

STOP_S_MAX = 60
_OPTION = "ROLLINGFS_OPTION_"
_running: dict[str, tuple[subprocess.Popen[str], str]] = {}
"""The gateways of this process, and where they listen, by their arguments."""


def gateway_url(root: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return the URL, like ``webhdfs://127.0.0.1:40123``, of a gateway to a root; it is started, unless it runs.

    It ends with this process, however that ends.

    Raises
    ------
    RuntimeError
        It did not start; it has written its error to standard error.
    """
    options = dict(storage_options or {})
    asked = json.dumps([root, options], sort_keys=True, default=str)
    if asked in _running and _running[asked][0].poll() is None:
        return _running[asked][1]
    # by the environment: a command line can be seen by every user of the machine
    known = {f"{_OPTION}{name.upper()}": json.dumps(value) for name, value in options.items()}
    command = [sys.executable, "-m", "rollingfs.cli", "serve", root, "--port", "0", "--json", "--until-eof"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **known})
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        process.communicate()
        raise RuntimeError(f"the gateway to {root} did not start; its message stands above")
    where = json.loads(line)["url"].rstrip("/").replace("http://", "webhdfs://")
    _running[asked] = process, where
    atexit.register(_stop, process)
    return str(where)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=STOP_S_MAX)
