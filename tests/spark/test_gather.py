"""Jars are gathered in a folder, for machines that fetch nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rollingfs.cli.app import app
from rollingfs.spark import gather, jar
from tests.support import spark as world


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark whose `spark-submit` is a script that the test writes."""
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "jars" / "hadoop-client-api-3.5.0.jar").touch()
    (tmp_path / "own.jar").write_bytes(b"own")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setattr(jar, "own_jar", lambda: tmp_path / "own.jar")
    return home


def submit(home: Path, script: str) -> None:
    path = home / "bin" / "spark-submit"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_jars_that_spark_fetches_and_our_own_are_put_into_the_folder(spark_home, tmp_path):
    submit(
        spark_home,
        "for one; do case $one in spark.jars.ivy=*) to=${one#*=};; esac; done; mkdir $to/jars; echo 1 > $to/jars/a.jar",
    )
    to = tmp_path / "new" / "folder"
    done = CliRunner().invoke(app, ["spark-jars", "--to", str(to), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"jars": [f"{to}/a.jar", f"{to}/own.jar"]}
    assert (to / "own.jar").read_bytes() == b"own"


def test_without_s3_nothing_is_fetched(spark_home, tmp_path):
    assert gather.gather(tmp_path / "to", s3=False) == [tmp_path / "to" / "own.jar"]


def test_what_spark_said_is_in_the_error_and_no_folder_is_made(spark_home, tmp_path):
    submit(spark_home, "echo no route to Maven >&2; exit 1")
    with pytest.raises(OSError, match="no jar was gathered; it said: no route to Maven"):
        gather.gather(tmp_path / "to")
    assert not (tmp_path / "to").exists()


@pytest.mark.slow
@pytest.mark.s3
def test_a_spark_that_is_installed_fetches_its_s3_connector(tmp_path):
    world.require_java()
    found = [path.name for path in gather.gather(tmp_path)]
    assert jar.OWN_JAR_NAME in found
    assert any(f"hadoop-aws-{jar.hadoop_version()}" in name for name in found)
    assert not any("awssdk_bundle" in name for name in found)
