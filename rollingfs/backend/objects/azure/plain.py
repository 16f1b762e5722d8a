"""The two requests that obstore has not: a DELETE on a condition, by a signed URL, and the store's clock."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from rollingfs.backend.objects.errors import Refusal

CONNECT_S_MAX = 5.0
ANSWER_S_MAX = 15.0


class PlainRequests:
    """Requests without a body to one store, which need no signature of their own.

    Parameters
    ----------
    client
        The options of obstore's client: how to reach and trust the store.
    """

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._proxy = client.get("proxy_url")
        self._trust: ssl.SSLContext | bool = True
        if str(client.get("allow_invalid_certificates", False)).lower() == "true":
            self._trust = False
        elif client.get("root_certificate"):
            self._trust = ssl.create_default_context()
            self._trust.load_verify_locations(cadata=_text(client["root_certificate"]))

    async def delete(self, url: str, token: str) -> None:
        """DELETE what a signed URL names, if it has a token.

        Raises
        ------
        Refusal
            The store did not do it.
        """
        status, headers = await self._send("DELETE", url, {"If-Match": token})
        if status >= 300:
            code = headers.get("x-ms-error-code", str(status))
            raise Refusal(status, code, "the file was not deleted")

    async def now(self, url: str) -> float:
        """The date of any answer, in seconds since 1970; even a refusal has one."""
        _, headers = await self._send("HEAD", url, {})
        if "Date" not in headers:
            raise ConnectionError("the store's answer has no date, so its clock is not known")
        return parsedate_to_datetime(headers["Date"]).timestamp()

    async def _send(self, method: str, url: str, headers: dict[str, str]) -> tuple[int, Mapping[str, str]]:
        import yarl

        limits = aiohttp.ClientTimeout(connect=CONNECT_S_MAX, total=ANSWER_S_MAX)
        try:
            async with (
                aiohttp.ClientSession(timeout=limits, trust_env=True) as session,
                session.request(
                    method,
                    yarl.URL(url, encoded=True),
                    headers=headers,
                    proxy=self._proxy,
                    ssl=self._trust,
                    allow_redirects=False,  # a DELETE would become a GET
                ) as answer,
            ):
                return answer.status, answer.headers
        except aiohttp.ClientError as error:
            raise ConnectionError(f"no answer came from the store: {type(error).__name__}") from None


def _text(certificate: str | bytes) -> str:
    return certificate if isinstance(certificate, str) else certificate.decode()
