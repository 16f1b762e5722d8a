"""Run a shipper while the server that it writes to is killed and started anew, and count its lines."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rollingfs import RollingFileSystem
from tests.shippers.programs import Job, Shipper
from tests.support.schedules import eventually
from tests.support.servers import aws_environment, minio_server, new_bucket, restart, running

KILLS = 3
LINES = 20_000
PART = 100
WAIT_S_MAX = 60


@contextlib.contextmanager
def _place(
    shipper: Shipper, folder: Path
) -> Iterator[tuple[str, RollingFileSystem, str, Callable[[], None], dict[str, str]]]:
    """Give a shipper's target, a filesystem and path to read it by, what kills its server, and its environment."""
    if shipper.by_http:
        store = folder / "store"
        command = [sys.executable, "-m", "rollingfs.cli", "serve", str(store), "--port"]
        with running("serve", lambda port, _: [*command, str(port)], "/healthz") as url:
            yield f"{url}/v1/segments/log", RollingFileSystem("file"), f"{store}/log", partial(restart, url), {}
        return
    with minio_server() as options:
        path = f"{new_bucket(options)}/log"
        fs = RollingFileSystem("s3", target_options=options)
        killed = partial(restart, options["endpoint_url"])
        yield f"rolling+s3://{path}", fs, path, killed, aws_environment(options)


def measured(shipper: Shipper, folder: Path) -> dict[str, str]:
    """Return what came of numbered lines: sent, lost, doubled."""
    lines = [b"%08d of a log, as a program writes it" % number for number in range(LINES)]
    (folder / "in.log").write_bytes(b"" if shipper.follows else b"\n".join(lines) + b"\n")
    with _place(shipper, folder) as (target, fs, path, kill, keys):
        words, more = shipper.command(Job(folder / "in.log", target, folder))
        settings = os.environ | more | keys
        with (
            Path(folder, "said").open("wb") as said,
            subprocess.Popen(words, env=settings, stdout=said, stderr=said, start_new_session=True) as process,
        ):
            try:
                _ship(lines, shipper, folder, lambda: _size(fs, path, shipper), kill)
            except AssertionError as error:
                error.add_note(Path(folder, "said").read_text(errors="replace")[-2000:])
                raise
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
        came = Counter((shipper.lines or bytes.splitlines)(fs.cat_file(path)))
    assert set(came) <= set(lines), "a line is torn"
    doubled = sum(times - 1 for times in came.values())
    found = {"program": shipper.program, "version": shipper.version(), "output": shipper.output}
    return found | {"sent": str(LINES), "lost": str(len(lines) - len(came)), "doubled": str(doubled)}


def _size(fs: RollingFileSystem, path: str, shipper: Shipper) -> int:
    with contextlib.suppress(OSError):
        return (
            int(fs.size(path))
            if shipper.lines is None
            else sum(len(line) + 1 for line in shipper.lines(fs.cat_file(path)))
        )
    return 0


def _ship(
    lines: list[bytes], shipper: Shipper, folder: Path, size: Callable[[], int], kill: Callable[[], None]
) -> None:
    """Write the lines, and kill the server each time that a quarter of them is there."""
    share, step = len(lines) // (KILLS + 1), len(lines[0]) + 1
    with (folder / "in.log").open("ab") as log:
        for part in range(KILLS + 1):
            if shipper.follows:
                for start in range(part * share, (part + 1) * share, PART):
                    log.write(b"".join(line + b"\n" for line in lines[start : start + PART]))
                    log.flush()
            if part < KILLS:
                eventually(lambda: size() > (part + 0.5) * share * step, WAIT_S_MAX)  # noqa: B023
                kill()
    eventually(lambda: size() >= len(lines) * step, WAIT_S_MAX)
