"""Options of an account of Azure, named as adlfs names them, as options of obstore."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import Any

from rollingfs.runtime.values import cached, value_class

OPTIONS = frozenset(
    {
        "account_host",
        "account_key",
        "account_name",
        "anon",
        "client_id",
        "client_secret",
        "connection_string",
        "credential",
        "sas_token",
        "tenant_id",
    }
)
SCOPE = "https://storage.azure.com/.default"
HOST = "blob.core.windows.net"
_ENVIRONMENT = {name: f"AZURE_STORAGE_{name.upper()}" for name in OPTIONS - {"anon", "credential", "account_host"}}
_SERVICE_PRINCIPAL = ("client_id", "client_secret", "tenant_id")
_PROOFS = frozenset({"account_key", "credential", "sas_token", *_SERVICE_PRINCIPAL})
_PLACES = frozenset({"account_name", "endpoint", "protocol", "suffix"})
_OF_CONNECTION_STRING = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_token",
    "blobendpoint": "endpoint",
    "defaultendpointsprotocol": "protocol",
    "endpointsuffix": "suffix",
}
_OF_OTHER_SERVICES = ("queueendpoint", "tableendpoint", "fileendpoint", "secondaryendpoint")


@value_class(slots=False)
class AzureAccount:
    """An account, as obstore is to be configured for it."""

    url: str
    """Its address, which distinguishes it from other accounts."""
    config: dict[str, Any] = field(repr=False)
    client: dict[str, Any] = field(default_factory=dict, repr=False)
    credentials: Callable[[], Any] | None = field(default=None, repr=False)
    """Source of tokens for obstore."""

    @property
    def sas(self) -> str:
        """Return the signature that every URL carries; "" if it is missing."""
        return str(self.config.get("sas_key", ""))

    @cached
    def trust(self) -> ssl.SSLContext | bool:
        """Return the certificates that aiohttp trusts."""
        if str(self.client.get("allow_invalid_certificates", False)).lower() == "true":
            return False
        certificate = self.client.get("root_certificate")
        if not certificate:
            return True
        trust = ssl.create_default_context()
        trust.load_verify_locations(cadata=certificate if isinstance(certificate, str) else certificate.decode())
        return trust

    @property
    def can_sign(self) -> bool:
        """Return whether obstore signs URLs with these credentials, without a request."""
        is_signed = str(self.config.get("skip_signature", "false")).lower() != "true" and self.credentials is None
        return is_signed and "account_key" in self.config


_EMULATOR = "UseDevelopmentStorage"


def azure_options(given: Mapping[str, Any], environment: Mapping[str, str]) -> AzureAccount:
    """Return options of obstore for options of adlfs; without credentials, anonymous, unless ``anon=False``.

    All settings that obstore would look up in the environment are given, so that it cannot mix accounts.

    Raises
    ------
    ValueError
        An option contradicts another, lacks another, or cannot be expressed. The message has the name, not the value.
    """
    options = {name: value for name, value in given.items() if value is not None}
    found = options | _from_connection_string(options.get("connection_string"))
    in_environment = {name: environment[key] for name, key in _ENVIRONMENT.items() if environment.get(key)}
    in_environment |= _from_connection_string(in_environment.get("connection_string"))
    if not found.keys() & {"account_name", "endpoint", "account_host"}:
        found = {name: in_environment[name] for name in _PLACES if name in in_environment} | found
    if not found.keys() & _PROOFS and found.get("anon") is not True:
        found = {name: in_environment[name] for name in _PROOFS if name in in_environment} | found
    account = found.get("account_name")
    endpoint = _endpoint(found)
    if not account:
        raise ValueError("Azure needs account_name, or a connection_string that has AccountName=")
    config = {"account_name": account, "endpoint": endpoint, "use_emulator": "false", "use_fabric_endpoint": "false"}
    credential = found.get("credential")
    tokens = None if credential is None else _tokens(credential)
    client = {"allow_http": True} if endpoint.startswith("http://") else {}
    return AzureAccount(endpoint, config | _credentials(found), client, tokens)


def _tokens(credential: Any) -> Callable[[], Any]:
    """Return the source of tokens for obstore, from an object of azure-identity."""

    async def token() -> dict[str, Any]:
        if inspect.iscoroutinefunction(credential.get_token):
            found = await credential.get_token(SCOPE)
        else:
            found = await asyncio.to_thread(credential.get_token, SCOPE)
        return {"token": found.token, "expires_at": datetime.fromtimestamp(found.expires_on, UTC)}

    return token


def _endpoint(found: Mapping[str, Any]) -> str:
    if found.get("endpoint"):
        return str(found["endpoint"]).rstrip("/")
    if found.get("account_host"):
        return f"https://{found['account_host']}".rstrip("/")
    suffix = found.get("suffix")
    host = f"{found.get('account_name')}.{f'blob.{suffix}' if suffix else HOST}"
    return f"{found.get('protocol', 'https')}://{host}"


def _credentials(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the only kind of credentials that obstore gets."""
    principal = [name for name in _SERVICE_PRINCIPAL if found.get(name)]
    given = {name for name in ("account_key", "sas_token", "credential") if found.get(name) is not None}
    if principal and len(principal) < len(_SERVICE_PRINCIPAL):
        missing = [name for name in _SERVICE_PRINCIPAL if name not in principal]
        raise ValueError(f"Azure's {principal[0]} needs {' and '.join(missing)} as well")
    ways = sorted(given | ({"client_secret"} if principal else set()))
    if len(ways) > 1:
        raise ValueError(
            f"Azure needs one kind of credentials, but {' and '.join(ways)} are given: leave out all but one"
        )
    if not ways:
        if found.get("anon", True):
            return {"skip_signature": "true"}
        return {"skip_signature": "false"}  # obstore asks the machine for a managed identity
    said = {"skip_signature": "false"}
    if ways == ["account_key"]:
        return said | {"account_key": str(found["account_key"]), "credential_type": "access_key"}
    if ways == ["sas_token"]:
        return said | {"sas_key": str(found["sas_token"]).removeprefix("?"), "credential_type": "sas_token"}
    if ways == ["credential"]:
        if not hasattr(found["credential"], "get_token"):
            raise ValueError("Azure's option credential must be an object with get_token; give a key as account_key")
        return said
    return said | {name: str(found[name]) for name in _SERVICE_PRINCIPAL} | {"credential_type": "client_secret"}


def _from_connection_string(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    found: dict[str, str] = {}
    for position, pair in enumerate(filter(None, text.strip().split(";")), start=1):
        name, _, value = pair.partition("=")
        known = _OF_CONNECTION_STRING.get(name.strip().lower())
        if known is not None:
            found[known] = value
        elif not name.strip().lower().endswith(_OF_OTHER_SERVICES):
            # neither its name nor its value: where a separator is missing, the one is the other, and may be a secret
            shown = f" ({_EMULATOR})" if name.strip() == _EMULATOR else ""
            raise ValueError(
                f"part {position}{shown} of Azure's connection_string is a setting that cannot be expressed"
            )
    return found
