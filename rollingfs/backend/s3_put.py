"""PutObject of the same key again and again, as headers are replaced: without what botocore does anew for each.

To make a request, botocore runs validation, endpoint rules, serialisation and some thirty hooks, and parses an answer
that has no body: most of the CPU time of a small append, for the same URL and headers every time. So the first PUT of
a key goes through botocore, which leaves a template of what it sent; the next ones are made of that. They are signed
here, with botocore's credentials as they are then (which renews them), pass the hooks of `before-send`, and leave
through the same connections.

A template is only taken of a request that differs in nothing but body, condition and signature from the next one:
`_CONSTANT` names all headers that may be in it, and its signature must be what is computed here for it. Checksums of
the body, sessions of S3 Express, other signatures and none, and whatever else is unknown here stay with botocore. An
answer that is neither success nor a lost race (a redirect to another region, expired credentials, none) removes the
template: botocore knows what to make of it.
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
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import HeadersDict
from botocore.exceptions import ClientError
from botocore.parsers import create_parser

from rollingfs.backend.s3_receive import host_of

TEMPLATES_MAX = 1024
"""Keys whose templates are kept, for one botocore client: a few KB each."""
HOOK_ID = "rollingfs-put"
ALGORITHM = "AWS4-HMAC-SHA256"
SIGNATURE_VERSION = "s3v4"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
DATE_FORMAT = "%Y%m%dT%H%M%SZ"

_LOST_RACE = frozenset({409, 412})
_RENEWED = frozenset(
    {
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "authorization",
        "content-length",
        "expect",
        "if-match",
        "if-none-match",
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
"""Headers that are the same in all PUTs of a key: what the user asked for."""
_UNSIGNED = frozenset({"content-length", "user-agent"})
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} Credential=(?P<id>[^,]+)/(?P<day>[0-9]{{8}})/(?P<region>[^/,]+)/(?P<service>[^/,]+)/aws4_request, "
    r"SignedHeaders=(?P<headers>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)


def signature(
    url: str, headers: Mapping[str, str], payload: str, credentials: Any, region: str, service: str
) -> tuple[str, str]:
    """The signature (version 4) of a PUT, and the names of the headers that it covers.

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
    request = f"PUT\n{urlsplit(url).path}\n\n{lines}\n{signed}\n{payload}"
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    text = f"{ALGORITHM}\n{date}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex(), signed


@dataclass(frozen=True, slots=True)
class _Template:
    """What all PUTs of a key have in common."""

    request: Any
    """As botocore sent it, prepared."""
    headers: Mapping[str, str]
    host: str
    region: str
    service: str
    has_payload: bool
    """Whether the signature covers the body."""
    signer: Any
    session: Any
    """What sends a prepared request."""

    async def prepared(self, body: bytes, condition: Mapping[str, str]) -> Any:
        """A request for other bytes on another condition, signed."""
        auth = await self.signer.get_auth(
            signing_name=self.service, region_name=self.region, signature_version=SIGNATURE_VERSION
        )
        credentials = auth.credentials
        payload = sha256(body).hexdigest() if self.has_payload else UNSIGNED_PAYLOAD
        headers = {
            **self.headers,
            **condition,
            "X-Amz-Date": time.strftime(DATE_FORMAT, time.gmtime()),
            "X-Amz-Content-SHA256": payload,
        }
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
        to_sign = {name.lower(): value for name, value in headers.items() if name.lower() not in _UNSIGNED}
        to_sign["host"] = self.host
        value, signed = signature(self.request.url, to_sign, payload, credentials, self.region, self.service)
        scope = f"{headers['X-Amz-Date'][:8]}/{self.region}/{self.service}/aws4_request"
        headers["Authorization"] = (
            f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={signed}, Signature={value}"
        )
        headers["Content-Length"] = str(len(body))
        prepared = copy.copy(self.request)
        prepared.headers, prepared.body = HeadersDict(headers), BytesIO(body)
        return prepared


class _Record:
    """What the hooks see of one request on its way through botocore."""

    def __init__(self) -> None:
        self.signers: list[Any] = []
        self.sent: list[Any] = []
        self.session: Any = None

    async def template(self, body: bytes) -> _Template | None:
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
        if payload not in (UNSIGNED_PAYLOAD, sha256(body).hexdigest()):
            return None
        host = host_of(urlsplit(request.url))
        signed = {**headers, "host": host}
        names = found["headers"].split(";")
        auth = await signer.get_auth(signing_name=service, region_name=region, signature_version=SIGNATURE_VERSION)
        if auth.credentials is None or not signed.keys() >= {*names, "x-amz-date"}:
            return None
        to_sign = {name: signed[name] for name in names}
        if signature(request.url, to_sign, payload, auth.credentials, region, service)[0] != found["signature"]:
            return None
        return _Template(request, constant, host, region, service, payload != UNSIGNED_PAYLOAD, signer, self.session)


_record: ContextVar[_Record | None] = ContextVar("rollingfs_put_record", default=None)


class Puts:
    """The PUTs of one botocore client.

    Parameters
    ----------
    events
        The client's hooks (``client.meta.events``).
    """

    def __init__(self, events: Any) -> None:
        self._events = events
        self._templates: OrderedDict[str, _Template] = OrderedDict()
        for hook, handler in (("before-sign", _on_sign), ("before-send", _on_send), ("needs-retry", _on_answer)):
            events.register_first(f"{hook}.s3.PutObject", handler, unique_id=f"{HOOK_ID}-{hook}")

    async def put(
        self, path: str, body: bytes, condition: Mapping[str, str], by_botocore: Callable[[], Awaitable[dict[str, Any]]]
    ) -> str:
        """Send one PutObject, once; returns the ETag.

        Parameters
        ----------
        path
            Bucket and key: what templates are kept by.
        condition
            ``If-Match`` or ``If-None-Match``.
        by_botocore
            Sends the same through botocore.

        Raises
        ------
        BotoCoreError, ClientError
            As botocore does.
        """
        template = self._templates.pop(path, None)
        if template is not None:
            return await self._repeat(path, template, body, condition)
        record = _Record()
        token = _record.set(record)
        try:
            answer = await by_botocore()
        finally:
            _record.reset(token)
        template = await record.template(body)
        if template is not None:
            self._keep(path, template)
        return str(answer["ETag"])

    def _keep(self, path: str, template: _Template) -> None:
        self._templates[path] = template
        if len(self._templates) > TEMPLATES_MAX:
            self._templates.popitem(last=False)

    async def _repeat(self, path: str, template: _Template, body: bytes, condition: Mapping[str, str]) -> str:
        prepared = await template.prepared(body, condition)
        responses = await self._events.emit("before-send.s3.PutObject", request=prepared)
        answer = next((answer for _, answer in responses if answer is not None), None)
        if answer is None:
            answer = await template.session.send(prepared)
        content = await answer.content
        is_done = answer.status_code == 200 and not content and "etag" in answer.headers
        if is_done or answer.status_code in _LOST_RACE:
            self._keep(path, template)
        if is_done:
            return str(answer.headers["etag"])
        raise _refusal(answer.status_code, dict(answer.headers), content)


def _refusal(status: int, headers: dict[str, str], content: bytes) -> ClientError:
    # S3 may begin to answer 200 before it knows better, and name an error in the body
    response = {"status_code": status if status >= 300 else 500, "headers": headers, "body": content}
    return ClientError(create_parser("rest-xml").parse(response, None), "PutObject")


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
