"""Names that are used again: a stream drops nothing of what only has the name of what was read.

On a store as S3 is (a token is a hash of the bytes, dates are whole seconds): every interleaving of a trim with what
replaces a segment, then single cases. The simulation uses names again by chance.
"""

import contextlib
from collections.abc import Callable

import pytest

from rollingfs import RollingPolicy
from rollingfs.format import names
from rollingfs.runtime.concurrency import drive
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger import Ledgers
from rollingfs.stream.retention import RetentionPolicy
from tests.support.examples import some
from tests.support.faults import CLOCK, Faulty, HashingStore
from tests.support.life import CHUNKS, World

pytestmark = pytest.mark.usefixtures("hurried")
A, B = "/stream/a", "/stream/b"
SMALL = RollingPolicy(max_bytes=4, inline_bytes=2)
CALLS_MAX = 80
Kind = Callable[[HashingStore], None]


def client(store: HashingStore, policy: RollingPolicy = SMALL) -> World:
    return World(Faulty(store), policy, CLOCK.time)


def put(store: HashingStore, path: str, data: bytes) -> None:
    """Another tool writes a plain file."""
    CLOCK.sleep(1.0)
    drive(store.delete([path]))
    drive(store.write(path, [data]))


# -- at every call -------------------------------------------------------------------------------------------

NEW = b"what nobody has read"


REPLACING = {
    "overwrite": lambda world: world.overwrite(A, NEW),
    "make again": lambda world: (world.delete(A), world.overwrite(A, NEW)),
    "move there": lambda world: world.rename(B, A),
    # other records that happen to be the same bytes
    "put the same": lambda world: (world.delete(A), put(world.backend.inner, A, b"0123456789")),
    "put another": lambda world: (world.delete(A), put(world.backend.inner, A, NEW)),
}


def segment(store: HashingStore) -> None:
    client(store).create(A, [b"0123456789"])


def plain(store: HashingStore) -> None:
    put(store, A, b"0123456789")


def sealed(store: HashingStore) -> None:
    segment(store)
    client(store).seal(A)


def setting(kind: Kind) -> tuple[HashingStore, StreamCut]:
    """A stream with something to be replaced and something that may replace it; a cut of the first."""
    store = HashingStore()
    kind(store)
    cut = client(store).stream().cut()
    client(store).create(B, [NEW])
    return store, cut


def content(store: HashingStore) -> bytes | None:
    try:
        return client(store).content(A)
    except FileNotFoundError:
        return None


@pytest.mark.exhaustive
@pytest.mark.parametrize("replace", REPLACING)
@pytest.mark.parametrize("kind", [segment, plain, sealed])
def test_what_replaces_segment_within_trim_is_not_trimmed(kind: Kind, replace: str) -> None:
    expected = b"0123456789" if replace == "put the same" else NEW
    for index in some(range(CALLS_MAX)):
        store, cut = setting(kind)
        world = client(store)
        gone = []

        def meanwhile(store: HashingStore = store, gone: list[bool] = gone) -> None:
            with contextlib.suppress(FileNotFoundError):
                REPLACING[replace](client(store))
                return
            gone.append(True)  # the trim has deleted it already: there is nothing to be deleted

        world.backend.prepare(between={index: meanwhile})
        with contextlib.suppress(FileNotFoundError):
            world.stream().trim(cut)
        if world.backend.between:
            break
        store.lapse(20.0)
        client(store).stream().trim(cut)
        if not gone:
            assert content(store) == expected, index
    assert world.backend.between, "each call had its turn"


# -- single cases --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replace", REPLACING)
@pytest.mark.parametrize("kind", [segment, plain])
def test_subscriber_has_not_read_the_names_new_segment(kind: Kind, replace: str) -> None:
    """`mv` keeps the time of creation, so that time says nothing about who has a name."""
    store, cut = setting(kind)
    stream = client(store).stream()
    stream.publish("reader", cut)
    REPLACING[replace](client(store))
    stream.retention = RetentionPolicy.by_size(0, every=0)
    store.lapse(10.0)
    for _ in range(2):
        assert stream.retain().bytes == 0
    stream.publish("reader", stream.cut())
    assert stream.retain().bytes > 0
    assert content(store) == b""


def test_cut_without_incarnations_trims_nothing_and_reports_it() -> None:
    store, cut = setting(segment)
    with pytest.raises(ValueError, match=rf"{A}: .*incarnation.*nothing was trimmed"):
        client(store).stream().trim(StreamCut(dict(cut), cut.at, cut.size))
    assert content(store) == b"0123456789"
    assert not [path for path in store.files() if names.LEDGER_NAME in path]
    assert client(store).stream().trim(StreamCut({A: 0, "/stream/gone": 5}, 0.0, 0)).bytes == 0


def test_names_that_are_gone_leave_the_ledger() -> None:
    store = HashingStore()
    world = client(store, CHUNKS)
    stream = world.stream()
    world.create(A)
    stream.retention = RetentionPolicy.by_size(10, every=0)
    sizes = []
    for day in range(40):
        world.create(f"/stream/day-{day:03d}", [b"0123456789"], sealed=True)
        store.lapse(3600.0)
        stream.retain()
        sizes.append(world.header(names.ledger_path("/stream")).size)
    assert len(stream.segments()) <= 3
    assert max(sizes) < 2 * sizes[4]
    assert len(drive(Ledgers(world.client).load("/stream")).cuts) <= 3
