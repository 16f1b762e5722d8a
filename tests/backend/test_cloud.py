"""Azure through obstore and Google through gcsfs: refusals, options, what is sent, copies, names, and targets."""

from __future__ import annotations

import datetime
import errno
import logging
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import fsspec
import pytest
from fsspec.asyn import sync
from fsspec.registry import _registry

from tests.support.servers import require_module

require_module("obstore")
require_module("azure.storage.blob")
require_module("gcsfs")

from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from fsspec import AbstractFileSystem
from gcsfs import GCSFileSystem

from rollingfs.backend.objects.azure import bucket as azure_bucket
from rollingfs.backend.objects.azure.options import azure_options
from rollingfs.backend.objects.backend import ObjectBackend
from rollingfs.backend.objects.errors import Refusal, as_os_error, is_conflict, is_transient
from rollingfs.backend.objects.google.requests import GoogleRequests
from rollingfs.backend.objects.opening import open_azure, open_google
from rollingfs.backend.objects.schemes import ADLFS
from rollingfs.errors import ConflictError, NoBucketError
from rollingfs.fs.target import adapt
from tests.support.clouds import ACCOUNT, ACCOUNT_KEY, PROJECT, blob_service, new_container, new_google_bucket
from tests.support.proxy import Redirect, proxy_to
from tests.support.servers import free_port

pytestmark = pytest.mark.clouds

SAS_S = 3600


def endpoint_of(options: dict[str, Any]) -> str:
    return str(options["connection_string"].partition("BlobEndpoint=")[2])


def with_proof(options: dict[str, Any], **proof: str) -> dict[str, Any]:
    """Options with other credentials."""
    given = f"AccountName={ACCOUNT};BlobEndpoint={endpoint_of(options)}"
    return {"connection_string": given, **proof}


def do(backend: ObjectBackend, verb: str, *args: Any) -> Any:
    return sync(backend.loop, getattr(backend, verb), *args)


@pytest.fixture
def container(azurite: dict[str, Any]) -> str:
    return new_container(azurite)


@pytest.fixture
def backend(azurite: dict[str, Any]) -> ObjectBackend:
    return open_azure("az", azurite)


# -- refusals ------------------------------------------------------------------------------------------------

VERBS: dict[str, tuple[Any, ...]] = {
    "read": (),
    "read_range": (0, 10),
    "stat": (),
    "list": (),
    "create": (b"x",),
    "replace": (b"x", "1"),
    "write": ([b"x"],),
    "delete_if": ("1",),
    "now": (),
}
WRITING = {"create", "replace", "write"}


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"now", "delete_if"}))
def test_wrong_credentials_are_refused_at_once_and_not_shown(
    azurite: dict[str, Any], container: str, verb: str
) -> None:
    backend = open_azure("az", with_proof(azurite, account_key="d3Jvbmc="))
    with pytest.raises(PermissionError, match="403") as raised:
        do(backend, verb, f"{container}/file", *VERBS[verb])
    assert "d3Jvbmc" not in str(raised.value)
    assert "file" in str(raised.value)


@pytest.mark.parametrize("verb", sorted(WRITING | {"read", "list"}))
def test_a_missing_container_is_named(backend: ObjectBackend, verb: str) -> None:
    with pytest.raises(NoBucketError, match="container 'rollingfs-none' does not exist") as raised:
        do(backend, verb, "rollingfs-none/folder/file", *VERBS[verb])
    assert raised.value.errno == errno.ENOENT


def azure_at(url: str) -> ObjectBackend:
    given = f"AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={url}/{ACCOUNT}"
    return open_azure("az", {"connection_string": given})


def google_at(url: str) -> ObjectBackend:
    return open_google(GCSFileSystem(endpoint_url=url, token="anon", project=PROJECT))


@pytest.mark.parametrize("at", [azure_at, google_at])
@pytest.mark.parametrize("verb", VERBS)
def test_without_a_server_every_verb_says_so(verb: str, at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollingfs.backend.patience.PATIENCE_S", 0.0)
    with pytest.raises(OSError, match=r"could not connect|no answer|no whole answer came from http://127") as raised:
        do(at(f"http://127.0.0.1:{free_port()}"), verb, "container/file", *VERBS[verb])
    assert raised.value.errno == errno.EIO


def test_a_key_that_is_none_is_refused_without_being_shown(azurite: dict[str, Any], container: str) -> None:
    backend = open_azure("az", with_proof(azurite, account_key="not base64!"))
    with pytest.raises(OSError, match="refuses the options") as raised:
        do(backend, "read", f"{container}/file")
    assert "base64" not in str(raised.value)


def test_what_azure_says_is_understood() -> None:
    assert is_conflict(Refusal(412, "ConditionNotMet", ""))
    assert is_conflict(Refusal(409, "BlobAlreadyExists", ""))
    for status, code in [(412, "LeaseIdMissing"), (409, "ContainerBeingDeleted"), (404, "BlobNotFound")]:
        assert not is_conflict(Refusal(status, code, ""))
    assert as_os_error(Refusal(412, "LeaseIdMissing", "leased"), "writing", "c/k").errno == errno.EBUSY
    assert as_os_error(Refusal(503, "ServerBusy", ""), "writing", "c/k").errno == errno.EBUSY
    assert is_transient(Refusal(503, "ServerBusy", ""))
    assert not is_transient(Refusal(403, "AuthorizationFailure", ""))


# -- credentials ---------------------------------------------------------------------------------------------


@pytest.fixture
def sas(azurite: dict[str, Any], container: str) -> ObjectBackend:
    """A backend whose signature is for one container."""
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=SAS_S)
    may = ContainerSasPermissions(read=True, write=True, delete=True, list=True, create=True, add=True)
    token = generate_container_sas(ACCOUNT, container, ACCOUNT_KEY, permission=may, expiry=until)
    return open_azure("az", with_proof(azurite, sas_token=token))


def test_a_shared_access_signature_reads_writes_and_deletes_on_a_condition(
    azurite: dict[str, Any], sas: ObjectBackend, container: str
) -> None:
    assert not open_azure("az", with_proof(azurite)).can_delete_if, "nobody signs the request"
    path = f"{container}/a folder/ü%?#file"
    old = do(sas, "create", path, b"old")
    new = do(sas, "replace", path, b"new", old)
    do(sas, "copy", path, f"{path}-copy", new)
    assert do(sas, "delete_if", path, old) is False
    assert do(sas, "read", path).data == b"new"
    assert do(sas, "delete_if", path, new) is True
    assert [entry.path for entry in do(sas, "list", f"{container}/a folder").entries] == [f"{path}-copy"]


class NoToken:
    def get_token(self, *scopes: str) -> Any:
        raise RuntimeError("the identity service is away")


def test_a_credential_that_gives_no_token_says_why(azurite: dict[str, Any], container: str) -> None:
    backend = open_azure("az", with_proof(azurite) | {"credential": NoToken()})
    with pytest.raises(PermissionError, match="the identity service is away"):
        do(backend, "read", f"{container}/file")


# -- verbs ---------------------------------------------------------------------------------------------------


def test_a_copy_waits_until_it_is_whole(
    backend: ObjectBackend, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure_bucket, "COPY_POLL_S", 0.0)
    do(backend, "write", f"{container}/source", [b"0123456789"])
    real, looks = azure_bucket.AzureContainer.head, []

    async def head(self: Any, key: str) -> Any:
        found = await real(self, key)
        if key == "target":
            looks.append(found.size)
            if len(looks) < 3:  # as Azure shows a file while it copies
                return replace(found, size=0)
        return found

    monkeypatch.setattr(azure_bucket.AzureContainer, "head", head)
    do(backend, "copy", f"{container}/source", f"{container}/target")
    assert len(looks) == 3


def test_a_copy_that_never_ends_is_removed(
    backend: ObjectBackend, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure_bucket, "COPY_S_MAX", 0.01)
    monkeypatch.setattr(azure_bucket, "COPY_POLL_S", 0.005)
    monkeypatch.setattr("rollingfs.backend.patience.PATIENCE_S", 0.2)
    do(backend, "write", f"{container}/source", [b"0123456789"])
    real = azure_bucket.AzureContainer.head

    async def head(self: Any, key: str) -> Any:
        found = await real(self, key)
        return replace(found, size=0) if key == "target" else found

    with monkeypatch.context() as patch:
        patch.setattr(azure_bucket.AzureContainer, "head", head)
        with pytest.raises(TimeoutError):
            do(backend, "copy", f"{container}/source", f"{container}/target")
    with pytest.raises(FileNotFoundError):
        do(backend, "stat", f"{container}/target")


def test_between_containers_a_file_is_copied_through_this_process(
    azurite: dict[str, Any], backend: ObjectBackend, container: str
) -> None:
    other = new_container(azurite)
    token = do(backend, "create", f"{container}/file", b"bytes")
    do(backend, "copy", f"{container}/file", f"{other}/file", token)
    assert do(backend, "read", f"{other}/file").data == b"bytes"
    with pytest.raises(ConflictError):
        do(backend, "copy", f"{container}/file", f"{other}/again", '"0x1"')


@pytest.mark.parametrize("key", ["a//b", "a/./b", "../a", "a\nb", "a\\b"])
def test_names_that_the_store_would_change_are_refused(backend: ObjectBackend, container: str, key: str) -> None:
    for verb in ("read", "stat", "create", "write"):
        with pytest.raises(OSError, match="nothing was read or written") as raised:
            do(backend, verb, f"{container}/{key}", *VERBS[verb])
        assert raised.value.errno == errno.EINVAL
    assert not do(backend, "is_folder", f"{container}/{key}")


def test_the_empty_file_by_which_a_tool_marks_a_folder_is_seen_as_that_folder(
    azurite: dict[str, Any], backend: ObjectBackend, container: str
) -> None:
    blob_service(**azurite).get_blob_client(container, "made/").upload_blob(b"")
    assert [(entry.path, entry.is_folder) for entry in do(backend, "list", container).entries] == [
        (f"{container}/made", True)
    ]
    do(backend, "write", f"{container}/made/file", [b"x"])
    assert [entry.path for entry in do(backend, "list", f"{container}/made").entries] == [f"{container}/made/file"]


def test_containers_are_neither_made_nor_removed_nor_listed_and_that_is_said(
    backend: ObjectBackend, container: str
) -> None:
    do(backend, "make_folder", container)
    do(backend, "make_folder", f"{container}/folder")
    for verb, path in (("make_folder", "rollingfs-none"), ("remove_folder", container), ("list", "")):
        with pytest.raises(OSError, match="obstore cannot") as raised:
            do(backend, verb, path)
        assert raised.value.errno == errno.EINVAL


# -- targets -------------------------------------------------------------------------------------------------


@pytest.fixture
def path(container: str) -> str:
    return f"{container}/{uuid.uuid4().hex}"


@pytest.fixture
def registered() -> Iterator[None]:
    """Obstore's own filesystem for ``az``, as a user may register it."""
    from obstore.fsspec import register

    before = dict(_registry)
    register("az")
    yield
    _registry.clear()
    _registry.update(before)


def test_segments_live_on_azure_by_protocol_and_by_a_scheme_of_their_own(azurite: dict[str, Any], path: str) -> None:
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


@pytest.mark.usefixtures("registered")
def test_obstores_own_filesystem_is_a_target(azurite: dict[str, Any], path: str) -> None:
    options = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": endpoint_of(azurite)}
    fs, found = fsspec.url_to_fs(f"rolling::az://{path}", az={**options, "client_options": {"allow_http": True}})
    fs.create(found)
    fs.append(found, b"data")
    assert fs.cat_file(found) == b"data"
    assert isinstance(adapt(fsspec.filesystem("az", **options)), ObjectBackend)


@pytest.mark.parametrize("protocol", ["gs", "s3"])
def test_other_stores_by_obstores_own_filesystem_stay_read_only(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    from obstore.fsspec import FsspecStore

    with caplog.at_level(logging.INFO):
        assert not adapt(FsspecStore(protocol, skip_signature=True)).can_write
    assert f"taken for Azure only: name {protocol} by protocol" in caplog.text


class AzureBlobFileSystem(AbstractFileSystem):
    """As adlfs names it, with the options that matter here."""

    protocol = ("abfs", "az")

    def __init__(self, account_name: str | None = None, **options: Any) -> None:
        super().__init__(account_name=account_name, **options)


@pytest.mark.parametrize(
    ("option", "is_ours"), [({"account_key": "a2V5"}, True), ({"location_mode": "secondary"}, False)]
)
def test_a_filesystem_of_adlfs_is_taken_over_or_stays_read_only(
    option: dict[str, str], is_ours: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, ADLFS, sys.modules[__name__])
    with caplog.at_level(logging.INFO):
        found = adapt(AzureBlobFileSystem("acme", **option))
    assert isinstance(found, ObjectBackend) == is_ours
    assert found.can_write == is_ours
    assert ("location_mode" in caplog.text) != is_ours


# -- options of adlfs ----------------------------------------------------------------------------------------


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


# -- Google --------------------------------------------------------------------------------------------------


@pytest.fixture
def google(fake_google: dict[str, Any]) -> ObjectBackend:
    return open_google(GCSFileSystem(**fake_google))


@pytest.fixture
def bucket(fake_google: dict[str, Any]) -> str:
    return new_google_bucket(fake_google)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests, by method."""
    counts: Counter[str] = Counter()
    real = GoogleRequests.send

    async def send(self: GoogleRequests, method: str, *args: Any, **options: Any) -> Any:
        counts[method] += 1
        return await real(self, method, *args, **options)

    monkeypatch.setattr(GoogleRequests, "send", send)
    return counts


def test_every_verb_on_google_is_as_few_requests_as_it_says(
    google: ObjectBackend, bucket: str, sent: Counter[str]
) -> None:
    path = f"{bucket}/file"
    token = do(google, "create", path, b"old")
    token = do(google, "replace", path, b"new", token)
    assert sent == {"POST": 2}
    sent.clear()
    do(google, "read", path)
    do(google, "read_if_changed", path, token)
    do(google, "read_range", path, 0, 1)
    do(google, "stat", path)
    do(google, "now", path)
    assert sent == {"GET": 5}


def test_a_write_that_the_store_sends_elsewhere_is_not_taken_for_done(fake_google: dict[str, Any], bucket: str) -> None:
    """It sends a writer to the address of the file, as a gateway may that wants a login first."""
    with proxy_to(fake_google["endpoint_url"]) as proxy:
        google = open_google(GCSFileSystem(**fake_google | {"endpoint_url": proxy.url}))
        token = do(google, "create", f"{bucket}/file", b"old")
        there = Redirect(302, f"/storage/v1/b/{bucket}/o/file")
        proxy.fault = lambda seen: there if seen.method != "GET" else None
        for verb, args in (("replace", (b"new", token)), ("delete_if", (token,)), ("write", ([b"new"],))):
            with pytest.raises(OSError, match="302"):
                do(google, verb, f"{bucket}/file", *args)
        assert do(google, "read", f"{bucket}/file").data == b"old"


def test_files_are_copied_between_buckets_of_google_on_the_server(
    fake_google: dict[str, Any], google: ObjectBackend, bucket: str, sent: Counter[str]
) -> None:
    other = new_google_bucket(fake_google)
    do(google, "create", f"{bucket}/file", b"bytes")
    sent.clear()
    do(google, "copy", f"{bucket}/file", f"{other}/copy")
    assert sent == {"POST": 1}
    assert do(google, "read", f"{other}/copy").data == b"bytes"


def test_a_missing_bucket_of_google_is_an_error_of_every_write(google: ObjectBackend) -> None:
    for verb, args, error in (
        ("create", (b"x",), NoBucketError),
        ("write", ([b"x"],), NoBucketError),
        ("read", (), FileNotFoundError),
        ("list", (), FileNotFoundError),
    ):
        with pytest.raises(error):
            do(google, verb, "rollingfs-none/folder/file", *args)


def test_a_filesystem_of_gcsfs_is_taken_over_unless_it_checks_what_it_wrote(fake_google: dict[str, Any]) -> None:
    assert isinstance(adapt(GCSFileSystem(**fake_google)), ObjectBackend)
    assert not adapt(GCSFileSystem(**fake_google, consistency="md5")).can_write


def test_segments_live_on_google_by_url(fake_google: dict[str, Any], bucket: str) -> None:
    fs, path = fsspec.url_to_fs(f"rolling::gs://{bucket}/folder/segment", gs=fake_google)
    fs.create(path)
    fs.append(path, b"data")
    other, path = fsspec.url_to_fs(f"rolling+gs://{bucket}/folder/segment", **fake_google)
    assert other.cat_file(path) == b"data"
    other.mkdir(f"{bucket}-made")
    assert other.isdir(f"{bucket}-made")
    other.rmdir(f"{bucket}-made")
    assert not other.isdir(f"{bucket}-made")
