#!/usr/bin/env bash
# zstddec 0.3.4 (npm) decodes a zstd frame without a content size, as `zstd` writes from a pipe, to 16.9 MB of other bytes, without an error.
#
# Guess: a frame need not tell its size (RFC 8878), so `decode(data)` gives its bytes, or the error that the page of the package announces for an unknown size.
# Seen (2026-11-30): of a frame with a size, and of several such frames, decode() gives the right bytes. Of one without, it returns 16,908,218 bytes that do not begin with the data,
# and are as many for other data. decode() of zstddec/stream and fzstd 0.1.1 read both. Readers of pictures, maps and arrays that take zstddec see wrong values.
# Needs Debian 12, Node 20 with npm and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work" && chmod 755 .
apt-get download -qq zstd=1.5.4+dfsg2-5
dpkg -x ./zstd*.deb programs
npm install --silent --no-audit --no-fund zstddec@0.3.4 fzstd@0.1.1
seq -f '{"n":%.0f,"text":"some words of a line"}' 2000 > rows.json
seq -f '%.0f,some,other,rows' 90000 > more.csv
for name in rows.json more.csv; do
    programs/usr/bin/zstd -q -c $name > $name.sized.zst
    cat $name | programs/usr/bin/zstd -q -c > $name.piped.zst
    programs/usr/bin/zstd -dc $name.piped.zst | cmp - $name
done
cat rows.json.sized.zst rows.json.sized.zst > two.zst
cat > read.mjs <<'JS'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { decompress } from "fzstd";
import { ZSTDDecoder } from "zstddec";
import { ZSTDDecoder as Streamed } from "zstddec/stream";

async function read(name) {
  const found = { fzstd: Buffer.from(decompress(readFileSync(name))) };
  for (const [what, Decoder] of [["decode", ZSTDDecoder], ["stream", Streamed]]) {
    const decoder = new Decoder();
    await decoder.init();
    found[what] = Buffer.from(decoder.decode(readFileSync(name)));
  }
  console.log(name, Object.fromEntries(Object.entries(found).map(([what, data]) => [what, data.length])));
  return found;
}

const sizes = [];
for (const name of ["rows.json", "more.csv"]) {
  const data = readFileSync(name);
  const [sized, piped] = [await read(`${name}.sized.zst`), await read(`${name}.piped.zst`)];
  for (const what of ["fzstd", "decode", "stream"]) assert(sized[what].equals(data), what);
  for (const what of ["fzstd", "stream"]) assert(piped[what].equals(data), what);
  assert(!piped.decode.subarray(0, data.length).equals(data));
  sizes.push(piped.decode.length);
}
const rows = readFileSync("rows.json");
assert((await read("two.zst")).decode.equals(Buffer.concat([rows, rows])));
assert(sizes[0] > 100 * rows.length && sizes[0] === sizes[1], sizes);
JS
node read.mjs
echo "zstddec 0.3.4: as described"
