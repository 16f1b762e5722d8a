"""The file object for writing: what it commits, when, and in how much memory."""

import copy
import gc
import io

import pytest

from rollingfs import FencedError, RollingPolicy, SegmentSealedError
from rollingfs.format.transitions import Guard
from rollingfs.fs import write_buffer
from rollingfs.fs.closing import TextFile
from rollingfs.segment.verbs.truncate import truncate
from rollingfs.segment.write import chunk_writer, ingest
from tests.support.backends import private_memory
from tests.support.site import Site

LARGE = bytes(range(256)) * 8
POLICY = RollingPolicy(max_bytes=500, inline_bytes=100)


@pytest.fixture(autouse=True)
def small(limits):
    """Small limits, so that a test of streams needs no megabytes."""
    limits(ingest, PIECE_BYTES=200, SMALL_BYTES_MAX=300)
    limits(write_buffer, PIECE_BYTES=200)
    limits(chunk_writer, FINISHING_BYTES_MAX=1000)


@pytest.fixture(params=[b"small", LARGE], ids=["small", "large"])
def data(request):
    return request.param


def write(site, mode, data):
    with site.open(mode) as file:
        file.write(data)


# -- modes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 200, 5000])
@pytest.mark.parametrize("mode", ["wb", "xb", "ab"])
def test_what_is_written_in_pieces_is_one_commit(site, mode, piece):
    with site.open(mode) as file:
        for start in range(0, len(LARGE), piece):
            assert file.write(LARGE[start : start + piece]) == len(LARGE[start : start + piece])
        assert not site.is_there()
        assert file.tell() == len(LARGE)
    assert (site.content(), site.segment().version) == (LARGE, 1)
    assert len(site.chunk_files()) == len(site.segment().chunks) > 1


@pytest.mark.parametrize("mode", ["wb", "xb", "ab"])
def test_file_closed_without_write_is_there_and_empty(site, mode):
    site.open(mode).close()
    assert site.content() == b""
    assert site.is_there()


def make(site, kind, data=b""):
    """What another has under the name."""
    if kind in ("segment", "seal", "acquire"):
        site.by_another("overwrite", [data])
    elif kind == "plain file":
        site.run(site.backend.write(site.path, [data]))
    if kind in ("seal", "acquire"):
        site.by_another(kind, *["somebody"] * (kind == "acquire"))


@pytest.mark.parametrize(
    ("mode", "kind", "moments", "error", "said"),
    [
        ("wb", "acquire", ("close",), FencedError, "somebody"),
        ("xb", "segment", ("open", "close"), FileExistsError, None),
        ("xb", "plain file", ("open", "close"), FileExistsError, None),
        ("ab", "seal", ("open",), SegmentSealedError, "sealed at length 5"),
        ("ab", "acquire", ("open",), FencedError, "somebody"),
    ],
)
def test_a_refused_file_leaves_nothing(site, data, mode, kind, moments, error, said):
    """A file is refused when it is opened, or when it is closed by what came meanwhile."""
    file = site.open(mode)
    file.write(data)
    make(site, kind, b"first")
    for moment in moments:
        with pytest.raises(error, match=said):
            file.close() if moment == "close" else site.open(mode)
    file.discard()
    assert (site.content(), site.chunk_files()) == (b"first", [])


@pytest.mark.parametrize("kind", ["truncated", "plain file"])
def test_ab_continues_at_the_logical_end(site, data, kind):
    if kind == "truncated":
        site.create()
        site.append(b"0123plain")
        site.run(truncate(site.client, site.path, 4))
    else:
        make(site, kind, b"plain")
    with site.open("ab") as file:
        assert file.tell() == 5
        file.write(data)
        assert file.tell() == 5 + len(data)
        file.commit()
        file.write(b"!")
    assert site.content() == b"plain" + data + b"!"


def test_ab_of_nothing_to_what_is_there_commits_nothing(site):
    site.create()
    site.open("ab").close()
    assert site.segment().version == 1


@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_file_is_bound_to_its_found_or_made_incarnation(site, data, mode):
    make(site, "segment" if mode == "ab" else "nothing")
    file = site.open(mode)
    file.write(data)
    if mode == "wb":
        file.commit()
        file.write(data)
    site.by_another("overwrite", [b"another"])
    with pytest.raises(FileNotFoundError, match="another has its name"):
        file.close()
    assert (site.content(), site.chunk_files()) == (b"another", [])


@pytest.mark.parametrize(("mode", "options"), [("rb", {}), ("rb+", {}), ("wb", {"owner": "me"})])
def test_an_unknown_mode_is_refused(site, mode, options):
    with pytest.raises(ValueError, match="mode"):
        site.open(mode, **options)


# -- exclusive writers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["nothing", "segment", "plain file"])
def test_owner_alone_can_write_until_file_is_closed(site, there):
    make(site, there)
    with site.open("ab", owner="me") as file:
        assert file.epoch == site.segment().epoch
        assert site.segment().owner == "me"
        with pytest.raises(FencedError):
            site.by_another("append", [b"not me"])
        file.write(b"me")
    assert site.content() == b"me"
    assert site.segment().owner is None
    assert site.append(b"anybody") == 2


def test_an_owner_that_discards_gives_the_segment_back(site):
    site.open("ab", owner="me").discard()
    assert site.append(b"anybody") == 0


# -- what is not committed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["wb", "xb", "ab"])
def test_an_exception_within_with_commits_nothing_and_leaves_nothing(site, mode, data):
    file = site.open(mode)

    def use():
        with file:
            file.write(data)
            raise LookupError

    with pytest.raises(LookupError):
        use()
    assert file.closed
    for call in (file.close, file.discard, file.commit):
        call()
    assert not site.is_there()
    assert site.chunk_files() == []


def test_file_closed_while_another_exception_is_handled_is_committed(site):
    try:
        raise LookupError
    except LookupError:
        write(site, "wb", b"report")
    assert site.content() == b"report"


def test_text_of_unknown_encoding_is_refused_and_commits_nothing(site):
    with pytest.raises(LookupError):
        TextFile(site.open("wb"), encoding="no-such")
    gc.collect()
    assert not site.is_there()


def test_forked_child_spares_the_parents_uploads():
    site = Site(private_memory(), "", POLICY)
    file = site.open("wb")
    file.write(LARGE)
    files = site.chunk_files()
    file._process -= 1  # as the child sees it
    with pytest.raises(ValueError, match="another process"):
        file.write(b"x")
    file.forget()
    assert site.chunk_files() == files != []


# -- commit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["wb", "xb", "ab"])
def test_commit_publishes_early_and_the_incarnation_goes_on(site, mode, data):
    with site.open(mode) as file:
        file.write(data)
        file.commit()
        assert site.content() == data
        incarnation = site.segment()
        file.commit()
        file.write(b"more")
        assert site.content() == data
        assert file.tell() == len(data) + 4
    assert site.content() == data + b"more"
    incarnation.refresh()
    assert incarnation.version == 2


def test_attributes_come_with_the_first_commit(site):
    with site.open("wb", attrs={"k": "v"}) as file:
        file.write(b"1")
        file.commit()
        site.by_another("append", [b""], attrs={"k": "changed"})
        file.write(b"2")
    assert site.segment().attrs == {"k": "changed"}


# -- failures ------------------------------------------------------------------------------------------------


def test_after_failed_commit_later_bytes_do_not_follow_gap(site, data):
    site.create()
    file = site.open("ab")
    file.write(data)
    site.by_another("acquire", "somebody")
    with pytest.raises(FencedError):
        file.commit()
    site.by_another("release", Guard(epoch=1))
    for later in (lambda: file.write(b"later"), file.close):
        with pytest.raises(OSError, match="earlier write or commit"):
            later()
    assert (site.content(), site.chunk_files()) == (b"", [])


# -- a file object -------------------------------------------------------------------------------------------


def test_written_file_is_binary_and_not_readable(site):
    file = site.open("wb")
    assert (file.readable(), file.writable(), file.seekable(), file.closed) == (False, True, False, False)
    assert (file.path, file.mode, file.autocommit) == (site.path, "wb", True)
    file.write(b"buffered")
    file.flush()
    assert not site.is_there()
    with pytest.raises(io.UnsupportedOperation):
        file.seek(0)
    for refused, call in (("text", file.write), (7, file.write), (None, file.write), (file, copy.copy)):
        with pytest.raises(TypeError):
            call(refused)
    file.close()
    file.close()
    assert site.content() == b"buffered"
    for call in (lambda: file.write(b"x"), file.flush):
        with pytest.raises(ValueError, match="closed"):
            call()
