"""What a raw client finds of an object store, as texts for docs/stores.md: `**bold**` is what hurts."""

import collections
import contextlib
import email.utils
import functools
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.ground.clients import ABSENT, CLIENTS, NO_ANSWER, Answer, Raw, RefusedError
from tests.support.schedules import eventually, in_threads
from tests.support.servers import restart

RACERS, ROUNDS = 16, 30
WRITERS, READERS, READ_ROUNDS = 4, 2, 300
BODY_BYTES = 1024
BACK_S_MAX = 120
CRASHES, CRASH_BYTES = 6, 16 * 2**20
ROUNDS_S_MAX = 40
"""No round begins later: SeaweedFS takes seconds for one."""
END_S_MAX = 200
HOLDS, IGNORED, AS_S3 = "holds", "**ignored**", "as S3"
SPANS = {
    "first byte": ("bytes=0-0", (206,), b"0"),
    "last byte": ("bytes=9-9", (206,), b"9"),
    "over the end": ("bytes=5-100", (206,), b"56789"),
    "beyond the end": ("bytes=10-20", (416,), None),
    "suffix": ("bytes=-3", (206,), b"789"),
    "suffix longer than the file": ("bytes=-100", (200, 206), b"0123456789"),
}
NAMES = ("B", "a", "a b", "a+b", "a-b", "a.b", "a0", "ab", "z", "é", "\U0001f600")
"""In the order of their bytes in UTF-8."""


@dataclass(frozen=True)
class Ground:
    """A bucket on a server that runs."""

    protocol: str
    options: dict[str, Any]
    bucket: str
    rounds: int = ROUNDS

    def connect(self) -> contextlib.closing[Raw]:
        return contextlib.closing(CLIENTS[self.protocol](self.options, self.bucket))


Step = Callable[[Raw, int], Callable[[], None]]
"""Prepares the turn of a racer in a round; what it returns is the turn."""


def _rounds(ground: Ground, steps: Sequence[Step], count: int) -> int:
    """Let threads, each with a connection, begin each round together; the number of rounds that had time."""
    began_s, late = time.monotonic(), threading.Event()
    start = threading.Barrier(len(steps), lambda: time.monotonic() - began_s > ROUNDS_S_MAX and late.set())

    def run(step: Step) -> int:
        try:
            with ground.connect() as raw:
                for number in range(count):
                    act = step(raw, number)
                    raw.open()
                    start.wait(END_S_MAX)
                    act()
                    start.wait(END_S_MAX)
                    if late.is_set():
                        break
                return number + 1
        except BaseException:
            start.abort()
            raise

    outcomes = in_threads(*(functools.partial(run, step) for step in steps))
    errors = [one for one in outcomes if isinstance(one, BaseException)]
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return int(outcomes[0])


def _race(ground: Ground, prepare: Callable[[Raw, int, int], Callable[[], Answer]]) -> str:
    """Judge rounds in which of several racers one may win; `prepare` gets the racer and the round."""
    won, statuses, lock = [0] * ground.rounds, collections.Counter[int](), threading.Lock()

    def step(racer: int, raw: Raw, number: int) -> Callable[[], None]:
        send = prepare(raw, racer, number)

        def act() -> None:
            answer = send()
            with lock:
                won[number] += answer.is_done
                statuses[answer.status] += not answer.is_done

        return act

    try:
        steps = [lambda raw, number, racer=racer: step(racer, raw, number) for racer in range(RACERS)]
        del won[_rounds(ground, steps, len(won)) :]
    except RefusedError as refused:
        return f"refused ({refused})"
    several, silent = sum(count > 1 for count in won), won.count(0)
    with ground.connect() as raw:  # one after another, where a winner has been
        if prepare(raw, 0, 0)().is_done:
            return IGNORED
    if several:
        return f"**several win** ({several} of {len(won)})"
    if silent == len(won):
        return f"refused ({statuses.most_common(1)[0][0]})"
    return f"one wins ({len(won)})" if not silent else f"one wins, or nobody ({silent} of {len(won)})"


def _body(text: str) -> bytes:
    return text.encode().ljust(BODY_BYTES, b".")


def create(ground: Ground) -> str:
    """Races of 16 creates."""
    name = uuid.uuid4().hex
    return _race(
        ground, lambda raw, racer, number: lambda: raw.put(f"{name}-{number}", _body(f"{racer} "), token=ABSENT)
    )


def _made(ground: Ground, name: str) -> list[str]:
    """Make a file for each round; the tokens."""
    with ground.connect() as raw:
        return [raw.put(f"{name}-{number}", _body("first")).token for number in range(ground.rounds)]


def replace(ground: Ground) -> str:
    """Races of 16 replaces."""
    tokens = _made(ground, name := uuid.uuid4().hex)
    return _race(
        ground, lambda raw, racer, number: lambda: raw.put(f"{name}-{number}", _body(f"{racer} "), tokens[number])
    )


def complete(ground: Ground) -> str:
    """Races of 16 uploads in parts that are to be completed where nothing is."""
    name = uuid.uuid4().hex
    return _race(ground, lambda raw, racer, number: raw.completion(f"{name}-{number}", _body(f"{racer} ")))


def copy(ground: Ground) -> str:
    """Races of 16 copies to where nothing is."""
    name = uuid.uuid4().hex
    with ground.connect() as raw:
        for racer in range(RACERS):
            raw.put(f"{name}-from-{racer}", _body(f"{racer} "))
    return _race(ground, lambda raw, racer, number: lambda: raw.copy(f"{name}-from-{racer}", f"{name}-{number}"))


def delete(ground: Ground) -> str:
    """A delete by an older token, then races of 8 deletes and 8 replaces by one token."""
    with ground.connect() as raw:
        old = raw.put(key := uuid.uuid4().hex, _body("old")).token
        raw.put(key, _body("new"))
        refused = raw.delete(key, old)
        if not raw.get(key).is_done:
            return IGNORED
        if refused.status == 501:
            return "refused (501)"
    tokens, replaced = _made(ground, name := uuid.uuid4().hex), set[int]()

    def step(racer: int, raw: Raw, number: int) -> Callable[[], None]:
        def act() -> None:
            if racer % 2:
                raw.delete(f"{name}-{number}", tokens[number])
            elif raw.put(f"{name}-{number}", _body(f"{racer} "), tokens[number]).is_done:
                replaced.add(number)

        return act

    _rounds(
        ground, [lambda raw, number, racer=racer: step(racer, raw, number) for racer in range(RACERS)], ground.rounds
    )
    with ground.connect() as raw:
        gone = sum(not raw.get(f"{name}-{number}").is_done for number in replaced)
    return f"**takes a newer file** ({gone} of {len(replaced)})" if gone else HOLDS


def reads(ground: Ground) -> str:
    """GETs beside PUTs of one file."""
    key, lock = uuid.uuid4().hex, threading.Lock()
    with ground.connect() as raw:
        tokens = [raw.put(key, first := _body("first")).token]
    bodies, seen = {tokens[0]: {first}}, list[tuple[str, bytes]]()
    sent, unanswered = {first}, list[int]()

    def write(racer: int, raw: Raw, number: int) -> Callable[[], None]:
        body, token = _body(f"{number} {racer} "), tokens[-1]

        def act() -> None:
            with lock:
                sent.add(body)
            answer = raw.put(key, body, token)
            if answer.is_done:
                with lock:
                    tokens.append(answer.token)
                    bodies.setdefault(answer.token, set()).add(body)

        return act

    def read(raw: Raw, number: int) -> Callable[[], None]:
        def act() -> None:
            answer = raw.get(key)
            with lock:
                if answer.is_done:
                    seen.append((answer.token, answer.body))
                elif answer.status == NO_ANSWER:
                    unanswered.append(number)

        return act

    writers: list[Step] = [lambda raw, number, racer=racer: write(racer, raw, number) for racer in range(WRITERS)]
    _rounds(ground, [*writers, *[read] * READERS], READ_ROUNDS * ground.rounds // ROUNDS)
    torn = sum(body not in sent for _, body in seen)
    mixed = sum(body in sent and body not in bodies.get(token, {body}) for token, body in seen)
    counts = {"torn": torn, "of another ETag": mixed, "without an answer": len(unanswered)}
    total = len(seen) + len(unanswered)
    found = [f"**{count} of {total} {what}**" for what, count in counts.items() if count]
    return "; ".join(found) or f"whole ({total})"


def ranges(ground: Ground) -> str:
    """Ranges at the edges, and of an empty file."""
    other = list[str]()
    with ground.connect() as raw:
        raw.put(key := uuid.uuid4().hex, b"0123456789")
        raw.put(f"{key}-empty", b"")
        for what, (span, statuses, body) in SPANS.items():
            answer = raw.get(key, span)
            if answer.status not in statuses or body not in (None, answer.body):
                other.append(f"{what}: {'**other bytes**' if answer.status in statuses else answer.status}")
        if (empty := raw.get(f"{key}-empty")).status != 200 or empty.body:
            other.append(f"empty file: {empty.status}")
        if (status := raw.get(f"{key}-empty", "bytes=0-0").status) != 416:
            other.append(f"first byte of an empty file: {status}")
    return "; ".join(other) or AS_S3


def listing(ground: Ground) -> str:
    """The order of a listing, its pages, and a file beside a folder of the same name."""
    other = list[str]()
    with ground.connect() as raw:
        prefix = f"{uuid.uuid4().hex}/"
        for name in random.sample(NAMES, len(NAMES)):
            if not (answer := raw.put(f"{prefix}{name}", b"x")).is_done:
                other.append(f"{name!r}: {answer.status}")
        found, after, pages = list[str](), "", 0
        while pages == 0 or (after and pages < 2 * len(NAMES)):
            names, _, after = raw.page(prefix, 2, after)
            found += [name.removeprefix(prefix) for name in names]
            pages += 1
        if sorted(found) != sorted(NAMES):
            other.append(f"**{len(found)} of {len(NAMES)} names in {pages} pages**")
        elif found != list(NAMES):
            other.append("other order than of bytes")
        if pages < len(NAMES) // 2:
            other.append("pages are longer than asked")
        raw.put(f"{prefix}a", b"x")
        if not (answer := raw.put(f"{prefix}a/b", b"x")).is_done:
            other.append(f"no `a/b` beside `a` ({answer.status})")
    return "; ".join(other) or AS_S3


def token(ground: Ground) -> str:
    """The form of a token, and whether equal bytes have it again."""
    with ground.connect() as raw:
        key, data = uuid.uuid4().hex, b"content"
        first, again = raw.put(key, data).token, raw.put(key, data).token
        read = raw.get(key).token
    form = "MD5" if first == "9a0364b9e99bb480dd25e1f0284c8555" else "a number" if first.isdigit() else "not MD5"
    same = "equal for equal bytes" if first == again else "new for each write"
    return f"{form}, {same}" + ("" if read in (again, "") else "; **another by GET**")


def dates(ground: Ground) -> str:
    """The resolution of the dates of a listing, and how far a file's date is from the date of the answer."""
    with ground.connect() as raw:
        prefix = f"{uuid.uuid4().hex}/"
        for number in range(4):
            raw.put(f"{prefix}{number}", b"x")
            time.sleep(0.03)  # dates in milliseconds differ
        answer, (_, listed, _) = raw.get(f"{prefix}3"), raw.page(prefix, 10)
    fractions = {found[1] for text in listed if (found := re.search(r"\.(\d+)", text)) and found[1].strip("0")}
    digits = min((3, 6, 9), key=lambda count: abs(count - max(map(len, fractions)))) if fractions else 0
    unit = {0: "seconds", 3: "ms", 6: "µs", 9: "ns"}[digits]
    at, now = (answer.headers.get(name) for name in ("last-modified", "date"))
    if at is None or now is None:
        return f"{unit}; a GET has none"
    skew_s = (email.utils.parsedate_to_datetime(now) - email.utils.parsedate_to_datetime(at)).total_seconds()
    return unit if abs(skew_s) <= 1 else f"{unit}; {skew_s:.0f} s off"


def crash(ground: Ground) -> str:
    """A `kill -9` of the server within a PUT, and what is there once it runs again."""
    chance, found = random.Random(1), collections.Counter[str]()
    key = uuid.uuid4().hex
    with ground.connect() as raw:
        raw.put(f"{key}-kept", b"")
        began_s = time.monotonic()
        raw.put(key, b"0" * CRASH_BYTES)
        put_s = time.monotonic() - began_s
    for number in range(1, CRASHES + 1):
        old, new = (bytes(str(at % 10), "ascii") * CRASH_BYTES for at in (number - 1, number))
        outcome = _crashed(ground, key, old, new, put_s * chance.uniform(0.1, 0.95))
        found[outcome] += 1
        if outcome.startswith("**no answer"):
            return outcome
        with ground.connect() as raw:
            if not raw.get(f"{key}-kept").is_done:
                return "all is gone"
            raw.put(key, new)
    return ", ".join(f"{what} ({count} of {CRASHES})" for what, count in sorted(found.items()))


def _crashed(ground: Ground, key: str, old: bytes, new: bytes, after_s: float) -> str:
    acked = list[bool]()

    def put() -> None:
        with ground.connect() as raw:
            acked.append(raw.put(key, new).is_done)

    thread = threading.Thread(target=put)
    thread.start()
    time.sleep(after_s)  # the request is on its way
    with ground.connect() as raw:
        restart("{0.scheme}://{0.netloc}".format(urlsplit(raw.url)))
    thread.join()
    answers = list[Answer]()

    def is_back() -> bool:
        with ground.connect() as raw:
            answers.append(raw.get(key))
        return answers[-1].status not in (NO_ANSWER, 500, 502, 503)

    try:
        eventually(is_back, BACK_S_MAX)
    except AssertionError:
        return f"**no answer for {BACK_S_MAX} s**"
    body = answers[-1].body if answers[-1].is_done else None
    if any(acked) and body != new:
        return "**an acknowledged PUT is not there**"
    return "new" if body == new else "old" if body == old else "gone" if body is None else "**torn**"


FOUND = (create, replace, delete, complete, copy, reads, ranges, listing, token, dates, crash)
FACTS: dict[str, Callable[[Ground], str]] = {find.__name__: find for find in FOUND}
