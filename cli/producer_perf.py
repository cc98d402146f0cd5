"""`raylog producer-perf`: produce records as fast as possible, or at a rate (kafka-producer-perf-test).

It prints what Kafka's tool prints: a line every five seconds, and one at the end. With --json these lines go to stderr,
and stdout gets an object:

    {"records": 100000, "records_per_sec": 85000.0, "mb_per_sec": 81.1, "avg_latency_ms": 9.5, "max_latency_ms": 80.0,
     "p50_ms": 8.0, "p95_ms": 20.0, "p99_ms": 31.0, "p99.9_ms": 70.0}

The latency of a record is the time from the call that sends it to its acknowledgement. Megabytes are 2^20 bytes, as in
Kafka's tool.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from raylog.cli.arguments import (
    CLIENT_ID,
    Subparsers,
    add_bootstrap_server,
    check_topic,
    client_config,
    key_and_value,
    whole_number,
)
from raylog.cli.output import add_json, progress, show
from raylog.cli.perf_statistics import ProducerStatistics, wait_seconds
from raylog.cli.usage import UsageError
from raylog.client.producer.delivery import RecordMetadata
from raylog.client.producer.producer import Producer
from raylog.config.client_network import CLIENT_ID as CLIENT_ID_KEY
from raylog.config.producer import PRODUCER_CONFIG
from raylog.core.errors import ConfigError, KafkaError

FLUSH_SECONDS = 0.5
"""How long to wait for the last acknowledgements before the progress is printed again."""
RECORD_BYTES_MAX = (1 << 28) - 1
"""What random.randbytes makes."""
RATE_MIN = 0.001


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("producer-perf", help="measure the throughput and latency of a producer")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--num-records", type=whole_number(1), required=True, metavar="N")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record-size", type=whole_number(1), metavar="BYTES", help="random values of this size")
    what.add_argument("--payload-file", type=Path, metavar="FILE", help="values are lines of this file, by chance")
    parser.add_argument(
        "--throughput", type=_rate, default=-1.0, metavar="N", help="records per second (default: -1, without a limit)"
    )
    parser.add_argument(
        "--property",
        type=key_and_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of Kafka's producer configuration, such as acks=1; can be repeated",
    )
    parser.add_argument("--transactional-id", metavar="ID", help="send in transactions")
    parser.add_argument(
        "--transaction-duration-ms",
        type=whole_number(1),
        default=3000,
        metavar="MS",
        help="length of a transaction, with --transactional-id (default: %(default)s)",
    )
    add_json(parser)
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    values = _values(options)
    check_topic(options)
    config = client_config(options)
    own = {} if options.transactional_id is None else {"transactional.id": options.transactional_id}
    given = {CLIENT_ID_KEY.name: CLIENT_ID, **config.keys_of(PRODUCER_CONFIG), **dict(options.property), **own}
    report = progress(options)
    errors: list[KafkaError] = []
    with Producer(given) as producer:
        if own:
            producer.init_transactions()
        producer.partitions_for(options.topic)  # so that the first record does not wait for metadata
        began = time.perf_counter()
        statistics = ProducerStatistics(options.num_records, began)

        def delivered(size_bytes: int, sent_at: float, error: KafkaError | None, _: RecordMetadata | None) -> None:
            if error is not None:
                errors.append(error)
            else:
                statistics.record(size_bytes, 1000 * (time.perf_counter() - sent_at))

        def look() -> None:
            line = statistics.progress(time.perf_counter())
            if line is not None:
                report(line)

        transaction_ends = None
        for number in range(options.num_records):
            now = time.perf_counter()
            if own and transaction_ends is None:
                producer.begin_transaction()
                transaction_ends = now + options.transaction_duration_ms / 1000
            value = values[0] if len(values) == 1 else random.choice(values)
            producer.send(options.topic, value, on_delivery=partial(delivered, len(value), now))
            if transaction_ends is not None and now >= transaction_ends:
                producer.commit_transaction()
                transaction_ends = None
            look()
            if errors:
                break
            time.sleep(wait_seconds(number + 1, options.throughput, time.perf_counter() - began))
        if transaction_ends is not None and not errors:
            producer.commit_transaction()
        while producer.flush(FLUSH_SECONDS):
            look()
        ended = time.perf_counter()
    if errors:
        raise errors[0]
    show(options, statistics.summary(ended), statistics.last_line(ended))


def _values(options: argparse.Namespace) -> Sequence[bytes]:
    """Raises ConfigError, UsageError and OSError."""
    if options.payload_file is not None:
        lines: list[bytes] = [line for line in options.payload_file.read_bytes().split(b"\n") if line]
        if not lines:
            raise ConfigError(f"--payload-file: {options.payload_file} has no lines")
        return lines
    if options.record_size > RECORD_BYTES_MAX:
        raise UsageError(f"--record-size={options.record_size}: must be at most {RECORD_BYTES_MAX}")
    return [random.randbytes(options.record_size)]


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if rate == -1 or RATE_MIN <= rate < float("inf"):
        return rate
    raise argparse.ArgumentTypeError(f"{text!r}: must be a number of records per second, at least {RATE_MIN}, or -1")
