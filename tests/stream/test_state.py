"""`SegmentState.of` against a model that looks at every byte."""

from hypothesis import given, settings, strategies as st

from rollingfs.format.header import Chunk, Drop, Header, Page, Phase
from rollingfs.segment.files.rewrite_plan import Chosen
from rollingfs.stream.states import SegmentState

NOW_MS = 1_000_000


@st.composite
def segments(draw: st.DrawFn) -> tuple[Header, list[Chunk]]:
    lengths = draw(st.lists(st.integers(1, 9), max_size=8))
    chunks, start = [], draw(st.integers(0, 5))
    for length in lengths:
        tier = draw(st.sampled_from(["", "", "cold", "ice"]))
        chunks.append(Chunk(start, length, "f", None, NOW_MS - 1000 * draw(st.integers(0, 3)), tier=tier))
        start += length
    first = draw(st.integers(chunks[0].start, chunks[0].end - 1)) if chunks else start
    tail = draw(st.binary(max_size=6))
    return Header("id", 3, start=first, entries=tuple(chunks), tail=tail, modified_ms=7000), chunks


@settings(max_examples=200)
@given(segments(), st.data())
def test_references_equal_a_model_of_every_byte(given, data):
    def is_chosen(chunk: Chunk) -> bool:
        """All up to an offset; or, if it is said how far or how old, those that are either."""
        is_far = after_bytes is not None and header.length - chunk.end >= after_bytes
        is_old = after_age_s is not None and NOW_MS - chunk.at_ms >= 1000 * after_age_s
        return (upto is None or chunk.end <= upto) and (after_bytes is after_age_s is None or is_far or is_old)

    header, chunks = given
    ends = [header.start, *(chunk.end for chunk in chunks)]
    upto = data.draw(st.none() | st.sampled_from(ends))
    after_bytes = data.draw(st.none() | st.sampled_from([header.length - end for end in ends]))
    after_age_s = data.draw(st.none() | st.integers(0, 3))
    chosen = Chosen(upto, after_bytes, after_age_s)
    found = SegmentState.of("x", header, chunks, len(chunks), chosen, NOW_MS)
    tier_of = {at: chunk for chunk in chunks for at in range(max(chunk.start, header.start), chunk.end)}
    offsets = range(header.start, header.length)
    hot = [at for at in offsets if at not in tier_of or not tier_of[at].tier]
    moving = [at for at in tier_of if not tier_of[at].tier and is_chosen(tier_of[at])]
    assert found.size == len(offsets)
    assert found.hot_bytes == len(hot)
    assert found.cold_bytes == len(offsets) - len(hot)
    assert found.inline_bytes == len(header.tail)
    assert found.cold_end == (min(hot) if hot else header.length)
    assert found.lag_bytes == len(moving)
    assert found.lag_s == max([(NOW_MS - tier_of[at].at_ms) / 1000 for at in moving], default=0.0)
    assert (found.start, found.length, found.version, found.committed) == (header.start, header.length, 3, 7.0)


def test_what_waits_and_state_are_those_of_header():
    page = Page(0, 10, "i", 5, 0, 100)
    header = Header("id", 1, Phase.SEALED, entries=(page,), drops=(Drop("a", 1), Drop("b", 1, after_ms=10)))
    found = SegmentState.of("x", header, [], 5, Chosen(), NOW_MS)
    assert (found.state, found.drops, found.chunks) == ("sealed", 2, 5)
    assert (found.hot_bytes, found.cold_bytes, found.lag_bytes, found.lag_s) == (10, 0, 0, 0.0)
