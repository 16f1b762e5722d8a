#!/usr/bin/env bash
# Two libraries that follow a growing file skip lines when the file is rotated by a rename: github.com/nxadm/tail 1.4.11 (Go), tail 2.2.6 (npm).
#
# Guess: with `ReOpen` ("tail -F") or `follow`, a follower reads the old file to its end before it opens the new one. A rename loses no
# byte, so each line comes once. @logdna/tail-file 4.0.2 does so.
# Seen (2026-11-29): of 30,000 lines with five renames, 5 s apart, nxadm/tail skipped 41 and gave 3 twice; where it polls,
# it skipped 544. tail of npm skipped 58. Neither tells of the lines, so a shipper on top of them reports success.
# Needs Go, Node with npm, Python 3.11, and their package indexes. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"

cat >write.py <<'PYTHON'
"""Write numbered lines; rename the file, and make it again, after each 1,500."""
import os, sys, time

path, lines, rotate = sys.argv[1], 12_000, 1_500
file = open(path, "a", buffering=1)
for number in range(lines):
    file.write(f"{number:08d}\n")
    if number % 10 == 0:
        time.sleep(0.008)
    if number % rotate == rotate - 1:
        file.close()
        os.rename(path, f"{path}.{number // rotate}")
        file = open(path, "a", buffering=1)
PYTHON

cat >count.py <<'PYTHON'
"""Print how many of the lines that a follower gave are distinct, and how many of them came twice."""
import collections, sys

given = collections.Counter(line.strip() for line in open(sys.argv[1]))
whole = {line: times for line, times in given.items() if len(line) == 8 and line.isdigit()}
print(len(whole), sum(times > 1 for times in whole.values()))
PYTHON

cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/nxadm/tail"
)

func main() {
	config := tail.Config{Follow: true, ReOpen: true, Poll: os.Args[2] == "poll", Logger: tail.DiscardingLogger}
	follower, err := tail.TailFile(os.Args[1], config)
	if err != nil {
		panic(err)
	}
	for line := range follower.Lines {
		fmt.Println(line.Text)
	}
}
GO
cat >follow.js <<'JS'
const [, , library, path] = process.argv
const print = (line) => process.stdout.write(line + '\n')
if (library === 'tail') {
  const file = new (require('tail').Tail)(path, { follow: true, fromBeginning: true })
  file.on('line', print).on('error', () => {}) // no file for a moment
} else {
  const file = new (require('@logdna/tail-file'))(path, { startPos: 0 })
  require('readline').createInterface({ input: file }).on('line', print)
  file.start()
}
JS
{
    go mod init followers && go get github.com/nxadm/tail@v1.4.11 && go build -o nxadm .
    npm init --yes && npm install --no-audit --no-fund tail@2.2.6 @logdna/tail-file@4.0.2
} >install.log 2>&1 || { cat install.log; exit 2; }

# NAME COMMAND... prints "NAME DISTINCT TWICE"
follow() {
    local name="$1"
    shift
    mkdir "$name" && : >"$name/log"
    "$@" "$name/log" ${MODE:-} >"$name.out" &
    sleep 1
    python3 write.py "$name/log"
    sleep 4
    kill %% && wait %% 2>/dev/null || true
    echo "$name $(python3 count.py "$name.out")"
}
MODE=notify follow nxadm-notified ./nxadm | tee -a seen
MODE=poll follow nxadm-polling ./nxadm | tee -a seen
follow npm-tail node follow.js tail | tee -a seen
follow logdna node follow.js logdna | tee -a seen
echo "of 12000 lines: distinct, twice"
awk '{ skips = $2 < 12000 } $1 == "logdna" { skips = !skips } !skips { wrong = 1 } END { exit wrong }' seen
