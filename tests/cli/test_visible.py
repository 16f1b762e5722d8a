"""What others have named or written reaches a terminal without control characters."""

from __future__ import annotations

import pytest
from rich.table import Table
from rich.text import Text

from rollingfs.cli import output

ESCAPE = "\x1b[2J"


def test_tables_and_lines_show_control_characters_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=ESCAPE)
    table.add_column(ESCAPE)
    table.add_row(ESCAPE)
    output.show(table, Text(ESCAPE))
    output.say(ESCAPE)
    output.complain(ESCAPE)
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert shown.out.count("\\x1b[2J") == 5


def test_a_date_that_no_time_zone_can_express_is_shown_as_a_number() -> None:
    assert "since 1970" in output.date_text(-1e15)
