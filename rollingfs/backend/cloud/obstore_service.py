"""An account of Azure, or of S3, through obstore."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, S3Store

from rollingfs.backend.cloud.container import Container
from rollingfs.backend.cloud.obstore_container import ObstoreContainer, Store
from rollingfs.backend.cloud.plain import PlainRequests
from rollingfs.backend.cloud.protocols import AZURE_PROTOCOLS, S3_PROTOCOLS
from rollingfs.backend.obstores.answers import Refusal, from_obstore
from rollingfs.backend.obstores.requests import Places, can_name

CONNECTIONS_MAX = 64
CONTAINERS_MAX = 64
"""Containers whose idle connections are kept."""
SIGNED_S = 300
"""How long the signature of a conditional DELETE holds."""


@dataclass(frozen=True)
class Account:
    """An account, as obstore is to be configured for it."""

    kind: type[AzureStore] | type[S3Store]
    scheme: str
    name: str
    """What tells it from other accounts."""
    url: str
    """Where it answers."""
    config: dict[str, Any] = field(repr=False)
    client: dict[str, Any] = field(default_factory=dict, repr=False)
    credentials: Callable[[], Any] | None = field(default=None, repr=False)
    sas: str = field(default="", repr=False)
    """The signature that every URL carries."""
    can_sign: bool = False
    """Whether obstore signs URLs with these credentials, without a request."""


class ObstoreService:
    """An account, through obstore."""

    commit_interval_s = 0.0

    def __init__(self, account: Account) -> None:
        self._account = account
        self.scheme = account.scheme
        self.schemes = AZURE_PROTOCOLS if account.kind is AzureStore else S3_PROTOCOLS
        self.account = account.name
        self._is_azure = account.kind is AzureStore
        self.date_step_s = 0.0 if self._is_azure else 1.0  # an ETag of S3 is a hash of the bytes
        self.can_delete_if = account.can_sign or bool(account.sas)
        self._containers: OrderedDict[str, Container] = OrderedDict()
        self._places = Places(CONNECTIONS_MAX)
        self._plain = PlainRequests(account.client)

    def container(self, name: str) -> Container:
        container = self._containers.get(name)
        if container is None:
            now = partial(self._plain.now, self._account.url)
            container = ObstoreContainer(partial(self._store, name), self._places, self._delete_if, now)
            self._containers[name] = container
            if len(self._containers) > CONTAINERS_MAX:
                self._containers.popitem(last=False)
        self._containers.move_to_end(name)
        return container

    def _store(self, name: str, client: dict[str, Any], retries: dict[str, Any]) -> Store:
        make: Any = self._account.kind
        try:
            return make(
                name,
                config=self._account.config,
                client_options={**client, **self._account.client},
                retry_config=retries,
                credential_provider=self._account.credentials,
            )
        except (BaseError, ValueError):
            # the text of obstore's error may show a secret
            raise Refusal(400, "InvalidOptions", f"obstore refuses the options of {self.account!r}") from None

    async def _delete_if(self, store: Store, key: str, token: str) -> None:
        if self._account.sas:
            container = store.config["container_name"]
            url = f"{self._account.url}/{container}/{quote(key)}?{self._account.sas}"
        else:
            try:
                url = obstore.sign(store, "DELETE", key, timedelta(seconds=SIGNED_S))
            except BaseError as error:
                raise from_obstore(error) from None
        await self._plain.delete(url, token)

    async def containers(self) -> Sequence[str]:
        raise Refusal(400, "NotPossible", "obstore cannot list containers: name one")

    async def make_container(self, name: str) -> None:
        if not await self._exists(name):
            raise Refusal(
                400, "NotPossible", f"there is no container {name!r}, and obstore cannot make one: make it first"
            )

    async def _exists(self, name: str) -> bool:
        try:
            return await self.container(name).has_any("")
        except Refusal as error:
            if error.status == 404:
                return False
            raise

    async def remove_container(self, name: str) -> None:
        raise Refusal(400, "NotPossible", "obstore cannot remove containers; it is empty, and still there")

    def container_name(self, first: str) -> str:
        container, at, host = first.partition("@")
        if not at or not self._is_azure:
            return first
        account, asked = self._account.config.get("account_name"), host.partition(".")[0]
        if asked != account:
            raise ValueError(f"the URL names the account {asked!r} of Azure, but this filesystem is for {account!r}")
        return container

    def check_key(self, key: str) -> str:
        if not can_name(key):
            return "obstore has no names with empty parts, '.', '..' or control characters"
        return "Azure takes a backslash for a slash" if self._is_azure and "\\" in key else ""

    def after_fork(self) -> None:
        self._containers.clear()  # a call says that obstore cannot be used here
