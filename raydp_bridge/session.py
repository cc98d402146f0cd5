"""(shell) A Spark session on Ray with every setting that RayDP 1.6, Spark 3.5, Ray 2.60 and Java 17 need together.

Why each is there, in the order in which it bites:

- Java 17 closes the packages that Spark and Ray's object store reach into. Three JVMs must have them opened: the
  driver, the executors and RayDP's app master. Without the last, Spark -> Ray waits for an object that never comes.
- RayDP starts its app master as plain `java`: Java 17 must be first on PATH, not only in JAVA_HOME.
- Executors are children of the raylet and see its environment, so PYSPARK_PYTHON has to stand before Ray starts.
- RayDP calls `ray.init` inside Spark's Python workers; with logs sent to the driver they would come back in a loop.

How Ray itself is joined or started, and its token, is the matter of `raylog.actors.local_ray`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from raylog.actors import local_ray
from raylog.raydp_bridge.java import use_java

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
_JAVA_OPTION_KEYS = (
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.ray.raydp_app_master.extraJavaOptions",
)


def spark_configs(configs: Mapping[str, str] | None = None) -> dict[str, str]:
    """Spark's settings for this stack, with the caller's over them; Java options are joined, not replaced."""
    merged = {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(configs or {}),
    }
    for key in _JAVA_OPTION_KEYS:
        merged[key] = " ".join(filter(None, (JAVA_OPTIONS, merged.get(key))))
    return merged


@contextmanager
def spark_session(
    app_name: str,
    *,
    num_executors: int = 1,
    executor_cores: int = 1,
    executor_memory: str = "1g",
    configs: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session whose executors are Ray actors; it is stopped when the block ends.

    It joins the Ray that this process is connected to (which should have been started after `prepare_environment`, at
    least with Java 17 on its PATH) or that RAY_ADDRESS names, or else starts a local one and shuts it down at the end.
    One session at a time in a process; another may follow. The start takes 10-45 s, the first query 5-30 s more.
    Raises ConfigError when there is no Java 17.
    """
    prepare_environment()
    previous_handler = signal.getsignal(signal.SIGINT)
    with _ray():
        import raydp  # it imports Ray, and both read the environment while they are imported

        settings = spark_configs(configs)
        settings[_JAVA_OPTION_KEYS[0]] += f" -Dray.logging.dir={_ray_logs()}"
        session: SparkSession = raydp.init_spark(
            app_name,
            num_executors=num_executors,
            executor_cores=executor_cores,
            executor_memory=executor_memory,
            configs=settings,
        )
        try:
            yield session
        finally:
            raydp.stop_spark()
            _forget_interrupt_handler(previous_handler)


def _ray_logs() -> str:
    """Where RayDP's agent in the driver shall log; untold it takes /tmp/ray/session_latest, which may lead nowhere."""
    import ray

    node: Any = ray._private.worker._global_node  # as RayDP finds it for its other JVMs
    return str(node.get_logs_dir_path())


def _forget_interrupt_handler(previous: Any) -> None:
    """PySpark leaves a handler that cancels the jobs of a session that is gone, and fails."""
    if threading.current_thread() is threading.main_thread() and previous is not None:
        signal.signal(signal.SIGINT, previous)


def prepare_environment() -> None:
    """Put into os.environ what Ray's and Spark's processes inherit. Call it before Ray is imported or started.

    What the user has set stays, except JAVA_HOME and PATH where they lead to another Java than 17.
    """
    use_java(os.environ)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local_ray.prepare_environment()


@contextmanager
def _ray() -> Iterator[None]:
    """Ray for the length of the block; one that was started for it goes with it."""
    owns_ray = local_ray.join_or_start_ray(None)
    try:
        yield
    finally:
        if owns_ray:
            import ray

            ray.shutdown()
