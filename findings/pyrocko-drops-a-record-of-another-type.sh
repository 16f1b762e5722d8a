#!/usr/bin/env bash
# pyrocko 2026.6.2 (Python) drops a record of miniSEED wherever whole numbers and floats of one channel meet in a file: of alternating records, each second. No exception.
#
# Guess: records of miniSEED stand for themselves, each tells its encoding, so `cat monday.mseed tuesday.mseed` is a valid file; a reader that cannot keep both types
# in one trace begins another, as it does at a gap.
# Seen (2026-11-30): pyrocko writes 1,000 samples as int32 and the next 1,000 as float32, each file is read right alone. Of both in a row `io.load` gives two traces and 1,886 samples (1,588 in the other order):
# the first record behind the change is missing, and the hole looks like a gap of the instrument. Of 20 records by turns of both types 10 are missing. The C library inside prints
# "Mismatched sample type" to stderr; load() returns, and the traces tell of no damage. pymseed 1.0.1 reads every sample.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet pyrocko==2026.6.2 pymseed==1.0.1 numpy==1.26.4
env/bin/python - <<'PYTHON' 2> errors.txt || { cat errors.txt; exit 1; }
import pathlib

import numpy as np
from pymseed import MS3Record
from pyrocko import io, trace


def part(first, count, kind):
    """Return the file that pyrocko writes of samples whose values are their numbers."""
    values = np.arange(first, first + count, dtype=kind)
    io.save([trace.Trace("XX", "STA", "", "BHZ", tmin=1.7e9 + first / 10, deltat=0.1, ydata=values)], "part.mseed", record_length=512)
    assert read("part.mseed") == set(range(first, first + count))
    return pathlib.Path("part.mseed").read_bytes()


def read(name):
    return {int(value) for found in io.load(name) for value in found.ydata}


def look(what, parts, samples):
    path = pathlib.Path("joined.mseed")
    path.write_bytes(b"".join(parts))
    records = [record.samplecnt for record in MS3Record.from_file(str(path))]
    found = read(str(path))
    print(f"{what}: {len(records)} records, pymseed {sum(records)} samples, pyrocko {len(found)}")
    assert sum(records) == samples and found < set(range(samples))
    return found, records


for kinds in ("i4", "f4"), ("f4", "i4"):
    first, second = part(0, 1000, kinds[0]), part(1000, 1000, kinds[1])
    found, records = look(f"{kinds[0]}, then {kinds[1]}", [first, second], 2000)
    lost = records[len(first) // 512]
    assert found == set(range(2000)) - set(range(1000, 1000 + lost))
found, records = look("one record each by turns", [part(n * 100, 100, "i4" if n % 2 else "f4") for n in range(20)], 2000)
assert len(records) == 20 and len(found) == 1000
PYTHON
grep -c "Mismatched sample type" errors.txt
echo "pyrocko 2026.6.2: as described"
