#!/usr/bin/env bash
# ZstdSimple of @oneidentity/zstd-js 1.0.3 (npm) cuts the last 18 bytes of each zstd frame that another tool made, and adds 18 to what it compresses, without an error.
#
# Guess: the package wraps the official library, so `ZstdSimple.decompress` returns the bytes of any frame that has a content size, and any tool reads what `ZstdSimple.compress` wrote.
# Seen (2026-11-30): of 2,000 JSON lines by `zstd`, checksum and all, decompress() returns all but the last 18 bytes: the last line is no JSON any more; of 20,000 numbers, three lines are
# missing. So it is with frames of the package's own ZstdStream, as the page of the package shows by example. What compress() wrote, `zstd -d` and
# fzstd 0.1.1 read as the data and 18 bytes from elsewhere behind it. A round trip by ZstdSimple is right, so no test of the user's sees it. ZstdStream reads and writes what it should.
# Needs Debian 12, Node 20 with npm and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work" && chmod 755 .
apt-get download -qq zstd=1.5.4+dfsg2-5
dpkg -x ./zstd*.deb programs
npm install --silent --no-audit --no-fund @oneidentity/zstd-js@1.0.3 fzstd@0.1.1
seq -f '{"n":%.0f,"text":"some words of a line"}' 2000 > lines.json
seq 20000 > numbers.txt
programs/usr/bin/zstd -q lines.json numbers.txt
cat > read.cjs <<'JS'
const assert = require("node:assert");
const { readFileSync, writeFileSync } = require("node:fs");
const fzstd = require("fzstd");

async function main() {
  const { ZstdInit } = require("@oneidentity/zstd-js");
  const { ZstdSimple, ZstdStream } = await ZstdInit();
  const decompressOnly = (await require("@oneidentity/zstd-js/decompress/index.cjs.js").ZstdInit()).ZstdSimple;
  for (const name of ["lines.json", "numbers.txt"]) {
    const data = readFileSync(name);
    const cut = data.subarray(0, -18);
    const frames = { "by zstd": readFileSync(`${name}.zst`), "by ZstdStream": ZstdStream.compress(new Uint8Array(data)) };
    for (const [what, frame] of Object.entries(frames)) {
      const found = Buffer.from(ZstdSimple.decompress(frame));
      console.log(`${name} ${what}: ${data.length} bytes; ZstdSimple ${found.length}, which end in ${JSON.stringify(found.subarray(-9).toString())}`);
      assert(found.equals(cut) && cut.equals(Buffer.from(decompressOnly.decompress(frame))));
      assert(data.equals(Buffer.from(ZstdStream.decompress(frame))) && data.equals(Buffer.from(fzstd.decompress(frame))));
    }
    const own = ZstdSimple.compress(new Uint8Array(data));
    const others = Buffer.from(fzstd.decompress(own));
    writeFileSync(`own.${name}.zst`, own);
    console.log(`${name} by ZstdSimple: fzstd reads ${others.length} bytes`);
    assert(others.length === data.length + 18 && others.subarray(0, -18).equals(data));
    assert(data.equals(Buffer.from(ZstdSimple.decompress(own))));
  }
}

main();
JS
node read.cjs 2>&1 | cut -c 1-300
for name in lines.json numbers.txt; do
    test "$(programs/usr/bin/zstd -dc own.$name.zst | wc -c)" = $(($(wc -c < $name) + 18))
    programs/usr/bin/zstd -dc own.$name.zst | cmp -n "$(wc -c < $name)" - $name
done
echo "@oneidentity/zstd-js 1.0.3: as described"
