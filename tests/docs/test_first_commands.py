"""What a page installs suffices for what it runs first: each install command, in a fresh environment of its own.

The other tests run with all extras, where nobody misses a package that an extra lacks.
"""

import json
import os
import re
import shlex
from pathlib import Path
from string import Template
from typing import Any

import pytest

from tests.docs.test_docs import PAGES, RUNS, page_blocks
from tests.docs.test_whole_pages import BUCKET, runs_here
from tests.support.clouds import new_container, new_google_bucket
from tests.support.environments import ROOT, environment, install, run
from tests.support.examples import nightly
from tests.support.servers import aws_environment, free_port, new_bucket, require_module

require_module("build")
require_module("uv")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

INSTALLS = re.compile(r"pip install (?:-e |--no-cache-dir )?([^`\n&;#]+)")
APPEND = """python -W error -c '
import json, sys, fsspec
fs, path = fsspec.url_to_fs(sys.argv[1], **json.loads(sys.argv[2]))
fs.create(path)
fs.append(path, b"line")
assert fs.cat_file(path) == b"line"
' $root/log $options"""
LINES = """
seq 9 | rollingfs append $root/log
rollingfs tail -n 2 $root/log
rollingfs map $root/log
python -m rollingfs.cli info $root/log
"""
SERVE = """
rollingfs serve $root --port $port & server=$$!
until curl -sf -o page http://127.0.0.1:$port/readyz; do kill -0 $$server; sleep 0.1; done
for page in '' docs openapi.json metrics; do curl -sf -o page http://127.0.0.1:$port/$$page; done
curl -sf -d line "http://127.0.0.1:$port/v1/segments/log?create=true"
kill $$server
"""
SPARK = """python -c '
import os
from pyspark.sql import SparkSession
from rollingfs import RollingFileSystem
from rollingfs.spark import configure
path = os.path.abspath("clicks/week")
fs = RollingFileSystem("file")
fs.create(path)
fs.append(path, b"a,1\\na,2\\n")
spark = configure(SparkSession.builder.master("local[1]")).getOrCreate()
assert spark.read.csv(f"rolling+file://{path}").count() == 2
assert spark.read.format("rolling").load(f"file://{path}").count() == 2
'"""
FIRST = {
    ".": ["python README.md.py"],
    ".[s3]": [APPEND],
    ".[az]": [APPEND],
    ".[gcs]": [APPEND],
    ".[cli]": [LINES],
    ".[s3,cli]": [LINES, "seq 9 > a.log; rollingfs ship --once a.log $root/; rollingfs cat $root/a.log"],
    ".[s3,cli] pandas": ["python docs/index.md.py"],
    ".[s3,cli] pandas duckdb": ["rollingfs doctor $root", "python docs/s3_quickstart.md.py"],
    ".[server]": [SERVE],
    ".[server,s3]": [SERVE],
    ".[otel]": ["""python -c 'import rollingfs; rollingfs.observe(rollingfs.RollingFileSystem("memory"))'"""],
    ".[demo]": ["python -m rollingfs.demo --rows 1200"],
    ".[spark]": [SPARK],
    ".[cli,spark]": ["rollingfs spark-jars --no-s3 --to jars"],
    ".[bench]": ["cd $checkout; python -m benchmarks --quick --no-save --only P11"],
    ".[docs]": ["cd $checkout; mkdocs build --quiet --site-dir $scratch"],
    ".[s3,test,dev]": ["cd $checkout; python -m pytest --collect-only -qq -m 'not slow' -p no:cacheprovider"],
    "tensorboard": ["python docs/recipes/tensorboard.md.py"],
    "universal_pathlib": ["python docs/integrations/upath.md.py"],
}
"""Commands of a shell, in the order of the page. ``PAGE.py`` is a program of the page's Python blocks."""
LONG = (".[bench]", ".[cli,spark]", ".[docs]")
ELSEWHERE = {
    ".[s3,spark,test,bench,dev]": "what .ci/run installs, and more",
    ".[integrations]": "the part formats of .ci/nightly",
    ".[spark,demo]": "its parts are above; tests/spark/test_docs_example.py runs the example",
    ". pyarrow venv-pack setuptools": "tests/spark/test_cluster.py",
    ". pyspark[connect]": "a client of a server, which tests/spark/test_connect.py starts",
}


def installs_of(page: str) -> set[str]:
    """Return what the install commands of a page name, with rollingfs as a dot."""
    found = INSTALLS.findall((ROOT / page).read_text())
    return {re.sub(r"^rollingfs", ".", " ".join(shlex.split(words))) for words in found}


def test_each_install_command_of_pages_has_first_command() -> None:
    assert set().union(*map(installs_of, [*PAGES, "CONTRIBUTING.md"])) == {*FIRST, *ELSEWHERE}


def store_of(installs: str, request: pytest.FixtureRequest, folder: Path) -> tuple[str, Any, dict[str, str]]:
    """Return a folder on the store of an extra, the options for it, and the environment that names it."""
    if "az" in installs:
        options = request.getfixturevalue("azurite")
        return f"rolling+az://{new_container(options)}", options, {}
    if "gcs" in installs:
        options = request.getfixturevalue("fake_google")
        return f"rolling+gs://{new_google_bucket(options)}", options, {}
    if "s3" in installs:
        options = request.getfixturevalue("seaweed")
        return f"rolling+s3://{new_bucket(options)}", {}, aws_environment(options)
    return f"rolling+file://{folder}", {}, {}


def write_programs(commands: str, bucket: str | None, folder: Path) -> None:
    """Write the blocks of the pages that commands name."""
    for page in re.findall(r"python (\S+\.md)\.py", commands):
        blocks = [block.code for block in page_blocks(page) if block.info == RUNS or (bucket and runs_here(block))]
        program = folder / f"{page}.py"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("".join(blocks).replace(BUCKET, bucket or BUCKET))


@pytest.mark.parametrize("installs", [*(one for one in FIRST if one not in LONG), *nightly(*LONG)])
def test_first_commands_run_with_what_they_installed(
    installs: str, release_shared: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root, options, variables = store_of(installs, request, tmp_path)
    commands = "\n".join(FIRST[installs])
    write_programs(commands, root.rpartition("/")[2] if "s3" in installs else None, tmp_path)
    first, *others = shlex.split(installs if installs.startswith(".") else f". {installs}")
    python = environment(tmp_path / "venv")
    wheel = Path(release_shared["wheel"]).as_uri()
    install(python, f"rollingfs{first.removeprefix('.')} @ {wheel}", *others)
    values = {
        "root": root,
        "options": f"'{json.dumps(options)}'",
        "port": free_port(),
        "checkout": ROOT,
        "scratch": tmp_path / "site",
    }
    variables["PATH"] = f"{python.parent}:{os.environ['PATH']}"
    run("bash", "-euo", "pipefail", "-c", Template(commands).substitute(values), cwd=tmp_path, **variables)
