#!/usr/bin/env bash
# node-ical 0.27.2 and ical 0.8.0 (npm) keep the last calendar of an iCalendar stream, and drop the events of all others in silence.
#
# Guess: calendars may follow each other in one stream (RFC 5545, 3.4), as an export of several calendars or `cat work.ics home.ics` has them; a parser whose result is one table of
# events by their UID puts them all there, or fails, as other libraries do.
# Seen (2026-11-30): of a calendar of 20 events and one of 5 behind it, parseICS(), async and not, parseFile() and parseICS() of ical return 5 events. No error, no warning.
# ical.js 2.2.1 returns both calendars. icalendar 7.3.2 and ics 0.7.3 (Python) and golang-ical 0.3.4, tried by hand, refuse such a file, the first two with the name of the
# function that reads it.
# Needs Node 20 with npm and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts node-ical@0.27.2 ical@0.8.0 ical.js@2.2.1
cat > read.cjs <<'JS'
const assert = require("node:assert");
const { writeFileSync } = require("node:fs");
const ical = require("ical");
const nodeIcal = require("node-ical");

function calendar(name, count) {
  const lines = ["BEGIN:VCALENDAR", "VERSION:2.0", `PRODID:-//${name}//EN`];
  for (let n = 0; n < count; n++) {
    lines.push("BEGIN:VEVENT", `UID:${name}-${n}`, "DTSTAMP:20260101T000000Z", `DTSTART:202601${String(n + 1).padStart(2, "0")}T100000Z`);
    lines.push(`SUMMARY:event ${n} of ${name}`, "END:VEVENT");
  }
  return [...lines, "END:VCALENDAR", ""].join("\r\n");
}

const events = (found) => Object.values(found).filter((value) => value.type === "VEVENT").map((event) => event.uid).sort();

async function main() {
  const ICAL = (await import("ical.js")).default;
  const [work, home] = [calendar("work", 20), calendar("home", 5)];
  const files = { work: [work, 20, "work"], "work and home": [work + home, 25, "home"], "home and work": [home + work, 25, "work"] };
  for (const [what, [text, count, last]] of Object.entries(files)) {
    writeFileSync("stream.ics", text);
    const found = {
      "node-ical parseICS": events(nodeIcal.parseICS(text)),
      "node-ical async.parseICS": events(await nodeIcal.async.parseICS(text)),
      "node-ical parseFile": events(nodeIcal.sync.parseFile("stream.ics")),
      "ical parseICS": events(ical.parseICS(text)),
    };
    const all = JSON.stringify(ICAL.parse(text)).match(/"uid"/g).length;
    console.log(`${what}: ical.js ${all},`, Object.fromEntries(Object.entries(found).map(([reader, uids]) => [reader, uids.length])));
    assert.equal(all, count);
    for (const uids of Object.values(found)) {
      assert.equal(uids.length, last === "work" ? 20 : 5);
      assert(uids.every((uid) => uid.startsWith(last)));
    }
  }
}

main();
JS
node read.cjs
echo "node-ical 0.27.2, ical 0.8.0: as described"
