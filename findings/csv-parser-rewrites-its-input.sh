#!/usr/bin/env bash
# csv-parser 3.2.1 (npm) writes into the chunks that it reads: what is copied, hashed or sent on from the same stream meanwhile is another file, without an error.
#
# Guess: a parser reads its input. A stream that is piped to two readers gives both the same bytes, so one may count rows while the file is copied or uploaded,
# or read a buffer twice.
# Seen (2026-11-30): of 2,000 rows whose text has a quoted word (`"say ""yes"" now"`), csv-parser finds the right values, and moves the rest of each such cell over its doubled quotes
# in the chunk itself. A copy and a check sum of the same stream, piped behind the parser, differ from the file: the copy is no valid CSV (`"say "yes" now w"`). Piped before
# it, the check sum is right. A buffer that is parsed twice gives other rows the second time. csv-parse 7.0.3, fast-csv 5.0.8 and papaparse 5.7.1 leave the bytes as they are.
# Needs Node 20 with npm and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund csv-parser@3.2.1 csv-parse@7.0.3 fast-csv@5.0.8 papaparse@5.7.1
cat > read.cjs <<'JS'
const assert = require("node:assert");
const { createHash } = require("node:crypto");
const { createReadStream, createWriteStream, readFileSync, writeFileSync } = require("node:fs");
const { Readable } = require("node:stream");
const { finished } = require("node:stream/promises");
const csvParser = require("csv-parser");
const { parse: csvParse } = require("csv-parse");
const fastCsv = require("fast-csv");
const papa = require("papaparse");

const PARSERS = {
  "csv-parser": () => csvParser(),
  "csv-parse": () => csvParse({ columns: true }),
  "fast-csv": () => fastCsv.parse({ headers: true }),
  papaparse: () => papa.parse(papa.NODE_STREAM_INPUT, { header: true, skipEmptyLines: true }),
};
const ROWS = 2000;
const rows = Array.from({ length: ROWS }, (_, n) => ({ n: String(n), text: `say "yes" now ${n}` }));
const data = "n,text\n" + rows.map(({ n, text }) => `${n},"${text.replaceAll('"', '""')}"\n`).join("");
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

async function rowsOf(stream) {
  const found = [];
  for await (const row of stream) found.push({ ...row });
  return found;
}

/** Read a file by a parser, and copy it and compute its check sum from the same stream. */
async function shared(parser, order) {
  const [source, copy, hash] = [createReadStream("rows.csv"), createWriteStream("copy.csv"), createHash("sha256")];
  const targets = order === "parser first" ? [parser, copy, hash] : [hash, copy, parser];
  for (const target of targets) source.pipe(target);
  const [found] = await Promise.all([rowsOf(parser), finished(copy)]);
  assert.deepEqual(found, rows);
  return { copy: readFileSync("copy.csv", "utf8"), sum: hash.digest("hex") };
}

async function main() {
  writeFileSync("rows.csv", data);
  for (const [name, create] of Object.entries(PARSERS)) {
    const changes = name === "csv-parser";
    const first = await shared(create(), "parser first");
    const last = await shared(create(), "parser last");
    const buffer = Buffer.from(data);
    await rowsOf(Readable.from([buffer]).pipe(create()));
    const again = await rowsOf(Readable.from([buffer]).pipe(create()));
    const verdict = (same) => (same ? "right" : "WRONG");
    console.log(`${name}: copy ${verdict(first.copy === data)}, check sum ${verdict(first.sum === sha256(data))}, before the parser ${verdict(last.sum === sha256(data))}; ${again.length} rows again`);
    assert.equal(first.copy !== data, changes);
    assert.equal(first.sum !== sha256(data), changes);
    assert.equal(last.sum, sha256(data));
    if (changes) {
      console.log(`line 2 of the copy: ${first.copy.split("\n")[1]}`);
      assert.notDeepEqual(again, rows);
    } else {
      assert.deepEqual(again, rows);
    }
  }
}

main();
JS
node read.cjs
echo "csv-parser 3.2.1: as described"
