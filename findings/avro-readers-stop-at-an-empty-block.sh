#!/usr/bin/env bash
# A block without rows, which goavro writes, ends an Avro file for Avro's own Java library, hamba/avro (Go) and polars: the rows behind it are lost in silence.
#
# Guess: a block of an Avro file has a count, which may be 0, and the file ends where its bytes end; so readers skip such a block, or call the file damaged.
# Seen (2026-11-30): goavro 2.15.0 appends two rows, an empty batch and two rows. fastavro 1.13.1, avro 1.12.2 (Python) and datafusion 55.0.0 read four rows. Java's
# DataFileReader and DataFileStream (avro 1.12.2), hamba/avro 2.31.0 and polars 2.1.0 give two, without an error;
# goavro refuses what it wrote itself. With an empty batch first, Java, hamba and polars give no row at all.
# Needs Go, Java 17 with Maven, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet fastavro==1.13.1 avro==1.12.2 polars==2.1.0 datafusion==55.0.0 pyarrow==25.0.1
for package in org.apache.avro:avro:1.12.2 org.slf4j:slf4j-nop:2.0.17 com.fasterxml.jackson.core:jackson-databind:2.20.0 \
    com.fasterxml.jackson.core:jackson-core:2.20.0 com.fasterxml.jackson.core:jackson-annotations:2.20 org.slf4j:slf4j-api:2.0.17 \
    org.apache.commons:commons-compress:1.28.0 commons-io:commons-io:2.20.0; do
    mvn -q -B dependency:copy -Dartifact="$package" -DoutputDirectory="$work/jars" >maven.log 2>&1 || { cat maven.log; exit 1; }
done
cat > Read.java <<'JAVA'
import java.io.*;
import org.apache.avro.file.*;
import org.apache.avro.generic.*;

class Read {
    static String rows(Iterable<GenericRecord> reader) {
        var found = new StringBuilder();
        for (var row : reader) found.append(row.get("a")).append(' ');
        return found.toString().strip();
    }

    public static void main(String[] names) throws Exception {
        for (var name : names)
            try (var reader = new DataFileReader<GenericRecord>(new File(name), new GenericDatumReader<>());
                    var stream = new DataFileStream<GenericRecord>(new FileInputStream(name), new GenericDatumReader<>())) {
                System.out.println("DataFileReader: " + rows(reader));
                System.out.println("DataFileStream: " + rows(stream));
            }
    }
}
JAVA
mkdir go-programs
cat > go-programs/main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/hamba/avro/v2/ocf"
	"github.com/linkedin/goavro/v2"
)

const schema = `{"type": "record", "name": "row", "fields": [{"name": "a", "type": "long"}]}`

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func write(name string, batches ...[]any) {
	file, err := os.Create(name)
	check(err)
	defer file.Close()
	writer, err := goavro.NewOCFWriter(goavro.OCFConfig{W: file, Schema: schema})
	check(err)
	for _, batch := range batches {
		check(writer.Append(batch))
	}
}

func read(name string) {
	file, err := os.Open(name)
	check(err)
	reader, err := goavro.NewOCFReader(file)
	check(err)
	for fmt.Print("goavro:"); reader.Scan(); {
		row, err := reader.Read()
		check(err)
		fmt.Print(" ", row.(map[string]any)["a"])
	}
	if reader.Err() != nil {
		fmt.Print(" error")
	}
	_, err = file.Seek(0, 0)
	check(err)
	decoder, err := ocf.NewDecoder(file)
	check(err)
	for fmt.Print("\nhamba:"); decoder.HasNext(); {
		var row map[string]any
		check(decoder.Decode(&row))
		fmt.Print(" ", row["a"])
	}
	if decoder.Error() != nil {
		fmt.Print(" error")
	}
	fmt.Println()
}

func row(n int64) any { return map[string]any{"a": n} }

func main() {
	if len(os.Args) > 1 {
		read(os.Args[1])
		return
	}
	first, second := []any{row(1), row(2)}, []any{row(3), row(4)}
	write("plain.avro", first, second)
	write("between.avro", first, []any{}, second)
	write("before.avro", []any{}, first, second)
}
GO
export GOPATH="$work/go" GOFLAGS=-modcacherw
(
    cd go-programs && go mod init programs && go get github.com/linkedin/goavro/v2@v2.15.0 github.com/hamba/avro/v2@v2.31.0 && go mod tidy && go build -o ../programs .
) >go.log 2>&1 || { cat go.log; exit 1; }
./programs
env/bin/python - <<'PYTHON'
import subprocess

import avro.datafile, avro.io, datafusion, fastavro, polars


def python(name):
    with open(name, "rb") as file:
        yield "fastavro", [row["a"] for row in fastavro.reader(file)]
    with avro.datafile.DataFileReader(open(name, "rb"), avro.io.DatumReader()) as reader:
        yield "avro", [row["a"] for row in reader]
    yield "datafusion", datafusion.SessionContext().read_avro(name).to_pydict()["a"]
    yield "polars", polars.read_avro(name)["a"].to_list()


def read(name):
    found = {reader: " ".join(map(str, rows)) for reader, rows in python(name)}
    for command in (["java", "-cp", "jars/*", "Read.java", name], ["./programs", name]):
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            reader, _, rows = line.partition(":")
            found[reader] = rows.strip()
    print(f"{name}: {found}")
    return found


ALL = "1 2 3 4"
plain, between, before = read("plain.avro"), read("between.avro"), read("before.avro")
assert set(plain.values()) == {ALL} and len(plain) == 8, plain
whole, silent = {"fastavro", "avro", "datafusion"}, {"DataFileReader", "DataFileStream", "hamba", "polars"}
assert all(between[name] == before[name] == ALL for name in whole)
assert all(between[name] == "1 2" and before[name] == "" for name in silent)
assert between["goavro"] == "1 2 error" and before["goavro"] == "error"
PYTHON
echo "goavro 2.15.0 and readers of Avro: as described"
