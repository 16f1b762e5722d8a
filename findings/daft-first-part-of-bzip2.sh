#!/usr/bin/env bash
# daft 0.7.26 reads the first stream of a bzip2 or xz file and drops the others in silence: a fifth of the rows of what pbzip2 wrote.
#
# Guess: a bzip2 or xz file may have several streams (what `cat a.bz2 b.bz2` and each pbzip2 make), every reader that takes the suffix reads all of
# them, as daft does with the members of gzip; one that does not fails, because the rest of the file is no end mark.
# Seen (2026-11-30): of one CSV of 200,000 rows that pbzip2 1.1.13 compressed by one command, daft counts 39,614 rows, without error or warning; pandas
# 3.1.1, pyarrow 25.0.1 and datafusion 55.0.0 count all. Of JSON lines that were compressed in two halves, it reads the first half of bzip2 and xz, all of gzip.
# Needs Debian 12, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work" && chmod 755 .
apt-get download -qq pbzip2=1.1.13-1
dpkg -x ./pbzip2*.deb programs
python3 -m venv env
env/bin/pip install --quiet daft==0.7.26 pandas==3.1.1 pyarrow==25.0.1 datafusion==55.0.0
env/bin/python - <<'PYTHON'
import bz2, collections, gzip, json, lzma, random, subprocess, sys

import daft, datafusion, pandas
from pyarrow import csv

ROWS, HALF = 200_000, 100_000
random.seed(1)
values = [f"{random.getrandbits(64):016x}" for _ in range(ROWS)]
with open("rows.csv", "w") as file:
    file.write("n,s\n" + "".join(f"{n},{value}\n" for n, value in enumerate(values)))
subprocess.run(["programs/usr/bin/pbzip2", "-p2", "rows.csv"], check=True)
lines = [json.dumps({"n": n, "s": value}) + "\n" for n, value in enumerate(values)]
halves = ["".join(lines[:HALF]).encode(), "".join(lines[HALF:]).encode()]
compressors = {"gz": gzip, "bz2": bz2, "xz": lzma}
for suffix, compressor in compressors.items():
    with open(f"rows.jsonl.{suffix}", "wb") as file:
        file.writelines(compressor.compress(half) for half in halves)
    assert len(compressor.open(file.name).read()) == sum(map(len, halves))

found = collections.Counter(
    daft=daft.read_csv("rows.csv.bz2").count_rows(),
    pandas=len(pandas.read_csv("rows.csv.bz2")),
    pyarrow=csv.read_csv("rows.csv.bz2").num_rows,
    datafusion=datafusion.SessionContext().read_csv("rows.csv.bz2", file_extension=".bz2", file_compression_type="bz2").count(),
)
print(f"one CSV of {ROWS:,} rows by pbzip2: {dict(found)}")
read = {suffix: daft.read_json(f"rows.jsonl.{suffix}").to_pydict()["n"] for suffix in compressors}
print(f"JSON lines in two halves, by daft: { {suffix: len(rows) for suffix, rows in read.items()} }")
assert found.pop("daft") < ROWS / 2 and set(found.values()) == {ROWS}, found
assert read["gz"] == list(range(ROWS)) and read["bz2"] == read["xz"] == list(range(HALF))
PYTHON
echo "daft 0.7.26: as described"
