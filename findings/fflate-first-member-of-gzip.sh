#!/usr/bin/env bash
# gunzipSync, gunzip and decompressSync of fflate 0.8.3 (npm) return the first member of a gzip file, and nothing at all of a small file that bgzip made.
#
# Guess: a gzip file is a row of members (RFC 1952), and fflate's changelog says that its streams read them all since 0.8; so its whole-file functions do
# too, or fail, because bytes are left over.
# Seen (2026-11-30): of two members gunzipSync, gunzip (with a callback) and decompressSync return the first, without an error. They take the size from the end of the
# file: where the last member is empty, as at the end of each BGZF file (VCF, BED, FASTA with an index), they return 0 bytes for 10,427; a last member that is shorter than the
# first cuts the first to its length, in the midst of a line. fflate's own Gunzip stream, pako 3.0.3 and zlib of Node read everything.
# Needs Node 20 with npm, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet pysam==0.24.1
npm install --silent --no-audit --no-fund fflate@0.8.3 pako@3.0.3
env/bin/python -c '
import pysam
with pysam.BGZFile("table.gz", "wb") as file:
    file.write(b"".join(b"%d\t%d\n" % (n, n * n) for n in range(1000)))'
cat > read.mjs <<'JS'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { gunzipSync as nodes, gzipSync } from "node:zlib";
import { decompressSync, gunzip, Gunzip, gunzipSync } from "fflate";
import { ungzip } from "pako";

function streamed(data) {
  const parts = [];
  const stream = new Gunzip((part) => parts.push(Buffer.from(part)));
  stream.push(data, true);
  return Buffer.concat(parts);
}

async function read(data) {
  const all = { gunzipSync, gunzip: promisify(gunzip), decompressSync, Gunzip: streamed, pako: ungzip, zlib: nodes };
  const found = {};
  for (const [name, of] of Object.entries(all)) found[name] = Buffer.from(await of(data)).toString();
  return found;
}

const line = (n) => `{"n":${n},"text":"some words of line ${n}"}\n`;
const lines = (from, to) => Array.from({ length: to - from }, (_, n) => line(from + n)).join("");
const WHOLE_FILE = ["gunzipSync", "gunzip", "decompressSync"];
const OTHERS = ["Gunzip", "pako", "zlib"];

async function check(what, data, whole, part) {
  const found = await read(data);
  console.log(what, Object.fromEntries(Object.entries(found).map(([name, text]) => [name, text.length])));
  for (const name of OTHERS) assert.equal(found[name], whole, name);
  for (const name of WHOLE_FILE) assert.equal(found[name], part, name);
}

const [first, more] = [lines(0, 1000), lines(1000, 3000)];
await check("one member:", gzipSync(first), first, first);
await check("two members, the second longer:", Buffer.concat([gzipSync(first), gzipSync(more)]), first + more, first);
const last = lines(1000, 1002);
await check("two members, the second shorter:", Buffer.concat([gzipSync(first), gzipSync(last)]), first + last, first.slice(0, last.length));
const table = readFileSync("table.gz");
await check("BGZF:", table, nodes(table).toString(), "");
JS
node read.mjs
echo "fflate 0.8.3: as described"
