#!/usr/bin/env bash
# Four npm readers of CSV give other rows where one chunk ends at an unlucky byte: csv-parser 3.2.1, papaparse 5.7.1 (as a stream), csv-batch 2.0.6 and ya-csv 1.0.0.
#
# Guess: a stream is cut into chunks anywhere, by 64 KiB of a file, by the packets of a server or by the appends to a log; so the rows do not depend on it.
# Seen (2026-11-30): of one CSV with CRLF (RFC 4180), cut in two at each byte. csv-parser, cut between CR and LF of the header, puts a line feed before the first cell of every row,
# and makes a row of the last one. papaparse, whose first chunk ends inside the header, takes LF for the end of a line: the last column is named "c\r" and its cells keep the CR; if it ends
# between CR and LF of the header or of the first row, papaparse does as csv-parser.
# csv-batch makes an empty row of an LF that begins a chunk. csv-batch and ya-csv lose the quote where a chunk ends between two (`""`), as it does in a file of 70 KB.
# Nothing fails. csv-parse 7.0.3, fast-csv 5.0.8 and csvtojson 2.0.14 give the same rows for each cut.
# Needs Node 20 with npm and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund csv-parser@3.2.1 papaparse@5.7.1 csv-batch@2.0.6 ya-csv@1.0.0 csv-parse@7.0.3 fast-csv@5.0.8 csvtojson@2.0.14
cat > read.cjs <<'JS'
const assert = require("node:assert");
const { createReadStream, writeFileSync } = require("node:fs");
const { PassThrough, Readable } = require("node:stream");
const papa = require("papaparse");

async function rowsOf(source, parser) {
  const found = [];
  for await (const row of source.pipe(parser)) found.push({ ...row });
  return found;
}

function byEvents(source) {
  const input = source.pipe(new PassThrough());
  const found = [];
  const reader = require("ya-csv").createCsvStreamReader(input, { columnsFromHeader: true });
  return new Promise((resolve, reject) => reader.on("data", (row) => found.push({ ...row })).on("error", reject).on("end", () => resolve(found)));
}

const READERS = {
  "csv-parser": (source) => rowsOf(source, require("csv-parser")()),
  papaparse: (source) => rowsOf(source, papa.parse(papa.NODE_STREAM_INPUT, { header: true, skipEmptyLines: true })),
  "csv-batch": async (source) => (await require("csv-batch")(source, { header: true })).data.map((row) => ({ ...row })),
  "ya-csv": byEvents,
  "csv-parse": (source) => rowsOf(source, require("csv-parse").parse({ columns: true })),
  "fast-csv": (source) => rowsOf(source, require("fast-csv").parse({ headers: true })),
  csvtojson: (source) => rowsOf(source, require("csvtojson")({}, { objectMode: true })),
};
const TEXT = 'a,b,c\r\n1,"say ""x""",3\r\n4,5,6\r\n7,8,9\r\n';
const ROWS = [{ a: "1", b: 'say "x"', c: "3" }, { a: "4", b: "5", c: "6" }, { a: "7", b: "8", c: "9" }];
const LINE_ENDS = [...TEXT.matchAll(/\r\n/g)].map((match) => match.index + 1);
const QUOTES = [...TEXT.matchAll(/""(?=x|")/g)].map((match) => match.index + 1);
const expected = {
  "csv-parser": [LINE_ENDS[0]],
  papaparse: [1, 2, 3, 4, 5, 6, LINE_ENDS[1]],
  "csv-batch": [...LINE_ENDS, ...QUOTES].sort((one, other) => one - other),
  "ya-csv": [QUOTES[0]],
};

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

async function main() {
  const long = "a,b\r\n" + `${"x".repeat(97)},\r\n`.repeat(655) + `${"y".repeat(27)},"q""r"\r\n` + "z,1\r\n".repeat(1000);
  assert.equal(long.slice(65534, 65538), 'q""r');
  writeFileSync("long.csv", long);
  for (const [name, read] of Object.entries(READERS)) {
    assert(same(await read(Readable.from([Buffer.from(TEXT)])), ROWS), name);
    const cuts = [];
    for (let n = 1; n < TEXT.length; n++) {
      const found = await read(Readable.from([Buffer.from(TEXT.slice(0, n)), Buffer.from(TEXT.slice(n))]));
      if (same(found, ROWS)) continue;
      if (cuts.length === 0) console.log(`${name}: ${JSON.stringify(found)}`);
      cuts.push(n);
    }
    const cell = (await read(createReadStream("long.csv"))).find((row) => row.a.startsWith("y")).b;
    console.log(`${name}: other rows for ${cuts.length} of ${TEXT.length - 1} cuts, ${cuts}; in a file of ${long.length} bytes the cell q"r is ${cell}`);
    console.log();
    if (expected[name]) assert.deepEqual(cuts, expected[name]);
    else assert.equal(cuts.length, 0);
    assert.equal(cell, ["csv-batch", "ya-csv"].includes(name) ? "qr" : 'q"r');
  }
}

main();
JS
node read.cjs
echo "csv-parser 3.2.1, papaparse 5.7.1, csv-batch 2.0.6, ya-csv 1.0.0: as described"
