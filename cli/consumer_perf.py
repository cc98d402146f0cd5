"""`raylog consumer-perf`: read records as fast as possible, and print what kafka-consumer-perf-test prints: a line of
comma-separated values under a head. With --show-detailed-stats there is one for each interval. With --json an object:

    {"start_time": "2026-01-31 12:00:00:000", "end_time": "...", "data_consumed_in_mb": 95.4, "mb_per_sec": 40.1,
     "records": 100000, "records_per_sec": 42000.0, "rebalance_time_ms": 310, "fetch_time_ms": 2070,
     "fetch_mb_per_sec": 46.1, "fetch_records_per_sec": 48309.2}

The time of the rebalance is that from the start to the assignment of partitions. Sizes are of keys and values, in
megabytes of 2^20 bytes.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from uuid import uuid4

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
from raylog.cli.perf_statistics import MEBIBYTE
from raylog.client.consumer.consumer import Consumer
from raylog.config.client_network import CLIENT_ID as CLIENT_ID_KEY
from raylog.config.consumer import CONSUMER_CONFIG

POLL_SECONDS = 0.1
JOIN_SECONDS = 60.0
"""How long to wait for the partitions, before --timeout begins."""
DETAILED = "time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
HEAD = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms,"
    " fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("consumer-perf", help="measure the throughput of a consumer")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--num-records", type=whole_number(1), required=True, metavar="N", help="end after N records")
    parser.add_argument("--group", metavar="GROUP", help="default: a group of its own")
    parser.add_argument("--from-latest", action="store_true", help="read new records only")
    parser.add_argument(
        "--timeout",
        type=whole_number(1),
        default=10_000,
        metavar="MS",
        help="end if there is no record for this long (default: %(default)s)",
    )
    parser.add_argument("--show-detailed-stats", action="store_true", help="print a line for each interval")
    parser.add_argument("--reporting-interval", type=whole_number(1), default=5000, metavar="MS")
    parser.add_argument("--hide-header", action="store_true", help="print no head")
    parser.add_argument(
        "--property",
        type=key_and_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of Kafka's consumer configuration; can be repeated",
    )
    add_json(parser)
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    check_topic(options)
    config = client_config(options)
    given = {
        "auto.offset.reset": "latest" if options.from_latest else "earliest",
        CLIENT_ID_KEY.name: CLIENT_ID,
        "group.id": options.group or f"perf-consumer-{uuid4().hex[:8]}",
        **config.keys_of(CONSUMER_CONFIG),
        **dict(options.property),
    }
    report = progress(options)
    assigned_at: list[float] = []
    count = size_bytes = 0
    with Consumer(given) as consumer:
        consumer.subscribe(options.topic, on_assign=lambda *_: assigned_at.append(time.perf_counter()))
        began_wall, began = time.time(), time.perf_counter()
        read_at = reported_at = began
        reported = (0, 0)
        if options.show_detailed_stats and not options.hide_header:
            report(DETAILED)
        while count < options.num_records and time.perf_counter() < read_at + (
            options.timeout / 1000 if assigned_at else JOIN_SECONDS
        ):
            records = consumer.poll(POLL_SECONDS)
            now = time.perf_counter()
            if records or (assigned_at and read_at < assigned_at[0]):
                read_at = now
            for record in records[: options.num_records - count]:
                count += 1
                size_bytes += len(record.key or b"") + len(record.value or b"")
            if options.show_detailed_stats and now >= reported_at + options.reporting_interval / 1000:
                seconds, (old_count, old_bytes) = now - reported_at, reported
                mb_per_sec = (size_bytes - old_bytes) / MEBIBYTE / seconds
                cells = [_time(time.time()), f"{size_bytes / MEBIBYTE:.4f}", f"{mb_per_sec:.4f}"]
                report(", ".join([*cells, str(count), f"{(count - old_count) / seconds:.4f}"]))
                reported_at, reported = now, (count, size_bytes)
        ended_wall, ended = time.time(), max(read_at, began + 1e-6)
    rebalance = (assigned_at[0] if assigned_at else ended) - began
    fetch = max(ended - began - rebalance, 1e-6)
    mebibytes = size_bytes / MEBIBYTE
    found = {
        "start_time": _time(began_wall),
        "end_time": _time(ended_wall),
        "data_consumed_in_mb": mebibytes,
        "mb_per_sec": mebibytes / (ended - began),
        "records": count,
        "records_per_sec": count / (ended - began),
        "rebalance_time_ms": round(1000 * rebalance),
        "fetch_time_ms": round(1000 * fetch),
        "fetch_mb_per_sec": mebibytes / fetch,
        "fetch_records_per_sec": count / fetch,
    }
    line = ", ".join(f"{each:.4f}" if isinstance(each, float) else str(each) for each in found.values())
    show(options, found, line if options.hide_header or options.show_detailed_stats else f"{HEAD}\n{line}")
    if count < options.num_records:
        progress(options)(f"Only {count} of {options.num_records} records within {options.timeout} ms.")


def _time(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}:{moment.microsecond // 1000:03}"
