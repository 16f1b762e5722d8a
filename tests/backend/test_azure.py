"""Azure through obstore: refusals, credentials, copies, names, targets, and the options of adlfs."""

import datetime
import errno
import logging
import math
import sys
import uuid
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import fsspec
import pytest
from fsspec.registry import _registry

from tests.support.servers import require_module

require_module("obstore")
require_module("azure.storage.blob")

from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from fsspec import AbstractFileSystem

from rollingfs.backend.objects import azure as azure_bucket, open_azure
from rollingfs.backend.objects.azure_options import azure_options
from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.request_errors import Refusal, as_os_error, is_conflict, is_transient
from rollingfs.backend.objects.upload import PART_BYTES
from rollingfs.errors import ConflictError, NoBucketError
from rollingfs.fs.target import adapt
from tests.support.backends import raises
from tests.support.clouds import ACCOUNT, ACCOUNT_KEY, ARGUMENTS, blob_service, new_container
from tests.support.driven import Driven
from tests.support.proxy import DROP_BEFORE, proxy_to

pytestmark = pytest.mark.clouds


def endpoint_of(options: dict[str, Any]) -> str:
    return str(options["connection_string"].partition("BlobEndpoint=")[2])


def opened(options: dict[str, Any], **proof: Any) -> Driven:
    """A backend, by other credentials if some are given, even if these are none."""
    given = {"connection_string": f"AccountName={ACCOUNT};BlobEndpoint={endpoint_of(options)}", **proof}
    return Driven(open_azure("az", given if proof else options))


@pytest.fixture
def container(azurite: dict[str, Any]) -> str:
    return new_container(azurite)


@pytest.fixture
def backend(azurite: dict[str, Any]) -> Driven:
    return opened(azurite)


# -- refusals ------------------------------------------------------------------------------------------------


def write_in_parts(backend: Driven, path: str) -> None:
    upload = backend.open_write(path)
    upload.write(bytes(2 * PART_BYTES + 1))
    upload.finish()


@pytest.mark.parametrize("verb", [*sorted(ARGUMENTS.keys() - {"now", "delete_if"}), "write in parts"])
def test_wrong_credentials_are_refused_at_once_and_not_shown(azurite, container, verb):
    backend = opened(azurite, account_key="d3Jvbmc=")
    act = partial(write_in_parts, backend) if verb == "write in parts" else getattr(backend, verb)
    with pytest.raises(PermissionError, match=r"(?s)^(?!.*(d3Jvbmc|blockid)).*file.*403"):
        act(f"{container}/file", *ARGUMENTS.get(verb, ()))


def test_parts_ride_out_an_outage(azurite, container, monkeypatch):
    monkeypatch.setattr("rollingfs.backend.objects.obstore_files.PAUSE_FIRST_S", 0.001)
    monkeypatch.setattr("rollingfs.backend.objects.obstore_files.PAUSE_S_MAX", 0.01)
    with proxy_to(endpoint_of(azurite)) as proxy:
        backend = opened({"connection_string": f"BlobEndpoint={proxy.url}/{ACCOUNT}"}, account_key=ACCOUNT_KEY)
        proxy.fail(*[DROP_BEFORE] * 40, method="PUT")
        write_in_parts(backend, f"{container}/file")
        assert backend.stat(f"{container}/file").size == 2 * PART_BYTES + 1


@pytest.mark.parametrize("verb", ["create", "replace", "write", "read", "list"])
def test_a_missing_container_is_named(backend, verb):
    with pytest.raises(NoBucketError, match=rf"Errno {errno.ENOENT}\].*container 'rollingfs-none' does not exist"):
        getattr(backend, verb)("rollingfs-none/folder/file", *ARGUMENTS[verb])


NO_TOKEN = SimpleNamespace(get_token=raises(RuntimeError("the identity service is away")))


@pytest.mark.parametrize(
    ("proof", "error", "why"),
    [
        ({"account_key": "not base64!"}, OSError, r"(?s)^(?!.*base64).*refuses the options"),
        ({"credential": NO_TOKEN}, PermissionError, "the identity service is away"),
    ],
)
def test_missing_key_is_hidden_and_failed_token_says_why(azurite, container, proof, error, why):
    with pytest.raises(error, match=why):
        opened(azurite, **proof).read(f"{container}/file")


def test_what_azure_says_is_understood():
    assert is_conflict(Refusal(412, "ConditionNotMet", ""))
    assert is_conflict(Refusal(409, "BlobAlreadyExists", ""))
    for status, code in [(412, "LeaseIdMissing"), (409, "ContainerBeingDeleted"), (404, "BlobNotFound")]:
        assert not is_conflict(Refusal(status, code, ""))
    assert as_os_error(Refusal(412, "LeaseIdMissing", "leased"), "writing", "c/k").errno == errno.EBUSY
    assert as_os_error(Refusal(503, "ServerBusy", ""), "writing", "c/k").errno == errno.EBUSY
    assert is_transient(Refusal(503, "ServerBusy", ""))
    assert not is_transient(Refusal(403, "AuthorizationFailure", ""))


# -- credentials ---------------------------------------------------------------------------------------------


def test_container_signature_reads_writes_and_deletes_on_condition(azurite, container):
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    may = ContainerSasPermissions(read=True, write=True, delete=True, list=True, create=True, add=True)
    token = generate_container_sas(ACCOUNT, container, ACCOUNT_KEY, permission=may, expiry=until)
    sas = opened(azurite, sas_token=token)
    assert not opened(azurite, sas_token=None).capability.can_delete_if, "nobody signs the request"
    path = f"{container}/a folder/ü%?#file"
    old = sas.create(path, b"old")
    new = sas.replace(path, b"new", old)
    sas.copy(path, f"{path}-copy", new)
    assert sas.delete_if(path, old) is False
    assert sas.read(path).data == b"new"
    assert sas.delete_if(path, new) is True
    assert [entry.path for entry in sas.list(f"{container}/a folder").entries] == [f"{path}-copy"]


@pytest.mark.parametrize("name", ["plain$header", "with space", "per%cent", "ü", "a+b", "a?#"])
def test_the_key_of_an_account_deletes_any_name(azurite, container, name):
    backend = opened(azurite)
    old = backend.create(path := f"{container}/{name}", b"old")
    new = backend.replace(path, b"new", old)
    assert (backend.delete_if(path, old), backend.delete_if(path, new)) == (False, True)


# -- verbs ---------------------------------------------------------------------------------------------------


def slow_copy(patch: pytest.MonkeyPatch, looks_max: float) -> list[int]:
    """Let a copy's target look empty so often, as Azure shows a file while it copies; the sizes that are seen."""
    real, looks = azure_bucket.AzureContainer.head, list[int]()

    async def head(self: Any, key: str) -> Any:
        found = await real(self, key)
        if key == "target":
            looks.append(found.size if len(looks) >= looks_max else 0)
            return replace(found, size=looks[-1])
        return found

    patch.setattr(azure_bucket.AzureContainer, "head", head)
    return looks


def test_a_copy_waits_until_it_is_whole(backend, container, monkeypatch):
    monkeypatch.setattr(azure_bucket, "COPY_POLL_S", 0.0)
    backend.write(f"{container}/source", [b"0123456789"])
    looks = slow_copy(monkeypatch, 2)
    backend.copy(f"{container}/source", f"{container}/target")
    assert looks == [0, 0, 10]


def test_a_copy_that_never_ends_is_removed(backend, container, monkeypatch):
    monkeypatch.setattr(azure_bucket, "COPY_S_MAX", 0.01)
    monkeypatch.setattr(azure_bucket, "COPY_POLL_S", 0.005)
    monkeypatch.setattr("rollingfs.backend.patience.PATIENCE_S", 0.2)
    backend.write(f"{container}/source", [b"0123456789"])
    slow_copy(monkeypatch, math.inf)
    with pytest.raises(TimeoutError):
        backend.copy(f"{container}/source", f"{container}/target")
    with pytest.raises(FileNotFoundError):
        backend.stat(f"{container}/target")


def test_between_containers_a_file_is_copied_through_this_process(azurite, backend, container):
    other = new_container(azurite)
    token = backend.create(f"{container}/file", b"bytes")
    backend.copy(f"{container}/file", f"{other}/file", token)
    assert backend.read(f"{other}/file").data == b"bytes"
    with pytest.raises(ConflictError):
        backend.copy(f"{container}/file", f"{other}/again", '"0x1"')


@pytest.mark.parametrize("key", ["a//b", "a/./b", "../a", "a\nb", "a\\b"])
def test_names_that_the_store_would_change_are_refused(backend, container, key):
    for verb in ("read", "stat", "create", "write"):
        with pytest.raises(OSError, match=rf"(?s)Errno {errno.EINVAL}\].*nothing was read or written"):
            getattr(backend, verb)(f"{container}/{key}", *ARGUMENTS[verb])
    assert not backend.is_folder(f"{container}/{key}")


def test_empty_marker_file_of_a_tool_is_a_folder(azurite, backend, container):
    blob_service(**azurite).get_blob_client(container, "made/").upload_blob(b"")
    (folder,) = backend.list(container).entries
    assert (folder.path, folder.is_folder) == (f"{container}/made", True)
    backend.write(f"{folder.path}/file", [b"x"])
    assert [entry.path for entry in backend.list(folder.path).entries] == [f"{folder.path}/file"]


def test_containers_are_not_made_removed_or_listed(backend, container):
    backend.make_folder(container)
    backend.make_folder(f"{container}/folder")
    for verb, path in (("make_folder", "rollingfs-none"), ("remove_folder", container), ("list", "")):
        with pytest.raises(OSError, match=rf"Errno {errno.EINVAL}\].*obstore cannot"):
            getattr(backend, verb)(path)


# -- targets -------------------------------------------------------------------------------------------------


@pytest.fixture
def path(container: str) -> str:
    return f"{container}/{uuid.uuid4().hex}"


def test_azure_segments_are_reached_by_protocol_and_scheme(azurite, path):
    fs = fsspec.filesystem("rolling", target_protocol="abfs", target_options=azurite)
    fs.create(path)
    fs.append(path, b"one ")
    container, _, key = path.partition("/")
    urls = [f"rolling+az://{path}", f"rolling+abfs://{container}@{ACCOUNT}.dfs.core.windows.net/{key}"]
    for number, url in enumerate(urls):
        other, found = fsspec.url_to_fs(url, **azurite)
        other.append(found, b"%d " % number)
    assert other.cat_file(path) == b"one 0 1 "
    fs.mv(path, f"{path}-moved")
    fs.rm(f"{path}-moved")
    assert not fs.exists(f"{path}-moved")
    with pytest.raises(ValueError, match="names the account 'another'"):
        fs.cat_file(f"abfs://{container}@another.dfs.core.windows.net/{key}")


@mock.patch.dict(_registry)
def test_obstores_own_filesystem_is_a_target(azurite, path):
    from obstore.fsspec import register

    register("az")  # as a user may do
    options = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": endpoint_of(azurite)}
    fs, found = fsspec.url_to_fs(f"rolling::az://{path}", az={**options, "client_options": {"allow_http": True}})
    fs.create(found)
    fs.append(found, b"data")
    assert fs.cat_file(found) == b"data"
    assert isinstance(adapt(fsspec.filesystem("az", **options)), ObjectBackend)


@pytest.mark.parametrize("protocol", ["gs", "s3"])
def test_other_stores_by_obstores_own_filesystem_stay_read_only(protocol, caplog):
    from obstore.fsspec import FsspecStore

    with caplog.at_level(logging.INFO):
        assert not adapt(FsspecStore(protocol, skip_signature=True)).capability.can_write
    assert f"taken for Azure only: name {protocol} by protocol" in caplog.text


class AzureBlobFileSystem(AbstractFileSystem):
    """As adlfs names it, with the options that matter here."""

    protocol = ("abfs", "az")

    def __init__(self, account_name: str | None = None, **options: Any) -> None:
        super().__init__(account_name=account_name, **options)


@pytest.mark.parametrize(
    ("option", "is_ours"), [({"account_key": "a2V5"}, True), ({"location_mode": "secondary"}, False)]
)
def test_adlfs_filesystem_is_taken_over_or_read_only(option, is_ours, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "adlfs.spec", sys.modules[__name__])
    with caplog.at_level(logging.INFO):
        found = adapt(AzureBlobFileSystem("acme", **option))
    assert isinstance(found, ObjectBackend) == is_ours
    assert found.capability.can_write == is_ours
    assert ("location_mode" in caplog.text) != is_ours


# -- options of adlfs ----------------------------------------------------------------------------------------


KEY, SAS = "a2V5", "sv=2023&sig=x%2By"
PRINCIPAL = {"client_id": "id", "client_secret": "secret", "tenant_id": "tenant"}
NOT_UNDERSTOOD = ("hunter2", "AccountName=a;AccountKey:hunter2=", "AccountName=a;hunter2=;x=1")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"account_key": KEY}, {"account_key": KEY, "credential_type": "access_key", "skip_signature": "false"}),
        ({"sas_token": f"?{SAS}"}, {"sas_key": SAS, "credential_type": "sas_token", "skip_signature": "false"}),
        (PRINCIPAL, {**PRINCIPAL, "credential_type": "client_secret", "skip_signature": "false"}),
        ({"credential": NO_TOKEN}, {"skip_signature": "false"}),
        ({}, {"skip_signature": "true"}),
        ({"anon": True}, {"skip_signature": "true"}),
        ({"anon": False}, {"skip_signature": "false"}),
    ],
)
def test_all_credentials_are_named_and_no_other_is_read(given, expected):
    found = azure_options({"account_name": "acme", **given}, {})
    place = {
        "account_name": "acme",
        "endpoint": "https://acme.blob.core.windows.net",
        "use_emulator": "false",
        "use_fabric_endpoint": "false",
    }
    assert found.config == place | expected
    assert KEY not in repr(found)
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
def test_a_connection_string_is_taken_apart(text, endpoint, more):
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
        *(({"connection_string": text}, r"part [12] of Azure's connection_string") for text in NOT_UNDERSTOOD),
    ],
)
def test_what_cannot_be_expressed_is_named_without_its_value(given, named):
    with pytest.raises(ValueError, match=named) as raised:
        azure_options(given, {})
    assert not [secret for secret in (KEY, SAS, "hunter2") if secret in str(raised.value)]


def test_environment_fills_only_what_is_not_given():
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
