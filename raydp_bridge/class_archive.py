"""(shell) An archive of Spark's classes, with which the JVMs of a session start with half of the CPU time.

Half of what Spark's driver and RayDP's app master compute before the first query is reading and verifying 10,000
classes out of 300 jars. Java can keep them, read and verified, in a file of 130 MB that its processes map (class data
sharing, JEP 310 and JEP 350). `python -m raylog.raydp_bridge.class_archive` makes it once for an environment, in the
environment (half a minute); `spark_session` uses it if it exists. Executors cannot: Ray loads their classes by a class
loader of its own.

Java ignores an archive that was made with other jars; with a damaged one it crashes. So the name contains a digest
of what the archive depends on, and the file gets it when it is complete.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.java import JAVA_OPTIONS, find_java_home, use_java

ABANDONED_SECONDS: Final = 3600


def java_option() -> str:
    """The option with which a JVM uses the archive of this environment; empty if it has none."""
    archive = _path()
    # Java says on each start that it ignores an archive, for example because of the user's spark.driver.extraClassPath
    option = f"-XX:SharedArchiveFile={archive} -Xlog:cds=off,cds+dynamic=off"
    return option if archive.is_file() and not _is_split(archive) else ""


def make() -> Path:
    """Make the archive of this environment, by a Spark session in this machine's memory, and delete former ones.

    Raises ConfigError if there is no Java for this Spark, or if the archive could not be written.
    """
    use_java(os.environ)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    archive = _path()
    if _is_split(archive):
        raise ConfigError(f"{archive.parent}: Java's options cannot name a file whose path has spaces")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        _delete_unfinished(archive.parent)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=archive.parent) as folder:
            unfinished = Path(folder) / archive.name
            program = f"import sys; from {__spec__.name} import record; record(*sys.argv[1:])"
            command = [sys.executable, "-c", program, ":".join(_class_path()), str(unfinished)]
            run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            if run.returncode != 0 or not unfinished.is_file():
                reason = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
                raise ConfigError(f"the archive of Spark's classes was not made: {reason}")
            with unfinished.open("rb") as written:
                os.fsync(written.fileno())
            for former in archive.parent.glob("spark-*.jsa"):
                former.unlink()
            unfinished.rename(archive)
    except OSError as error:
        raise ConfigError(f"the archive of Spark's classes was not made: {error}") from error
    return archive


def record(class_path: str, archive: str) -> None:
    """Run a small session on this class path, and write an archive of the classes that its JVM loaded."""
    from pyspark.sql import SparkSession  # late: reading the option needs no Spark

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.driver.extraClassPath", class_path)
    builder.config("spark.driver.extraJavaOptions", f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive}")
    session = builder.getOrCreate()
    frame = session.range(9).groupBy("id").count()
    frame.mapInArrow(lambda batches: batches, "id long, count long").collect()
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    sys.exit(gateway.proc.wait())


def _delete_unfinished(folder: Path) -> None:
    """Delete what a killed process left, and not what another one is writing."""
    for unfinished in folder.glob(".new-*"):
        with suppress(FileNotFoundError):  # another process has finished
            if time.time() - unfinished.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(unfinished, ignore_errors=True)


def _is_split(archive: Path) -> bool:
    return len(str(archive).split()) > 1


def _path() -> Path:
    """Where the archive of this environment is, or would be."""
    java = find_java_home(os.environ) / "release"
    depends_on = [java.read_text(errors="replace") if java.is_file() else str(java.parent), sys.version]
    for entry in _class_path():
        depends_on.append(entry)
        for jar in sorted(Path(entry).parent.glob(Path(entry).name)):
            if jar.is_file():
                status = jar.stat()
                depends_on.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(depends_on).encode()).hexdigest()
    return Path(sys.prefix) / "share" / "raylog" / f"spark-{digest[:16]}.jsa"


def _class_path() -> list[str]:
    """The class path that RayDP gives to both JVMs, in its order; Java asks for the same one."""
    raydp, pyspark, ray = (_jars(package) for package in ("raydp", "pyspark", "ray"))
    return [*map(str, raydp.glob("*")), f"{pyspark}/*", *map(str, ray.glob("*"))]


def _jars(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ConfigError(f"{package} is not installed; it belongs to raylog's extra `spark`")
    return Path(found.origin).parent / "jars"


if __name__ == "__main__":
    try:
        print(make())
    except ConfigError as refusal:
        sys.exit(refusal.message)
