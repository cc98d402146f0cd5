"""`raylog e2e-latency`: measure the time from the call that sends a record until a consumer has it (kafka-e2e-latency).

Records are sent one after another. It prints the lines of Kafka's tool, in whole milliseconds like it, and with --json
an object with fractions: {"records": 1000, "avg_ms": 1.52, "p50_ms": 1.31, "p99_ms": 3.2, "p99.9_ms": 8.1}.
"""

from __future__ import annotations

import argparse
import random
import time

from raylog.cli.arguments import CLIENT_ID, Subparsers, add_bootstrap_server, check_topic, client_config, whole_number
from raylog.cli.output import add_json, progress, show
from raylog.cli.perf_statistics import percentile
from raylog.client.consumer.consumer import Consumer
from raylog.client.producer.producer import Producer
from raylog.config.client_network import CLIENT_ID as CLIENT_ID_KEY
from raylog.config.consumer import CONSUMER_CONFIG
from raylog.config.producer import PRODUCER_CONFIG
from raylog.core.errors import ErrorCode, KafkaError

TIMEOUT_SECONDS = 60.0
REPORT_EVERY = 1000
SHARES = (0.5, 0.99, 0.999)


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("e2e-latency", help="measure the latency from a producer to a consumer")
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--num-records", type=whole_number(1), default=10_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--acks", choices=("1", "all"), default="all", help="default: %(default)s")
    parser.add_argument(
        "--record-size", type=whole_number(1), default=100, metavar="BYTES", help="default: %(default)s"
    )
    add_json(parser)
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    check_topic(options)
    config = client_config(options)
    common = {CLIENT_ID_KEY.name: CLIENT_ID}
    producing = {**common, **config.keys_of(PRODUCER_CONFIG), "linger.ms": 0, "acks": options.acks}
    consuming = {
        **common,
        **config.keys_of(CONSUMER_CONFIG),
        "group.id": None,
        "enable.auto.commit": False,
        "auto.offset.reset": "none",
    }
    if options.acks == "1":
        producing["enable.idempotence"] = False
    report = progress(options)
    latencies: list[float] = []
    with Producer(producing) as producer, Consumer(consuming) as consumer:
        partitions = [(options.topic, number) for number in producer.partitions_for(options.topic)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for tp, end in ends.items():
            consumer.seek(tp, end)
        for number in range(options.num_records):
            value = random.randbytes(options.record_size)
            began = time.perf_counter()
            producer.send(options.topic, value).result(TIMEOUT_SECONDS)
            _await(consumer, value)
            latencies.append(1000 * (time.perf_counter() - began))
            if number % REPORT_EVERY == 0:
                report(f"{number}\t{latencies[-1]:f}")
    ordered = sorted(latencies)
    parts = {f"p{share * 100:g}_ms": percentile(ordered, share) for share in SHARES}
    found = {"records": len(latencies), "avg_ms": sum(latencies) / len(latencies), **parts}
    shown = ", ".join(f"{share * 100:g}th = {percentile(ordered, share):.0f}" for share in SHARES)
    show(options, found, f"Avg latency: {found['avg_ms']:.4f} ms\nPercentiles: {shown}")


def _await(consumer: Consumer, value: bytes) -> None:
    """Wait until the record is there. Raises KafkaError if it does not come, or another one does."""
    deadline = time.perf_counter() + TIMEOUT_SECONDS
    while not (records := consumer.poll(max(0.0, deadline - time.perf_counter()))):
        if time.perf_counter() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the record did not arrive within {TIMEOUT_SECONDS:.0f} s")
    if [record.value for record in records] != [value]:
        raise KafkaError(ErrorCode.INVALID_RECORD, "another record arrived: the topic must have no other producer")
