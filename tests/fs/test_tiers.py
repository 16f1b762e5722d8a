"""The option `tiers`, and what users of the filesystem see of tiers: nothing."""

from pathlib import Path

import fsspec
import pytest

from rollingfs import RollingFileSystem
from tests.support.cli import done, failed
from tests.support.places import DATA, tiered, write


def test_a_plain_file_is_adopted_and_moved(root):
    fs, path = tiered(root), f"{root}/plain"
    fsspec.filesystem("memory").pipe_file(path, b"a plain file")
    assert fs.offload(path).files == 1
    assert fs.cat_file(path) == b"a plain file"
    with pytest.raises(FileNotFoundError):
        fs.offload(f"{root}/none")


def test_a_tier_on_another_kind_of_store(root, tmp_path):
    fs = tiered(root, tiers={"cold": {"protocol": "file", "root": str(tmp_path), "options": {}}})
    path = write(fs, f"{root}/s")
    moved = fs.offload(path)
    assert (moved.chunks, moved.files, moved.server_bytes) == (3, 1, 0)
    assert len(list(Path(f"{tmp_path}{root}/s$chunks").iterdir())) == 1
    assert fs.cat_file(path) == DATA + b"tail"
    fs.rm(path)
    assert list(Path(f"{tmp_path}{root}/s$chunks").iterdir()) == []


@pytest.mark.parametrize(
    ("tiers", "error", "said"),
    [
        ("s3://x/y", TypeError, "must map aliases"),
        ({"cold": 5}, TypeError, "must be the URL"),
        ({"cold": {"rot": "/x"}}, TypeError, r"no setting 'rot' \(did you mean 'root'\?\)"),
        ({"cold": {"protocol": "memory"}}, TypeError, "needs the setting 'root'"),
        ({"Cold": "/x"}, ValueError, "not an alias"),
        ({"cold": "/"}, ValueError, "tier 'cold': root"),
        ({"cold": {"root": "/x", "options": {"a": 1}}}, ValueError, "no protocol"),
        ({"cold": {"root": "/x", "protocol": "file", "options": {"nope": 1}}}, TypeError, "no option 'nope'"),
        ({"cold": {"root": "/x", "protocol": "file", "fs": object()}}, ValueError, "leave out all but one"),
    ],
)
def test_invalid_tier_is_refused_by_its_name(tiers, error, said):
    with pytest.raises(error, match=said):
        RollingFileSystem("memory", tiers=tiers, skip_instance_cache=True)


def test_the_command_line_takes_tiers_as_options(tmp_path):
    hot, cold = tmp_path / "hot", tmp_path / "cold"
    options = {"max_bytes": 100, "inline_bytes": 10, "sync": False, "skip_instance_cache": True}
    write(RollingFileSystem("file", tiers={"cold": str(cold)}, **options), f"{hot}/s")
    option = ["--option", f"tiers.cold.root={cold}"]
    did = done("offload", f"{hot}/s", "--after-bytes", "104", *option)
    assert "2 chunks of 200 bytes moved to 'cold'" in did.text
    assert "tier 'cold' is not configured" in failed("cat", f"{hot}/s")
    assert done("onload", f"{hot}/s", "--lag", "0", "--json", *option).json["chunks"] == 1
    done("verify", f"{hot}/s", *option)
    assert [path.name for path in cold.rglob("*") if path.is_file()] == ["$tier"]
    assert "--lag" in failed("onload", f"{hot}/s", "--lag", "soon", *option, code=2)
