#!/usr/bin/env bash
# fit-file-parser 6.1.2 and easy-fit 0.0.8 (npm) read the first activity of a chained FIT file, and drop the others in silence, `force: false` or not.
#
# Guess: FIT files of sport watches may be chained (Garmin's protocol: several files in a row are one file, each with its header and check sum), as
# `cat morning.fit evening.fit` does; a parser reads all of them, or calls the bytes that are left over an error, at least with `force: false`.
# Seen (2026-11-30): of two activities of 50 records, written by Garmin's own SDK, both parsers return 50 records and no error, in either order. Garmin's decoder (@garmin/fitsdk
# 21.217.0) returns 100, and says of the file that it is whole; so do fitparse, fitdecode and fit-tool (Python), tried by hand.
# Needs Node 20 with npm and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund fit-file-parser@6.1.2 easy-fit@0.0.8 @garmin/fitsdk@21.217.0
cat > read.mjs <<'JS'
import assert from "node:assert";
import { Decoder, Encoder, Profile, Stream } from "@garmin/fitsdk";
import * as easyFit from "easy-fit";
import * as fitFileParser from "fit-file-parser";

const PARSERS = { "fit-file-parser": fitFileParser, "easy-fit": easyFit };
const HOUR = 3600;

/** Return the FIT file of an activity whose heart rates count from the first one. */
function activity(start, first) {
  const at = (seconds) => new Date(Date.UTC(2026, 0, 1) + (start + seconds) * 1000);
  const encoder = new Encoder();
  encoder.onMesg(Profile.MesgNum.FILE_ID, { type: "activity", manufacturer: "development", product: 1, serialNumber: 1, timeCreated: at(0) });
  for (let n = 0; n < 50; n++) encoder.onMesg(Profile.MesgNum.RECORD, { timestamp: at(n), heartRate: first + n });
  encoder.onMesg(Profile.MesgNum.SESSION, { timestamp: at(50), startTime: at(0), totalElapsedTime: 50, sport: "running" });
  encoder.onMesg(Profile.MesgNum.ACTIVITY, { timestamp: at(50), numSessions: 1 });
  return Buffer.from(encoder.close());
}

function byGarmin(data) {
  const decoder = new Decoder(Stream.fromBuffer(data));
  assert(decoder.isFIT() && decoder.checkIntegrity());
  const { messages, errors } = decoder.read();
  assert.deepEqual(errors, []);
  return messages.recordMesgs.map((record) => record.heartRate);
}

function by(module, data, force) {
  const Parser = module.default?.default ?? module.default;
  let found;
  new Parser({ force, mode: "list" }).parse(data, (error, activities) => {
    assert(!error, String(error));
    found = activities.records.map((record) => record.heart_rate);
  });
  return found;
}

const range = (first) => Array.from({ length: 50 }, (_, n) => first + n);
const [morning, evening] = [activity(8 * HOUR, 60), activity(20 * HOUR, 120)];
const files = {
  "one activity": [[morning], range(60)],
  "two activities": [[morning, evening], range(60)],
  "the other order": [[evening, morning], range(120)],
};
for (const [what, [parts, expected]] of Object.entries(files)) {
  const data = Buffer.concat(parts);
  const all = byGarmin(data);
  assert.equal(all.length, 50 * parts.length);
  for (const [name, module] of Object.entries(PARSERS)) {
    for (const force of [false, true]) {
      const found = by(module, data, force);
      console.log(`${what}: Garmin ${all.length} records, ${name} with force ${force} ${found.length}`);
      assert.deepEqual(found, expected);
    }
  }
}
JS
node read.mjs
echo "fit-file-parser 6.1.2, easy-fit 0.0.8: as described"
