#!/usr/bin/env bash
# json-stream 1.0.0 (npm) gives a row of JSON lines twice where a chunk ends in front of its line feed, and drops rows that are 0, false or ""; ndjson-readablestream 1.4.0 makes two numbers of a row.
#
# Guess: a reader of JSON lines keeps what follows the last line feed of a chunk until the next one, so each line is one row, wherever the file or the network cuts.
# Seen (2026-11-30): both try to parse the rest of each chunk. json-stream gives it if it is JSON, and keeps it for the next chunk, too: of a file of 300,000 rows, which Node reads by 64 KiB,
# it gives 300,004, four of them next to their twins; a number is given as far as it has come, then whole. Of a file of numbers ndjson-readablestream gives 12 and 345 for 12345, so that the sum
# is wrong. Nothing fails. split2 4.2.0 with JSON.parse and @streamparser/json-node 0.0.26 give each row once.
# Needs Node 20 with npm and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund json-stream@1.0.0 ndjson-readablestream@1.4.0 split2@4.2.0 @streamparser/json-node@0.0.26
cat > read.cjs <<'JS'
const assert = require("node:assert");
const { createReadStream, writeFileSync } = require("node:fs");
const { Readable } = require("node:stream");
const { JSONParser } = require("@streamparser/json-node");
const jsonStream = require("json-stream");
const numbersOf = require("ndjson-readablestream");
const split2 = require("split2");

async function all(rows) {
  const found = [];
  for await (const row of rows) found.push(row);
  return found;
}

async function main() {
  const rows = Array.from({ length: 300_000 }, (_, n) => ({ n, text: "x".repeat(n % 50) }));
  writeFileSync("rows.jsonl", rows.map((row) => JSON.stringify(row) + "\n").join(""));
  const parser = () => new JSONParser({ separator: "\n", paths: ["$"] });
  const found = {
    "json-stream": await all(createReadStream("rows.jsonl").pipe(jsonStream())),
    split2: await all(createReadStream("rows.jsonl").pipe(split2(JSON.parse))),
    streamparser: (await all(createReadStream("rows.jsonl").pipe(parser()))).map(({ value }) => value),
  };
  console.log(`of ${rows.length} rows:`, Object.fromEntries(Object.entries(found).map(([name, read]) => [name, read.length])));
  assert.deepEqual(found.split2.map(({ n }) => n), rows.map(({ n }) => n));
  assert.equal(found.streamparser.length, rows.length);
  const read = found["json-stream"];
  const twins = read.filter((row, at) => at > 0 && read[at - 1].n === row.n);
  assert(twins.length > 0 && read.length === rows.length + twins.length);

  const cut = ['{"n":1}', '\n{"n":2}\n1', "23\n0\nfalse\n", '""\n{"n":3}\n'];
  const given = await all(Readable.from(cut.map((chunk) => Buffer.from(chunk))).pipe(jsonStream()));
  console.log("json-stream, chunks", JSON.stringify(cut), "rows", JSON.stringify(given));
  assert.deepEqual(given, [{ n: 1 }, { n: 1 }, { n: 2 }, 1, 123, { n: 3 }]);

  const numbers = Array.from({ length: 100_000 }, (_, n) => 10_000 + n);
  writeFileSync("numbers.jsonl", numbers.join("\n") + "\n");
  const read2 = await all(numbersOf(Readable.toWeb(createReadStream("numbers.jsonl"))));
  const sum = (values) => values.reduce((one, other) => one + other, 0);
  console.log(`of ${numbers.length} numbers ndjson-readablestream gives ${read2.length}, their sum is ${sum(read2)} for ${sum(numbers)}`);
  assert(read2.length > numbers.length && sum(read2) < sum(numbers));
}

main();
JS
node read.cjs 2>&1 | grep -v Deprecation | grep -v 'trace-deprecation'
echo "json-stream 1.0.0, ndjson-readablestream 1.4.0: as described"
