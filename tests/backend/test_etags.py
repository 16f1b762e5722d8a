"""A body that does not belong to its ETag is asked for again: no commit is made of an older body with a newer token."""

import asyncio
import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rollingfs.backend.contract import Over
from rollingfs.backend.contract_values import Capability
from rollingfs.backend.objects.bucket import Answer
from rollingfs.backend.objects.request_errors import Refusal
from tests.support.servers import require_module

require_module("s3fs")
require_module("obstore")

from rollingfs.backend.objects.s3 import bucket as module
from rollingfs.backend.objects.s3.bucket import S3Bucket

HEADER = "log$header"


def md5(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def right(body: bytes) -> Answer:
    return Answer(body, md5(body), 0.0)


def of_kms(body: bytes) -> Answer:
    return Answer(body, md5(b"encrypted " + body), 0.0)


STALE = Answer(b"old", md5(b"new"), 0.0)
TORN = Answer(b"neld", md5(b"new"), 0.0)


def bucket(*answers: Answer | None, writes: str = "") -> tuple[S3Bucket, list[Answer | None]]:
    """A bucket whose store gives these answers, the last one for ever; `writes` is the ETag of each write."""
    left = list(answers)

    async def get(*_: Any, **__: Any) -> Answer | None:
        return left.pop(0) if len(left) > 1 else left[0]

    async def put(*_: Any, **__: Any) -> str:
        return writes

    made = S3Bucket(SimpleNamespace(answer_s_max=None, capability=Capability(requests_max=4), call=None), "bucket")  # type: ignore[arg-type]
    made.way = SimpleNamespace(get=get, put=put)
    return made, left


def read(made: S3Bucket, *, is_proved: bool = True) -> Answer | None:
    """What a read finds, after a write or before any."""

    async def run() -> Answer | None:
        if is_proved:
            await made.put(HEADER, [b"x"], Over.NOTHING)
        return await made.get(HEADER)

    return asyncio.run(run())


@pytest.mark.parametrize("is_proved", [False, True], ids=["before a write", "after a write"])
@pytest.mark.parametrize("wrong", [[STALE], [TORN], [STALE, TORN]], ids=["old body", "mixture", "both"])
def test_a_body_of_another_etag_is_asked_for_again(wrong, is_proved):
    made, left = bucket(*wrong, right(b"new"), writes=md5(b"x"))
    assert read(made, is_proved=is_proved) == replace(right(b"new"), was_unfit=True)
    assert left == [right(b"new")]


def test_wrong_pair_is_not_believed_while_writes_explain_it(monkeypatch):
    monkeypatch.setattr(module, "SETTLE_S_MAX", 60.0)
    made, _ = bucket(*[STALE] * 5, right(b"new"), writes=md5(b"x"))
    assert read(made) == replace(right(b"new"), was_unfit=True)


@pytest.mark.parametrize(("written", "asked"), [(None, 2), ("kms", 1)], ids=["no write", "a write"])
def test_etags_without_md5_cost_one_more_request_in_all(written, asked):
    answers = [of_kms(b"one"), of_kms(b"one"), of_kms(b"two"), of_kms(b"three"), of_kms(b"four")]
    made, left = bucket(*answers, writes=md5(b"encrypted"))

    async def read() -> list[Answer | None]:
        if written:
            await made.put(HEADER, [b"x"], Over.NOTHING)
        return [await made.get(HEADER), await made.get(HEADER)]

    assert asyncio.run(read()) == answers[asked - 1 : asked + 1]
    assert len(left) == len(answers) - asked - 1


def test_file_that_stays_so_is_believed_after_second(monkeypatch):
    monkeypatch.setattr(module, "SETTLE_S_MAX", 0.01)
    made, _ = bucket(of_kms(b"at rest"), writes=md5(b"x"))
    assert read(made) == of_kms(b"at rest")


@pytest.mark.parametrize("others", [[], [of_kms(b"other")]], ids=["one header", "a second read"])
def test_no_commit_is_made_of_body_without_proof(monkeypatch, others):
    """A client that believes the verdict of another process writes nothing before its first commit."""
    monkeypatch.setattr(module, "AT_REST_S", 0.01)
    made, _ = bucket(*others, *others, STALE, *[STALE] * (not others), right(b"new"), writes=md5(b"x"))

    async def commit() -> str:
        for _ in others:
            await made.get("other$header")
        stale = await made.get(HEADER)
        assert stale == STALE
        return await made.put(HEADER, [b"x"], STALE.token)

    with pytest.raises(Refusal, match="other bytes with this ETag"):
        asyncio.run(commit())


def test_a_body_at_rest_is_replaced_after_a_moment(monkeypatch):
    monkeypatch.setattr(module, "AT_REST_S", 0.01)
    made, left = bucket(*[of_kms(b"one")] * 9, writes=md5(b"encrypted"))

    async def commit() -> int:
        await made.get(HEADER)
        await made.put(HEADER, [b"x"], of_kms(b"one").token)
        count = len(left)
        await made.put(HEADER, [b"x"], md5(b"encrypted"))
        return count - len(left)

    assert asyncio.run(commit()) == 0


def test_partial_or_kept_files_are_not_looked_at():
    made, left = bucket(STALE, TORN, right(b"new"))
    assert asyncio.run(made.get("log$chunks/0")) is STALE
    assert asyncio.run(made.get(HEADER, (0, 3))) is TORN
    assert len(left) == 1
