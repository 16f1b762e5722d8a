"""The two requests that obstore has not: a DELETE on a condition, by a signed URL, and the store's clock."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

import aiohttp

from rollingfs.backend.objects.azure.options import AzureAccount
from rollingfs.backend.objects.errors import Refusal, date_of
from rollingfs.backend.objects.obstores.objects import Store
from rollingfs.backend.objects.obstores.requests import CONNECT_S_MAX, READ_S_MAX

SIGNATURE_VERSION = "2018-11-09"
SIGNED_S = 300
"""Validity of the signature of a conditional DELETE."""


class PlainRequests:
    """Requests without a body to an account, which need no signature of their own.

    Without a signature that every URL carries, a conditional DELETE gets a signature of its own.
    """

    def __init__(self, account: AzureAccount) -> None:
        self._url = account.url
        self._sas, self._config = account.sas, account.config
        client = account.client
        self._proxy = client.get("proxy_url")
        self._trust: ssl.SSLContext | bool = True
        if str(client.get("allow_invalid_certificates", False)).lower() == "true":
            self._trust = False
        elif client.get("root_certificate"):
            self._trust = ssl.create_default_context()
            certificate = client["root_certificate"]
            text = certificate if isinstance(certificate, str) else certificate.decode()
            self._trust.load_verify_locations(cadata=text)

    async def delete(self, store: Store, key: str, token: str) -> None:
        """Delete a file if it has a token.

        Raises
        ------
        Refusal
            The store did not do it.
        """
        container = store.config["container_name"]
        url = f"{self._url}/{container}/{quote(key)}?{self._sas or self._signature(container, key)}"
        status, headers = await self._send("DELETE", url, {"If-Match": token})
        if status >= 300:
            code = headers.get("x-ms-error-code", str(status))
            raise Refusal(status, code, "the file was not deleted")

    def _signature(self, container: str, key: str) -> str:
        """Return the right to delete one file, signed by the account's key; obstore 0.12 signs the name in its URL."""
        until = (datetime.now(UTC) + timedelta(seconds=SIGNED_S)).strftime("%Y-%m-%dT%H:%M:%SZ")
        given = {"sp": "d", "se": until, "sv": SIGNATURE_VERSION, "sr": "b"}
        name = f"/blob/{self._config['account_name']}/{container}/{key}"
        fields = ["d", "", until, name, "", "", "", SIGNATURE_VERSION, "b", *[""] * 6]
        secret = base64.b64decode(self._config["account_key"])
        signed = hmac.digest(secret, "\n".join(fields).encode(), hashlib.sha256)
        return urlencode(given | {"sig": base64.b64encode(signed).decode()})

    async def now(self) -> float:
        """Return the date of any answer, in seconds since 1970; even a refusal has a date."""
        return date_of((await self._send("HEAD", self._url, {}))[1])

    async def _send(self, method: str, url: str, headers: dict[str, str]) -> tuple[int, Mapping[str, str]]:
        import yarl

        limits = aiohttp.ClientTimeout(connect=CONNECT_S_MAX, total=READ_S_MAX)
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
