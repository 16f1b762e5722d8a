#!/usr/bin/env bash
# zat 0.4.9 (Python) reads all Zeek logs of a file by the header of the first: its dataframes (pandas, polars) swap the columns of a later log, and ZeekLogReader drops all rows behind the first #close. No error.
#
# Guess: `zcat conn.*.log.gz` is what zeek-cut reads (its option -C keeps "all format header blocks"): each log begins with #fields, which may name others than the log before, once a script is loaded;
# a reader takes rows by the header in force, or refuses a second one.
# Seen (2026-12-01): two logs of three connections each, with the same fields, whose second has resp_bytes in front of orig_bytes. Each alone is read right. Of both in a row the dataframes have six rows,
# and of the last three the bytes that were sent are those that were received; ZeekLogReader gives three rows, also where both headers are the same. parsezeeklogs 3.0.1 reads all rows right.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet zat==0.4.9 parsezeeklogs==3.0.1 pandas==3.1.1 polars==2.1.0
env/bin/python - <<'PYTHON'
from pathlib import Path

from parsezeeklogs import ParseZeekLogs
from zat.log_to_dataframe import LogToDataFrame
from zat.log_to_polars import LogToPolars
from zat.zeek_log_reader import ZeekLogReader

SENT_FIRST = {"ts": "time", "uid": "string", "proto": "enum", "orig_bytes": "count", "resp_bytes": "count"}
SENT_LAST = {name: SENT_FIRST[name] for name in ("ts", "uid", "proto", "resp_bytes", "orig_bytes")}


def log(fields, numbers):
    """Return a log of connections; the numbered sends 1,000 bytes and its number, and gets 2,000 and its number."""
    head = ["#separator \\x09", "#set_separator\t,", "#empty_field\t(empty)", "#unset_field\t-", "#path\tconn", "#open\t2026-01-01-00-00-00"]
    head += ["\t".join(["#fields", *fields]), "\t".join(["#types", *fields.values()])]
    rows = []
    for n in numbers:
        row = {"ts": f"{1_700_000_000 + n}.000000", "uid": f"C{n}", "proto": "tcp", "orig_bytes": str(1000 + n), "resp_bytes": str(2000 + n)}
        rows.append("\t".join(row[name] for name in fields))
    return "\n".join([*head, *rows, "#close\t2026-01-01-01-00-00", ""])


def read(name):
    """Return what each reader finds: a list of (uid, sent, received)."""
    frame = LogToDataFrame().create_dataframe(name)
    polars = LogToPolars().create_dataframe(name)
    found = {
        "pandas": zip(frame["uid"].astype(str), frame["orig_bytes"], frame["resp_bytes"]),
        "polars": polars.select("uid", "orig_bytes", "resp_bytes").rows(),
        "rows": ((row["uid"], row["orig_bytes"], row["resp_bytes"]) for row in ZeekLogReader(name).readrows()),
        "parsezeeklogs": ((row["uid"], row["orig_bytes"], row["resp_bytes"]) for row in ParseZeekLogs(name)),
    }
    return {reader: [(uid, int(sent), int(received)) for uid, sent, received in rows] for reader, rows in found.items()}


first, second, third = log(SENT_FIRST, range(3)), log(SENT_LAST, range(3, 6)), log(SENT_FIRST, range(3, 6))
right = [(f"C{n}", 1000 + n, 2000 + n) for n in range(6)]
swapped = right[:3] + [(uid, received, sent) for uid, sent, received in right[3:]]
for name, text, frames, rows, every in (
    ("first", first, right[:3], right[:3], right[:3]),
    ("second", second, right[3:], right[3:], right[3:]),
    ("same header twice", first + third, right, right[:3], right),
    ("first and second", first + second, swapped, right[:3], right),
):
    Path(name).write_text(text)
    found = read(name)
    for reader, seen in found.items():
        print(f"{name}, {reader}: {seen}")
    assert found == {"pandas": frames, "polars": frames, "rows": rows, "parsezeeklogs": every}
PYTHON
echo "zat 0.4.9: as described"
