"""The recipe of change data: its three programs, one after another in one process, as they stand on the page."""

from pathlib import Path

import pytest

from tests.docs.test_docs import PROMISE, page_blocks, program_of
from tests.support import spark as world

pytestmark = pytest.mark.slow

PAGE = "docs/recipes/change_data.md"
PROGRAMS = ("changes.py", "to_parquet.py", "run.py")


def test_changes_become_parquet_and_later_runs_read_new_ones(tmp_path: Path) -> None:
    world.require_java()
    code = program_of(PAGE, *PROGRAMS)
    assert sum("not-run" in block.info for block in page_blocks(PAGE)) == len(PROGRAMS)
    folder = tmp_path / "empty"
    folder.mkdir()
    done = world.run_python("-c", code, env=world.as_installed(tmp_path), cwd=folder)
    assert done.stdout.splitlines() == PROMISE.findall(code)
