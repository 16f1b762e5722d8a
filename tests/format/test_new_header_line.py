"""A new kind of header line, as a newcomer adds it, goes through every verb: none has a list that leaves it out.

The test patches a copy of the package: one field of `Header`, one line in each direction of the codec.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "rollingfs"
PATCHES = {
    "format/header.py": ("    unknown: tuple[str, ...] = ()\n", "    colour: str | None = None\n"),
    "format/codec.py": (
        "    lines += header.unknown\n",
        "    lines += [f'colour {header.colour}'] if header.colour else []\n",
    ),
}
PARSER = ('    "turn": _word("turn", tokens.unquote),\n', '    "colour": _word("colour", str),\n')
SCRIPT = """
import dataclasses, json, pathlib
from rollingfs import OffloadPolicy, RollingFileSystem, RollingPolicy, core
from rollingfs.format.header import LOOSE_CHUNKS_MAX

fs = RollingFileSystem("file", probe_cache=False, tiers={"cold": "file://" + FOLDER + "/cold"})
client, drive = core(fs).client, core(fs).run

def header(name):
    return drive(client.headers.load(f"{FOLDER}/{name}")).header

def coloured(name, colour="blue"):
    async def step(base, attempt):
        return dataclasses.replace(base.header, colour=colour)
    drive(client.commits.commit(f"{FOLDER}/{name}", step))

def make(name, *data, policy=RollingPolicy(4, None, 0)):
    fs.create(f"{FOLDER}/{name}", policy=policy)
    coloured(name)
    for one in data or (b"abcdefgh", b"ij"):
        fs.append(f"{FOLDER}/{name}", one)

found = {}
path = FOLDER + "/s"
make("s")
for verb, call in {
    "append": lambda: fs.append(path, b"x"),
    "attributes": lambda: fs.append(path, b"", attrs={"k": "v"}),
    "truncate": lambda: fs.truncate(path, 1),
    "erase": lambda: fs.truncate(path, 2, erase=True),
    "set_policy": lambda: fs.set_policy(path, max_bytes=5),
    "offload policy": lambda: fs.set_policy(path, OffloadPolicy("cold")),
    "roll": lambda: fs.roll(path),
    "consolidate": lambda: fs.segment(path).consolidate(),
    "offload": lambda: fs.offload(path, "cold", after_bytes=0),
    "onload": lambda: fs.onload(path),
    "collect": lambda: fs.collect(path, grace=0),
    "acquire": lambda: fs.segment(path).acquire("me").release(),
    "seal": lambda: fs.seal(path),
    "mv": lambda: fs.mv(path, path + "2"),
}.items():
    call()
    found[verb] = header("s2" if verb == "mv" else "s").colour
fs.mv(path + "2", path)
fs.create(FOLDER + "/t")
coloured("t")
fs.concat(FOLDER + "/t", [path])
found["concat"] = header("t").colour
fs.mv(FOLDER + "/t", path)
found["mv over a tombstone"] = header("s").colour
make("o")
fs.mv(path, FOLDER + "/o")
found["mv over a segment"] = header("o").colour
fs.pipe_file(FOLDER + "/o", b"anew")
found["overwrite"] = header("o").colour
make("dir/a")
fs.mv(FOLDER + "/dir", FOLDER + "/dir2", recursive=True)
found["mv of a folder"] = header("dir2/a").colour
make("r", b"in place", policy=RollingPolicy(1000, None, 1000))
found["append in place"] = header("r").colour
fs.append(FOLDER + "/r", fs.stage(FOLDER + "/r", b"staged"))
found["append of staged data"] = header("r").colour
with fs.transaction, fs.open(FOLDER + "/r", "wb") as file:
    file.write(b"new")
found["transaction"] = header("r").colour
make("p", bytes(4 * (LOOSE_CHUNKS_MAX + 1)))
found["index page"] = header("p").colour if len(header("p").entries) <= LOOSE_CHUNKS_MAX else "no page"
fs.truncate(FOLDER + "/p", 4 * LOOSE_CHUNKS_MAX)
found["truncate within a page"] = header("p").colour
make("l", bytes(4 * 100))
coloured("l", "blue" * 15000)  # its text has room for this line once the chunks are in an index page
found["a long line"] = header("l").colour[:4]
plain = pathlib.Path(FOLDER, "plain")
plain.write_bytes(b"of another program")
fs.append(str(plain), b"adopts it")
coloured("plain")
for verb, call in {
    "append to a plain file": lambda: fs.append(str(plain), b"x"),
    "truncate of a plain file": lambda: fs.truncate(str(plain), 3),
    "consolidate of a plain file": lambda: fs.segment(str(plain)).consolidate(grace=0),
    "collect of a plain file": lambda: fs.collect(str(plain), grace=0),
}.items():
    call()
    found[verb] = header("plain").colour
make("stream/a")
stream = fs.stream(FOLDER + "/stream")
stream.trim(stream.cut())
found["trim"] = header("stream/a").colour
make("d")
fs.stage(FOLDER + "/d", b"x" * 9)  # a file that keeps the tombstone
fs.rm(FOLDER + "/d")
found["delete"] = header("d").colour
print(json.dumps(found))
"""


def test_a_new_line_is_kept_by_every_verb(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "rollingfs", ignore=shutil.ignore_patterns("__pycache__", "*.jar"))
    for name, (text, line) in PATCHES.items():
        _insert(tmp_path / "rollingfs" / name, text, line)
    _insert(tmp_path / "rollingfs/format/codec.py", *PARSER)
    folder = tmp_path / "data"
    command = [sys.executable, "-c", f"FOLDER = {str(folder)!r}\n{SCRIPT}"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {verb for verb, colour in found.items() if colour != "blue"} == set(), found


def _insert(module: Path, text: str, line: str) -> None:
    source = module.read_text()
    assert source.count(text) == 1, text
    module.write_text(source.replace(text, line + text))
