"""Groups of appends under forced schedules: a leader that pauses or breaks off anywhere, refusals, deadlines."""

import gc
import threading
import time
from functools import partial

import pytest

from rollingfs import RollingPolicy, errors
from rollingfs.format import codec
from rollingfs.format.transitions import Guard
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.commit.commits import Commits
from rollingfs.segment.write import group_commit, ingest
from tests.support.backends import Scripted, private_memory, raises
from tests.support.examples import some
from tests.support.schedules import APPENDING, Caller, at_line, beside, eventually
from tests.support.segment_verbs import append
from tests.support.site import Site

# what is interrupted between a call and its `await` leaves a coroutine that was never awaited
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

HEADER = "$header"
WAIT_S = 20.0
BLOCKED_S = 0.01
"""A thread that has not ended within it, while another pauses, waits for that one."""
WAKE_S = 0.05
"""In place of a second: hundreds of threads here wait for one that pauses, or has died."""


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(ingest, "SMALL_BYTES_MAX", 16)
    monkeypatch.setattr(group_commit, "WAKE_S_MAX", WAKE_S)
    site = Site(Scripted(private_memory()), "", RollingPolicy(max_bytes=32, inline_bytes=8))
    site.create()
    yield site
    gc.collect()  # coroutines that were never awaited, while their warning is ignored


class Follower(Caller):
    """Appends, and pauses once its append is in the queue, until it may go on."""

    def __init__(self, site, data):
        super().__init__(partial(self._append, site, data))
        self.queued, self.may_go_on = threading.Event(), threading.Event()

    def _append(self, site, data):
        slots = site.client.slots

        def is_queued():
            return slots.of(site.path).queue and not slots.lock._is_owned()

        def pause():
            self.queued.set()
            assert self.may_go_on.wait(WAIT_S)

        with at_line(
            1, pause, "rollingfs/segment/write/group_commit.py", "rollingfs/runtime/concurrency.py", when=is_queued
        ):
            return site.append(data)


def started(caller):
    caller.start()
    return caller


def sending(site, append):
    """A caller whose append is being sent, and what lets it go on."""
    is_sent, may_end = threading.Event(), threading.Event()
    site.backend.plan("replace", HEADER, before=lambda: (is_sent.set(), may_end.wait(WAIT_S)))
    caller = started(Caller(append))
    assert is_sent.wait(WAIT_S)
    return caller, may_end


def ended(*callers):
    """Wait for callers."""
    for caller in callers:
        caller.join(WAIT_S)
        assert not caller.is_alive(), "it hangs"


def following(site, data):
    """A follower whose append is in the queue."""
    follower = started(Follower(site, data))
    assert follower.queued.wait(WAIT_S)
    return follower


def lead(site, nth, happen, data, when=None, files=APPENDING):
    """Append, and let something happen at the nth line; also says whether there was such a line."""

    def append():
        with at_line(nth, happen, *files, when=when) as found:
            met.append(found)
            return site.append(data)

    met = []
    leader = started(Caller(append))
    ended(leader)
    return leader.outcome, met[0]


def check(outcome, data, content, where):
    """What an append says of itself is true, and its bytes are there at most once."""
    count = content.count(data)
    if isinstance(outcome, int):
        assert content[outcome:].startswith(data), where
    elif isinstance(outcome, errors.AppendInterrupted):
        assert count in {"committed": [1], "not committed": [0], "unknown": [0, 1]}[outcome.outcome], where
    elif isinstance(outcome, errors.AppendOutcomeUnknown):
        assert count in (0, 1), where
    else:
        assert isinstance(outcome, Exception), where
        assert count == 0, (where, outcome)


def check_all(site, met, *appends):
    """`check` of outcomes and data; and no append that was over is committed by the next one."""
    content = site.content()
    site.append(b"|")
    assert site.content() == content + b"|", met
    for outcome, data in appends:
        check(outcome, data, content, met)


def new_segment(site, nth):
    """An empty segment; few bytes for a leader, and for a follower some that become a chunk file."""
    site.path = f"/{nth}/clicks"
    site.create()
    return b"<L%d>" % nth, b"<a follower, number %d>" % nth


def test_a_follower_keeps_its_chunk_at_each_pause(site):
    for nth in range(1, 1000):
        mine, others = new_segment(site, nth)
        follower = following(site, others)
        sent = threading.Event()
        site.backend.plan("replace", HEADER, after=sent.set)

        def pause(follower=follower):
            follower.may_go_on.set()
            follower.join(BLOCKED_S)

        outcome, met = lead(site, nth, pause, mine, when=sent.is_set)
        follower.may_go_on.set()
        ended(follower)
        check_all(site, met, (outcome, mine), (follower.outcome, others))
        assert isinstance(follower.outcome, int), met
        if not met:
            break
    assert nth > 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.param(MemoryError, marks=pytest.mark.slow)])
def test_a_leader_that_breaks_off_doubles_no_append(site, error):
    # memory may run out wherever some is wanted; not between the lines that only hand the outcome on
    files = [file for file in APPENDING if error is KeyboardInterrupt or not file.endswith("uploads.py")]
    for nth in some(range(1, 1000)):
        mine, others = new_segment(site, nth)
        follower = following(site, others)
        outcome, met = lead(site, nth, raises(error()), mine, files=tuple(files))
        follower.may_go_on.set()
        ended(follower)
        check_all(site, met, (outcome, mine), (follower.outcome, others))
        assert isinstance(follower.outcome, int | errors.AppendOutcomeUnknown | error), (follower.outcome, met)
        if not met:
            break
    assert nth > 100


def test_an_interrupted_follower_doubles_no_append(site):
    slots = site.client.slots
    for nth in range(1, 1000):
        mine, others = new_segment(site, nth)
        leader, may_end = sending(site, partial(site.append, mine))
        releaser = threading.Timer(BLOCKED_S, may_end.set)
        releaser.start()  # the follower may have come to wait for the slot by then
        outcome, met = lead(site, nth, raises(KeyboardInterrupt()), others, when=lambda: slots.of(site.path).queue)
        may_end.set()
        ended(leader)
        check_all(site, met, (leader.outcome, mine), (outcome, others))
        assert isinstance(leader.outcome, int), met
        if not met:
            break
    assert nth > 10


def test_a_leader_that_breaks_off_calls_the_next(site, monkeypatch):
    monkeypatch.setattr(group_commit, "WAKE_S_MAX", 10 * WAIT_S)  # nobody leads because time has passed
    queue, leads, may_end = site.client.slots.of(site.path).queue, threading.Event(), threading.Event()

    def break_off(*_):
        leads.set()
        assert may_end.wait(WAIT_S)
        raise KeyboardInterrupt

    beside(monkeypatch, Commits, "commit_held", break_off, once=True)
    callers = [started(Caller(partial(site.append, b"1")))]
    assert leads.wait(WAIT_S)
    callers += [started(Caller(partial(site.append, data))) for data in (b"2", b"3")]
    eventually(lambda: len(queue) == 2)
    may_end.set()
    ended(*callers)
    assert sorted(site.content()) == sorted(b"23")


# -- refusals behind others ----------------------------------------------------------------------------------


refused = raises(PermissionError(13, "so says the store"))


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(
    ("guard", "error"),
    [
        (Guard(expected_attrs={"k": None}), errors.AttributeMismatchError),
        (Guard(expected_offset=6), errors.BadOffsetError),
    ],
    ids=["attribute", "offset"],
)
def test_a_refusal_depends_on_the_other_append(site, guard, error, fails):
    site.append(b"first;")
    leader, may_end = sending(site, partial(site.append, b"", attrs={"x": "1"}))
    queue = site.client.slots.of(site.path).queue
    first = started(Caller(partial(site.append, b"A", attrs={"k": "v"})))
    eventually(lambda: len(queue) == 1)
    second = started(Caller(partial(site.append, b"B", guard=guard)))
    eventually(lambda: len(queue) == 2)
    for _ in range(2 if fails else 0):
        site.backend.plan("replace", HEADER, before=refused)
    may_end.set()
    ended(leader, first, second)
    if fails:
        assert (isinstance(first.outcome, PermissionError), second.outcome) == (True, 6)
    else:
        assert (first.outcome, isinstance(second.outcome, error)) == (6, True)
    assert site.content() == (b"first;B" if fails else b"first;A")


# -- deadlines and errors ------------------------------------------------------------------------------------


def test_a_younger_follower_has_its_own_deadline(site):
    follower = following(site, b"young")
    site.client.commits.timeout_s = 0.05

    def lose():
        drive(append(site.other(), site.path, b"."))
        time.sleep(0.06)  # beyond the leader's deadline

    site.backend.plan("replace", HEADER, before=lose)
    leader = started(Caller(partial(site.append, b"old")))
    ended(leader)
    follower.may_go_on.set()
    ended(follower)
    assert isinstance(leader.outcome, errors.CommitTimeoutError)
    assert follower.outcome == 1
    assert site.content() == b".young"


@pytest.mark.parametrize("error", [MemoryError, ValueError, RuntimeError])
def test_an_error_without_an_answer_is_judged_by_looking(site, error):
    fall = raises(error("in the middle of it"))
    site.backend.plan("replace", HEADER, after=fall)
    assert site.append(b"there") == 0
    site.backend.plan("replace", HEADER, before=fall)
    with pytest.raises(errors.AppendOutcomeUnknown, match="in the middle of it"):
        site.append(b"who knows")
    site.backend.plan("replace", HEADER, before=lambda: (drive(append(site.other(), site.path, b"+")), fall()))
    with pytest.raises(error):
        site.append(b"never")
    assert site.content() == b"there+"


# -- what was not sent, and what cannot be looked at ---------------------------------------------------------------


def test_a_too_long_header_is_a_certain_error(site, monkeypatch):
    monkeypatch.setattr(codec, "TEXT_BYTES_MAX", 10)
    with pytest.raises(ValueError, match="the header's text") as caught:
        site.append(b"b")
    assert not isinstance(caught.value, errors.AppendOutcomeUnknown)
