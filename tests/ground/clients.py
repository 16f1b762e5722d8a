"""Raw clients of object stores, a class a protocol: nothing of rollingfs sends these requests."""

import contextlib
import datetime
import functools
import http.client
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import unescape

from tests.support.servers import require_module

require_module("botocore")

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ANSWER_S_MAX = 20
NO_ANSWER = 0
"""The status where none came."""
ABSENT = ""
"""The condition that nothing is there; another text is the token that must be there."""
AZURE_VERSION = "2021-12-02"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    token: str
    """Without quotes."""
    body: bytes
    headers: Mapping[str, str]

    @property
    def is_done(self) -> bool:
        return 200 <= self.status < 300 and b"<Error>" not in self.body[:200]


class RefusedError(Exception):
    """A verb that only prepares a fact was refused."""


class Raw:
    """A connection of its own to a bucket, in the words of S3."""

    names: ClassVar = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
    dates: ClassVar = re.compile(rb"<LastModified>(.*?)</LastModified>")
    following: ClassVar = re.compile(rb"<NextContinuationToken>(.*?)</NextContinuationToken>", re.DOTALL)

    def __init__(self, options: dict[str, Any], bucket: str) -> None:
        self.options, self.bucket, self.url = options, bucket, self._url(options)
        self.connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=ANSWER_S_MAX)

    def _url(self, options: dict[str, Any]) -> str:
        return str(options["endpoint_url"])

    def close(self) -> None:
        self.connection.close()

    def _signed(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
        request = AWSRequest(method, url, data=body, headers=headers)
        S3SigV4Auth(Credentials(self.options["key"], self.options["secret"]), "s3", "us-east-1").add_auth(request)
        return url, dict(request.headers)

    def _token(self, headers: Mapping[str, str], body: bytes) -> str:
        return headers.get("etag", "").strip('"')

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        url, signed = self._signed(method, self.url + path, body, dict(headers or {}))
        parts = urlsplit(url)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before the end
                self.connection.request(method, f"{parts.path}?{parts.query}".rstrip("?"), body, signed)
            answer = self.connection.getresponse()
        except (OSError, http.client.HTTPException):
            self.close()
            return Answer(NO_ANSWER, "", b"", {})
        named = {name.lower(): value for name, value in answer.getheaders()}
        try:
            data = answer.read()
        except http.client.IncompleteRead as error:  # it ended early
            self.close()
            data = error.partial
        except (OSError, http.client.HTTPException):
            self.close()
            return Answer(NO_ANSWER, "", b"", {})
        if answer.status >= 400 or not answer.isclosed():
            self.close()  # some end the connection after a refusal
        return Answer(answer.status, self._token(named, data), data, named)

    def open(self) -> None:
        """Connect, unless that is done."""
        if self.connection.sock is None:
            self.connection.connect()

    def path(self, key: str, **query: str) -> str:
        return f"/{self.bucket}/{quote(key, safe='/~')}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")

    def _condition(self, token: str | None) -> dict[str, str]:
        return {} if token is None else {"If-None-Match": "*"} if token == ABSENT else {"If-Match": f'"{token}"'}

    def put(self, key: str, body: bytes, token: str | None = None) -> Answer:
        return self.send("PUT", self.path(key), body, self._condition(token))

    def get(self, key: str, span: str = "") -> Answer:
        return self.send("GET", self.path(key), headers={"Range": span} if span else {})

    def delete(self, key: str, token: str) -> Answer:
        return self.send("DELETE", self.path(key), headers=self._condition(token))

    def completion(self, key: str, body: bytes) -> Callable[[], Answer]:
        """Upload a file in parts; what is returned makes the file of them, on condition that it is not there."""
        begun = self.send("POST", self.path(key, uploads=""))
        found = re.search(rb"<UploadId>(.*?)</UploadId>", begun.body)
        if found is None:
            raise RefusedError(begun.status)
        upload = unescape(found[1].decode())
        part = self.send("PUT", self.path(key, partNumber="1", uploadId=upload), body)
        parts = f"<Part><PartNumber>1</PartNumber><ETag>{part.token}</ETag></Part>"
        text = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        return lambda: self.send("POST", self.path(key, uploadId=upload), text, self._condition(ABSENT))

    def copy(self, source: str, key: str) -> Answer:
        """Copy on the server, on condition that nothing is there."""
        of = {"x-amz-copy-source": f"/{self.bucket}/{quote(source)}"}
        return self.send("PUT", self.path(key), headers=of | self._condition(ABSENT))

    def page(self, prefix: str, count: int, after: str = "") -> tuple[list[str], list[str], str]:
        """A page of a listing: the names, the dates, and what the next page begins with."""
        more = {"continuation-token": after} if after else {}
        query = urlencode({"list-type": "2", "prefix": prefix, "max-keys": str(count)} | more, quote_via=quote)
        return self._listed(self.send("GET", f"/{self.bucket}?{query}").body)

    def _listed(self, body: bytes) -> tuple[list[str], list[str], str]:
        names = [unescape(one.decode()) for one in self.names.findall(body)]
        following = self.following.search(body)
        after = unescape(following[1].decode()) if following else ""
        return names, [one.decode() for one in self.dates.findall(body)], after


class RawAzure(Raw):
    """Azure's words, signed by a SAS."""

    names: ClassVar = re.compile(rb"<Blob><Name>(.*?)</Name>", re.DOTALL)
    dates: ClassVar = re.compile(rb"<Last-Modified>(.*?)</Last-Modified>")
    following: ClassVar = re.compile(rb"<NextMarker>(.*?)</NextMarker>", re.DOTALL)

    def _url(self, options: dict[str, Any]) -> str:
        self.account = dict(part.split("=", 1) for part in options["connection_string"].split(";"))
        return self.account["BlobEndpoint"]

    @functools.cached_property
    def sas(self) -> str:
        from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        rights = ResourceTypes(service=True, container=True, object=True), AccountSasPermissions.from_string("rwdlac")
        return str(generate_account_sas(self.account["AccountName"], self.account["AccountKey"], *rights, until))

    def _signed(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
        blob = {"x-ms-blob-type": "BlockBlob"} if method == "PUT" else {}
        return url + ("&" if "?" in url else "?") + self.sas, {"x-ms-version": AZURE_VERSION} | blob | headers

    def completion(self, key: str, body: bytes) -> Callable[[], Answer]:
        block = "AAAAAAAA"  # in Base64
        if not (begun := self.send("PUT", self.path(key, comp="block", blockid=block), body)).is_done:
            raise RefusedError(begun.status)
        text = f"<BlockList><Latest>{block}</Latest></BlockList>".encode()
        return lambda: self.send("PUT", self.path(key, comp="blocklist"), text, self._condition(ABSENT))

    def copy(self, source: str, key: str) -> Answer:
        of = {"x-ms-copy-source": f"{self.url}{self.path(source)}?{self.sas}"}
        return self.send("PUT", self.path(key), headers=of | self._condition(ABSENT))

    def page(self, prefix: str, count: int, after: str = "") -> tuple[list[str], list[str], str]:
        query = {"restype": "container", "comp": "list", "prefix": prefix, "maxresults": str(count), "marker": after}
        return self._listed(self.send("GET", f"/{self.bucket}?{urlencode(query, quote_via=quote)}").body)


class RawGoogle(Raw):
    """Google's words, without a signature. The token is the generation."""

    def _signed(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
        return url, {"Content-Type": "application/json"} | headers

    def _token(self, headers: Mapping[str, str], body: bytes) -> str:
        with contextlib.suppress(ValueError, AttributeError):
            made = json.loads(body)
            return str(made.get("generation") or made.get("resource", {}).get("generation", ""))
        return headers.get("x-goog-generation", "")

    def path(self, key: str, **query: str) -> str:
        there = f"/storage/v1/b/{self.bucket}/o/{quote(key, safe='')}"
        return there + (f"?{urlencode(query)}" if query else "")

    def _matched(self, token: str | None) -> dict[str, str]:
        return {} if token is None else {"ifGenerationMatch": token or "0"}

    def put(self, key: str, body: bytes, token: str | None = None) -> Answer:
        query = urlencode({"uploadType": "media", "name": key} | self._matched(token))
        content = {"Content-Type": "application/octet-stream"}
        return self.send("POST", f"/upload/storage/v1/b/{self.bucket}/o?{query}", body, content)

    def get(self, key: str, span: str = "") -> Answer:
        return self.send("GET", self.path(key, alt="media"), headers={"Range": span} if span else {})

    def delete(self, key: str, token: str) -> Answer:
        return self.send("DELETE", self.path(key, **self._matched(token)))

    def completion(self, key: str, body: bytes) -> Callable[[], Answer]:
        """Google composes files of others."""
        part = f"{key}-part-{id(self)}"
        self.put(part, body)
        text = json.dumps({"sourceObjects": [{"name": part}], "destination": {}}).encode()
        there = f"{self.path(key)}/compose?ifGenerationMatch=0"
        return lambda: self.send("POST", there, text)

    def copy(self, source: str, key: str) -> Answer:
        there = f"/b/{self.bucket}/o/{quote(key, safe='')}?ifGenerationMatch=0"
        return self.send("POST", f"{self.path(source)}/rewriteTo{there}", b"{}")

    def page(self, prefix: str, count: int, after: str = "") -> tuple[list[str], list[str], str]:
        query = {"prefix": prefix, "maxResults": str(count)} | ({"pageToken": after} if after else {})
        found = json.loads(self.send("GET", f"/storage/v1/b/{self.bucket}/o?{urlencode(query)}").body)
        items = found.get("items") or []
        return [item["name"] for item in items], [item["updated"] for item in items], found.get("nextPageToken", "")


CLIENTS: dict[str, type[Raw]] = {"s3": Raw, "az": RawAzure, "gs": RawGoogle}
