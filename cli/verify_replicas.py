"""`raylog verify-replicas`: compare the replicas of partitions (kafka-replica-verification).

It reads each partition from all of its replicas, from the log start to the high watermark, and compares the batches;
their checksums are verified as well. Kafka's tool does this again and again, this one once. With --json:

    [{"topic": "orders", "partition": 0, "leader": 0, "start_offset": 0, "end_offset": 120, "batches": 4, "bytes": 900,
      "behind": {"2": 20}, "problems": {"1": "offset 60: the batch differs from the leader's"}}]

`behind` has the followers that did not have all yet, which is no fault of them. Compaction and retention run in each
broker on its own: where the cleaner is at work, replicas differ for a while. The exit code is 1 if there are problems.
"""

from __future__ import annotations

import argparse

from raylog.cli.arguments import (
    CLIENT_ID,
    Subparsers,
    add_bootstrap_server,
    client_config,
    open_client,
    partitions_of,
    topic_and_partitions,
)
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.client.blocking_calls import BlockingCalls, config_of
from raylog.client.replica_check import ReplicaCheck, check_replicas


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("verify-replicas", help="compare the replicas of partitions")
    parser.add_argument(
        "topics",
        type=topic_and_partitions,
        nargs="*",
        metavar="TOPIC[:0,1,...]",
        help="a topic, or some of its partitions (default: all topics)",
    )
    add_json(parser)
    add_bootstrap_server(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with open_client(options) as client:
        wanted = options.topics or [(topic.name, None) for topic in client.list_topics()]
        partitions = sorted(partitions_of(client, wanted))
        topics = client.describe_topics({tp.topic for tp in partitions})
    with BlockingCalls(config_of(client_config(options), client_id=CLIENT_ID), topics=list(topics)) as calls:
        found = [check_replicas(calls, topics[tp.topic], tp.partition) for tp in partitions]
    rows = [row for each in found for row in _rows(each)]
    head = ["PARTITION", "LEADER", "BATCHES", "BYTES", "BROKER", "FOUND"]
    show(options, [_entry(each) for each in found], columns(head, rows) if rows else "")
    return 1 if any(each.problems for each in found) else 0


def _rows(check: ReplicaCheck) -> list[list[str]]:
    """One line for each replica that has a problem or is behind; a single one if all are equal."""
    own = [str(check.tp), "-" if check.leader is None else str(check.leader), str(check.batches), str(check.size_bytes)]
    behind = {broker: f"{count} offsets behind" for broker, count in check.behind.items()}
    found = sorted({**behind, **check.problems}.items())
    return [[*own, str(broker), text] for broker, text in found] or [[*own, "all", "equal"]]


def _entry(check: ReplicaCheck) -> dict[str, object]:
    return {
        "topic": check.tp.topic,
        "partition": check.tp.partition,
        "leader": check.leader,
        "start_offset": check.start_offset,
        "end_offset": check.end_offset,
        "batches": check.batches,
        "bytes": check.size_bytes,
        "behind": {str(broker): count for broker, count in check.behind.items()},
        "problems": {str(broker): text for broker, text in check.problems.items()},
    }
