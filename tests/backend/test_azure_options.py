"""Options of adlfs as options of obstore: one account, one kind of credentials, nothing left to the environment."""

from __future__ import annotations

from typing import Any

import pytest

from rollingfs.backend.objects.azure.options import azure_options

KEY, SAS = "a2V5", "sv=2023&sig=x%2By"
PRINCIPAL = {"client_id": "id", "client_secret": "secret", "tenant_id": "tenant"}


class Credential:
    def get_token(self, *scopes: str) -> Any: ...


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"account_key": KEY}, {"account_key": KEY, "credential_type": "access_key", "skip_signature": "false"}),
        ({"sas_token": f"?{SAS}"}, {"sas_key": SAS, "credential_type": "sas_token", "skip_signature": "false"}),
        (PRINCIPAL, {**PRINCIPAL, "credential_type": "client_secret", "skip_signature": "false"}),
        ({"credential": Credential()}, {"skip_signature": "false"}),
        ({}, {"skip_signature": "true"}),
        ({"anon": True}, {"skip_signature": "true"}),
        ({"anon": False}, {"skip_signature": "false"}),
    ],
)
def test_credentials_of_every_kind_are_told_and_no_other_is_looked_up(
    given: dict[str, Any], expected: dict[str, str]
) -> None:
    found = azure_options({"account_name": "acme", **given}, {})
    place = {
        "account_name": "acme",
        "endpoint": "https://acme.blob.core.windows.net",
        "use_emulator": "false",
        "use_fabric_endpoint": "false",
    }
    assert found.config == place | expected
    assert found.can_sign == ("account_key" in given)
    assert found.sas == expected.get("sas_key", "")
    assert (found.credentials is not None) == ("credential" in given)


@pytest.mark.parametrize(
    ("text", "endpoint", "more"),
    [
        (
            f"AccountName=acme;AccountKey={KEY}==;EndpointSuffix=core.chinacloudapi.cn",
            "https://acme.blob.core.chinacloudapi.cn",
            {"account_key": f"{KEY}=="},
        ),
        (
            f"DefaultEndpointsProtocol=http;AccountName=acme;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:1/acme;QueueEndpoint=http://q",
            "http://127.0.0.1:1/acme",
            {"account_key": KEY},
        ),
        (f"AccountName=acme;SharedAccessSignature={SAS};", "https://acme.blob.core.windows.net", {"sas_key": SAS}),
    ],
)
def test_a_connection_string_is_taken_apart(text: str, endpoint: str, more: dict[str, str]) -> None:
    found = azure_options({"connection_string": text}, {})
    assert (found.config["account_name"], found.url) == ("acme", endpoint)
    assert more.items() <= found.config.items()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "account_name"),
        ({"account_key": KEY}, "account_name"),
        ({"account_name": "a", "account_key": KEY, "sas_token": SAS}, "account_key and sas_token"),
        ({"account_name": "a", "client_id": "x"}, "client_id needs client_secret and tenant_id"),
        ({"account_name": "a", "credential": "text"}, "credential"),
        ({"connection_string": "AccountName=a;UseDevelopmentStorage=true"}, "UseDevelopmentStorage"),
    ],
)
def test_what_cannot_be_expressed_is_named_without_its_value(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as raised:
        azure_options(given, {})
    assert KEY not in str(raised.value)
    assert SAS not in str(raised.value)


def test_the_environment_fills_in_what_is_not_given_and_nothing_else() -> None:
    environment = {
        "AZURE_STORAGE_ACCOUNT_NAME": "other",
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_SAS_TOKEN": SAS,
    }
    assert azure_options({"account_name": "acme", "sas_token": "sig=1"}, environment).config["sas_key"] == "sig=1"
    assert "account_key" not in azure_options({"account_name": "acme", "sas_token": "sig=1"}, environment).config
    assert azure_options({"account_name": "acme", "anon": True}, environment).config["skip_signature"] == "true"
    del environment["AZURE_STORAGE_SAS_TOKEN"]
    found = azure_options({}, environment)
    assert (found.config["account_name"], found.config["account_key"]) == ("other", KEY)
    assert azure_options({"account_name": "acme"}, environment).config["account_key"] == KEY


def test_secrets_are_not_shown() -> None:
    found = azure_options({"account_name": "acme", "account_key": KEY}, {})
    assert KEY not in repr(found)


@pytest.mark.parametrize("text", ["hunter2", "AccountName=a;AccountKey:hunter2=", "AccountName=a;hunter2=;x=1"])
def test_a_connection_string_that_is_not_understood_is_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"part [12] of Azure's connection_string") as refused:
        azure_options({"connection_string": text}, {})
    assert "hunter2" not in str(refused.value)
