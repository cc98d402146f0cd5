"""The driver of a streaming query with state, to be killed: python -m tests.spark.stream_driver SERVERS TOPIC FOLDER.

After each batch it writes the windows that have changed to FOLDER/out, and it ends when FOLDER/stop exists.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from raylog.raydp_bridge.session import prepare_environment, spark_session
from raylog.raydp_bridge.stream import read_stream


def main(servers: str, topic: str, folder: Path) -> None:
    prepare_environment()
    with spark_session("raylog-killed", configs={"spark.sql.shuffle.partitions": "2"}) as spark:
        options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 200,
            "columns": "value,timestamp",
        }
        rows = read_stream(spark, options, plan_location=folder / "plan")
        numbers = rows.selectExpr("timestamp", "CAST(CAST(value AS STRING) AS BIGINT) AS number")
        windows = numbers.withWatermark("timestamp", "1 hour").groupBy(F.window("timestamp", "100 seconds"))
        totals = windows.agg(F.count("*").alias("count"), F.sum("number").alias("total"))

        def keep(frame: DataFrame, batch: int) -> None:
            found = frame.selectExpr("unix_millis(window.start)", "count", "total").collect()
            written = folder / f".{batch}"
            written.write_text(json.dumps([tuple(row) for row in found]))
            written.rename(folder / "out" / f"{batch}.json")

        query = (
            totals.writeStream.outputMode("update")
            .foreachBatch(keep)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        while not (folder / "stop").exists() and query.isActive:
            time.sleep(0.1)
        if error := query.exception():
            raise error
        query.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
