"""The flights that left New York in 2013: written to three brokers, read back in three ways, and averaged by Spark.

Each flight is one record: the key is its carrier, the timestamp its scheduled hour, the value a msgpack map of all its
columns. A stock Kafka client and a Ray actor that maps the brokers' files must read the same records, and Spark's
counts and mean delays must equal those of the original table.

    python -m examples.flights            all 336,776 flights (script/demo sets everything up and calls this)
    python -m examples.flights --rows 1000
    python -m examples.flights --keep     keeps the cluster running until Ctrl-C, and prints commands to try
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tqdm import tqdm

import raylog
from examples.flight_pipeline import demonstrate
from examples.flight_records import Flight, Mismatch, load_flights, to_records
from examples.workshop import interrupted, quiet_screen, signals_held_back, take_signals, workshop
from raylog.raydp_bridge.session import prepare_environment, spark_session
from raylog.raydp_bridge.source import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flights"
PARTITIONS = 6
BROKERS = 3
CLUSTER = "flights"
DELAYS_DDL = "carrier string, dep_delay double, arr_delay double"
READ_SECONDS_MAX = 120.0
"""How long the consumer waits for a record that must exist."""


class Delays(NamedTuple):
    """The statistics of one carrier; a mean is NaN if no flight has a value."""

    flights: int
    mean_departure: float
    mean_arrival: float


class Read(NamedTuple):
    """A summary of the records that a reader has read."""

    counts: dict[str, int]
    size_bytes: int
    timestamp_sum: int


def delays_of(table: pd.DataFrame) -> dict[str, Delays]:
    """The statistics by carrier, computed by pandas from the original table."""
    grouped = table.groupby("carrier")[["dep_delay", "arr_delay"]].mean()
    counts = Counter(table["carrier"])
    return {
        str(carrier): Delays(counts[str(carrier)], float(row["dep_delay"]), float(row["arr_delay"]))
        for carrier, row in grouped.iterrows()
    }


def decode_delays(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decodes the msgpack values of a topic to columns, in Spark's executors."""
    for batch in batches:
        flights = [msgpack.unpackb(value) for value in batch.column("value").to_pylist()]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([flight["carrier"] for flight in flights], pa.string()),
                pa.array([flight["dep_delay"] for flight in flights], pa.float64()),
                pa.array([flight["arr_delay"] for flight in flights], pa.float64()),
            ],
            names=["carrier", "dep_delay", "arr_delay"],
        )


def check_read(read: Read, flights: list[Flight]) -> None:
    """Raises Mismatch unless the reader has read every record once, with its key and timestamp."""
    counts = Counter(flight.key.decode() for flight in flights)
    written = Read(dict(counts), sum(map(_size, flights)), sum(flight.timestamp_ms for flight in flights))
    if sum(read.counts.values()) != len(flights):
        raise Mismatch(f"{len(flights):,} records were written, but {sum(read.counts.values()):,} were read")
    if read.counts != written.counts:
        raise Mismatch(f"the records by carrier differ: written {written.counts}, read {read.counts}")
    if read != written:
        raise Mismatch(f"bytes or timestamps differ: written {written[1:]}, read {read[1:]}")


def check_delays(found: Mapping[str, Delays], expected: Mapping[str, Delays]) -> None:
    """Raises Mismatch that names the first carrier that differs."""
    for carrier in sorted({*found, *expected}):
        here, there = found.get(carrier), expected.get(carrier)
        if here is None or there is None or here.flights != there.flights:
            raise Mismatch(f"carrier {carrier}: Spark found {here}, pandas {there}")
        for mine, theirs in zip(here[1:], there[1:], strict=True):
            if not (math.isclose(mine, theirs, rel_tol=1e-9) or (math.isnan(mine) and math.isnan(theirs))):
                raise Mismatch(f"carrier {carrier}: Spark found {here}, pandas {there}")


def table_of(delays: Mapping[str, Delays]) -> str:
    lines = [f"{'carrier':>9}{'flights':>10}{'mean departure delay':>23}{'mean arrival delay':>21}"]
    for carrier, each in sorted(delays.items()):
        lines.append(f"{carrier:>9}{each.flights:>10,}{each.mean_departure:>19.2f} min{each.mean_arrival:>17.2f} min")
    return "\n".join(lines)


def create_topic(bootstrap_servers: str) -> None:
    """Unlimited retention: the records are from 2013, and the default is a week."""
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})  # no news, warnings only
    admin.create_topics([topic])[TOPIC].result(30)


def write(bootstrap_servers: str, flights: list[Flight]) -> None:
    """Returns when all records are acknowledged. Raises KafkaException for the first that is not."""
    failures: list[KafkaError] = []
    with tqdm(total=len(flights), unit=" records", unit_scale=True, desc="   written") as progress:

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)
            progress.update()

        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "enable.idempotence": True})
        for flight in flights:
            while True:
                try:
                    producer.produce(
                        TOPIC, flight.value, flight.key, timestamp=flight.timestamp_ms, on_delivery=delivered
                    )
                    break
                except BufferError:  # the producer's queue is full
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()
    if failures:
        raise KafkaException(failures[0])


def read_back(bootstrap_servers: str) -> Read:
    """Read the whole topic with a stock consumer that is assigned all partitions."""
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "demo", "enable.partition.eof": True}
    consumer = Consumer({**config, "enable.auto.commit": False})
    counts: Counter[str] = Counter()
    size_bytes = timestamp_sum = 0
    open_partitions = set(range(PARTITIONS))
    deadline = time.monotonic() + READ_SECONDS_MAX
    try:
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in open_partitions])
        while open_partitions and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.1):
                error = message.error()
                if error is None:
                    key, value = message.key(), message.value()
                    assert isinstance(key, bytes)
                    assert isinstance(value, bytes)
                    counts[key.decode()] += 1
                    size_bytes += len(key) + len(value)
                    timestamp_sum += message.timestamp()[1]
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return Read(dict(counts), size_bytes, timestamp_sum)


class MappedReader:
    """A Ray actor on the brokers' node, which reads their segment files as Arrow columns without requests."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._readers = [raylog.PartitionReader(bootstrap_servers, TOPIC, number) for number in range(PARTITIONS)]

    def read(self) -> tuple[Read, float]:
        """Read the whole topic. Returns the summary and the time in seconds."""
        elapsed = _Elapsed()
        batches = [batch for reader in self._readers for batch in self._read_partition(reader)]
        table = pa.Table.from_batches(batches)
        keys, values = table["key"].cast(pa.binary()), table["value"].cast(pa.binary())
        counts = {entry["values"].decode(): entry["counts"] for entry in pc.value_counts(keys).to_pylist()}
        size_bytes = pc.sum(pc.binary_length(keys)).as_py() + pc.sum(pc.binary_length(values)).as_py()
        milliseconds = pc.divide(table["timestamp"].cast(pa.int64()), 1000)
        return Read(counts, size_bytes, pc.sum(milliseconds).as_py()), elapsed()

    def rewind(self) -> None:
        for reader in self._readers:
            reader.seek(0)

    def _read_partition(self, reader: raylog.PartitionReader) -> Iterator[pa.RecordBatch]:
        while batches := reader.read_arrow(["key", "value", "timestamp"]):
            yield from batches
        if not reader.reads_files:
            raise Mismatch("the actor is on the brokers' node, and had to read over the wire")


def read_by_actor(bootstrap_servers: str) -> tuple[Read, float]:
    """What the actor has read the second time, when its decoder is compiled."""
    import ray

    actor: Any = ray.remote(num_cpus=0)(MappedReader).remote(bootstrap_servers)
    try:
        ray.get(actor.read.remote())
        ray.get(actor.rewind.remote())
        read: tuple[Read, float] = ray.get(actor.read.remote())
        return read
    finally:
        ray.kill(actor)


def delays_by_spark(spark: SparkSession, bootstrap_servers: str) -> dict[str, Delays]:
    from pyspark.sql.functions import avg, count

    topic = read_topic(spark, TOPIC, bootstrap_servers=bootstrap_servers, columns=["value"])
    flights = topic.mapInArrow(decode_delays, DELAYS_DDL)
    rows = flights.groupBy("carrier").agg(count("*"), avg("dep_delay"), avg("arr_delay")).collect()
    return {
        row[0]: Delays(row[1], *(math.nan if mean is None else float(mean) for mean in (row[2], row[3])))
        for row in rows
    }


def run(rows: int | None, *, keep: bool) -> None:
    """The whole demonstration. Raises Mismatch where what came back is not what was written."""
    table = load_flights(rows)
    flights = to_records(table)
    size_bytes = sum(map(_size, flights))
    _say(f"raylog: {len(flights):,} flights from New York, {size_bytes / 1e6:.1f} MB as msgpack\n")

    with workshop() as place, _stopwatch() as elapsed:
        _say(f"1. Start {BROKERS} brokers and a controller on a local Ray")
        prepare_environment()
        with _start_cluster(place.path / "data") as cluster:
            servers = cluster.bootstrap_servers
            create_topic(servers)
            _say(f"   {servers} after {elapsed():.1f} s; topic {TOPIC} with {PARTITIONS} partitions\n")

            _say("2. Write the flights with confluent-kafka")
            with _stopwatch() as elapsed:
                write(servers, flights)
                _say_rate(len(flights), size_bytes, elapsed())

            _say("3. Read them back with confluent-kafka")
            with _stopwatch() as elapsed:
                read = read_back(servers)
                _say_rate(sum(read.counts.values()), read.size_bytes, elapsed())
            check_read(read, flights)

            _say("4. Read them in a Ray actor, from the brokers' files mapped into its memory, as Arrow columns")
            mapped, seconds = read_by_actor(servers)
            _say_rate(sum(mapped.counts.values()), mapped.size_bytes, seconds)
            check_read(mapped, flights)

            _say("5. Average the delays with Spark, whose executors are Ray actors (its start takes half a minute)")
            spark_on_ray = spark_session(CLUSTER, executor_cores=2, configs=_spark_configs(place.path))
            with quiet_screen(place.path / "noise.log"), _stopwatch() as elapsed, spark_on_ray as spark:
                take_signals()  # PySpark has installed its own handler
                with place.spark_cleaned_up_after():
                    started_seconds = elapsed()
                    found = delays_by_spark(spark, servers)
                    queried_seconds = elapsed() - started_seconds
                    pipeline: list[str] = []
                    with _stopwatch() as elapsed:
                        demonstrate(spark, servers, table, place.path / "pipeline", pipeline.append)
                    pipeline_seconds = elapsed()
            _say(f"   Spark started in {started_seconds:.1f} s; the query, with the start of its workers:")
            _say_rate(sum(each.flights for each in found.values()), size_bytes, queried_seconds)
            check_delays(found, delays_of(table))
            _say(table_of(found))
            _say("\nAll counts and means agree with pandas on the original table.\n")
            _say("6. The same flights as a stream through Spark, exactly once, although the job is ended in the middle")
            _say(f"   in {pipeline_seconds:.1f} s:")
            _say("\n".join(pipeline))
            if keep:
                _keep(servers)
    _say("Everything is stopped and removed.")


@contextmanager
def _start_cluster(data_dir: Path) -> Iterator[raylog.Cluster]:
    with ExitStack() as stack:
        with signals_held_back():
            cluster = stack.enter_context(raylog.start(CLUSTER, data_dir=str(data_dir), brokers=BROKERS))
        yield cluster


def _keep(servers: str) -> None:
    _say(
        f"""
The cluster runs until Ctrl-C. In another shell, in this directory, after `source .venv/bin/activate`:

    kcat -b {servers} -L
    kcat -b {servers} -C -t {TOPIC} -o -5 -e -f '%k at %T in partition %p, offset %o: %S bytes\\n'
    raylog topics describe {TOPIC} -b {servers}
    raylog consume {TOPIC} -b {servers} --print-key --print-timestamp --max-messages 3
    echo 'hello' | raylog produce greetings -b {servers} && raylog consume greetings -b {servers} -e

From Python, and from Spark (which starts a Ray of its own there):

    from confluent_kafka import Consumer, TopicPartition
    consumer = Consumer({{"bootstrap.servers": "{servers}", "group.id": "me"}})
    consumer.assign([TopicPartition("{TOPIC}", 0, 0)])
    print(consumer.poll(10).value())

    from raylog.raydp_bridge.session import spark_session
    from raylog.raydp_bridge.source import read_topic
    with spark_session("try") as spark:
        read_topic(spark, "{TOPIC}", bootstrap_servers="{servers}").groupBy("key").count().show()
"""
    )
    threading.Event().wait()


def _say(text: str) -> None:
    print(text, flush=True)


def _say_rate(count: int, size_bytes: int, seconds: float) -> None:
    rate = f"{count / seconds:,.0f} records/s, {size_bytes / seconds / 1e6:.1f} MB/s"
    _say(f"   {count:,} records in {seconds:.1f} s: {rate}\n")


def _size(flight: Flight) -> int:
    return len(flight.key) + len(flight.value)


class _Elapsed:
    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self) -> float:
        """Seconds since its creation."""
        return time.monotonic() - self._began


@contextmanager
def _stopwatch() -> Iterator[_Elapsed]:
    yield _Elapsed()


def _spark_configs(path: Path) -> dict[str, str]:
    """Few tasks for little data, and Java's temporary directory: libraries inside Spark unpack native code there and do
    not delete it."""
    processes = ("driver", "executor", "ray.raydp_app_master")
    return {"spark.sql.shuffle.partitions": "4"} | {
        f"spark.{process}.extraJavaOptions": f"-Djava.io.tmpdir={path}" for process in processes
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, metavar="N", help="only the first N flights")
    parser.add_argument("--keep", action="store_true", help="keep the cluster running, and print commands to try")
    options: Any = parser.parse_args()
    if options.rows is not None and options.rows < 1:
        parser.error("--rows: must be at least 1")
    take_signals()
    try:
        run(options.rows, keep=options.keep)
    except Mismatch as mismatch:
        print(f"demo: FAILED: {mismatch}", file=sys.stderr)
        return 1
    except BaseException:
        if not interrupted():
            raise
        _say("\nEverything is stopped and removed.")
        return 0 if options.keep else 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
