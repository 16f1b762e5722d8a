"""The ground under users' feet: other servers and disks. `.ci/nightly ground` runs all, with a soak on each.

The slow suite has a sample: `tests/backend/test_torn_reads.py` (rclone, gocryptfs) and
`tests/system/test_disks.py` (FUSE).
"""

import re
from functools import partial

import pytest

from rollingfs import RollingFileSystem
from tests.ground.beside import live_beside
from tests.ground.facts import Ground, create, replace
from tests.ground.life import lived
from tests.ground.measure import SOAK_S, measured, measured_disk, survived, verdict
from tests.ground.page import DISK_RESULTS, PAGE, results, short, with_tables
from tests.ground.servers import SERVERS
from tests.ground.two_machines import TWO_MOUNTS, appended_by_both
from tests.simulation import model
from tests.soak.plan import Place
from tests.support.disks import DISKS, KERNEL_DISKS, mounted
from tests.support.pages import found_in
from tests.support.places import new_fs

APPENDS = READS = 10_000
WHOLE_EVERY = 100
SAMPLE_ROUNDS, SAMPLE_STEPS = 4, 60
BY_CHANCE = {"create", "replace", "delete", "complete", "copy", "reads", "crash", "doctor"}
"""Facts of which a short run may miss what hurts."""
nightly = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(3600)]


def kind(text: str) -> str:
    """Return a fact without its counts."""
    return re.sub(r"\d+ of \d+|\(\d+\)", "", text)


def test_the_page_on_stores_has_what_was_found():
    assert with_tables(PAGE.read_text()) == PAGE.read_text(), "python -m tests.ground --page"


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("_", [pytest.param("", marks=nightly)])
def test_a_server_does_what_the_page_on_stores_says(name, _):
    found, known = measured(SERVERS[name]), results().get(name)
    assert found["doctor"] != "safe" or "several" not in found["create"] + found["replace"], found
    if known is None:
        pytest.skip(f"the page has no row of it yet: {found}")
    # races of a refused store go wrong now and then, reads of others once in a thousand: the soak finds what follows
    by_luck = BY_CHANCE if known["doctor"] == "refused" else {"reads"}
    for fact, text in found.items():
        assert fact in by_luck or "**" not in text or "**" in known[fact], (
            f"{fact}: {text}; the page says {known[fact]}"
        )
        assert fact in BY_CHANCE or kind(text) == kind(known[fact]), fact
    assert (found["doctor"], known["doctor"]) != ("refused", "safe")


@pytest.mark.parametrize("name", [name for name, found in results().items() if found["doctor"] == "safe"])
@pytest.mark.parametrize("_", [pytest.param("", marks=nightly)])
def test_a_safe_server_keeps_its_promises(name, _):
    found = survived(SERVERS[name], SOAK_S)
    assert {short(text) for text in found.values()} == {"✓"}, found


@pytest.mark.parametrize("kind", [*DISKS, *KERNEL_DISKS])
@pytest.mark.parametrize("_", [pytest.param("", marks=nightly)])
def test_a_disk_does_what_the_page_on_stores_says(kind, _, tmp_path):
    found, known = measured_disk(kind, tmp_path, SOAK_S), found_in(DISK_RESULTS)[kind]
    for fact in set(found) - {"version", "rename"}:  # a read that goes wrong seldom is not in each run
        assert short(found[fact]) == short(known[fact]), fact


@pytest.mark.parametrize("name", ["rclone"])
@pytest.mark.parametrize("_", [pytest.param("", marks=nightly)])
def test_no_read_fails_beside_appends_on_a_server(name, _):
    server = SERVERS[name]
    with server.start() as options:
        path = f"{server.new_bucket(options)}/data/log"
        make = partial(RollingFileSystem, server.protocol, skip_instance_cache=True, **options)
        live_beside(make, path, APPENDS, READS, WHOLE_EVERY)


@pytest.mark.parametrize("kind", ["gocryptfs"])
@pytest.mark.parametrize("_", [pytest.param("", marks=nightly)])
def test_no_read_fails_beside_appends_on_a_disk(kind, _, tmp_path):
    with mounted(kind, tmp_path) as disk:
        live_beside(partial(new_fs, sync=False), f"{disk}/data/log", APPENDS, READS, WHOLE_EVERY)


@pytest.mark.parametrize("kind", TWO_MOUNTS)
@pytest.mark.parametrize("_", [pytest.param("", marks=nightly)])
def test_two_machines_append_on_one_disk(kind, _, tmp_path):
    """P6.35."""
    with TWO_MOUNTS[kind](tmp_path) as mounts:
        appended_by_both(mounts, processes=4, appends=250)


def test_a_life_is_that_of_the_model(tmp_path, monkeypatch):
    assert lived(Place("file", f"{tmp_path}/data", {}, str(tmp_path)), SAMPLE_STEPS).startswith("kept")
    real = model.append
    monkeypatch.setattr(model, "append", lambda *args, **how: real(*args, **how | {"data": how["data"][1:]}))
    assert lived(Place("file", f"{tmp_path}/other", {}, str(tmp_path)), SAMPLE_STEPS).startswith("**")


@pytest.mark.slow
def test_a_sample_of_the_facts_of_one_server():
    server = SERVERS["rclone"]
    with server.start() as options:
        ground = Ground(server.protocol, options, server.new_bucket(options), SAMPLE_ROUNDS)
        assert {create(ground), replace(ground)} == {f"one wins ({SAMPLE_ROUNDS})"}
        assert verdict(server, options, ground.bucket) == "safe"
