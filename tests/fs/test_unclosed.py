"""Files for writing that nobody closes: nothing is committed, and a warning says how much is lost."""

import gc
import io
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rollingfs import FencedError
from rollingfs.fs import write_buffer
from rollingfs.segment.write import ingest
from tests.support.cli import python
from tests.support.examples import slowly
from tests.support.forks import needs_fork

LARGE = b"0123456789" * 300_001
"""3,000,010 bytes."""


def drop(file: Any) -> None:
    """Drop the last reference to a file, which a list holds."""
    file.clear()
    gc.collect()


@pytest.mark.parametrize("size", [1, 10, len(LARGE)])
def test_forgotten_file_reports_its_lost_bytes(fs, tmp_path, caplog, size):
    held = [fs.open(f"{tmp_path}/x", "ab")]
    held[0].write(LARGE[:size])
    with pytest.warns(ResourceWarning) as caught:
        drop(held)
    [said] = [str(one.message) for one in caught]
    assert said.startswith(f"{tmp_path}/x: ")
    assert f" {size:,} bytes " in said
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [said]
    assert not fs.exists(f"{tmp_path}/x")


def test_bytes_that_went_to_chunks_are_counted_too(fs, tmp_path, monkeypatch):
    monkeypatch.setattr(write_buffer, "PIECE_BYTES", 1000)
    monkeypatch.setattr(ingest, "SMALL_BYTES_MAX", 1000)
    held = [fs.open(f"{tmp_path}/x", "wb")]
    for _ in range(7):
        held[0].write(b"x" * 601)
    with pytest.warns(ResourceWarning, match=" 4,207 bytes "):
        drop(held)


def test_only_what_came_after_the_last_commit_is_lost(fs, tmp_path):
    held = [fs.open(f"{tmp_path}/x", "a", newline="\n")]
    held[0].write("kept\n")
    held[0].commit()
    held[0].write("lost")
    with pytest.warns(ResourceWarning, match=" 4 bytes "):
        drop(held)
    assert fs.cat_file(f"{tmp_path}/x") == b"kept\n"


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_a_file_with_nothing_to_lose_says_nothing(fs, tmp_path, caplog, mode):
    """Or with a loss that `close` has reported."""
    held = [fs.open(f"{tmp_path}/{name}", mode) for name in ("untouched", "closed", "discarded", "refused")]
    for nth in (1, 2, 3):
        held[nth].write("x" if mode == "w" else b"x")
    fs.create(f"{tmp_path}/refused")
    fs.segment(f"{tmp_path}/refused").acquire("me")
    with pytest.raises(FencedError):
        held[3].close()
    held[1].close()
    held[2].discard()
    drop(held)
    assert caplog.records == []


def test_a_compressed_stream_is_not_committed_in_its_middle(fs, tmp_path):
    with fs.open(f"{tmp_path}/x.gz", "wt", compression="gzip") as file:
        file.write("text")
        with pytest.raises(io.UnsupportedOperation, match="close"):
            file.commit()
    with fs.open(f"{tmp_path}/x.gz", "rt", compression="gzip") as file:
        assert file.read() == "text"


# -- the end of the program ----------------------------------------------------------------------------------


def end_of(tmp_path: Path, body: str) -> str:
    """The standard error of a program that ends well."""
    begin = f"import atexit, logging, os, sys, fsspec, rollingfs; path = {str(tmp_path / 'app.log')!r}"
    opened = "fs = fsspec.filesystem('rolling', target_protocol='file', sync=False)"
    return python("\n".join([begin, opened, textwrap.dedent(body)]), PYTHONWARNINGS="").stderr


LOGGING = """
    logging.basicConfig(stream=fs.open(path, "a"), level=logging.INFO, format="%(message)s")
    for number in range(1000):
        logging.info("%04d", number)
"""


def test_log_closed_at_exit_is_whole_without_warnings(fs, tmp_path):
    assert end_of(tmp_path, LOGGING + "    atexit.register(logging.root.handlers[0].stream.close)\n") == ""
    assert len(fs.cat_file(f"{tmp_path}/app.log")) == 1000 * len(f"0000{os.linesep}")


@pytest.mark.parametrize(
    "body",
    [
        'file = fs.open(path, "ab"); file.write(b"x" * 2500)',
        'file = fs.open(path, "a"); file.write("x" * 2500)',
        'file = fs.open(path, "a"); file.write("x" * 2500); file.itself = [file]',
        *slowly(
            'file = fs.open(path, "wt", compression="gzip"); file.write("x" * 2500)',
            'file = fsspec.open("rolling+file://" + path, "a").open(); file.write("x" * 2500)',
        ),
    ],
    ids=["binary", "text", "cycle", "compressed", "fsspec's own text"],
)
def test_each_file_kind_is_reported_at_exit_once(fs, tmp_path, body):
    said = end_of(tmp_path, body)
    assert said.count("app.log: the program ends") == 1
    assert " 2,500 bytes " in said
    assert not fs.exists(f"{tmp_path}/app.log")


@needs_fork
def test_child_says_nothing_of_file_of_its_parent(fs, tmp_path):
    said = end_of(
        tmp_path,
        """
        file = fs.open(path, "a")
        file.write("of the parent")
        child = os.fork()
        if child == 0:
            sys.exit(0)  # with all that an exit does
        assert os.waitpid(child, 0)[1] == 0
        file.close()
        """,
    )
    assert said == ""
    assert fs.cat_file(f"{tmp_path}/app.log") == b"of the parent"
