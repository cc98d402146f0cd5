"""`raylog verifiable-producer` and `verifiable-consumer`: lines of JSON about each record, as Kafka's tools print.

They are for tests that compare what was acknowledged with what was read. SIGTERM and SIGINT end them in order. Each
line has `timestamp` (milliseconds) and `name`:

    startup_complete, shutdown_complete
    producer_send_success {"key", "value", "topic", "partition", "offset"}
    producer_send_error   {"key", "value", "topic", "exception", "message"}
    tool_data             {"sent", "acked", "target_throughput", "avg_throughput"}, the last line of the producer
    partitions_assigned, partitions_revoked {"partitions": [{"topic", "partition"}]}
    records_consumed      {"count", "partitions": [{"topic", "partition", "count", "minOffset", "maxOffset"}]}
    record_data           {"key", "value", "topic", "partition", "offset"}, with --verbose
    offsets_committed     {"offsets": [{"topic", "partition", "offset"}], "success"}
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from raylog.cli.arguments import (
    CLIENT_ID,
    Subparsers,
    add_bootstrap_server,
    check_topic,
    client_config,
    whole_number,
)
from raylog.cli.perf_statistics import wait_seconds
from raylog.client.consumer.consumer import Consumer
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.producer.delivery import RecordMetadata
from raylog.client.producer.producer import Producer
from raylog.config.client_network import CLIENT_ID as CLIENT_ID_KEY
from raylog.config.consumer import CONSUMER_CONFIG
from raylog.config.producer import PRODUCER_CONFIG
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition

POLL_SECONDS = 0.2


def add_to(subparsers: Subparsers) -> None:
    producer = subparsers.add_parser("verifiable-producer", help="produce numbers, and print a line of JSON about each")
    producer.add_argument("topic", metavar="TOPIC")
    producer.add_argument("--max-messages", type=whole_number(0), metavar="N", help="default: until interrupted")
    producer.add_argument(
        "--throughput", type=float, default=-1.0, metavar="N", help="records per second (default: without a limit)"
    )
    producer.add_argument("--acks", choices=("0", "1", "all", "-1"), default="all", help="default: %(default)s")
    producer.add_argument("--value-prefix", type=whole_number(0), metavar="N", help="values are N.0, N.1, ...")
    producer.add_argument(
        "--repeating-keys", type=whole_number(1), metavar="N", help="keys are 0 to N-1 in turn (default: none)"
    )
    producer.add_argument(
        "--message-create-time", type=whole_number(0), metavar="MS", help="timestamp of the first record (default: now)"
    )
    producer.set_defaults(run=_produce)

    consumer = subparsers.add_parser("verifiable-consumer", help="consume, and print lines of JSON about the records")
    consumer.add_argument("topic", metavar="TOPIC")
    consumer.add_argument("--group-id", metavar="GROUP", required=True)
    consumer.add_argument("--group-instance-id", metavar="ID", help="a static member")
    consumer.add_argument("--max-messages", type=whole_number(0), metavar="N", help="default: until interrupted")
    consumer.add_argument("--session-timeout", type=whole_number(1), default=30_000, metavar="MS")
    consumer.add_argument("--reset-policy", choices=("earliest", "latest", "none"), default="earliest")
    consumer.add_argument("--enable-autocommit", action="store_true", help="commit in the background (default: sync)")
    consumer.add_argument("--verbose", action="store_true", help="print a line about each record")
    consumer.set_defaults(run=_consume)

    for parser in (producer, consumer):
        add_bootstrap_server(parser)


@contextmanager
def _until_signalled() -> Iterator[threading.Event]:
    """An event that is set by SIGTERM and SIGINT while the block runs."""
    ended = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(name: str, **fields: Any) -> None:
    line = json.dumps({"timestamp": int(time.time() * 1000), "name": name, **fields})
    sys.stdout.write(line + "\n")  # one write, since two threads print
    sys.stdout.flush()


# --- the producer


def _produce(options: argparse.Namespace) -> None:
    check_topic(options)
    config = client_config(options)
    given = {CLIENT_ID_KEY.name: CLIENT_ID, **config.keys_of(PRODUCER_CONFIG), "acks": options.acks}
    if options.acks in ("0", "1"):
        given["enable.idempotence"] = False
    counts: Counter[str] = Counter()
    output_errors: list[OSError] = []

    def reported(name: str, **fields: Any) -> None:
        """On the producer's thread, which must not raise: an error of the output ends the command."""
        try:
            if not output_errors:
                _print(name, **fields)
        except OSError as error:
            output_errors.append(error)
            ended.set()

    def delivered(key: str | None, value: str, error: KafkaError | None, where: RecordMetadata | None) -> None:
        common = {"key": key, "value": value, "topic": options.topic}
        if where is not None:
            counts["acked"] += 1
            reported("producer_send_success", **common, partition=where.partition, offset=where.offset)
        elif error is not None:
            reported("producer_send_error", **common, exception=error.code.name, message=error.message)

    limit = itertools.count() if options.max_messages is None else range(options.max_messages)
    with Producer(given) as producer:
        producer.partitions_for(options.topic)
        began = time.monotonic()
        with _until_signalled() as ended:
            _print("startup_complete")
            for number in limit:
                if ended.is_set():
                    break
                key = None if options.repeating_keys is None else str(number % options.repeating_keys)
                value = str(number) if options.value_prefix is None else f"{options.value_prefix}.{number}"
                stamp = None if options.message_create_time is None else options.message_create_time + number
                try:
                    producer.send(
                        options.topic,
                        value.encode(),
                        None if key is None else key.encode(),
                        timestamp_ms=stamp,
                        on_delivery=partial(delivered, key, value),
                    )
                except KafkaError as error:
                    delivered(key, value, error, None)
                counts["sent"] += 1
                ended.wait(wait_seconds(counts["sent"], options.throughput, time.monotonic() - began))
            producer.flush()
        if output_errors:
            raise output_errors[0]
        seconds = time.monotonic() - began
    _print("shutdown_complete")
    _print(
        "tool_data",
        sent=counts["sent"],
        acked=counts["acked"],
        target_throughput=options.throughput,
        avg_throughput=counts["acked"] / max(seconds, 1e-9),
    )


# --- the consumer


def _consume(options: argparse.Namespace) -> None:
    check_topic(options)
    config = client_config(options)
    given = {
        CLIENT_ID_KEY.name: CLIENT_ID,
        **config.keys_of(CONSUMER_CONFIG),
        "group.id": options.group_id,
        "session.timeout.ms": options.session_timeout,
        "auto.offset.reset": options.reset_policy,
        "enable.auto.commit": options.enable_autocommit,
    }
    if options.group_instance_id is not None:
        given["group.instance.id"] = options.group_instance_id
    left = sys.maxsize if options.max_messages is None else options.max_messages
    with Consumer(given) as consumer:
        consumer.subscribe(
            options.topic,
            on_assign=lambda _, partitions: _print("partitions_assigned", partitions=_shown(partitions)),
            on_revoke=lambda _, partitions: _print("partitions_revoked", partitions=_shown(partitions)),
        )
        with _until_signalled() as ended:
            _print("startup_complete")
            while left and not ended.is_set():
                records = consumer.poll(POLL_SECONDS, max_records=min(left, 500))
                left -= len(records)
                if records:
                    _report(consumer, records, options)
    _print("shutdown_complete")


def _report(consumer: Consumer, records: Sequence[ConsumerRecord], options: argparse.Namespace) -> None:
    if options.verbose:
        for each in records:
            _print(
                "record_data",
                key=_text(each.key),
                value=_text(each.value),
                topic=each.topic,
                partition=each.partition,
                offset=each.offset,
            )
    offsets: dict[TopicPartition, list[int]] = {}
    for each in records:
        offsets.setdefault(TopicPartition(each.topic, each.partition), []).append(each.offset)
    _print(
        "records_consumed",
        count=len(records),
        partitions=[
            {**shown, "count": len(found), "minOffset": min(found), "maxOffset": max(found)}
            for shown, found in zip(_shown(offsets), offsets.values(), strict=True)
        ],
    )
    if options.enable_autocommit:
        return
    error: dict[str, str] = {}
    try:
        consumer.commit({tp: max(found) + 1 for tp, found in offsets.items()})
    except KafkaError as refusal:
        error = {"error": str(refusal)}
    shown = [{**each, "offset": max(found) + 1} for each, found in zip(_shown(offsets), offsets.values(), strict=True)]
    _print("offsets_committed", offsets=shown, success=not error, **error)


def _shown(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
