"""A ledger as a text: it is read as it was written, stays small, and is refused if it is too new."""

import json
import random

import pytest

from rollingfs.errors import CorruptLedgerError
from rollingfs.stream.cut import StreamCut
from rollingfs.stream.ledger_codec import Goal, Ledger, format_ledger, parse_ledger
from rollingfs.stream.retention import RetentionPolicy


def test_a_ledger_of_a_later_version_is_refused() -> None:
    with pytest.raises(OSError, match="too new"):
        parse_ledger(b'{"rollingfs-stream": 2}', "x")


def test_a_ledger_is_read_as_it_was_written() -> None:
    chance = random.Random(1)
    for _ in range(50):
        known = {name: chance.choice("xyz") for name in "abcd"}
        cuts = []
        for at in range(chance.randrange(6)):
            known |= {chance.choice("abcd"): chance.choice("xyz")}
            offsets = {name: chance.randrange(3) for name in "abcd" if chance.random() < 0.6}
            said = {name: known[name] for name in offsets if chance.random() < 0.8}
            cuts.append(StreamCut(offsets, float(at), at, said))
        goals = {name: Goal(chance.randrange(9), chance.choice("xy")) for name in "ab"}
        readers = {name: (cut, 7.0) for name, cut in zip("rs", cuts, strict=False)}
        ledger = Ledger(RetentionPolicy.by_size(1), tuple(cuts), readers, goals, chance.random() < 0.5)
        assert parse_ledger(format_ledger(ledger), "x") == ledger


def test_ledger_grows_with_changes_and_not_with_names() -> None:
    """A new segment for each cut, and those before stay as they are: eight times as many are eight times as long."""

    def size(count: int) -> int:
        offsets: dict[str, int] = {}
        cuts = []
        for at in range(count):
            offsets[f"segment-{at:04d}"] = 100
            cuts.append(StreamCut(offsets, float(at), 100 * at, dict.fromkeys(offsets, "7b0c2f6e-4d11-4c53-9b0e")))
        return len(format_ledger(Ledger(cuts=tuple(cuts))))

    assert size(400) < 9 * size(50)


@pytest.mark.parametrize("done", ["no", "\ud800", 1, None])
def test_trim_in_unknown_state_is_refused(done: object) -> None:
    whole = json.loads(format_ledger(Ledger()))
    damaged = json.dumps({**whole, "trim": {"done": done, "goals": {}}}, ensure_ascii=False)
    with pytest.raises(CorruptLedgerError, match="done"):
        parse_ledger(damaged.encode("utf-8", "surrogatepass"), "x")


DAMAGED: dict[str, tuple[bytes, str]] = {
    "deep": (b"[" * 100_000, "its lists are nested too deeply"),
    "cut off": (format_ledger(Ledger())[:-1], "it is not JSON: Expecting ',' delimiter at line 1, column"),
    "no text": (b'{"\xff":1}', "it is not JSON: byte 2 is no text"),
    "digits": (b"9" * 5000, "a number has too many digits"),
    "a list": (b"[]", "a field has another form than in a ledger"),
    "a field less": (format_ledger(Ledger()).replace(b"retention", b"attention"), "its field 'retention' is missing"),
    "an offset": (format_ledger(Ledger()).replace(b'"goals":{}', b'"goals":{"a":[1.5,"x"]}'), "is not an offset"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_ledgers_error_names_the_fault_without_python(kind: str) -> None:
    data, why = DAMAGED[kind]
    with pytest.raises(CorruptLedgerError, match=f"^f: the ledger of the stream cannot be read: .*{why}") as caught:
        parse_ledger(data, "f")
    assert not any(word in str(caught.value) for word in ("Error", "codec", "recursion", "object"))
