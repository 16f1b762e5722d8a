"""Options on the command line and in the environment: each goes to the one whom it is meant for, or is an error."""

import pytest

from rollingfs.cli.output import WrongUsage
from rollingfs.cli.stores import Stores, parse_options
from tests.support.cli import failed
from tests.support.servers import require_module


def opened(protocol: str, *texts: str, **environment: str):
    """The filesystem of a command with these options and variables."""
    variables = {f"ROLLINGFS_OPTION_{name}": value for name, value in environment.items()}
    return Stores(parse_options(texts, variables)).open(protocol)


def given(fs) -> dict:
    """What the store's filesystem was given."""
    return fs.storage_options["target_options"]


@pytest.fixture(autouse=True)
def s3_is_installed():
    require_module("s3fs")


# -- what nobody has -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["file", "s3"])
def test_mistyped_option_names_the_valid_ones_in_one_line(tmp_path, store):
    path = "s3://bucket/x" if store == "s3" else tmp_path / "x"
    said = failed("append", path, "--option", "max_byte=12", stdin=b"data", code=2)
    assert f"--option max_byte: neither rolling nor {store} has an option 'max_byte'" in said
    assert "did you mean 'max_bytes'" in said
    assert "rolling takes absolute, append_via, commit_timeout_s, " in said
    assert f"; {store} takes " in said
    assert not (tmp_path / "x$header").exists()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("sekret=hush", "did you mean 'secret'"),
        ("s3.sekret=hush", "did you mean 'secret'"),
        ("rolling.synk=hush", "did you mean 'sync'"),
        ("client_kwargs.endpoint_ur=hush", "'endpoint_ur' in client_kwargs (did you mean 'endpoint_url'"),
        ("config_kwargs.max_pool_connection=hush", "'max_pool_connection' in config_kwargs (did you mean"),
        ("utterly_wrong=hush", "'utterly_wrong'; rolling takes"),
    ],
)
def test_mistyped_s3_option_hides_its_value(text, meant):
    with pytest.raises(WrongUsage) as caught:
        opened("s3", text)
    assert meant in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "TypeError" not in str(caught.value)


def test_a_mistyped_variable_is_an_error_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLINGFS_OPTION_MAX_BYTE", "12")
    said = failed("append", tmp_path / "x", stdin=b"data", code=2)
    assert "ROLLINGFS_OPTION_MAX_BYTE: " in said
    assert "did you mean 'max_bytes'" in said
    with pytest.raises(WrongUsage, match="s3 has no option 'sekret'"):
        opened("s3", S3_SEKRET="x")


def test_options_that_the_store_takes_pass():
    fs = opened("s3", "key=a", "profile=b", "config_kwargs.connect_timeout=3")
    assert given(fs) == {"key": "a", "profile": "b", "config_kwargs": {"connect_timeout": 3}}
    assert given(opened("file", "auto_mkdir=true", "file.auto_mkdir=false")) == {"auto_mkdir": False}
    # what this one does not name goes to a library of its own, which says what is wrong
    assert given(opened("dir", 'path="/x"', "target_protocol=memory", "of_a_library=1"))["of_a_library"] == 1
    with pytest.raises(WrongUsage, match="did you mean 'max_bytes'"):
        opened("dir", 'path="/x"', "target_protocol=memory", "max_byte=1")


# -- whom an option is meant for ---------------------------------------------------------------------------------


def test_variable_with_stores_name_is_for_that_store_alone():
    variables = {"S3_KEY": "a", "S3__SECRET": "b", "S3_CLIENT_KWARGS__REGION_NAME": "c", "FILE_AUTO_MKDIR": "true"}
    assert given(opened("s3", **variables)) == {"key": "a", "secret": "b", "client_kwargs": {"region_name": "c"}}
    assert given(opened("s3a", **variables)) == given(opened("s3", **variables))
    assert given(opened("file", **variables)) == {"auto_mkdir": True}
    assert given(opened("memory", **variables)) == {}
    assert given(opened("s3", S3_ADDITIONAL_KWARGS__ACL="x")) == {"s3_additional_kwargs": {"acl": "x"}}
    assert given(opened("file", S3_ADDITIONAL_KWARGS__ACL="x")) == {}


def test_a_variable_of_rolling_is_for_every_store():
    for protocol in ("s3", "file", "memory"):
        fs = opened(protocol, MAX_BYTES="77", ROLLING_INLINE_BYTES="7")
        assert (fs._client.inherited.default.max_bytes, fs._client.inherited.default.inline_bytes) == (77, 7)
        assert given(fs) == {}


def test_variable_without_store_goes_only_to_matching_stores():
    assert given(opened("s3", KEY="a", ENDPOINT_URL="http://x")) == {"key": "a", "endpoint_url": "http://x"}
    for protocol in ("file", "memory"):
        assert given(opened(protocol, KEY="a", SECRET="b", ENDPOINT_URL="c", CLIENT_KWARGS__VERIFY="false")) == {}
    # nor to a store that takes whatever it is given
    assert given(opened("dir", "path=x", "target_protocol=memory", KEY="a")).keys() == {"path", "target_protocol"}


def test_variable_for_two_stores_must_name_one():
    variables = {"ROLLINGFS_OPTION_AUTO_MKDIR": "true", "ROLLINGFS_OPTION_USE_LISTINGS_CACHE": "1"}
    stores = Stores(parse_options([], variables))
    stores.open("memory")
    names = [f"ROLLINGFS_OPTION_{store}USE_LISTINGS_CACHE" for store in ("", "MEMORY_", "FILE_")]
    with pytest.raises(WrongUsage, match="{} may be meant for memory or file: write .*{} or {}".format(*names)):
        stores.open("file")


def test_shared_option_must_name_rolling_or_the_store():
    with pytest.raises(WrongUsage, match=r"write --option rolling.max_concurrency=... or --option s3.max_concurrency"):
        opened("s3", "max_concurrency=3")
    with pytest.raises(WrongUsage, match="write ROLLINGFS_OPTION_ROLLING_MAX_CONCURRENCY or "):
        opened("s3", MAX_CONCURRENCY="3")
    assert opened("s3", "rolling.max_concurrency=3")._backend.capability.requests_max == 3
    assert given(opened("s3", "s3.max_concurrency=3")) == {"max_concurrency": 3}
    assert opened("dir", "path=x", "target_protocol=memory", "max_concurrency=3")._backend.capability.requests_max == 3


def test_an_error_names_the_option_at_fault():
    texts = ["max_memory=1GiB", "header_cache_s=3", "max_bytes=-3"]
    with pytest.raises(WrongUsage, match=r"^--option max_bytes: max_bytes is -3"):
        Stores(parse_options(texts, {})).open("memory")
