"""The jars: our own, which is compiled here, and Spark's. The same sources, compiler and Hadoop give the same bytes.

In a checkout call ``python rollingfs/spark/jar.py``. The module does not import rollingfs, because the build hook
runs where rollingfs is not installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HADOOP = Path(__file__).with_name("hadoop")
JAR = HADOOP / "rollingfs-hadoop.jar"
SOURCES = HADOOP / "src"
JAVA_RELEASE = 17
HADOOP_API = "hadoop-client-api"
HADOOP_VERSION = "3.5.0"
"""The Hadoop that the sources are compiled against where there is no PySpark; the jar runs on Hadoop 3.4.1 or later."""
HADOOP_SHA256 = "cc59446ec9ebaceae56fdb8d8c21477766dc5d426325642151c796bec5c4e6b7"
"""The checksum of its client API."""
MAVEN_S_MAX = 180
JAVAC_S_MAX = 300
MANIFEST = "META-INF/MANIFEST.MF"
DIGEST = "META-INF/rollingfs-sources.sha256"
"""The entry of the jar that identifies the sources it was compiled from."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every entry: the first that a zip file can hold."""


class CannotCompileError(RuntimeError):
    """There is no JDK or no Hadoop client API here; the message has the details."""


def sources() -> list[Path]:
    """Return the Java files, sorted."""
    return sorted(SOURCES.rglob("*.java"))


def digest() -> str:
    """Return a digest that identifies the sources."""
    digests = [(path.relative_to(SOURCES), hashlib.sha256(path.read_bytes()).hexdigest()) for path in sources()]
    text = "".join(f"{path.as_posix()}\0{one}\n" for path, one in digests)
    return hashlib.sha256(text.encode()).hexdigest()


def is_current(jar: Path = JAR) -> bool:
    """Return whether there is a jar that was compiled from these sources."""
    if not jar.exists():
        return False
    with zipfile.ZipFile(jar) as archive:
        return DIGEST in archive.namelist() and archive.read(DIGEST).decode() == digest()


def ensure(jar: Path = JAR) -> Path:
    """Return the jar of these sources; it is compiled if it is not there.

    Raises
    ------
    CannotCompileError
        There is no such jar, and it cannot be compiled here.
    """
    return jar if is_current(jar) else build(jar)


def build(jar: Path = JAR) -> Path:
    """Compile the jar.

    Raises
    ------
    CannotCompileError
        There is no JDK, or no Hadoop client API.
    """
    if (javac := shutil.which("javac")) is None:
        raise CannotCompileError(f"there is no `javac` on the PATH: install a JDK {JAVA_RELEASE}")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as scratch:
        api = hadoop_api(Path(scratch))
        # -proc:none and no warnings: Hadoop's annotations are not among its client API
        options = ["--release", str(JAVA_RELEASE), "-proc:none", "-nowarn", "-Xlint:none", "-encoding", "UTF-8"]
        command = [javac, *options, "-classpath", str(api), "-d", folder, *map(str, sources())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=JAVAC_S_MAX)
        if done.returncode:
            raise CannotCompileError(f"javac failed:\n{done.stderr}")
        _pack(Path(folder), jar)
    return jar


def hadoop_api(scratch: Path) -> Path:
    """Return Hadoop's client API: of PySpark, else from Maven.

    Raises
    ------
    CannotCompileError
        Both are missing, or Maven gives another file.
    """
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin is not None else scratch
    if found := sorted(folder.glob(f"{HADOOP_API}-*.jar")):
        return found[-1]
    if (maven := shutil.which("mvn")) is None:
        raise CannotCompileError("Hadoop's client API is not here: install pyspark, or Maven, which fetches it")
    artifact = f"org.apache.hadoop:{HADOOP_API}:{HADOOP_VERSION}"
    command = [maven, "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_S_MAX, cwd=scratch)
    except subprocess.TimeoutExpired as error:
        raise CannotCompileError(f"Maven did not fetch {artifact} within {MAVEN_S_MAX} s") from error
    if done.returncode:
        raise CannotCompileError(f"Maven could not fetch {artifact}:\n{done.stdout}{done.stderr}")
    fetched = scratch / f"{HADOOP_API}-{HADOOP_VERSION}.jar"
    if (checksum := hashlib.sha256(fetched.read_bytes()).hexdigest()) != HADOOP_SHA256:
        raise CannotCompileError(
            f"Maven gave {artifact} with the checksum {checksum}, and it has {HADOOP_SHA256}; nothing was compiled: "
            "delete it from Maven's repository on this machine"
        )
    return fetched


def _pack(classes: Path, jar: Path) -> None:
    """Write the jar: sorted, with a date, and uncompressed, because compressors of different versions differ."""
    entries = {MANIFEST: b"Manifest-Version: 1.0\r\n\r\n", DIGEST: digest().encode()}
    for path in sorted(classes.rglob("*.class")):
        entries[path.relative_to(classes).as_posix()] = path.read_bytes()
    jar.parent.mkdir(parents=True, exist_ok=True)
    temporary = jar.with_name(f"{jar.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name, data in entries.items():
                info = zipfile.ZipInfo(name, EPOCH)
                info.create_system = 3  # the same on Windows
                info.external_attr = 0o644 << 16
                archive.writestr(info, data)
        os.replace(temporary, jar)
    finally:
        temporary.unlink(missing_ok=True)


SCHEMES = ("rolling+file", "rolling+s3", "rolling+s3a", "rollingfile", "rollings3", "rollings3a")
"""The schemes that are over the local disk and over Hadoop's S3 connector."""
_OTHERS = ("abfs", "abfss", "gs", "hdfs")
MORE_SCHEMES = tuple(f"rolling{plus}{other}" for plus in ("+", "") for other in _OTHERS)
"""Schemes of other filesystems of Hadoop. Users add their connectors; Spark has HDFS's."""
FILE_SYSTEM = "rollingfs.hadoop.RollingFileSystem"
ABSTRACT_FILE_SYSTEM = "rollingfs.hadoop.RollingFs"


def own_jar() -> Path:
    """Return the path of the jar of our Hadoop filesystem; a checkout compiles it if it is not current.

    Raises
    ------
    FileNotFoundError
        rollingfs was built without a JDK, and the jar cannot be compiled now.
    """
    if JAR.exists() and not sources():
        return JAR
    try:
        return ensure()
    except CannotCompileError as error:
        raise FileNotFoundError(
            f"rollingfs is installed without its jar for Spark, and the jar cannot be compiled now: {error}. "
            f"Install a wheel that was built with a JDK, or install a JDK {JAVA_RELEASE}"
        ) from error


def spark_jars() -> Path:
    """Return the folder of Spark's own jars.

    Raises
    ------
    FileNotFoundError
        ``SPARK_HOME`` does not have it, or in an installed PySpark.
    """
    spec = importlib.util.find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), str(Path(spec.origin).parent) if spec and spec.origin else None]
    for home in homes:
        if home and (Path(home) / "jars").is_dir():
            return Path(home) / "jars"
    raise FileNotFoundError("there is no Spark: install pyspark, or set SPARK_HOME")


def hadoop_version() -> str:
    """Return the version of the Hadoop that Spark brings.

    Raises
    ------
    FileNotFoundError
        There is no Hadoop among the jars of Spark.
    """
    for path in sorted(spark_jars().glob(f"{HADOOP_API}-*.jar")):
        return path.stem.removeprefix(f"{HADOOP_API}-")
    raise FileNotFoundError(
        f"{spark_jars()} has no {HADOOP_API}: install a Spark with Hadoop, or put Hadoop's client API there"
    )


if __name__ == "__main__":
    try:
        print(ensure())
    except CannotCompileError as error:
        sys.exit(str(error))
