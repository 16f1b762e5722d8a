"""From URLs and options to a filesystem, and the errors about wrong ones."""

import json
import os
import pickle
import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import rollingfs
from rollingfs import STORES, RollingFileSystem, RollingPolicy, UnsafeBackendError
from rollingfs.backend.generic import GenericBackend
from rollingfs.backend.local.backend import LocalBackend
from rollingfs.backend.memory import MemoryBackend
from rollingfs.backend.objects import clouds
from rollingfs.fs.schemes import _over
from rollingfs.fs.target import adapt, options_of_url
from tests.support.backends import raises
from tests.support.cli import failed
from tests.support.servers import new_bucket, require_module

S3_URLS = [f"{form}://b/x/y" for form in ("rolling::s3", "rolling::s3a", "rolling+s3", "rolling+s3a", "rollings3")]


@pytest.mark.parametrize("url", S3_URLS)
def test_every_form_of_s3_url_names_bucket_and_key(url):
    require_module("s3fs")
    fs, path = fsspec.url_to_fs(url)
    assert (fs._strip_protocol(path), fs._strip_protocol(url)) == ("b/x/y", "b/x/y")
    assert fs._parent(url) == "b/x"


LOCAL_FORMS = ["rolling::file://{}", "rolling::{}", "rolling+file://{}", "rolling+local://{}", "rollingfile://{}"]


@pytest.mark.parametrize("form", LOCAL_FORMS)
def test_every_form_of_local_url_opens_same_segment(form, tmp_path):
    url = form.format(f"{tmp_path}/deep/x")
    with fsspec.open(url, "wb") as file:
        file.write(b"written by URL")
    with fsspec.open(f"rolling::file://{tmp_path}/deep/x") as file:
        assert file.read() == b"written by URL"
    assert (tmp_path / "deep" / "x$header").exists()


@pytest.mark.parametrize("url", ["rolling+memory://opened/x", "rolling::memory://opened/x"])
def test_fsspec_opens_with_options_of_open(url):
    RollingFileSystem("memory").pipe_file("/opened/x", b"data")
    options = {"block_size": 5, "cache_type": "readahead", "cache_options": {}}
    assert fsspec.open(url, **options).open().read() == b"data"
    assert fsspec.url_to_fs(url, **options)[0] is fsspec.url_to_fs(url)[0]
    with pytest.raises(TypeError, match="an option 'blok_size'"):
        fsspec.open(url, blok_size=5)


NAMES = ("/q/x", "q/x", "rolling://q/x", "rolling:///q/x", "rolling::memory://q/x", "memory://q/x")


@pytest.mark.parametrize("name", NAMES)
def test_methods_take_paths_and_full_urls(name):
    fs = RollingFileSystem("memory")
    fs.pipe_file("/q/x", b"data")
    assert (fs.info(name)["name"], fs.cat_file(name)) == ("/q/x", b"data")
    assert fs.cat_ranges([name], [1], [3]) == [b"at"]
    assert fs.open(name).read() == b"data"
    assert (fs.segment(name).length, fs.find(name)) == (4, ["/q/x"])
    assert fs.unstrip_protocol(name) == "rolling:///q/x"
    assert name == "q/x" or fs.glob(name[:-1] + "*") == ["/q/x"]
    fs.rm(name)
    assert not fs.exists(name)


def test_all_urls_of_one_target_share_an_instance():
    first, _ = fsspec.url_to_fs("rolling::memory://one")
    other, _ = fsspec.url_to_fs("rolling::memory://two/three")
    assert first is other


def test_root_of_local_disk_is_never_current_folder():
    fs = RollingFileSystem("file")
    root = os.path.splitdrive(os.path.abspath("/"))[0] or "/"  # Windows: of the current drive
    assert {fs._strip_protocol(text) for text in ("", "rolling://", "/")} == {root}
    assert fs._parent("/x") == root
    assert fs.ls("")


# -- options -------------------------------------------------------------------------------------------------


def test_missing_target_is_an_instructive_error_without_local_disk():
    with pytest.raises(ValueError, match="rolling::s3://bucket"):
        fsspec.filesystem("rolling")
    with pytest.raises(ValueError, match="needs a target"):
        fsspec.url_to_fs("rolling://some/path")


def test_rolling_over_rolling_is_an_error():
    with pytest.raises(ValueError, match="itself a rolling filesystem"):
        RollingFileSystem(fs=RollingFileSystem("memory"))


ANOM = {"anom": True}


@pytest.mark.parametrize(
    "options", [{"target_options": ANOM}, {"s3": ANOM}, ANOM, {"s3": {"client_kwargs": {"verfy": 1}}}], ids=str
)
def test_unknown_store_option_fails_before_any_request(options):
    require_module("s3fs")
    with pytest.raises(TypeError, match=r"s3 has no option|has an option 'anom'") as caught:
        RollingFileSystem("s3", skip_instance_cache=True, **options)
    assert re.search(r"did you mean '(anon|verify)'", str(caught.value))


def test_a_group_of_options_must_be_a_mapping():
    require_module("s3fs")
    with pytest.raises(TypeError, match=r"'client_kwargs' is a mapping .*, not 'eu-west-1'"):
        RollingFileSystem("s3", skip_instance_cache=True, s3={"client_kwargs": "eu-west-1"})


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_a_disk_swallows_no_option(protocol):
    with pytest.raises(TypeError, match=f"{protocol} has no option 'max_byte'.*it takes asynchronous, "):
        RollingFileSystem(protocol, {"max_byte": 1}, skip_instance_cache=True)
    with pytest.raises(TypeError, match=r"neither rolling nor .* \(did you mean 'max_bytes'"):
        RollingFileSystem(protocol, max_byte=1, skip_instance_cache=True)


@pytest.mark.parametrize("url", ["rolling::s3://{}/x", "rolling+s3://{}/x"])
def test_options_need_no_name_for_a_single_store(url, seaweed):
    url = url.format(new_bucket(seaweed))
    with fsspec.open(url, "wb", **seaweed, max_bytes=100) as file:
        file.write(b"data")
    fs, path = fsspec.url_to_fs(url, **seaweed, max_bytes=100)
    assert (fs.cat_file(path), fs._client.inherited.default.max_bytes) == (b"data", 100)
    assert pickle.loads(pickle.dumps(fs)).cat_file(path) == b"data"
    assert fsspec.url_to_fs(url, anon=True)[0]._backend.fs.anon


def test_option_under_name_of_store_replaces_one_by_itself():
    require_module("s3fs")
    fs = RollingFileSystem("s3", key="flat", secret="flat", s3={"key": "nested"}, skip_instance_cache=True)
    assert (fs._backend.fs.key, fs._backend.fs.secret) == ("nested", "flat")


def test_shared_options_error_says_how_to_nest_it():
    require_module("s3fs")
    with pytest.raises(TypeError, match=r"'max_concurrency' is an option of rolling and of s3: .*s3=\{'key': ...\}"):
        RollingFileSystem("s3", key="k", max_concurrency=4, skip_instance_cache=True)
    fs = RollingFileSystem("s3", s3={"key": "k", "max_concurrency": 5}, max_concurrency=4, skip_instance_cache=True)
    assert (fs._backend.capability.requests_max, fs._backend.fs.max_concurrency) == (4, 5)


def test_in_longer_chain_option_must_name_its_store(tmp_path):
    with pytest.raises(TypeError, match=r"'cache_storage' may be meant for several .*simplecache=\{'cache_storage'"):
        fsspec.url_to_fs("rolling::simplecache::memory://x", cache_storage=str(tmp_path))
    nested = {"simplecache": {"cache_storage": str(tmp_path)}}
    assert type(fsspec.url_to_fs("rolling::simplecache::memory://x", **nested)[0]._backend) is GenericBackend


def test_pandas_shows_refusals_and_reads_public_files(seaweed, tmp_path, monkeypatch):
    """Pandas asks again with ``anon=True``, for any store; people see the second error."""
    pd = pytest.importorskip("pandas")
    bucket = new_bucket(seaweed)
    where = {"endpoint_url": seaweed["endpoint_url"]}
    for name in ("public", "private"):
        RollingFileSystem("s3", seaweed).pipe_file(f"{bucket}/{name}.csv", b"a\n1\n")
    # SeaweedFS takes ACLs of objects, and nobody may read by them
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject"}
    policy = {"Version": "2012-10-17", "Statement": [everybody | {"Resource": f"arn:aws:s3:::{bucket}/public.csv*"}]}
    fsspec.filesystem("s3", **seaweed).call_s3("put_bucket_policy", Bucket=bucket, Policy=json.dumps(policy))
    assert pd.read_csv(f"rolling::s3://{bucket}/public.csv", storage_options=where)["a"].tolist() == [1]
    for options in (where, {"s3": where}, {"s3": where | {"anon": False}}):
        with pytest.raises(PermissionError, match=r"private\.csv"):
            pd.read_csv(f"rolling::s3://{bucket}/private.csv", storage_options=options)

    for backend, path in ((LocalBackend, f"rolling::file://{tmp_path}/x"), (MemoryBackend, "rolling::memory://x")):
        monkeypatch.setattr(backend, "read", raises(PermissionError(13, "this is refused", path)))
        with pytest.raises(PermissionError, match="this is refused"):
            pd.read_csv(path)


def test_the_policy_comes_whole_or_in_parts():
    policy = RollingPolicy(max_bytes=100, inline_bytes=0)
    assert RollingFileSystem("memory", policy=policy)._client.inherited.default == policy
    parts = RollingFileSystem("memory", max_bytes=100, max_age="1h", inline_bytes="0 B")
    assert parts._client.inherited.default == RollingPolicy(100, 3600, 0)
    with pytest.raises(ValueError, match="not both"):
        RollingFileSystem("memory", policy=policy, max_bytes=100)


def test_non_atomic_filesystem_is_read_freely_written_by_option():
    below = MemoryFileSystem()
    below.pipe_file("/generic/plain", b"plain")
    target = DirFileSystem("/generic", fs=below)
    assert RollingFileSystem(fs=target).cat_file("plain") == b"plain"
    with pytest.raises(UnsafeBackendError, match="single_writer=True"):
        RollingFileSystem(fs=target).append("plain", b" more")
    fs = RollingFileSystem(fs=target, single_writer=True)
    assert fs.append("plain", b" more") == 5
    assert fs.cat_file("plain") == b"plain more"
    fs.mv("plain", "folder/other")
    assert fs.find("") == ["folder/other"]
    below.rm("/generic", recursive=True)


def test_without_s3fs_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ImportError, match=r"pip install 'rollingfs\[s3\]'"):
        RollingFileSystem("s3", skip_instance_cache=True)


class ToyFileSystem(AbstractFileSystem):
    """A filesystem over a kind of object store that rollingfs does not know."""

    protocol = "toy"


def test_new_kind_of_object_store_needs_two_rows(monkeypatch: Any) -> None:
    made = MemoryBackend()
    opener = SimpleNamespace(open_toy=lambda _fs, _max_concurrency: made)
    monkeypatch.setitem(sys.modules, "rollingfs.backend.objects.toy", opener)
    row = clouds.Cloud("Toy", frozenset({"toy"}), f"{__name__}.ToyFileSystem", "toy.open_toy", "toy")
    assert not adapt(ToyFileSystem()).capability.can_write
    monkeypatch.setattr(clouds, "CLOUDS", (*clouds.CLOUDS, row))
    assert adapt(ToyFileSystem()) is made
    cls = _over("RollingToyFileSystem", ("toy",))
    assert (cls.protocol, cls.target_default) == (("rolling+toy", "rollingtoy"), "toy")
    assert cls._strip_protocol("rolling+toy://bucket/key/") == "bucket/key"


def test_the_entry_points_are_those_that_the_package_registers():
    with open(Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    groups, ours = (
        project["entry-points"],
        {f"rolling{plus}{one}" for one in chain(*STORES.values()) for plus in ("+", "")},
    )
    entries = groups["fsspec.specs"]
    for group in ("fsspec.specs", "universal_pathlib.implementations"):
        assert groups[group].keys() == {"rolling", *ours}, f"pyproject.toml: {group} has other schemes than STORES"
    assert {cloud.extra for cloud in clouds.CLOUDS} <= project["optional-dependencies"].keys()
    for name, value in entries.items():
        cls = EntryPoint(name, value, "fsspec.specs").load()
        assert fsspec.get_filesystem_class(name) is cls
        assert issubclass(cls, rollingfs.RollingFileSystem)
        assert name in ((cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol)


def test_positional_arguments_count_before_fsspecs_configuration(monkeypatch: Any) -> None:
    monkeypatch.setitem(fsspec.config.conf, "rolling", {"target_protocol": "memory", "target_options": {}})
    for fs in (RollingFileSystem("file", {"auto_mkdir": True}), RollingFileSystem(target_protocol="file")):
        assert isinstance(fs._backend, LocalBackend)
    assert isinstance(RollingFileSystem()._backend, MemoryBackend)
    with pytest.raises(TypeError, match="multiple values"):
        RollingFileSystem("file", target_protocol="memory")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("webhdfs://me@node:9870/x", {"host": "node", "port": 9870, "user": "me"}),
        ("sftp://node/x", {"host": "node"}),
        ("abfss://container@account.dfs.core.windows.net/x", {"account_name": "account"}),
        ("az://container/x@y", {}),
        ("memory://x", {}),
        ("file:///x", {}),
    ],
)
def test_url_names_host_and_account_of_its_store(url, expected):
    if url.startswith("sftp"):
        pytest.importorskip("paramiko")
    assert options_of_url(url.partition("://")[0], url) == expected


def test_hdfs_without_hadoop_client_is_refused_with_the_reason():
    from pyarrow.fs import HadoopFileSystem

    try:
        HadoopFileSystem("localhost", 1)
    except OSError as error:
        assert "libhdfs" in str(error) or "libjvm" in str(error)  # noqa: PT017 - it says whether there is a client
    else:
        pytest.skip("Hadoop's client is here")
    with pytest.raises(ImportError, match=r"libhdfs\.so .*JAVA_HOME.*CLASSPATH.*webhdfs://"):
        RollingFileSystem("hdfs", {"host": "localhost", "port": 1})
    assert "libhdfs.so" in failed("run", "hdfs://localhost:1/logs", "--once")


def test_handle_and_stream_go_on_where_they_are_unpickled(tmp_path: Path) -> None:
    fs = RollingFileSystem("file")
    fs.create(f"{tmp_path}/a")
    handle = fs.segment(f"{tmp_path}/a")
    handle.append(b"one")
    copy = pickle.loads(pickle.dumps(handle))
    assert (copy.length, copy.append(b"two", expected_offset=3)) == (3, 3)
    held = pickle.loads(pickle.dumps(handle.acquire("me")))
    held.append(b"!")
    with pytest.raises(rollingfs.FencedError):
        fs.append(f"{tmp_path}/a", b"?")
    held.release()
    fs.rm(f"{tmp_path}/a")
    fs.create(f"{tmp_path}/a")
    with pytest.raises(FileNotFoundError):
        copy.append(b"to another incarnation")
    stream = pickle.loads(pickle.dumps(fs.stream(str(tmp_path), on_error="raise")))
    assert (stream.path, stream.size()) == (str(tmp_path), 0)
