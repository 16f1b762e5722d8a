"""Requests of one kind sent again and again, made of the one that botocore made first.

To make a request, botocore runs validation, endpoint rules, serialisation and some thirty hooks, and parses the
answer: most of the CPU time of a small append or of a look at a header, for the same headers every time. So the first
request of a kind to a bucket goes through botocore, which leaves a template of what it sent; the next ones are made of
that, for any key. They are signed here, with botocore's credentials as they are then (which renews them), pass the
hooks of `before-send`, and leave through the same connections.

A template is only taken of a request that differs in nothing but key, body, conditions and signature from the next one:
`_CONSTANT` names all headers that may be in it, and its signature must be what is computed here for it. Checksums of
the body, sessions of S3 Express, other signatures and none, and whatever else is unknown here stay with botocore. An
answer that is neither success nor one of `ORDINARY` (a redirect to another region, expired credentials, none) removes
the template: botocore knows what to make of it.
"""

from __future__ import annotations

import copy
import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import urlsplit

from botocore.awsrequest import HeadersDict
from botocore.exceptions import ClientError
from botocore.parsers import create_parser
from botocore.utils import percent_encode

from rollingfs.backend.s3.errors import status_of
from rollingfs.backend.s3.receive import host_of

T = TypeVar("T")

TEMPLATES_MAX = 64
"""Buckets whose templates are kept, for one botocore client and kind of request: a few KB each."""
HOOK_ID = "rollingfs-template"
ALGORITHM = "AWS4-HMAC-SHA256"
SIGNATURE_VERSION = "s3v4"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
DATE_FORMAT = "%Y%m%dT%H%M%SZ"
ORDINARY = frozenset({304, 404, 409, 412, 416})
"""Statuses that say something about the object, and nothing about the request."""

_RENEWED = frozenset(
    {
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "authorization",
        "content-length",
        "expect",
        "if-match",
        "if-none-match",
        "range",
        "x-amz-checksum-mode",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-security-token",
        "x-amzn-trace-id",
    }
)
"""Headers of one request, which each gets anew or does without."""
_CONSTANT = re.compile(
    r"user-agent|content-type|content-disposition|content-language|cache-control|expires|x-amz-(?:acl|tagging"
    r"|storage-class|request-payer|expected-bucket-owner|website-redirect-location|grant-.+|meta-.+|object-lock-.+"
    r"|server-side-encryption(?:-.+)?)"
)
"""Headers that are the same in all requests of a kind: what the user asked for."""
_UNSIGNED = frozenset({"content-length", "user-agent"})
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} Credential=(?P<id>[^,]+)/(?P<day>[0-9]{{8}})/(?P<region>[^/,]+)/(?P<service>[^/,]+)/aws4_request, "
    r"SignedHeaders=(?P<headers>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)


def signature(
    method: str, url: str, headers: Mapping[str, str], payload: str, credentials: Any, region: str, service: str
) -> tuple[str, str]:
    """The signature (version 4) of a request without a query, and the names of the headers that it covers.

    Parameters
    ----------
    headers
        Those to be signed, names in lower case, ``host`` and ``x-amz-date`` among them.
    payload
        The SHA-256 of the body, or `UNSIGNED_PAYLOAD`.
    credentials
        Botocore's, frozen.
    """
    names = sorted(headers)
    signed, date = ";".join(names), headers["x-amz-date"]
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    request = f"{method}\n{urlsplit(url).path}\n\n{lines}\n{signed}\n{payload}"
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    text = f"{ALGORITHM}\n{date}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex(), signed


@dataclass(frozen=True, slots=True)
class Template:
    """What all requests of a kind to a bucket have in common."""

    request: Any
    """As botocore sent it, prepared."""
    base_url: str
    """Without the key."""
    headers: Mapping[str, str]
    host: str
    region: str
    service: str
    has_payload: bool
    """Whether the signature covers the body."""
    signer: Any
    session: Any
    """What sends a prepared request."""

    async def prepared(self, key: str, headers: Mapping[str, str], body: bytes | None = None) -> Any:
        """A request for another key, with other headers and another body, signed."""
        auth = await self.signer.get_auth(
            signing_name=self.service, region_name=self.region, signature_version=SIGNATURE_VERSION
        )
        credentials, url = auth.credentials, self.base_url + _encoded(key)
        payload = sha256(body or b"").hexdigest() if self.has_payload else UNSIGNED_PAYLOAD
        headers = {
            **self.headers,
            **headers,
            "X-Amz-Date": time.strftime(DATE_FORMAT, time.gmtime()),
            "X-Amz-Content-SHA256": payload,
        }
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
        to_sign = {name.lower(): value for name, value in headers.items() if name.lower() not in _UNSIGNED}
        to_sign["host"] = self.host
        value, signed = signature(self.request.method, url, to_sign, payload, credentials, self.region, self.service)
        scope = f"{headers['X-Amz-Date'][:8]}/{self.region}/{self.service}/aws4_request"
        headers["Authorization"] = (
            f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={signed}, Signature={value}"
        )
        if body is not None:
            headers["Content-Length"] = str(len(body))
        prepared = copy.copy(self.request)
        prepared.url, prepared.headers = url, HeadersDict(headers)
        prepared.body = None if body is None else BytesIO(body)
        return prepared


class _Record:
    """What the hooks see of one request on its way through botocore."""

    def __init__(self) -> None:
        self.signers: list[Any] = []
        self.sent: list[Any] = []
        self.session: Any = None

    async def template(self, key: str, body: bytes) -> Template | None:
        """A template of the request; None if it was sent several times or is more than the next ones could repeat."""
        if len(self.signers) != 1 or len(self.sent) != 1 or self.session is None:
            return None
        (signer,), (request,) = self.signers, self.sent
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        found = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        constant = {name: value for name, value in headers.items() if name not in _RENEWED}
        if found is None or "?" in request.url or not all(map(_CONSTANT.fullmatch, constant)):
            return None
        payload, region, service = headers.get("x-amz-content-sha256", ""), found["region"], found["service"]
        if payload not in (UNSIGNED_PAYLOAD, sha256(body).hexdigest()) or not request.url.endswith("/" + _encoded(key)):
            return None
        host = host_of(urlsplit(request.url))
        signed = {**headers, "host": host}
        names = found["headers"].split(";")
        auth = await signer.get_auth(signing_name=service, region_name=region, signature_version=SIGNATURE_VERSION)
        if auth.credentials is None or not signed.keys() >= {*names, "x-amz-date"}:
            return None
        to_sign = {name: signed[name] for name in names}
        made = signature(request.method, request.url, to_sign, payload, auth.credentials, region, service)
        if made[0] != found["signature"]:
            return None
        base_url = request.url.removesuffix(_encoded(key))
        has_payload = payload != UNSIGNED_PAYLOAD
        return Template(request, base_url, constant, host, region, service, has_payload, signer, self.session)


_record: ContextVar[_Record | None] = ContextVar("rollingfs_template_record", default=None)


class Templates:
    """The templates of one botocore client for one kind of request, and what is sent by them.

    Parameters
    ----------
    events
        The client's hooks (``client.meta.events``).
    operation
        As botocore names it.
    """

    def __init__(self, events: Any, operation: str) -> None:
        self._events = events
        self._operation = operation
        self._templates: OrderedDict[str, Template] = OrderedDict()
        for hook, handler in (("before-sign", _on_sign), ("before-send", _on_send), ("needs-retry", _on_answer)):
            events.register_first(f"{hook}.s3.{operation}", handler, unique_id=f"{HOOK_ID}-{operation}-{hook}")

    def of(self, bucket: str) -> Template | None:
        """The template for a bucket, if there is one yet."""
        template = self._templates.get(bucket)
        if template is not None:
            self._templates.move_to_end(bucket)
        return template

    async def learn(self, bucket: str, key: str, body: bytes, by_botocore: Callable[[], Awaitable[T]]) -> T:
        """Send a request through botocore, and keep a template of it."""
        record = _Record()
        token = _record.set(record)
        try:
            answer = await by_botocore()
        except ClientError as error:
            if status_of(error) in ORDINARY:
                await self._keep(bucket, key, body, record)
            raise
        finally:
            _record.reset(token)
        await self._keep(bucket, key, body, record)
        return answer

    async def _keep(self, bucket: str, key: str, body: bytes, record: _Record) -> None:
        template = await record.template(key, body)
        if template is not None:
            self._templates[bucket] = template
            if len(self._templates) > TEMPLATES_MAX:
                self._templates.popitem(last=False)

    async def send(
        self, bucket: str, template: Template, key: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Any:
        """Send a request by a template, once; returns the answer, whatever it is."""
        is_ordinary = False
        try:
            prepared = await template.prepared(key, headers, body)
            responses = await self._events.emit(f"before-send.s3.{self._operation}", request=prepared)
            answer = next((answer for _, answer in responses if answer is not None), None)
            if answer is None:
                answer = await template.session.send(prepared)
            is_ordinary = answer.status_code < 300 or answer.status_code in ORDINARY
        finally:
            if not is_ordinary and self._templates.get(bucket) is template:
                del self._templates[bucket]
        return answer

    def refusal(self, status: int, headers: Mapping[str, str], content: bytes) -> ClientError:
        """What botocore raises for an answer that is no success."""
        # S3 may begin to answer 200 before it knows better, and name an error in the body
        response = {"status_code": status if status >= 300 else 500, "headers": dict(headers), "body": content}
        return ClientError(create_parser("rest-xml").parse(response, None), self._operation)


def _encoded(key: str) -> str:
    """A key in a URL, as botocore writes it."""
    encoded: str = percent_encode(key, safe="/~")
    return encoded


def _on_sign(request_signer: Any, **_: object) -> None:
    if (record := _record.get()) is not None:
        record.signers.append(request_signer)


def _on_send(request: Any, **_: object) -> None:
    if (record := _record.get()) is not None:
        record.sent.append(request)


def _on_answer(endpoint: Any, **_: object) -> None:
    if (record := _record.get()) is not None:
        record.session = endpoint.http_session


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
