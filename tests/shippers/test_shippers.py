"""Shippers of logs, as docs/shippers.md sets them, while their server is killed three times."""

from pathlib import Path

import pytest

from tests.shippers.measure import measured
from tests.shippers.page import PAGE, results, with_table
from tests.shippers.programs import SHIPPERS

OFTEN = ("syslog-ng-keys", "pipe", "rsyslog", "journald")
"""The others differ from these in their settings, or are built first."""


def test_the_page_is_current() -> None:
    assert with_table(PAGE.read_text()) == PAGE.read_text(), "python -m tests.shippers --page"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in OFTEN else pytest.mark.nightly) for one in results()]
)
def test_a_shipper_loses_no_line(name: str, tmp_path: Path) -> None:
    found = measured(SHIPPERS[name], tmp_path)
    assert found["lost"] == "0"
    assert not SHIPPERS[name].once or found["doubled"] == "0"
