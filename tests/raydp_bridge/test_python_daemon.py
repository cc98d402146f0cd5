"""Workers of Spark import modules from no archive of Spark, unless they are nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from raylog.raydp_bridge import python_daemon
from raylog.raydp_bridge.python_daemon import without_archives

ARCHIVES = ["/spark/pyspark.zip", "/spark/py4j-src.zip", "/spark/jars/spark-core.jar"]


def test_archives_are_removed_where_pyspark_is_installed() -> None:
    own = [each for each in sys.path if not each.endswith(".zip")]
    assert without_archives([ARCHIVES[0], *sys.path, *ARCHIVES[1:]]) == own


def test_archives_of_the_program_are_kept() -> None:
    given = ["/job/deps.zip", "/job/py4j/deps.zip", "/job/deps.egg"]
    assert [each for each in without_archives([*given, *ARCHIVES, *sys.path]) if each in given] == given


def test_archives_with_pyspark_are_kept_where_it_is_not_installed(tmp_path: Path) -> None:
    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES[:2], str(tmp_path)]
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES[:2], str(tmp_path)], "py4j is not installed"


def test_preloaded_modules_write_nothing_and_start_no_thread() -> None:
    program = (
        f"import importlib, sys, threading; [importlib.import_module(each) for each in {python_daemon.PRELOADED}];"
        "sys.exit(f'threads: {threading.enumerate()}' if threading.active_count() > 1 or 'ray' in sys.modules else 0)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
