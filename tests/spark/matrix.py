"""The tests with Spark under several PySpark and pyarrow: ``python -m tests.spark.matrix``. In `.ci/nightly`.

Each environment lies over the one that runs this program, and has its own PySpark, py4j and pyarrow. The result is the
table in benchmarks/results/spark-versions.md. A dash there is what a version cannot do, and `WITHOUT_STREAM_READS` says
which modules that is.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYSPARKS = ("4.0", "4.1", "4.2", "4.3")
PYARROWS = {"oldest": "pyarrow==18.0.0", "newest": "pyarrow"}
AREAS = {
    "batch": ("test_source_batch",),
    "stream, written": ("test_versions",),
    "stream, read": ("test_source_stream", "test_source_queries"),
    "`maintain`": ("test_maintain",),
    "Connect": ("test_connect",),
    "Hadoop path": ("test_hadoop_path",),
}
WITHOUT_STREAM_READS = ("4.0", "4.1")
RUN_S_MAX = 3600


def environment(folder: Path, pyspark: str, pyarrow: str) -> Path:
    """An environment with these versions; its Python."""
    venv.create(folder, with_pip=True)  # the environment below may be one of uv, without pip
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (own / "zz_base.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
    python = folder / "bin" / "python"
    wanted = [f"pyspark=={pyspark}.*", pyarrow]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--ignore-installed", *wanted], check=True)
    return python


def counts(python: Path, pyspark: str, more: list[str]) -> dict[str, Counter[str]]:
    """By area: how many tests passed, failed and were skipped."""
    lacking = ["stream, read"] if pyspark in WITHOUT_STREAM_READS else []
    areas = {area: modules for area, modules in AREAS.items() if area not in lacking}
    report = python.parents[1] / "report.xml"
    modules = [f"tests/spark/{name}.py" for names in areas.values() for name in names]
    command = [python, "-m", "pytest", "-q", f"--junitxml={report}", "-W", "ignore", "-p", "no:cacheprovider", *more]
    log = python.parents[1] / "pytest.log"
    with log.open("wb") as output:
        conf = python.parents[1] / "conf"
        conf.mkdir(exist_ok=True)
        # jars of several versions in one folder would be mixed by the tests that put all of it on the class path
        (conf / "spark-defaults.conf").write_text(f"spark.jars.ivy {python.parents[1] / 'ivy'}\n")
        env = {key: value for key, value in os.environ.items() if key != "SPARK_HOME"} | {"SPARK_CONF_DIR": str(conf)}
        subprocess.run([*command, *modules], cwd=ROOT, env=env, stdout=output, stderr=output, timeout=RUN_S_MAX)
    found = {area: Counter[str]() for area in areas}
    of = {f"tests.spark.{name}": area for area, names in areas.items() for name in names}
    for case in ElementTree.parse(report).iter("testcase"):
        ends = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[of[case.attrib["classname"]]][ends.pop() if ends else "passed"] += 1
    return found


def row(pyspark: str, python: Path, found: Mapping[str, Counter[str]]) -> str:
    """A line of the table."""
    ask = "import importlib.metadata as m; from rollingfs.spark.jar import hadoop_version as h; "
    ask += "print(m.version('pyspark'), h(), m.version('pyarrow'))"
    versions = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()
    return "| " + " | ".join([*versions, *(_cell(found.get(area)) for area in AREAS)]) + " |"


def _cell(found: Counter[str] | None) -> str:
    if not found:
        return "-"
    failed = found["failure"] + found["error"]
    text = f"{found['passed']} passed" + (f", **{failed} failed**" if failed else "")
    return text + (f", {found['skipped']} skipped" if found["skipped"] else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pyspark", nargs="+", default=PYSPARKS)
    parser.add_argument("--pyarrow", nargs="+", default=list(PYARROWS), choices=list(PYARROWS))
    parser.add_argument("--to", type=Path, help="a folder in which the environments and logs stay")
    arguments, more = parser.parse_known_args()
    has_failed = False
    with tempfile.TemporaryDirectory() as scratch:
        print(f"| PySpark | Hadoop | pyarrow | {' | '.join(AREAS)} |\n|{'---|' * (3 + len(AREAS))}", flush=True)
        for pyspark in arguments.pyspark:
            for age in arguments.pyarrow:
                python = environment((arguments.to or Path(scratch)) / f"{pyspark}-{age}", pyspark, PYARROWS[age])
                found = counts(python, pyspark, more)
                has_failed |= any(one["failure"] + one["error"] for one in found.values())
                print(row(pyspark, python, found), flush=True)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
