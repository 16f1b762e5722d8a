"""What a raw client finds of a server of S3: nothing of rollingfs sends these requests."""

import contextlib
import hashlib
import http.client
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

RACERS, ROUNDS = 16, 30
READERS = 2
BODY_BYTES = 1024
ANSWER_S_MAX = 60
END_S_MAX = 300
Answer = tuple[int, str, bytes]
"""The status, the ETag without quotes, and the body."""


class Raw:
    """A connection of its own to a bucket."""

    def __init__(self, options: dict[str, Any], bucket: str) -> None:
        self.url, self.bucket = options["endpoint_url"], bucket
        self.credentials = Credentials(options["key"], options["secret"])
        self.connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=ANSWER_S_MAX)

    def close(self) -> None:
        self.connection.close()

    def send(self, method: str, key: str, body: bytes = b"", **headers: str) -> Answer:
        path = f"/{self.bucket}/{key}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = AWSRequest(method, self.url + path, data=body, headers=named)
        S3SigV4Auth(self.credentials, "s3", "us-east-1").add_auth(request)
        self.connection.request(method, path, body, dict(request.headers))
        answer = self.connection.getresponse()
        return answer.status, (answer.getheader("ETag") or "").strip('"'), answer.read()


def _rounds(options: dict[str, Any], bucket: str, work: Sequence[Callable[[Raw, int], None]], count: int) -> None:
    """Let threads, each with a connection of its own, begin each round together."""
    start, errors = threading.Barrier(len(work)), list[BaseException]()

    def run(step: Callable[[Raw, int], None]) -> None:
        try:
            with contextlib.closing(Raw(options, bucket)) as raw:
                raw.send("HEAD", "nothing")  # the connection is open before the first race
                for number in range(count):
                    start.wait(ANSWER_S_MAX)
                    step(raw, number)
                    start.wait(ANSWER_S_MAX)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
            start.abort()

    threads = [threading.Thread(target=run, args=(step,), daemon=True) for step in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(END_S_MAX)
    if errors:
        raise errors[0]


def races_with_several_winners(options: dict[str, Any], bucket: str, replaces: bool) -> int:
    """Of 30 rounds of 16 conditional writes of one object, those in which several succeeded."""
    name = uuid.uuid4().hex
    with contextlib.closing(Raw(options, bucket)) as first:
        tokens = [first.send("PUT", f"{name}-{number}", b"first")[1] for number in range(ROUNDS if replaces else 0)]
    winners = [0] * ROUNDS
    lock = threading.Lock()

    def write(racer: int, raw: Raw, number: int) -> None:
        condition = {"If_Match": f'"{tokens[number]}"'} if replaces else {"If_None_Match": "*"}
        status, *_ = raw.send("PUT", f"{name}-{number}", (b"%d " % racer).ljust(BODY_BYTES, b"."), **condition)
        with lock:
            winners[number] += status == 200

    _rounds(
        options, bucket, [lambda raw, number, racer=racer: write(racer, raw, number) for racer in range(RACERS)], ROUNDS
    )
    return sum(count > 1 for count in winners)


def reads_of_other_bytes(options: dict[str, Any], bucket: str, rounds: int = 400) -> int:
    """Of the GETs beside conditional PUTs of one object, those that end early or have other bytes than their ETag."""
    key, found = uuid.uuid4().hex, [0]
    with contextlib.closing(Raw(options, bucket)) as first:
        tokens = [first.send("PUT", key, b"0" * BODY_BYTES)[1]]
    lock = threading.Lock()

    def write(racer: int, raw: Raw, number: int) -> None:
        body = (b"%d %d " % (number, racer)).ljust(BODY_BYTES, b".")
        status, token, _ = raw.send("PUT", key, body, If_Match=f'"{tokens[-1]}"')
        if status == 200:
            with lock:
                tokens.append(token)

    def read(raw: Raw, number: int) -> None:
        try:
            status, token, body = raw.send("GET", key)
        except http.client.IncompleteRead as error:  # it ended early
            raw.close()
            status, token, body = 200, "", error.partial
        with lock:
            found[0] += status == 200 and hashlib.md5(body).hexdigest() != token

    writers = [lambda raw, number, racer=racer: write(racer, raw, number) for racer in range(4)]
    _rounds(options, bucket, [*writers, *[read] * READERS], rounds)
    return found[0]
