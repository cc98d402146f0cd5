"""(shell) Starts the Python workers of an executor: `spark.python.daemon.module` of raylog's Spark sessions.

A worker of Spark does two things for each task that can cost more than the task: `importlib.invalidate_caches`, for
which Python 3.11 reads the lists of files of all archives on sys.path, among them one of Spark's jars, and
`gc.collect`. Here the archives are removed where pyspark is installed without them. What most tasks import is loaded
once, before the workers are forked, and is no longer examined by the garbage collector.
"""

from __future__ import annotations

import gc
import importlib
import re
import sys
from importlib.machinery import PathFinder
from typing import Final

PRELOADED: Final = (
    "pyarrow",
    "pandas",
    "pyspark.sql.pandas.serializers",
    "raylog.raydp_bridge.ranges",
    "raylog.raydp_bridge.sinks.exactly_once",
    "raylog.raydp_bridge.sinks.task_writer",
)
"""None of them may write to stdout, where Spark expects the daemon's port, or start a thread of Python."""
_ARCHIVES: Final = re.compile(r".*\.jar|(pyspark|py4j).*\.zip|python\d+\.zip", re.DOTALL)
"""Those that Spark adds, and that of Python's own library, which hardly any Python has."""


def without_archives(path: list[str]) -> list[str]:
    """The entries of sys.path from which modules are to be imported. There are none in jars.

    Archives of the program, as spark-submit --py-files adds them, stay.
    """
    folders = [each for each in path if not _ARCHIVES.fullmatch(each.rpartition("/")[2])]
    needed = not all(PathFinder.find_spec(name, folders) for name in ("pyspark", "py4j"))
    return [each for each in path if not each.endswith(".jar")] if needed else folders


def main() -> None:
    kept = without_archives(sys.path)
    removed = tuple(each for each in sys.path if each not in kept)
    sys.path[:] = kept
    for name in PRELOADED:
        importlib.import_module(name)
    from pyspark.daemon import manager

    for each in [each for each in sys.path_importer_cache if each.startswith(removed)]:
        del sys.path_importer_cache[each]
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
