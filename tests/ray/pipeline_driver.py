"""The driver of the flight pipeline's streaming job, to be killed: python -m tests.ray.pipeline_driver SERVERS FOLDER.

FOLDER/dropped has a line for each batch of which rows came after the watermark, with their number. The job ends when
FOLDER/stop exists. Its executors' Python workers have FOLDER in their environment.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from examples.flight_pipeline import start_query
from raylog.raydp_bridge.session import prepare_environment, spark_session

EXECUTOR_VARIABLE = "RAYLOG_PIPELINE"


def main(servers: str, folder: Path, offsets_per_trigger: int) -> None:
    prepare_environment()
    configs = {"spark.sql.shuffle.partitions": "2", f"spark.executorEnv.{EXECUTOR_VARIABLE}": str(folder)}
    with spark_session("raylog-pipeline", configs=configs) as spark:
        query = start_query(spark, servers, folder, offsets_per_trigger=offsets_per_trigger)
        reported: set[int] = set()
        stopping = False
        while query.isActive and not stopping:
            time.sleep(0.1)
            stopping = (folder / "stop").exists()
            for progress in query.recentProgress:
                if progress["batchId"] not in reported:
                    reported.add(progress["batchId"])
                    dropped = sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
                    with (folder / "batches").open("a") as lines:
                        lines.write(f"{progress['batchId']} {dropped}\n")
        if error := query.exception():
            raise error
        query.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
