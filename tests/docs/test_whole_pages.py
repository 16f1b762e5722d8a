"""Pages with blocks that need a bucket: all their blocks run in order on SeaweedFS; the environment has credentials.

A block declares itself by ```` ```python not-run: <why>; tests/docs/test_whole_pages.py runs it ````. The bucket of
such a page is ``my-bucket``.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_docs import PAGES, RUNS, Block, missing, page_blocks, run
from tests.support.servers import aws_environment, new_bucket, require, require_module

require_module("s3fs")

import fsspec
import s3fs

from rollingfs import RollingFileSystem

MARK = "; tests/docs/test_whole_pages.py runs it"
BUCKET = "my-bucket"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the tools warn of what they use themselves


def runs_here(block: Block) -> bool:
    return block.info.startswith("python not-run: ") and block.info.endswith(MARK)


WHOLE = [page for page in PAGES if any(map(runs_here, page_blocks(page)))]


def forget_clients() -> None:
    """Make the next client read the environment again."""
    for cls in (RollingFileSystem, fsspec.get_filesystem_class("rolling+s3"), s3fs.S3FileSystem):
        cls.clear_instance_cache()


@pytest.fixture
def bucket(seaweed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of the store that the environment names, with its credentials."""
    for name, value in aws_environment(seaweed).items():
        monkeypatch.setenv(name, value)
    forget_clients()
    yield new_bucket(seaweed)
    forget_clients()


@pytest.mark.parametrize("page", WHOLE)
def test_a_page_runs_on_s3_and_keeps_its_promises(page: str, bucket: str, tmp_path: Path, monkeypatch: Any) -> None:
    chosen = [block for block in page_blocks(page) if block.info == RUNS or runs_here(block)]
    blocks = [replace(block, info=RUNS, code=block.code.replace(BUCKET, bucket)) for block in chosen]
    if absent := missing(blocks):
        require(f"{', '.join(absent)}: not installed")
    monkeypatch.chdir(tmp_path)
    run(blocks)


def test_pages_with_a_bucket_are_found() -> None:
    assert {"docs/recipes/tensorboard.md", "docs/s3_quickstart.md"} <= set(WHOLE)
