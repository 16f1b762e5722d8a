"""Appends under faults: each verdict on a lost or refused answer, what is left behind, Ctrl-C, groups."""

import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path

import pytest

from rollingfs import core, errors
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.verbs.append import append as extend, stage
from rollingfs.segment.verbs.delete import delete
from rollingfs.segment.write.ingest import SMALL_BYTES_MAX
from tests.support.backends import fail, raises
from tests.support.places import new_fs
from tests.support.schedules import in_threads
from tests.support.site import LARGE

HEADER = "$header"


conflict = raises(errors.ConflictError("so says the store"))


# -- refusals ------------------------------------------------------------------------------------------------


other = partial(methodcaller, "by_another")
REFUSALS = {
    "sealed": (other("seal"), {}, errors.SegmentSealedError),
    "fenced": (other("acquire", "another"), {}, errors.FencedError),
    "offset": (other("append", [b"x"]), {"guard": Guard(expected_offset=0)}, errors.BadOffsetError),
    "gone": (other("delete"), {}, FileNotFoundError),
    "attrs": (
        other("append", [b"x"], attrs={"k": "new"}),
        {"guard": Guard(expected_attrs={"k": None})},
        errors.AttributeMismatchError,
    ),
}
"""What makes an append refused, and how."""


MOMENTS = {
    "before its upload": lambda site, happen: happen(),
    "after its upload": lambda site, happen: site.backend.plan("upload.finish", after=happen),
    "after a lost race": lambda site, happen: site.backend.plan("replace", before=lambda: (happen(), conflict())),
    "after a lost answer": lambda site, happen: site.backend.plan("replace", before=lambda: (happen(), fail())),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("why", REFUSALS)
def test_a_refused_large_append_leaves_no_chunk_file(site, why, moment):
    happen, options, error = REFUSALS[why]
    MOMENTS[moment](site, partial(happen, site))
    with pytest.raises(error):
        site.append(LARGE, **options)
    assert site.chunk_files() == []
    assert site.backend.plans == [], "it came to that moment"
    assert (site.backend.count("open_write") > 0) == (moment != "before its upload")


# -- Ctrl-C --------------------------------------------------------------------------------------------------


interrupt = raises(KeyboardInterrupt())


@pytest.mark.parametrize(
    ("verb", "moment", "data", "outcome"),
    [
        *(("replace", "before", data, "unknown") for data in (b"small", LARGE)),
        *(("replace", "after", data, "committed") for data in (b"small", LARGE)),
        ("write", "before", b"x" * (SMALL_BYTES_MAX - 1), "not committed"),
        ("upload.finish", "after", LARGE, None),
    ],
)
def test_ctrl_c_in_an_append_reports_its_outcome(site, verb, moment, data, outcome):
    site.backend.plan(verb, HEADER if verb == "replace" else "", **{moment: interrupt})
    with pytest.raises(errors.AppendInterrupted if outcome else KeyboardInterrupt) as caught:
        site.append(data)
    assert outcome in (None, getattr(caught.value, "outcome", None))
    assert site.content() == (data if outcome == "committed" else b"")
    assert bool(site.chunk_files()) == (verb == "replace" and data is LARGE)


# -- groups --------------------------------------------------------------------------------------------------


def gathered(site, *calls):
    """Calls that all wait while another append is being sent, and so become one group."""
    queue = site.client.slots.of(site.path).queue
    started = threading.Event()

    def hold():
        started.set()
        while len(queue) < len(calls):
            threading.Event().wait(0.001)

    site.backend.plan("replace", HEADER, before=hold)
    first = threading.Thread(target=partial(site.append, b"first;"))
    first.start()
    started.wait(10)
    outcomes = in_threads(*calls)
    first.join()
    return outcomes


def test_a_refused_append_does_not_spoil_its_group(site):
    receipt = site.run(stage(site.client, site.path, b"gone"))
    drive(site.backend.inner.delete([receipt.chunks[0].path]))
    aged = tuple(replace(chunk, stored_at=chunk.stored_at - 2 * 3600) for chunk in receipt.chunks)
    expired = type(receipt)(receipt.path, aged, receipt.id)
    late = partial(site.append, b"b", guard=Guard(expected_offset=0))
    calls = partial(site.append, b"a"), late, partial(site.append, [expired]), partial(site.append, b"c")
    outcomes = gathered(site, *calls)
    assert isinstance(outcomes[1], errors.BadOffsetError)
    assert isinstance(outcomes[2], errors.StagedExpiredError)
    assert {outcomes[0], outcomes[3]} == {6, 7}
    assert site.segment().version == 3


def test_no_append_is_lost_in_the_queue(site):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        rounds = [partial(lambda name: [site.append(b"%d" % name) for _ in range(40)], name) for name in range(4)]
        outcomes = in_threads(*rounds)
    finally:
        sys.setswitchinterval(interval)
    content = site.content()
    assert sorted(offset for offsets in outcomes for offset in offsets) == list(range(160))
    assert all(content[offset : offset + 1] == b"%d" % name for name in range(4) for offset in outcomes[name])


# -- a segment that an append makes, a plain file that it adopts ---------------------------------------------------


def test_an_append_that_loses_a_creation_comes_after(site, data):
    site.path += "-new"
    site.backend.plan("create", HEADER, before=partial(site.by_another, "overwrite", [b"first"]))
    assert site.run(extend(site.client, site.path, data, create=True)).offset == 5
    assert site.content() == b"first" + data
    assert len(site.chunk_files()) == len(site.segment().chunks)


def test_a_plain_file_replaced_during_a_delete_goes(site):
    def write_again():
        drive(site.backend.inner.delete([site.path]))
        drive(site.backend.inner.write(site.path, [b"another, longer"]))

    site.path += "-plain"
    drive(site.backend.inner.write(site.path, [b"plain"]))
    site.backend.plan("delete_if", site.path, before=write_again)
    site.run(delete(site.client, site.path))
    assert site.backend.count("delete_if") >= 2
    with pytest.raises(FileNotFoundError):
        site.content()


# -- attributes that depend on the header of the commit ------------------------------------------------------------


APPENDS = 40


def test_computed_attributes_see_the_header_of_the_commit(tmp_path: Path) -> None:
    fs, path = new_fs(), f"{tmp_path}/a"
    fs.create(path)

    def append(number: int) -> None:
        def attrs(present: Mapping[str, str], offset: int) -> Mapping[str, str | None]:
            seen = present.get("seen", "").split()
            if any(one.startswith(f"{number % 10}:") for one in seen):
                raise errors.RollingError("seen before")
            return {"seen": " ".join([*seen, f"{number % 10}:{offset}"])}

        try:
            core(fs).run(extend(core(fs).client, path, b"%d" % (number % 10), attrs=attrs))
        except errors.RollingError:
            refused.append(number)

    refused: list[int] = []
    assert in_threads(*(partial(append, number) for number in range(APPENDS))) == [None] * APPENDS
    data = fs.cat_file(path)
    assert sorted(data) == sorted(b"0123456789")
    assert len(refused) == APPENDS - 10
    seen = dict(one.split(":") for one in fs.segment(path).attrs["seen"].split())
    assert sorted(seen) == [str(number) for number in range(10)]
    assert all(data[int(offset) : int(offset) + 1] == name.encode() for name, offset in seen.items())
