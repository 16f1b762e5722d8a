#!/usr/bin/env bash
# Inflate of pako 3.0.3 (npm) drops the rest of a gzip file, in silence, where one pushed chunk ends at the end of a member.
#
# Guess: pako reads files of several members, by ungzip() and by Inflate, where members share a chunk; how the bytes are cut into chunks does not matter.
# Seen (2026-11-30): of a file of five members, cut in two at each of its bytes, Inflate returns everything for each cut but those four between members: there, the members
# before the cut alone. push() of the rest returns true, err is 0. Chunk by member, as a server sends what a log appends, or byte by byte: the first member.
# The Gunzip stream of fflate 0.8.3 and createGunzip of Node return everything, for each cut.
# Needs Node 20 with npm and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund pako@3.0.3 fflate@0.8.3
cat > read.mjs <<'JS'
import assert from "node:assert";
import { createGunzip, gzipSync } from "node:zlib";
import { Gunzip } from "fflate";
import { Inflate, ungzip } from "pako";

function byPako(chunks) {
  const stream = new Inflate();
  chunks.forEach((chunk, n) => assert.equal(stream.push(new Uint8Array(chunk), n === chunks.length - 1), true));
  assert.equal(stream.err, 0);
  return Buffer.from(stream.result).toString();
}

function byFflate(chunks) {
  const parts = [];
  const stream = new Gunzip((part) => parts.push(Buffer.from(part)));
  chunks.forEach((chunk, n) => stream.push(new Uint8Array(chunk), n === chunks.length - 1));
  return Buffer.concat(parts).toString();
}

async function byNode(chunks) {
  const stream = createGunzip();
  const parts = stream.toArray();
  for (const chunk of chunks) {
    await new Promise((written) => stream.write(chunk, written));
  }
  stream.end();
  return Buffer.concat(await parts).toString();
}

const batches = [0, 1, 2, 3, 4].map((n) => `{"batch":${n},"text":"some words"}\n{"batch":${n},"text":"some more"}\n`);
const whole = batches.join("");
const members = batches.map((batch) => gzipSync(batch));
const data = Buffer.concat(members);
const ends = members.map((_, n) => Buffer.concat(members.slice(0, n + 1)).length);
assert.equal(Buffer.from(ungzip(data)).toString(), whole);
const bytes = Array.from({ length: data.length }, (_, n) => data.subarray(n, n + 1));
for (const [name, of] of Object.entries({ pako: byPako, fflate: byFflate, node: byNode })) {
  const lost = [];
  for (let cut = 1; cut < data.length; cut++) {
    const found = await of([data.subarray(0, cut), data.subarray(cut)]);
    if (found === whole) continue;
    assert.equal(found, batches.slice(0, ends.indexOf(cut) + 1).join(""));
    lost.push(cut);
  }
  const rows = async (chunks) => (await of(chunks)).split("\n").length - 1;
  const found = { cutsThatLose: lost, rowsByMember: await rows(members), rowsByByte: await rows(bytes), rows: 10 };
  console.log(name, found);
  const right = name !== "pako";
  assert.deepEqual(lost, right ? [] : ends.slice(0, -1));
  assert.equal(found.rowsByMember, right ? 10 : 2);
  assert.equal(found.rowsByByte, right ? 10 : 2);
}
JS
node read.mjs
echo "pako 3.0.3: as described"
