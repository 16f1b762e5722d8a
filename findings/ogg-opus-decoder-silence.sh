#!/usr/bin/env bash
# ogg-opus-decoder 1.7.5 (npm) makes 13 seconds of a chained Ogg Opus file of 6, the rest is silence; fed by chunks it gives the first part alone, as soundfile 0.14.0 does. No error.
#
# Guess: RFC 7845 and RFC 3533 let logical streams follow each other, so `cat monday.opus tuesday.opus` is a valid file of both (stations record so); a decoder gives both parts or an error.
# Seen (2026-12-01): parts of 2, 3 and 1 seconds, a tone each. decodeFile() gives these 6 seconds and 7 of silence (for each further part, as much as came before it); `errors` is empty.
# decode() of chunks of 300, 1,000 or 4,096 bytes gives the first 2 seconds and no error. soundfile (libsndfile 1.2.2) reads 2 seconds and calls that the duration.
# PyAV 18.1.0 (FFmpeg) reads 6. @wasm-audio-decoders/ogg-vorbis 0.1.20, of the same authors, gives all of a chained Vorbis file both ways.
# Needs Node 20 with npm, Python 3.11 and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts ogg-opus-decoder@1.7.5 @wasm-audio-decoders/ogg-vorbis@0.1.20
python3 -m venv env
env/bin/pip install --quiet soundfile==0.14.0 av==18.1.0 numpy==2.3.5
env/bin/python - <<'PYTHON'
from pathlib import Path

import av
import numpy as np
import soundfile

PARTS = ("monday", 440, 2), ("tuesday", 880, 3), ("wednesday", 1320, 1)
for kind, end in ("OPUS", "opus"), ("VORBIS", "ogg"):
    parts = []
    for name, tone, seconds in PARTS:
        times = np.arange(48_000 * seconds) / 48_000
        soundfile.write(f"{name}.{end}", 0.5 * np.sin(2 * np.pi * tone * times), 48_000, format="OGG", subtype=kind)
        parts.append(Path(f"{name}.{end}").read_bytes())
        assert soundfile.info(f"{name}.{end}").duration == seconds
    assert len({part[14:18] for part in parts}) == 3, "each stream has its own serial number"
    Path(f"week.{end}").write_bytes(b"".join(parts))
    samples, rate = soundfile.read(f"week.{end}")
    with av.open(f"week.{end}") as found:
        seconds = sum(frame.samples for frame in found.decode(audio=0)) / 48_000
    print(f"{kind}: PyAV {seconds:.2f} s, soundfile {len(samples) / rate} s, duration {soundfile.info(f'week.{end}').duration}")
    assert abs(seconds - 6) < 0.1 and len(samples) / rate == soundfile.info(f"week.{end}").duration == 2
PYTHON
cat > read.mjs <<'JS'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { OggVorbisDecoder } from "@wasm-audio-decoders/ogg-vorbis";
import { OggOpusDecoder } from "ogg-opus-decoder";

/** Name each second by its tone in Hz: count the sign changes. */
function tones(samples) {
  const found = [];
  for (let second = 0; second + 48_000 <= samples.length; second += 48_000) {
    let changes = 0;
    for (let at = second + 1; at < second + 48_000; at++) changes += samples[at - 1] < 0 !== samples[at] < 0;
    found.push(Math.round(changes / 2 / 440) * 440);
  }
  return found.join(" ");
}

async function read(Decoder, chunks, whole = false) {
  const decoder = new Decoder();
  await decoder.ready;
  const answers = [];
  if (whole) answers.push(await decoder.decodeFile(chunks[0]));
  else {
    for (const chunk of chunks) answers.push(await decoder.decode(chunk));
    answers.push(await decoder.flush());
  }
  decoder.free();
  assert.equal(answers.reduce((count, answer) => count + answer.errors.length, 0), 0);
  return tones(Float32Array.from(answers.flatMap((answer) => Array.from(answer.channelData[0] ?? []))));
}

const all = "440 440 880 880 880 1320";
const cut = (bytes, size) => Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) => bytes.subarray(n * size, (n + 1) * size));
for (const [Decoder, end] of [[OggVorbisDecoder, "ogg"], [OggOpusDecoder, "opus"]]) {
  const week = new Uint8Array(readFileSync(`week.${end}`));
  const file = await read(Decoder, [week], true);
  console.log(`${Decoder.name}, decodeFile: ${file}`);
  assert.equal(file, end === "ogg" ? all : "440 440 880 880 880 1320 0 0 0 0 0 0 0");
  for (const size of [300, 1000, 4096]) {
    const found = await read(Decoder, cut(week, size));
    console.log(`${Decoder.name}, chunks of ${size}: ${found}`);
    assert.equal(found, end === "ogg" ? all : "440 440");
  }
}
JS
node read.mjs
echo "ogg-opus-decoder 1.7.5, soundfile 0.14.0: as described"
