"""The parts of the tests' own support that skip tests, and that spare them probes."""

from pathlib import Path

import pytest

from tests.support.servers import BACKENDS, Program, require_module


@pytest.mark.parametrize("name", ["surely_not_installed", "surely_not_installed.sdk", "json.surely_not_there"])
def test_module_without_package_is_skipped_missing_parents_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("ROLLINGFS_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{name} is not installed"):
        require_module(name)
    monkeypatch.setenv("ROLLINGFS_REQUIRE", "all")
    with pytest.raises(pytest.fail.Exception, match=f"{name} is not installed"):
        require_module(name)
    require_module("json.decoder")


def test_verdicts_that_spare_probes_are_of_their_class() -> None:
    """The class was renamed once. Nothing failed, and each bucket of the tests was probed, for 8 to 18 s."""
    require_module("s3fs")
    from rollingfs.backend.objects.s3.backend import S3Backend

    assert S3Backend.__name__ == BACKENDS[0]


def test_program_is_made_once_where_it_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLINGFS_CACHE", str(tmp_path))
    program = Program("copy-1", "sh", "cp text made; echo once >> ../runs", files={"text": "as given"})
    monkeypatch.delenv("ROLLINGFS_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="copy-1 is not in the cache"):
        program.installed()
    monkeypatch.setenv("ROLLINGFS_REQUIRE", "all")
    assert program.installed().read_text() == program.installed().read_text() == "as given"
    assert (tmp_path / "runs").read_text() == "once\n"
    with pytest.raises(RuntimeError, match="there is no `surely-no-tool`"):
        Program("other-1", "surely-no-tool", "true").installed()
