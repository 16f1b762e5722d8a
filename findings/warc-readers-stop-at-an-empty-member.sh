#!/usr/bin/env bash
# FastWARC 2.0.1 (Python), nlnwa/gowarc 3.1.0 and CorentinB/warc 0.8.33 (Go) take an empty gzip member for the end of a WARC file: the records behind it are lost in silence.
#
# Guess: an empty member is valid gzip (RFC 1952), it is what Spark, gzip and any writer leave of a part without records, and `cat part-*.warc.gz` puts it between
# two others; so a reader of records goes on with the next member, as it does between records.
# Seen (2026-11-30): of two files of 50 records and an empty one between them, the three give 50 records, and `fastwarc index` 50 lines; with the empty one first, none. There is
# no error, and `fastwarc check` ends with 0. warcio 1.8.1, jwarc 0.32.0 (Java) and Python's gzip read 100 in each order. FastWARC
# skips an empty lz4 frame between two files, not as the first; zstd frames it always skips.
# Needs Go, Java 17 with Maven, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet FastWARC==2.0.1 warcio==1.8.1 lz4==4.4.5 zstandard==0.25.0
mvn -q -B dependency:copy -Dartifact=org.netpreserve:jwarc:0.32.0 -DoutputDirectory="$work/jars" >maven.log 2>&1 || { cat maven.log; exit 1; }
cat > Read.java <<'JAVA'
import java.nio.file.Path;
import org.netpreserve.jwarc.*;

class Read {
    public static void main(String[] names) throws Exception {
        try (var reader = new WarcReader(Path.of(names[0]))) {
            for (var record : reader) System.out.println("jwarc " + record.headers().first("WARC-Target-URI").get());
        }
    }
}
JAVA
mkdir go-programs
cat > go-programs/main.go <<'GO'
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/CorentinB/warc"
	"github.com/nlnwa/gowarc/v3"
)

func check(err error) {
	if err != nil && err != io.EOF {
		panic(err)
	}
}

func main() {
	reader, err := gowarc.NewWarcFileReader(os.Args[1], 0)
	for check(err); err == nil; {
		record, failure := reader.Next()
		if check(failure); failure == nil {
			fmt.Println("gowarc", record.WarcRecord.WarcHeader().Get("WARC-Target-URI"))
		}
		err = failure
	}
	file, err := os.Open(os.Args[1])
	check(err)
	other, err := warc.NewReader(file)
	for check(err); err == nil; {
		record, failure := other.ReadRecord()
		if check(failure); failure == nil {
			fmt.Println("warc", record.Header.Get("WARC-Target-URI"))
		}
		err = failure
	}
}
GO
export GOPATH="$work/go" GOFLAGS=-modcacherw
(
    cd go-programs && go mod init programs && go get github.com/nlnwa/gowarc/v3@v3.1.0 github.com/CorentinB/warc@v0.8.33 && go mod tidy && go build -o ../programs .
) >go.log 2>&1 || { cat go.log; exit 1; }
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


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def others(name):
    """Return what each library of Go and Java finds."""
    found = {"gowarc": [], "warc": [], "jwarc": []}
    for line in (run("./programs", name) + run("java", "-cp", "jars/*", "Read.java", name)).splitlines():
        library, _, uri = line.partition(" ")
        found[library].append(uri.rpartition("/")[2])
    return found


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
            lines = run("env/bin/fastwarc", "index", name).splitlines()
            run("env/bin/fastwarc", "check", name)
            readers = {"warcio": warcio(name), **others(name)}
            print(f", fastwarc index {len(lines)} lines,", {library: len(names) for library, names in readers.items()}, end="")
            assert readers["warcio"] == readers["jwarc"] == ALL and len(lines) == len(found)
            assert readers["gowarc"] == readers["warc"] == found
            with gzip.open(name) as file:
                assert file.read() == b"".join(FIRST + SECOND)
        print()
PYTHON
echo "FastWARC 2.0.1, gowarc 3.1.0, CorentinB/warc 0.8.33: as described"
