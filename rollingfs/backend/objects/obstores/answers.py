"""Meanings of obstore's errors. Only their texts have statuses and codes; only this module reads these."""

from __future__ import annotations

import html
import re

from rollingfs.backend.objects.errors import Refusal, UntrustedStoreError

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
_SYSTEMS_MESSAGE = re.compile(r'message: "([^"]+)"')
_MISTRUST = re.compile(r"InvalidCertificate\(([\w\s(]+)")


def from_obstore(error: Exception) -> Refusal | UntrustedStoreError | TimeoutError | ConnectionError:
    """Return the meaning of an error of obstore.

    The result has no other part of the text, which shows all that obstore knows of the request.
    """
    said, _, shown = str(error).partition("\n\nDebug source:")
    answer = _STATUS.search(said)
    if answer is not None:
        body = said[answer.end() :]
        code, message = _CODE.search(body), _MESSAGE.search(body)
        return Refusal(
            int(answer["status"]),
            code[1] if code else answer["status"],
            _line(html.unescape(message[1])) if message else answer["reason"],
        )
    answer = _STATUS_OF_BULK_DELETE.search(said)
    if answer is not None:
        return Refusal(int(answer["status"]), answer["status"], answer["reason"])
    if _BEYOND.search(said):  # an answer of no bytes, as azurite gives right at the end
        return Refusal(416, "InvalidRange", "the file ends before this range")
    if _NAME.search(said):
        return Refusal(400, "InvalidName", "among the files there is a name that obstore cannot read, as with //")
    if _REDIRECT in said:
        return Refusal(301, "PermanentRedirect", "the bucket lies elsewhere")
    mistrust = _MISTRUST.search(shown)
    if mistrust is not None:
        return UntrustedStoreError(f"the store's certificate cannot be trusted: {mistrust[1].split('(')[-1].strip()}")
    named, system = _STORE.search(said), _SYSTEMS_MESSAGE.search(shown)
    store = "".join(named.groups()) if named else "the store"
    if "kind: Timeout" in shown or "TimedOut" in shown:
        return TimeoutError(f"{store} did not answer in time")
    did = "could not connect to" if "kind: Connect" in shown else "no whole answer came from"
    return ConnectionError(f"{did} {store}{f': {system[1]}' if system else ''}")


def _line(message: str) -> str:
    """Return the text of a store, in a line, without Azure's id and time."""
    return message.strip().partition("\n")[0].rstrip()


def is_unread(error: Exception) -> bool:
    """Return whether obstore failed at a file that other clients can read.

    It has an unknown length, or was sent whole for a range.
    """
    return any(text in str(error) for text in _UNREAD)


def is_without_credentials(error: Exception) -> bool:
    """Return whether obstore sent no request for want of credentials."""
    return "credential provider" in str(error).partition("\n")[0]
