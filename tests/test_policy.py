"""The rolling policy: what callers write, and what a header can hold."""

import pytest
from hypothesis import given, strategies as st

from rollingfs.format.header import TAIL_BYTES_MAX
from rollingfs.format.line_codec import format_policy, parse_policy
from rollingfs.policy import INLINE_BYTES_MAX, MAX_AGE_S_MAX, RollingPolicy, parse_bytes, parse_seconds

SIZES = [("64MiB", 2**26), ("64 mib", 2**26), (" 1.5 KB ", 1500), ("0.5KiB", 512), ("2TiB", 2**41)]
SIZES += [(text, 7) for text in ("7", "7B", 7, 7.0)]
AGES = [("30min", 1800), ("7d", 604800), ("1.5 s", 1.5), ("200ms", 0.2), *((time, time) for time in (3, 0.25))]


@pytest.mark.parametrize(("parse", "of"), [(parse_bytes, SIZES), (parse_seconds, [*AGES, ("forever", MAX_AGE_S_MAX)])])
def test_sizes_and_times_are_numbers_or_text_with_unit(parse, of):
    assert [(text, parse(text)) for text, _ in of] == of


@pytest.mark.parametrize("text", ["", "-1", True, "MiB", "64MB!", "1e3", "64 M", 1.5, float("nan"), float("inf")])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["", "-1", True, "h", "1 week"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        *(({"max_bytes": size}, "at least 1 byte") for size in (0, -5)),
        ({"max_bytes": 2**63}, "at most 9223372036854775807"),
        *(({"inline_bytes": size}, "0 to 1048576") for size in (-1, "1.1MiB")),
        *(({"max_age": age}, f"max_age is {age}") for age in (0, 0.0004, -1, float("nan"), float("inf"))),
        ({"max_age": MAX_AGE_S_MAX + 1}, "max_age is"),
    ],
)
def test_oversized_policy_is_refused_when_it_is_made(options, why):
    with pytest.raises(ValueError, match=why):
        RollingPolicy(**options)


def test_small_policies_are_valid_and_tail_never_outgrows_chunk():
    assert RollingPolicy(100).tail_bytes_max == 100
    assert RollingPolicy(100, None, 0).tail_bytes_max == 0
    assert RollingPolicy(2**40).tail_bytes_max == 256 * 1024
    assert RollingPolicy("64MiB", "1h", "256KiB") == RollingPolicy(2**26, 3600, 2**18)
    assert INLINE_BYTES_MAX == TAIL_BYTES_MAX


@given(st.integers(1, 2**63 - 1), st.none() | st.floats(0.001, MAX_AGE_S_MAX), st.integers(0, INLINE_BYTES_MAX))
def test_every_policy_is_equal_after_writing_and_reading(max_bytes, max_age, inline_bytes):
    policy = RollingPolicy(max_bytes, max_age, inline_bytes)
    assert parse_policy(*format_policy(policy).split(" ")[1:]) == policy
