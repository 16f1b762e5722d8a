"""The files of one bucket or container through obstore: reads, and writes in a single request."""

from __future__ import annotations

import asyncio
import hashlib
import html
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import BaseError

from rollingfs.backend.contract import Buffer, FileInfo, Metadata, Over
from rollingfs.backend.objects.bucket import READS_MAX, SEND_S_MAX, Answer, Condition, Places, Span, is_quick
from rollingfs.backend.objects.obstore_process import check_usable, keep_from_children, wait_at_exit, watched
from rollingfs.backend.objects.request_errors import ERRORS, LastingError, NotByObstoreError, Refusal, token_of, written
from rollingfs.backend.patience import PAUSE_FIRST_S, PAUSE_S_MAX
from rollingfs.format.side_files import read_bytes_max
from rollingfs.runtime.values import cached

if TYPE_CHECKING:
    from obstore import GetOptions, PutMode

_STATUS = re.compile(r" - Server returned non-2xx status code: (?P<status>\d{3}) (?P<reason>[^:\n]*)")
_STATUS_OF_BULK_DELETE = re.compile(
    r"Bulk delete request failed for key .*?: (?P<reason>[^\n]*) \(code: (?P<status>\d{3})\)"
)
_NAME = re.compile(r"(?:contained empty path segment|Encountered illegal character sequence)")
_BEYOND = re.compile(r'Wanted range starting at|CONTENT_RANGE header: "bytes \d+--1/')
_REDIRECT = "Received redirect without LOCATION"
_UNREAD = ("Content-Length Header missing", "non-partial response")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_STORE = re.compile(r"Error performing [A-Z]+ (https?://)(?:[^/@\s]*@)?([^/\s]+)")
_SYSTEMS_MESSAGE = re.compile(r'(?:message|error(?=: "failed to lookup)): "([^"]+)"')
_MISTRUST = re.compile(r"InvalidCertificate\(([\w\s(]+)")


_NO_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
"""Empty parts, "." and ".." in a key, and control characters: obstore refuses them, or drops the empty parts."""


def can_name(key: str) -> bool:
    """Return whether obstore sends a request for just this key."""
    return _NO_KEY.search(key) is None


def put_mode(over: Condition) -> PutMode:
    """Return the condition of a write: a free name, or a token."""
    if isinstance(over, str):
        return {"e_tag": over}
    return "create" if over is Over.NOTHING else "overwrite"


def get_options(span: Span, if_token: str, unless_token: str) -> GetOptions:
    """Return the range and the conditions of a read; an empty token means no condition."""
    given = {"range": span, "if_match": if_token, "if_none_match": unless_token}
    return {name: value for name, value in given.items() if value}  # type: ignore[return-value]


def body(data: Sequence[Buffer]) -> Buffer | list[Buffer]:
    """Return bytes as obstore takes them, not copied together."""
    if len(data) < 2:
        return b"".join(data)
    return [piece if isinstance(piece, bytes) else memoryview(piece).cast("B") for piece in data]


def _md5_of(data: Sequence[Buffer]) -> str:
    hashing = hashlib.md5(usedforsecurity=False)
    for piece in data:
        hashing.update(piece)
    return hashing.hexdigest()


def from_obstore(error: Exception) -> Refusal | LastingError | TimeoutError | ConnectionError:
    """Return the meaning of an error of obstore.

    The result has no other part of the text, which shows all that obstore knows of the request.
    """
    said, _, shown = str(error).partition("\n\nDebug source:")
    if (answer := _STATUS.search(said)) is not None:
        body = said[answer.end() :]
        code, message = _CODE.search(body), _MESSAGE.search(body)
        return Refusal(
            int(answer["status"]),
            code[1] if code else answer["status"],
            # in a line, without Azure's id and time
            html.unescape(message[1]).strip().partition("\n")[0].rstrip() if message else answer["reason"],
        )
    if (answer := _STATUS_OF_BULK_DELETE.search(said)) is not None:
        return Refusal(int(answer["status"]), answer["status"], answer["reason"])
    if _BEYOND.search(said):  # an answer of no bytes, as azurite gives right at the end
        return Refusal(416, "InvalidRange", "the file ends before this range")
    if _NAME.search(said):
        return Refusal(400, "InvalidName", "among the files there is a name that obstore cannot read, as with //")
    if _REDIRECT in said:
        return Refusal(301, "PermanentRedirect", "the bucket lies elsewhere")
    if (mistrust := _MISTRUST.search(shown)) is not None:
        why = mistrust[1].split("(")[-1].strip()
        return LastingError(f"the store's certificate cannot be trusted: {why}", is_untrusted=True)
    named, system = _STORE.search(said), _SYSTEMS_MESSAGE.search(shown)
    store = "".join(named.groups()) if named else "the store"
    if "kind: Timeout" in shown or "TimedOut" in shown:
        return TimeoutError(f"{store} did not answer in time")
    kind = ConnectionRefusedError if "kind: Connect" in shown else ConnectionError
    did = "could not connect to" if kind is ConnectionRefusedError else "no whole answer came from"
    return kind(f"{did} {store}{f': {system[1]}' if system else ''}")


def is_unread(error: Exception) -> bool:
    """Return whether obstore failed at a file that other clients can read.

    It has an unknown length, or was sent whole for a range.
    """
    return any(text in str(error) for text in _UNREAD)


def is_without_credentials(error: Exception) -> bool:
    """Return whether obstore sent no request for want of credentials."""
    return "credential provider" in str(error).partition("\n")[0]


T = TypeVar("T")
Store = Any
"""A store of obstore's, of any cloud."""
MakeStore = Callable[[dict[str, Any], float], Store]
"""Makes a store for one bucket: with these options of the client, where the user gave no others, and this patience."""
_FAILURES = (BaseError, OSError)
"""A missing file, and all errors at a writer's end, are errors of the system."""
RETRIES_MAX = 10_000
"""The time ends them."""


def store_of(
    kind: Any,
    name: str,
    config: dict[str, Any],
    client: dict[str, Any],
    limits: dict[str, Any],
    patience_s: float,
    credentials: Any,
) -> Store:
    """Return a store of a kind of obstore's, for one bucket.

    Parameters
    ----------
    client, limits
        Options of its client: of the account, and for these requests.
    patience_s
        Time for which obstore itself repeats a request.

    Raises
    ------
    Refusal
        obstore refuses to make a store with these options.
    """
    client = client | limits
    backoff = {"init_backoff": timedelta(seconds=PAUSE_FIRST_S), "max_backoff": timedelta(seconds=PAUSE_S_MAX)}
    tries_max = RETRIES_MAX if patience_s else 0
    retry = {"max_retries": tries_max, "retry_timeout": timedelta(seconds=patience_s), "backoff": backoff}
    try:
        return kind(name, config=config, client_options=client, retry_config=retry, credential_provider=credentials)
    except (BaseError, ValueError):
        # the text of obstore's error may show a secret
        raise Refusal(400, "InvalidOptions", "obstore refuses the options") from None


@dataclass(eq=False, repr=False)
class ObstoreObjects:
    """The files of a bucket. Limits of obstore are `NotByObstoreError`s."""

    name: str
    make: MakeStore
    places: Places
    """Shared by all buckets of an account."""
    read_timeout: timedelta
    """For an answer to begin, and between its bytes."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Of each file that is written."""
    refusal: Callable[[], Exception | None] = lambda: None
    """Reason of missing credentials, which obstore does not have."""
    _is_md5: bool = field(default=True, init=False)
    """Whether the ETags of this store may be the MD5 of the bytes; see `_prove`."""

    def __post_init__(self) -> None:
        keep_from_children(self)

    @cached
    def quick(self) -> Store:
        """For small requests, with a limit for each read of an answer."""
        return self.make({"timeout": READS_MAX * self.read_timeout, "read_timeout": self.read_timeout}, 0)

    @cached
    def patient(self) -> Store:
        """For large bodies, with one limit for the time of the whole request."""
        return self.repeating(0.0)

    def repeating(self, patience_s: float) -> Store:
        """Return a client for large bodies that may be sent again for so long."""
        return self.make({"timeout": timedelta(seconds=SEND_S_MAX) + self.read_timeout}, patience_s)

    async def ask(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of obstore to a request."""
        check_usable()
        try:
            async with self.places.taken():
                # no variable holds the future: an error that somebody keeps would hold it as well, see `ending`
                return await watched(request())
        except _FAILURES as error:
            raise self._said(error) from None

    async def get(self, key: str, span: Span = None, *, if_token: str = "", unless_token: str = "") -> Answer | None:
        """Read an object as `Bucket.get` does."""
        self._check(key)
        try:
            async with self.places.taken():
                if span is not None and not (if_token or unless_token):
                    # one call: between two, the bytes would wait for the event loop's thread
                    part = await watched(obstore.get_range_async(self.quick, key, start=span[0], end=span[1]))
                    return Answer(memoryview(part), "", 0.0)
                options = get_options(span, if_token, unless_token)
                found = await watched(obstore.get_async(self.quick, key, options=options))
                limit = read_bytes_max(key) if span is None else None
                is_long = limit is not None and found.meta["size"] > limit
                if not is_long:
                    data = await watched(found.bytes_async())
        except _FAILURES as error:
            said = self._said(error)
            if is_unread(error):
                raise NotByObstoreError("obstore cannot read the store's answer") from None
            if isinstance(said, Refusal) and said.status == 304:
                return None
            raise said from None
        meta = found.meta
        if is_long:  # nothing of it was read
            return await self.get(key, (0, limit or 0), if_token=token_of(meta["e_tag"]))
        token = token_of(meta["e_tag"]) if span is None else meta["e_tag"] or ""
        return Answer(memoryview(data), token, meta["last_modified"].timestamp())

    async def put(self, key: str, data: Sequence[Buffer], over: Condition = None, metadata: Metadata = None) -> str:
        """Write an object as `Bucket.put` does."""
        self._check(key)
        store = self.quick if is_quick(data) else self.patient
        hashed = None
        if self._is_md5 and not isinstance(over, str) and not is_quick(data):  # while they are sent
            hashed = asyncio.get_running_loop().run_in_executor(None, _md5_of, data)
        more: Any = {"attributes": {**self.attributes, **(metadata or {})}, "mode": put_mode(over)}
        answer = await self.ask(lambda: obstore.put_async(store, key, body(data), use_multipart=False, **more))
        token = written(answer["e_tag"], over)
        await self._prove(key, token, data, hashed)
        return token

    async def _prove(self, key: str, token: str, data: Sequence[Buffer], hashed: Awaitable[str] | None = None) -> None:
        """Prove by the ETag of an answer that the write of these bytes got it; their MD5 may be known.

        Where a store or a gateway answers a PUT with 303, obstore follows with a GET, and gives the ETag of its answer:
        of a page, for example, on which somebody is to log in. An ETag that is the MD5 of the bytes proves the write.
        If it is not, the file is read back. If the file is right, the ETags of this store are no hashes: then they are
        no proof, and are ignored.

        Raises
        ------
        ConnectionError
            No fact proves that the bytes were written.
        """
        if not self._is_md5 or token.strip('"').lower() == (_md5_of(data) if hashed is None else await hashed):
            return
        try:
            found = await self.get(key)
        except ERRORS as error:
            raise ConnectionError(f"whether it was written could not be looked up: {error}") from error
        if found is None or found.token != token or found.data != b"".join(data):
            raise ConnectionError("the store's answer is not one to this write, so it may have written nothing")
        self._is_md5 = False

    def found(self, meta: Any) -> FileInfo:
        """Return a file as obstore describes it; Azure's listings leave out the quotes of the ETag."""
        token = token_of(meta["e_tag"])
        quoted = token if '"' in token else f'"{token}"'
        return FileInfo(f"{self.name}/{meta['path']}", meta["size"], meta["last_modified"].timestamp(), quoted)

    def _check(self, key: str) -> None:
        check_usable()
        if not can_name(key):
            raise NotByObstoreError("obstore has no such names")

    def _said(self, error: Exception) -> Exception:
        """Return the error to raise, without obstore's own text, which shows all that obstore knows of the request.

        obstore may keep its error, in the future, until its next call: the frames of it would keep the filesystem.
        """
        error.__traceback__ = None
        if is_without_credentials(error):
            text = str(error).partition("\n")[0].partition("credential provider: ")[2]
            return self.refusal() or Refusal(401, "NoCredentials", f"the credential gave no token: {text}")
        return from_obstore(error)


wait_at_exit()
