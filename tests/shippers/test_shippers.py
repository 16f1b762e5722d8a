"""Shippers of logs, as docs/shippers.md sets them, while their server is killed three times."""

from pathlib import Path

import pytest

from tests.shippers.measure import measured
from tests.shippers.page import PAGE, results, with_table
from tests.shippers.programs import SHIPPERS


def test_the_page_on_shippers_has_what_was_found() -> None:
    assert with_table(PAGE.read_text()) == PAGE.read_text(), "python -m tests.shippers --page"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", results())
def test_a_shipper_loses_no_line_while_its_server_is_killed(name: str, tmp_path: Path) -> None:
    found = measured(SHIPPERS[name], tmp_path)
    assert found["lost"] == "0"
    assert not SHIPPERS[name].once or found["doubled"] == "0"
