#!/usr/bin/env bash
# FastWARC 2.0.1 takes an empty gzip member, or an lz4 frame without bytes at the head, for the end of a WARC file: the records behind it are lost in silence.
#
# Guess: an empty member is valid gzip (RFC 1952), it is what Spark, gzip and any writer leave of a part without records, and `cat part-*.warc.gz` puts it between
# two others; so a reader of records goes on with the next member, as it does between records.
# Seen (2026-11-30): of two files of 50 records and an empty one between them, ArchiveIterator gives 50 records, and `fastwarc index` 50 lines; with the empty one first, none.
# There is no error, and `fastwarc check` ends with 0. warcio 1.8.1 and Python's gzip read 100 in each order. An empty lz4 frame between two files is
# skipped; as the first, it ends the file, too. An empty zstd frame is skipped.
# Needs Python 3.11 and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet FastWARC==2.0.1 warcio==1.8.1 lz4==4.4.5 zstandard==0.25.0
env/bin/python - <<'PYTHON'
import gzip, io, subprocess

import lz4.frame, zstandard
from fastwarc.warc import ArchiveIterator
from warcio.archiveiterator import ArchiveIterator as WarcioIterator
from warcio.warcwriter import WARCWriter


def records(numbers):
    """Return the bytes of each record."""
    for n in numbers:
        out = io.BytesIO()
        writer = WARCWriter(out, gzip=False)
        body = io.BytesIO(f"body of {n}".encode())
        writer.write_record(writer.create_warc_record(f"http://site.test/{n}", "resource", payload=body, warc_content_type="text/plain"))
        yield out.getvalue()


def fastwarc(name):
    with open(name, "rb") as file:
        return [record.headers["WARC-Target-URI"].rpartition("/")[2] for record in ArchiveIterator(file)]


def warcio(name):
    with open(name, "rb") as file:
        return [record.rec_headers.get_header("WARC-Target-URI").rpartition("/")[2] for record in WarcioIterator(file)]


def run(*arguments):
    return subprocess.run(["env/bin/fastwarc", *arguments], check=True, capture_output=True, text=True).stdout


def write(name, parts):
    with open(name, "wb") as file:
        file.write(b"".join(parts))


FIRST, SECOND = list(records(range(50))), list(records(range(50, 100)))
FIRST_NAMES, ALL = [str(n) for n in range(50)], [str(n) for n in range(100)]
CODECS = {"gz": gzip.compress, "lz4": lz4.frame.compress, "zst": zstandard.ZstdCompressor().compress}
expected = {
    "gz": {"without": ALL, "between": FIRST_NAMES, "before": []},
    "lz4": {"without": ALL, "between": ALL, "before": []},
    "zst": {"without": ALL, "between": ALL, "before": ALL},
}
for suffix, compress in CODECS.items():
    first, second = ([compress(record) for record in part] for part in (FIRST, SECOND))
    empty = [compress(b"")]
    for order, parts in {"without": [first, second], "between": [first, empty, second], "before": [empty, first, second]}.items():
        name = f"{order}.warc.{suffix}"
        write(name, [member for part in parts for member in part])
        found = fastwarc(name)
        print(f"{name}: FastWARC {len(found)} records", end="")
        assert found == expected[suffix][order]
        if suffix == "gz":
            lines = run("index", name).splitlines()
            run("check", name)
            print(f", fastwarc index {len(lines)} lines, warcio {len(warcio(name))} records", end="")
            assert warcio(name) == ALL and len(lines) == len(found)
            with gzip.open(name) as file:
                assert file.read() == b"".join(FIRST + SECOND)
        print()
PYTHON
echo "FastWARC 2.0.1: as described"
