"""Programs of Debian, unpacked into the cache and not installed: some would start, and exclude others."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.servers import cache_dir, require, required

PACKAGES = {
    "journal-remote": ["systemd-journal-remote", "libmicrohttpd12"],
    "logrotate": ["logrotate", "libpopt0"],
    "rsyslog": ["rsyslog", "libestr0", "libfastjson4", "liblognorm5"],
    "syslog-ng": ["syslog-ng-core", "syslog-ng-mod-http", "libivykis0", "libnet1", "libpcre3", "libwrap0"],
}
"""The packages of a program."""
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/syslog-ng", "usr/lib/syslog-ng/3.38")


def unpacked(name: str) -> Path:
    """Return the folder of a program of Debian; skip or fail the test if it cannot be had."""
    folder = cache_dir() / f"debian-{name}"
    if folder.exists():
        return folder
    if not required() or shutil.which("apt-get") is None:
        require(f"{name} is not in the cache, and ROLLINGFS_REQUIRE is not 'all' or there is no apt-get to bring it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        for words in (["update"], ["download", *PACKAGES[name]]):
            subprocess.run(["apt-get", *words], cwd=work, check=True, timeout=600, capture_output=True)
        for package in Path(work).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), f"{work}/root"], check=True, timeout=60)
        os.replace(f"{work}/root", folder)
    return folder


def libraries(root: Path) -> dict[str, str]:
    """Return the environment in which an unpacked program finds its libraries."""
    return {"LD_LIBRARY_PATH": ":".join(str(root / folder) for folder in LIBRARIES)}
