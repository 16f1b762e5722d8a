"""The ground under users' feet: other servers and disks. `.ci/nightly ground` runs all, with a soak on each.

The slow suite has a sample: `tests/backend/test_torn_reads.py` (rclone, gocryptfs) and
`tests/system/test_disks.py` (FUSE).
"""

from pathlib import Path

import pytest

from tests.ground.facts import races_with_several_winners, reads_of_other_bytes
from tests.ground.servers import SERVERS
from tests.soak.__main__ import soak
from tests.soak.check import Told, broken
from tests.soak.plan import Place
from tests.support.cli import Run, options_of
from tests.support.disks import DISKS, KERNEL_DISKS, mounted
from tests.support.servers import new_bucket

SOAK_S = 60
pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(1800)]


def _soaked(place: Place) -> None:
    soak(place, SOAK_S, seed=1)
    assert not [*broken(place)]
    assert Told(place).acked


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_does_what_the_page_on_stores_says_and_no_acknowledged_byte_goes_in_silence(name, tmp_path):
    server = SERVERS[name]
    with server.start() as options:
        bucket = new_bucket(options)
        several = {
            kind: races_with_several_winners(options, bucket, kind == "replaces") for kind in ("creates", "replaces")
        }
        assert (several["creates"] == 0, several["replaces"] == 0) == (server.creates, server.replaces), several
        wrong = reads_of_other_bytes(options, bucket)
        assert wrong == 0 or not server.pairs, f"{wrong} reads beside writes have the bytes of another ETag"
        assert Run("doctor", *options_of(options), f"s3://{bucket}").code == (0 if server.is_safe else 3)
        if server.is_safe:
            _soaked(Place("s3", f"{bucket}/data", options, str(tmp_path)))


@pytest.mark.parametrize("kind", [*DISKS, *KERNEL_DISKS])
def test_processes_that_are_killed_break_no_promise_on_a_disk(kind, tmp_path):
    with mounted(kind, tmp_path) as disk:
        (notes := Path(tmp_path, "notes")).mkdir()
        _soaked(Place("file", f"{disk}/data", {}, str(notes)))
