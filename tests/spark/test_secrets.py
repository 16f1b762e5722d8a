"""No secret of storage options is in what Spark shows or keeps: plans, progress, logs, event log, checkpoints."""

import json
from pathlib import Path

import pytest

from rollingfs import RollingFileSystem
from tests.support import spark as world
from tests.support.servers import new_bucket

pytestmark = [pytest.mark.slow, pytest.mark.s3]

JOB = Path(__file__).with_name("secrets_job.py")
LOG_ALL = """
rootLogger.level = info
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n%ex
"""
"""The second logger is the one whose level PySpark takes for what it shows; else it is WARN."""


def test_secrets_are_in_no_plan_log_or_checkpoint(tmp_path, minio):
    world.require_java()
    world.require_s3a()
    bucket, secret = new_bucket(minio), minio["secret"]
    fs = RollingFileSystem("s3", minio)
    fs.create(f"{bucket}/in")
    fs.append(f"{bucket}/in", b"one\ntwo\n")
    fs.create(f"{bucket}/sealed")
    fs.seal(f"{bucket}/sealed")
    (tmp_path / "storage.json").write_text(json.dumps(minio))
    (tmp_path / "events").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "log4j2.properties").write_text(LOG_ALL)
    known = world.environment(SPARK_CONF_DIR=str(tmp_path / "conf"))
    done = world.run_python(JOB, tmp_path, bucket, env=known)
    (tmp_path / "storage.json").unlink()
    kept = {str(path): path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()}
    shown = {"stdout": done.stdout, "stderr": done.stderr, **kept}
    assert [name for name, text in shown.items() if secret in text] == []
    # what should have shown it is there
    events = "".join(text for name, text in kept.items() if name.startswith(f"{tmp_path}/events"))
    assert '"spark.hadoop.fs.s3a.secret.key":"*********(redacted)"' in events
    wanted = ("SparkListenerSQLExecutionStart", "QueryProgressEvent", "QueryTerminatedEvent")
    assert all(word in events for word in wanted)
    assert all(word in done.stdout for word in ("Parsed Logical Plan", "rolling", "numInputRows", "refused:"))
    assert " INFO " in done.stderr
    assert any("/out/offsets/" in name for name in kept)
