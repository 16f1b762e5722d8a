"""Shippers of logs: real programs that follow a file and write its lines into a segment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template

from tests.support.debian import JOURNAL_REMOTE, RSYSLOG, SYSLOG_NG, libraries
from tests.support.servers import Program, require

SETTINGS = Path(__file__).parent / "settings"
APPEND = f"{sys.executable} -m rollingfs.cli append --commit-on 1s,64KiB"
BENTHOS_MODULE = "github.com/redpanda-data/benthos/v4"
BENTHOS_VERSION = "v4.60.0"
COLLECTOR_MODULE, COLLECTOR_VERSION = "go.opentelemetry.io/collector", "v0.165.0"
CONTRIB = "github.com/open-telemetry/opentelemetry-collector-contrib"
COLLECTOR_PARTS = {"receivers": f"{CONTRIB}/receiver/filelogreceiver", "exporters": f"{CONTRIB}/exporter/fileexporter"}
COLLECTOR_BUILD = "dist: {name: otelcol, output_path: .}\n" + "".join(
    f"{kind}: [{{gomod: {module} {COLLECTOR_VERSION}}}]\n" for kind, module in COLLECTOR_PARTS.items()
)
GO_BUILD = 'go build -mod=mod "-ldflags=-s -w" -o made .'
BENTHOS_PARTS = [
    f"{BENTHOS_MODULE}/public/{one}@{BENTHOS_VERSION}" for one in ("service", "components/io", "components/pure")
]
BENTHOS = Program(
    f"benthos-{BENTHOS_VERSION}",
    "go",
    f"go mod init shipper; go get {' '.join(BENTHOS_PARTS)}; {GO_BUILD}",
    files={"main.go": (SETTINGS / "benthos.go").read_text()},
)
"""Benthos, the core of Bento and Redpanda Connect, built with its HTTP output."""
COLLECTOR_MODULES = [f"{one}@{COLLECTOR_VERSION}" for one in (f"{COLLECTOR_MODULE}/otelcol", *COLLECTOR_PARTS.values())]
COLLECTOR = Program(
    f"otelcol-{COLLECTOR_VERSION}",
    "go",
    f"""builder="{COLLECTOR_MODULE}/cmd/builder@{COLLECTOR_VERSION}"
    go run $builder --config builder.yaml --skip-get-modules --skip-compilation
    go mod init {COLLECTOR_MODULE}/cmd/builder; go get {" ".join(COLLECTOR_MODULES)}; {GO_BUILD}""",
    files={"builder.yaml": COLLECTOR_BUILD},
)
"""A collector of OpenTelemetry, made by its builder.

`go get` finds its modules: the builder's `go mod tidy` also wants those of their tests, which a proxy may lack.
"""
JOURNAL_BEGIN_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Job:
    """The file that a shipper reads, and the URL or path that it writes to."""

    source: Path
    target: str
    folder: Path

    def file(self, name: str, **values: object) -> str:
        """Write a file of settings, with values in place of its names, and return its path."""
        text, path = Template((SETTINGS / name).read_text()), self.folder / name
        path.write_text(text.substitute(vars(self) | values))
        return str(path)


Command = tuple[list[str], dict[str, str]]
"""The words of a command, and what its environment has besides."""


@dataclass(frozen=True)
class Shipper:
    """A shipper with settings."""

    program: str
    output: str
    command: Callable[[Job], Command]
    version: Callable[[], str]
    by_http: bool = True
    """It sends requests to `rollingfs serve`; else it writes into a pipe of `rollingfs append`."""
    follows: bool = True
    """It goes on at the end of the file; else it reads the file once, when all of it is there."""
    once: bool = True
    """No line may come twice."""
    lines: Callable[[bytes], list[bytes]] | None = None
    """Finds the lines in what it wrote, if these are not as they were."""


def _said(command: list[str], environment: dict[str, str], word: int) -> str:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return done.stdout.split()[word].strip("().,v")


def _syslog_ng(batch: int, key: str) -> Callable[[Job], Command]:
    def command(job: Job) -> Command:
        root, folder = SYSLOG_NG.installed(), job.folder
        settings = job.file("syslog-ng.conf", batch=batch, key=key)
        files = ["-R", f"{folder}/persist", "-c", f"{folder}/control", "--pidfile", f"{folder}/pid"]
        modules = [f"--module-path={root}/usr/lib/syslog-ng/3.38"]
        return [f"{root}/usr/sbin/syslog-ng", "-F", "--no-caps", "-f", settings, *files, *modules], libraries(root)

    return command


def _syslog_ng_version() -> str:
    root = SYSLOG_NG.installed()
    modules = f"--module-path={root}/usr/lib/syslog-ng/3.38"
    return _said([f"{root}/usr/sbin/syslog-ng", "--version", modules], libraries(root), 2)


def _bento(batch: int, key: str) -> Callable[[Job], Command]:
    def command(job: Job) -> Command:
        return [str(BENTHOS.installed()), "run", job.file("bento.yaml", batch=batch, key=key)], {}

    return command


def _rsyslog(job: Job) -> Command:
    root, folder = RSYSLOG.installed(), job.folder
    settings = job.file("rsyslog.conf")
    job.file("append.sh", append=APPEND)
    modules = f"{root}/usr/lib/x86_64-linux-gnu/rsyslog"
    command = f"exec {root}/usr/sbin/rsyslogd -n -i {folder}/pid -f {settings} -M {modules}"
    return ["sh", "-c", f"export -p > {folder}/environment; {command}"], libraries(root)


def _rsyslog_version() -> str:
    root = RSYSLOG.installed()
    return _said([f"{root}/usr/sbin/rsyslogd", "-v"], libraries(root), 1)


def _journald(job: Job) -> Command:
    """Make a journal of the lines, as systemd-journal-remote receives them, and follow it."""
    root, entries, journal = JOURNAL_REMOTE.installed(), job.folder / "entries", job.folder / "app.journal"
    head = "_BOOT_ID={:032x}\n__REALTIME_TIMESTAMP={}\n__MONOTONIC_TIMESTAMP={}\nMESSAGE={}\n\n"
    lines = enumerate(job.source.read_text().splitlines(), start=1)
    entries.write_text("".join(head.format(1, JOURNAL_BEGIN_US + number, number, line) for number, line in lines))
    program = [f"{root}/lib/systemd/systemd-journal-remote", f"--output={journal}", str(entries)]
    subprocess.run(program, env=os.environ | libraries(root), check=True, timeout=60, capture_output=True)
    return ["sh", "-c", f"journalctl --file {journal} --no-tail -f -o cat | {APPEND} {job.target}"], {}


def _journald_version() -> str:
    if shutil.which("journalctl") is None:
        require("journalctl is not installed")
    return _said(["journalctl", "--version"], {}, 1)


def _tail(job: Job) -> Command:
    return ["sh", "-c", f"exec tail -n +1 -F {job.source} | {APPEND} {job.target}"], {}


def _collector(job: Job) -> Command:
    settings, ship = job.file("collector.yaml"), f"{sys.executable} -m rollingfs.cli ship"
    return [
        "sh",
        "-c",
        f"{COLLECTOR.installed()} --config {settings} & exec {ship} {job.folder}/logs.jsonl {job.target}",
    ], {}


def _bodies(data: bytes) -> list[bytes]:
    """Return the bodies of records, of which a file exporter writes a batch a line."""
    batches = [json.loads(line) for line in data.splitlines()]
    scopes = (scope for batch in batches for resource in batch["resourceLogs"] for scope in resource["scopeLogs"])
    return [record["body"]["stringValue"].encode() for scope in scopes for record in scope["logRecords"]]


KEY = "&key_of_body=true"
SHIPPERS = {
    "syslog-ng": Shipper("syslog-ng", "http(), 500 lines", _syslog_ng(500, ""), _syslog_ng_version, once=False),
    "syslog-ng-keys": Shipper(
        "syslog-ng", "http(), 500 lines, `key_of_body`", _syslog_ng(500, KEY), _syslog_ng_version, once=False
    ),
    "bento": Shipper(
        "Benthos", "http_client, 500 lines, `key_of_body`", _bento(500, KEY), lambda: BENTHOS_VERSION[1:], follows=False
    ),
    "collector": Shipper(
        "OpenTelemetry collector",
        "file exporter, `ship`",
        _collector,
        lambda: COLLECTOR_VERSION[1:],
        by_http=False,
        lines=_bodies,
    ),
    "rsyslog": Shipper("rsyslog", "omprog, `append --commit-on`", _rsyslog, _rsyslog_version, by_http=False),
    "journald": Shipper(
        "`journalctl -f`", "`append --commit-on`", _journald, _journald_version, by_http=False, follows=False
    ),
    "pipe": Shipper(
        "`tail -F`", "`append --commit-on`", _tail, lambda: _said(["tail", "--version"], {}, 3), by_http=False
    ),
}
