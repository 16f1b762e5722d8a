"""What Spark gives the Python processes of one application on a machine in common."""

from __future__ import annotations

import os
import stat

LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"
"""The variable in which Spark tells its workers which folders its block manager has made."""
LOCAL_PREFIX = "blockmgr-"
"""How the names of these folders begin; Spark removes them when the application ends."""


def worker_folder() -> str | None:
    """A folder that all workers of an application on this machine share, and that others cannot write to.

    It keeps the verdicts of the probe: Spark ends its idle workers, and each new one would probe the store again. There
    is none outside of workers.
    """
    for folder in os.environ.get(LOCAL_FOLDERS, "").split(",") if os.name == "posix" else ():
        if not os.path.basename(folder).startswith(LOCAL_PREFIX) or not os.path.isdir(folder):
            continue
        found = os.stat(folder)
        if found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return folder
    return None
