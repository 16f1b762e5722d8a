"""The recipe of change data: its three programs, one after another in one process, as they stand on the page."""

import re
from pathlib import Path

import pytest

from tests.docs.test_docs import PROMISE, page_blocks
from tests.support import spark as world

pytestmark = pytest.mark.slow

PROGRAMS = ("changes.py", "to_parquet.py", "run.py")


def test_changes_become_parquet_and_the_second_run_reads_only_what_is_new(tmp_path: Path) -> None:
    world.require_java()
    blocks = page_blocks("docs/recipes/change_data.md")
    code = "".join(block.code for name in PROGRAMS for block in blocks if f"not-run: {name}," in block.info)
    assert len(re.findall("not-run", "".join(block.info for block in blocks))) == len(PROGRAMS)
    folder = tmp_path / "empty"
    folder.mkdir()
    done = world.run_python("-c", code, env=world.as_installed(tmp_path), cwd=folder)
    assert done.stdout.splitlines() == PROMISE.findall(code)
