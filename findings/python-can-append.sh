#!/usr/bin/env bash
# python-can 4.6.1 empties a PEAK trace (.trc) that it is told to append to; what it appends to a .trc.gz, or by an earlier clock to a Vector log (.blf), has wrong times. No error.
#
# Guess: `can.Logger(name, append=True)` (`can_logger --append`) adds to the log, whatever its format, or raises (.asc and .db do: "not equipped to append").
# Seen (2026-12-01): five messages, half a second after each other, then five more by a second writer with append=True, 1,000 seconds later. A .log, a .csv and a .blf have ten; a .trc has the second five,
# and the first are gone: TRCWriter takes `append` and drops it. A .trc.gz has ten, and the second five are read with the times of the first, since the reader takes the start of the first header for both.
# When the clock of the second writer is earlier than the log (a board without a battery), all five messages that it appends to a .blf are read with the time of the first message of the log.
# The .log and the .csv, and both with .gz, are right. Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet python-can==4.6.1
env/bin/python - <<'PYTHON'
from pathlib import Path

import can

BEGIN = 1_700_000_000


def record(name, begin, append):
    """Write five messages, half a second after each other."""
    with can.Logger(name, append=append) as log:
        for n in range(5):
            log(can.Message(timestamp=begin + n / 2, arbitration_id=0x100 + n, data=[n] * 8, channel=1, is_extended_id=False))


def times(name):
    """Return the seconds since the log began, of each message."""
    with can.LogReader(name) as log:
        return [round(message.timestamp - BEGIN, 3) for message in log]


first = [0.0, 0.5, 1.0, 1.5, 2.0]
for what, later in ("a later writer", 1000), ("a clock set back", -5000):
    second = [later + time for time in first]
    for kind in "log", "log.gz", "csv", "csv.gz", "blf", "trc", "trc.gz":
        name = f"by{later}.{kind}"
        record(name, BEGIN, append=False)
        assert times(name) == first
        record(name, BEGIN + later, append=True)
        print(f"{what}, {kind}: {times(name)}")
        expected = {"trc": second, "trc.gz": first + first, "blf": first + second if later > 0 else first + [0.0] * 5}
        assert times(name) == expected.get(kind, first + second)
try:
    record("x.asc", BEGIN, append=True)
except ValueError as error:
    print(f"asc: {error}")
else:
    raise AssertionError("asc appends")
PYTHON
echo "python-can 4.6.1: as described"
