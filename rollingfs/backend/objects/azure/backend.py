"""An account of Azure, through obstore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from obstore.store import AzureStore

from rollingfs.backend.objects.azure.bucket import AzureContainer
from rollingfs.backend.objects.azure.options import AzureAccount
from rollingfs.backend.objects.azure.plain import PlainRequests
from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.bucket import RecentBuckets
from rollingfs.backend.objects.clouds import names_of
from rollingfs.backend.objects.errors import Refusal
from rollingfs.backend.objects.obstores.objects import Store, store_of
from rollingfs.backend.objects.obstores.requests import CONNECT_S_MAX, Places, can_name

CONNECTIONS_MAX = 64


class AzureBackend(ObjectBackend):
    """An account of Azure.

    Parameters
    ----------
    find_loop
        Finds the event loop on which requests must run; None if that is the caller's. Asked again after a fork.
    """

    schemes = names_of("az")
    copies_between = False

    def __init__(
        self, scheme: str, account: AzureAccount, find_loop: Callable[[], Any], max_concurrency: int | None = None
    ) -> None:
        self._account = account
        self.scheme = scheme
        can_delete_if = account.can_sign or bool(account.sas)
        self.capability = replace(self.capability.limited(max_concurrency), can_delete_if=can_delete_if)
        self.buckets: RecentBuckets[AzureContainer] = RecentBuckets(self._container)
        self._places = Places(CONNECTIONS_MAX)
        self._plain = PlainRequests(account)
        self._find_loop = find_loop
        self.loop = find_loop()

    def _container(self, name: str) -> AzureContainer:
        return AzureContainer(name, partial(self._store, name), self._places, self._plain)

    def _store(self, name: str, client: dict[str, Any], patience_s: float) -> Store:
        account = self._account
        limits = {"connect_timeout": timedelta(seconds=CONNECT_S_MAX), **client, **account.client}
        return store_of(AzureStore, name, account.config, limits, patience_s, account.credentials)

    async def list_buckets(self) -> Sequence[str]:
        raise Refusal(400, "NotPossible", "obstore cannot list containers: name one")

    async def make_bucket(self, name: str) -> None:
        text = f"there is no container {name!r}, and obstore cannot make one: make it first"
        raise Refusal(400, "NotPossible", text)

    async def remove_bucket(self, name: str) -> None:
        raise Refusal(400, "NotPossible", "obstore cannot remove containers; it is empty, and still there")

    async def bucket_name(self, bucket: str) -> str:
        return f"{self._account.url}/{bucket}"

    def strip(self, path: str) -> str:
        first, slash, key = super().strip(path).partition("/")
        container, at, host = first.partition("@")
        account, asked = self._account.config.get("account_name"), host.partition(".")[0]
        if at and asked != account:
            raise ValueError(f"the URL names the account {asked!r} of Azure, but this filesystem is for {account!r}")
        return f"{container}{slash}{key}"

    def check_key(self, key: str) -> str:
        if not can_name(key):
            return "obstore has no names with empty parts, '.', '..' or control characters"
        return "Azure takes a backslash for a slash" if "\\" in key else ""

    def after_fork(self) -> None:
        self.buckets.clear()  # a call says that obstore cannot be used here
        self.loop = self._find_loop()
