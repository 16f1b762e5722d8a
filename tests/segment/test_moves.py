"""The phases of a concat of many (`moves`): all requests of a phase at once, and what holds if one fails amid it."""

import asyncio
import contextlib
import time

import pytest

from rollingfs import AppendInterrupted, RollingFileSystem, RollingPolicy
from rollingfs.errors import UnflushedError
from rollingfs.format.header import Phase
from rollingfs.runtime.bridge import Bridge
from rollingfs.runtime.concurrency import drive
from rollingfs.segment.at import At
from rollingfs.segment.commit.recovery import MARK_AGE_S_MAX
from rollingfs.segment.verbs.concat import concat
from rollingfs.segment.verbs.delete import delete
from tests.support.backends import Scripted, fail, private_memory, raises
from tests.support.examples import slowly
from tests.support.life import Turned, World
from tests.support.segment_verbs import VERBS
from tests.support.small import shrink_pages

COUNT = 40
TARGET = "/folder/target"
SOURCES = tuple(f"/folder/s{n:03d}" for n in range(COUNT))
JOINED = b"".join(b"%03d;" % n for n in range(COUNT))
SLOW_S = 0.2


class Dead(BaseException):
    """The process of the mover ends; nothing that it does afterwards reaches the store."""


def later(store):
    """A client that comes when all marks are old."""
    return World(store, clock=Turned(time.time() + MARK_AGE_S_MAX + 1))


class Site:
    """Forty sealed sources of a chunk each, a target, and a mover over a store whose verbs suspend."""

    def __init__(self):
        self.store = private_memory()
        self.backend = Scripted(self.store, suspends=True, small_requests_max=128)
        self.maker = World(self.store, RollingPolicy(max_bytes=100, inline_bytes=0), time.time)
        self.maker.create(TARGET, [b"t"], RollingPolicy())
        for number, source in enumerate(SOURCES):
            self.maker.create(source, [b"%03d;" % number], sealed=True)
        self.mover = At.of(self.backend)
        self.bridge = Bridge(self.backend)
        self.bridge.run(self.mover.abilities(TARGET))
        for path in (TARGET, *SOURCES):
            self.bridge.run(self.mover.headers.load(path))
        self.backend.clear()

    def concat(self, **options):
        self.bridge.run(concat(self.mover, TARGET, SOURCES), **options)

    def header(self, path):
        return drive(At.of(self.store).headers.load(path)).header

    def phases(self, paths=SOURCES):
        return {self.header(path).phase for path in paths}

    def content(self, path=TARGET):
        return self.maker.content(path)

    def pins(self):
        return [file for source in SOURCES for file in self.maker.files(source) if file.startswith("pin-")]


@pytest.fixture
def site():
    return Site()


def of_pin(source):
    return lambda path: path.startswith(f"{source}$chunks/pin-")


def test_all_requests_of_phase_are_under_way_at_once(site):
    site.concat()
    assert (site.backend.at_once_max["replace"], site.backend.at_once_max["put"]) == (COUNT, COUNT)
    assert len(site.backend.calls) == 3 * COUNT + 2, "the target's tail becomes a chunk"
    assert (site.content(), site.phases()) == (b"t" + JOINED, {Phase.DELETED})


def test_sources_are_reread_after_the_targets_replacement(site):
    site.backend.plan("put", before=lambda: drive(VERBS["append"](At.of(site.store), TARGET, b"!")))
    site.concat()
    assert site.backend.count("read_if_changed") >= COUNT
    assert site.content() == b"t!" + JOINED


@pytest.mark.parametrize("is_settled", [False, True])
def test_mark_that_was_undone_before_target_commits_is_noticed(site, is_settled):
    """Also where the target's header does not say so any more."""
    victim, other = SOURCES[20], later(site.store)

    def undo():
        other.rename(victim, "/folder/elsewhere")  # it meets the mark, and undoes it
        assert site.header(TARGET).aborts
        if is_settled:
            drive(other.client.commits.merges.settle(TARGET))
            other.append(TARGET, b"+")
            assert not site.header(TARGET).aborts

    site.backend.plan("put", of_pin(victim), after=undo)
    with pytest.raises(FileNotFoundError, match=victim):
        site.concat()
    assert site.content() == (b"t+" if is_settled else b"t")
    assert site.content("/folder/elsewhere") == b"020;"
    assert site.phases(set(SOURCES) - {victim}) == {Phase.SEALED}


def test_mover_restarts_after_an_aborted_merge_with_a_mark(site):
    """Who aborted it gives the source back next: the bytes would be in both."""
    victim, other, commit = SOURCES[20], later(site.store), TARGET + "$header"

    def abort():
        header = site.header(victim)
        drive(other.client.commits.merges.abort(victim, TARGET, header))
        site.backend.plan(
            "replace", commit, before=lambda: drive(other.client.commits.merges.reset(victim, header.merge.txn))
        )

    site.backend.plan("replace", commit, before=abort)
    site.concat()
    assert (site.content(), site.phases()) == (b"t" + JOINED, {Phase.DELETED})


@pytest.mark.parametrize("nth", [0, 20, 39])
def test_pin_that_cannot_be_written_takes_all_marks_back(site, nth):
    site.backend.plan("put", of_pin(SOURCES[nth]), before=fail)
    with pytest.raises(OSError, match="the connection broke"):
        site.concat()
    assert (site.phases(), site.pins()) == ({Phase.SEALED}, [])
    site.concat()
    assert site.content() == b"t" + JOINED


def test_irrevocable_mark_keeps_evidence_for_the_target(site):
    """Without it, the pin would stay for ever once the source is made anew and the target is gone."""
    source, far = SOURCES[0], "/elsewhere/target"
    site.maker.create(far)

    def break_off():  # the mover cannot look at what it has marked, neither for its commit nor to undo it
        site.maker.append(far, b"by another")
        site.backend.plan(("read", "read_if_changed"), f"{source}$header", times=None, before=fail)

    site.backend.plan("put", of_pin(source), after=break_off)
    with pytest.raises(OSError, match="the connection broke"):
        site.bridge.run(concat(site.mover, far, [source]))
    assert site.phases([source]) == {Phase.MERGING}
    other = later(site.store)
    other.delete(source)
    other.create(source)
    for path in (far, source):
        other.delete(path)
    for path in (far, source, far, source):
        with contextlib.suppress(FileNotFoundError):
            other.collect(path)
    assert [file for file in site.store.fs.store if file.startswith((f"{source}$", f"{far}$"))] == []


@pytest.fixture
def unburied(site):
    """A source whose tombstone is refused, after a concat."""
    site.backend.plan("replace", SOURCES[0] + "$header", skips=1, times=None, before=raises(PermissionError(13, "no")))
    site.concat()
    return SOURCES[0]


def test_a_burial_that_fails_stops_no_other_one(site, unburied):
    assert (site.content(), site.phases([unburied])) == (b"t" + JOINED, {Phase.MERGING})
    assert site.phases(SOURCES[1:]) == {Phase.DELETED}
    other = later(site.store)
    other.create(unburied)  # it finishes the move first
    other.append(TARGET, b"!")
    assert (site.content(), site.content(unburied)) == (b"t" + JOINED + b"!", b"")


def test_page_that_source_names_stays_until_source_is_buried(site, monkeypatch):
    """The pages of the source lie in the folder of the target, whose former content the source was."""
    shrink_pages(monkeypatch, chunks=2, loose_max=1)
    source, pieces = f"{TARGET}-old", [b"%d" % number * 40 for number in range(5)]
    maker = World(site.store, RollingPolicy(max_bytes=40, inline_bytes=0), time.time)
    maker.create(f"{TARGET}-new", pieces)
    maker.rename(f"{TARGET}-new", source)
    maker.create(f"{TARGET}-new", pieces)
    maker.seal(source)
    site.backend.plan("replace", f"{source}$header", skips=1, times=None, before=raises(PermissionError(13, "no")))
    site.bridge.run(concat(site.mover, f"{TARGET}-new", [source]))
    assert site.phases([source]) == {Phase.MERGING}
    later(site.store).truncate(f"{TARGET}-new", 400)
    later(site.store).delete(f"{TARGET}-new")
    assert site.phases([source]) == {Phase.DELETED}


def test_erase_beyond_a_half_moved_source_finds_no_segment(site, unburied):
    with pytest.raises(FileNotFoundError):
        later(site.store).erase(unburied, 2**40)
    assert site.phases([unburied]) == {Phase.DELETED}


# marks and pins of forty sources, the chunk of the target's tail, its commit, forty tombstones
@pytest.mark.parametrize("nth", [0, 39, 40, 80, 82, 121, *slowly(1, 20, 41, 60, 79, 81, 100, 120)])
@pytest.mark.parametrize("side", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_mover_killed_in_a_phase_leaves_old_or_new(site, nth, side):
    site.backend.plan(skips=nth, **{side: raises(Dead())})
    site.backend.plan(skips=nth, times=None, before=raises(Dead()))
    with pytest.raises(Dead):
        site.concat()
    site.backend.plans.clear()
    other = later(site.store)
    other.collect(TARGET, None)  # it settles the marks of which the target knows
    for source in SOURCES:
        header = site.header(source)
        if header.phase is Phase.MERGING:
            drive(other.client.commits.merges.resolve(source, header))
    if site.phases() == {Phase.SEALED}:
        assert site.content() == b"t"
        other.concat(TARGET, SOURCES)
    assert (site.phases(), site.content()) == ({Phase.DELETED}, b"t" + JOINED)


@pytest.mark.parametrize(("nth", "outcome"), [(0, "not committed"), (1, "committed")])
def test_ctrl_c_amid_a_phase_waits_for_the_verdict(site, monkeypatch, nth, outcome):
    """Marks or tombstones are on their way; all that the concat began is done before the caller is told."""
    refusal = At.of(site.store)

    def interrupted(future):
        while not site.backend.at_once["replace"]:
            time.sleep(0.001)
        raise KeyboardInterrupt

    site.backend.plan("replace", SOURCES[20] + "$header", skips=nth, before=lambda: asyncio.sleep(SLOW_S))
    if outcome == "not committed":
        drive(delete(refusal, SOURCES[0]))
    monkeypatch.setattr("rollingfs.runtime.bridge.wait", interrupted)
    with pytest.raises(AppendInterrupted) as caught:
        site.concat(commits=TARGET)
    assert caught.value.outcome == outcome
    assert site.content() == (b"t" + JOINED if outcome == "committed" else b"t")
    assert site.phases(SOURCES[1:]) == {Phase.DELETED if outcome == "committed" else Phase.SEALED}


def test_failed_flush_in_a_settled_merge_denies_the_commit():
    store = Scripted(private_memory(), shows_unflushed=True)
    fs = RollingFileSystem(backend=store)
    fs.create("/target")
    fs.create("/source")
    fs.seal("/source")
    store.plan("replace", "/source$header", skips=1, times=2, instead=raises(PermissionError(13, "no burial")))
    fs.concat("/target", ["/source"])
    store.plan("flush", "/source$header", instead=raises(UnflushedError(5, "the flush failed")))
    with pytest.raises(OSError, match="nothing was committed") as caught:
        fs.overwrite("/target", b"new")
    assert not isinstance(caught.value, UnflushedError)
