"""Programs of Debian, unpacked into the cache and not installed: some would start, and exclude others."""

from pathlib import Path

from tests.support.servers import Program

LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/syslog-ng", "usr/lib/syslog-ng/3.38")


def _unpacked(name: str, packages: str) -> Program:
    script = f"apt-get update; apt-get download {packages}; for one in *.deb; do dpkg-deb -x $one made; done"
    return Program(f"debian-{name}", "apt-get", script)


JOURNAL_REMOTE = _unpacked("journal-remote", "systemd-journal-remote libmicrohttpd12")
LOGROTATE = _unpacked("logrotate", "logrotate libpopt0")
RSYSLOG = _unpacked("rsyslog", "rsyslog libestr0 libfastjson4 liblognorm5")
SYSLOG_NG = _unpacked("syslog-ng", "syslog-ng-core syslog-ng-mod-http libivykis0 libnet1 libpcre3 libwrap0")


def libraries(root: Path) -> dict[str, str]:
    """Return the environment in which an unpacked program finds its libraries."""
    return {"LD_LIBRARY_PATH": ":".join(str(root / folder) for folder in LIBRARIES)}
