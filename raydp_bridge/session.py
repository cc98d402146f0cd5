"""(shell) A Spark session on Ray with the settings that RayDP, Spark, Ray 2.60 and Java 17 require together.

They are the same for Spark 3.5 with RayDP 1.6 and for Spark 4.2 with RayDP 1.7. The settings and their reasons:

- `JAVA_OPTIONS` are for three JVMs: the driver, the executors and RayDP's app master.
- RayDP starts its app master as `java`: Java 17 must be first on PATH, not only in JAVA_HOME.
- Executors inherit the environment of the raylet, so PYSPARK_PYTHON must be set before Ray starts.
- RayDP calls `ray.init` inside Spark's Python workers; with log_to_driver their output would be copied in a loop.

`raylog.actors.local_ray` connects to Ray or starts it, and handles its token.
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
from raylog.raydp_bridge import class_archive
from raylog.raydp_bridge.java import JAVA_OPTIONS, use_java

PYTHON_DAEMON = "raylog.raydp_bridge.python_daemon"
_STARTS_QUICKLY = "-XX:TieredStopAtLevel=1"
"""The driver and the app master plan and coordinate: compiling quickly shortens the start of a session by 40 %."""
_JAVA_OPTION_KEYS = {
    "spark.driver.extraJavaOptions": _STARTS_QUICKLY,
    "spark.executor.extraJavaOptions": "",
    "spark.ray.raydp_app_master.extraJavaOptions": _STARTS_QUICKLY,
}


def spark_configs(configs: Mapping[str, str] | None = None) -> dict[str, str]:
    """Spark's settings for this stack, overridden by the caller's; Java options are concatenated."""
    merged = {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": PYTHON_DAEMON,
        **(configs or {}),
    }
    for key, own in _JAVA_OPTION_KEYS.items():
        merged[key] = " ".join(filter(None, (JAVA_OPTIONS, own, merged.get(key))))
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
    """A Spark session whose executors are Ray actors; it is stopped at the end of the block.

    It uses the Ray to which this process is connected (which should have been started after `prepare_environment`, or
    at least with Java 17 on its PATH) or that of RAY_ADDRESS; otherwise it starts a local Ray and shuts it down at the
    end. A process can have one session at a time. The start takes 7-45 s (see `class_archive`), the first query another
    5-30 s.
    Raises ConfigError if there is no Java for this Spark (see `java`).
    """
    prepare_environment()
    previous_handler = signal.getsignal(signal.SIGINT)
    with _ray():
        import raydp  # imports Ray; both read the environment during their import

        settings = spark_configs(configs)
        settings["spark.driver.extraJavaOptions"] += f" -Dray.logging.dir={_ray_logs()}"
        archive = class_archive.java_option()
        for key in ("spark.driver.extraJavaOptions", "spark.ray.raydp_app_master.extraJavaOptions"):
            settings[key] = f"{settings[key]} {archive}".strip()
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
    """The log directory for RayDP's agent in the driver; its default, /tmp/ray/session_latest, may not exist."""
    import ray

    node: Any = ray._private.worker._global_node  # as RayDP does for its other JVMs
    return str(node.get_logs_dir_path())


def _forget_interrupt_handler(previous: Any) -> None:
    """Remove PySpark's signal handler, which would cancel the jobs of a session that no longer exists, and fail."""
    if threading.current_thread() is threading.main_thread() and previous is not None:
        signal.signal(signal.SIGINT, previous)


def prepare_environment() -> None:
    """Set the environment that Ray's and Spark's processes inherit. Call it before Ray is imported or started.

    Variables that are set are kept, except JAVA_HOME and PATH if they refer to a Java that this Spark
    cannot use (see `java`).
    """
    use_java(os.environ)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local_ray.prepare_environment()


@contextmanager
def _ray() -> Iterator[None]:
    """Connect to Ray for the length of the block; a Ray that was started for it is shut down."""
    owns_ray = local_ray.join_or_start_ray(None)
    try:
        yield
    finally:
        if owns_ray:
            import ray

            ray.shutdown()
