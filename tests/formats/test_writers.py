"""The page shows what writers leave in a file that they add to, and how Avro grows."""

import pytest

from rollingfs import RollingFileSystem
from rollingfs.errors import BadOffsetError
from tests.formats.joining import FIRST, PAGE, SECOND
from tests.formats.readers import READERS
from tests.formats.writers import ON_A_FILE, PATH, RECIPE, append_avro, found, outcome, recipe, shown
from tests.support.backends import private_memory
from tests.support.pages import block_of
from tests.support.servers import found_by

NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)


@pytest.mark.parametrize("line", [pytest.param(line, marks=NIGHTLY if "avro" in line else ()) for line in ON_A_FILE])
def test_a_writer_leaves_what_the_page_says(line: str) -> None:
    assert found_by(outcome, line) == shown()[line]


def test_the_page_has_the_recipe() -> None:
    assert block_of(PAGE.read_text(), RECIPE) == recipe()


@pytest.mark.slow
@pytest.mark.nightly
def test_avro_grows_by_the_recipe() -> None:
    pytest.importorskip("fastavro")
    fs = RollingFileSystem(backend=private_memory())
    fs.create(PATH)
    for rows in (FIRST, SECOND):
        append_avro(fs, PATH, [{"a": row} for row in rows])
    assert found(fs.cat_file(PATH), READERS["Avro"]["fastavro"]) == "all rows"
    seen, fs.cat_file = fs.cat_file, lambda *args: b""
    with pytest.raises(BadOffsetError):  # another process has made the header since the look
        append_avro(fs, PATH, [{"a": 7}])
    assert found(seen(PATH), READERS["Avro"]["fastavro"]) == "all rows"
