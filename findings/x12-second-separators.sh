#!/usr/bin/env bash
# pyx12 4.0.0 (Python), node-x12 1.7.1 and x12-parser 1.3.0 (npm) lose the orders of a second X12 interchange whose separators differ from those of the first, in silence.
#
# Guess: an X12 file has one interchange or more, and the header of each (ISA, of fixed width) names its separators, so that files of several partners may follow each other;
# a parser that does not look again fails, since there is no segment that it knows.
# Seen (2026-11-30): two interchanges of one order each, with `*` and `~`, and with `|` and `'`. Each alone is read right, and so are two with the same separators. Of both in a row
# pyx12's X12Reader gives the segments of the first and no error; node-x12, strict or not, one interchange with the first order; x12-parser gives the whole second interchange as the name
# of one segment. In the other order, too. Needs Node 20 with npm, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts node-x12@1.7.1 x12-parser@1.3.0
python3 -m venv env
env/bin/pip install --quiet pyx12==4.0.0
cat > read.cjs <<'JS'
const { createReadStream, readFileSync } = require("node:fs");
const nodeX12 = require("node-x12");
const { X12parser } = require("x12-parser");

async function main() {
  const name = process.argv[2];
  for (const strict of [false, true]) {
    const read = new nodeX12.X12Parser(strict).parse(readFileSync(name, "utf8"));
    const interchanges = [...(read.interchanges ?? [read])];
    const segments = interchanges.flatMap((one) => one.functionalGroups.flatMap((group) => group.transactions.flatMap((transaction) => transaction.segments)));
    const orders = segments.filter((segment) => segment.tag === "BEG").map((segment) => segment.valueOf(3));
    console.log(`${strict ? "node-x12 strict" : "node-x12"}:${orders}`);
  }
  const orders = [];
  for await (const segment of createReadStream(name).pipe(new X12parser())) if (segment.name === "BEG") orders.push(segment["3"]);
  console.log(`x12-parser:${orders}`);
}

main();
JS
env/bin/python - <<'PYTHON'
import io, subprocess
from pathlib import Path

from pyx12.x12file import X12Reader


def interchange(number, element, component, segment):
    """Return an interchange of one purchase order."""
    control = f"{number:09d}"
    header = ["ISA", "00", " " * 10, "00", " " * 10, "ZZ", f"SENDER{number}".ljust(15), "ZZ", "RECEIVER".ljust(15), "260101", "1200", "U", "00401", control, "0", "P", component]
    segments = [
        header,
        ["GS", "PO", "S", "R", "20260101", "1200", str(number), "X", "004010"],
        ["ST", "850", "0001"],
        ["BEG", "00", "SA", f"ORDER{number}", "", "20260101"],
        ["PO1", "1", "5", "EA", "9"],
        ["SE", "4", "0001"],
        ["GE", "1", str(number)],
        ["IEA", "1", control],
    ]
    return "".join(element.join(values) + segment + "\n" for values in segments)


def read(name):
    """Return the orders that each reader finds."""
    reader = X12Reader(io.StringIO(Path(name).read_text()))
    found = {"pyx12": [segment.get_value("BEG03") for segment in reader if segment.get_seg_id() == "BEG"]}
    reader.cleanup()
    assert reader.pop_errors() == []
    for line in subprocess.run(["node", "read.cjs", name], check=True, capture_output=True, text=True).stdout.splitlines():
        library, _, orders = line.partition(":")
        found[library] = orders.split(",")
    print(f"{name}: {found}")
    assert len(found) == 4
    return list(found.values())


stars, other_stars, bars = interchange(1, "*", ":", "~"), interchange(2, "*", ":", "~"), interchange(3, "|", ">", "'")
files = {
    "stars": ([stars], ["ORDER1"]),
    "bars": ([bars], ["ORDER3"]),
    "stars and stars": ([stars, other_stars], ["ORDER1", "ORDER2"]),
    "stars and bars": ([stars, bars], ["ORDER1"]),
    "bars and stars": ([bars, stars], ["ORDER3"]),
}
for name, (parts, expected) in files.items():
    Path(name).write_text("".join(parts))
    assert read(name) == [expected] * 4
PYTHON
echo "pyx12 4.0.0, node-x12 1.7.1, x12-parser 1.3.0: as described"
