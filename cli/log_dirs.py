"""`raylog log-dirs`: show the log directories of brokers, and move replicas from one to another.

`describe` shows the partitions in each directory and the size of its disk. With --json it prints what kafka-log-dirs
prints, and two sizes of the disk (-1 if the broker does not report them):

    {"version": 1,
     "brokers": [{"broker": 0,
                  "logDirs": [{"logDir": "/data/broker-0", "error": null, "totalBytes": 1000, "usableBytes": 900,
                               "partitions": [{"partition": "flights-0", "size": 120, "offsetLag": 0,
                                               "isFuture": false}]}]}]}

Sizes are in bytes, without indexes. A lag of -1 belongs to a log that is offline. `move` begins a move of replicas to
another directory of their broker: `describe` shows the future log until it takes the place of the current one, and its
lag behind that."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

from raylog.cli.arguments import (
    Subparsers,
    add_bootstrap_server,
    broker_ids,
    names,
    open_client,
    topic_and_partitions,
    whole_number,
)
from raylog.cli.columns import columns
from raylog.cli.output import add_json, show
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.cluster import LogDirDescription, TopicPartitionReplica
from raylog.client.errors import AdminError
from raylog.core.config import INT_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

VERSION = 1


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("log-dirs", help="show the log directories of brokers, and move replicas")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    describing = actions.add_parser("describe", help="print the log directories with their replicas and sizes")
    describing.add_argument(
        "--broker-list", type=broker_ids, metavar="ID[,...]", help="only these brokers; default: all that are alive"
    )
    describing.add_argument("--topic-list", type=names, metavar="NAME[,...]", help="only these topics; default: all")
    describing.set_defaults(run=_print)

    moving = actions.add_parser("move", help="move replicas to another log directory of their broker")
    moving.add_argument("--broker", type=whole_number(0, INT_MAX), metavar="ID", required=True, help="the broker")
    moving.add_argument("--to", metavar="DIR", required=True, help="the log directory, as `describe` prints it")
    moving.add_argument(
        "topics",
        type=topic_and_partitions,
        nargs="+",
        metavar="TOPIC[:N,...]",
        help="these partitions of a topic (default: all that have a replica on the broker)",
    )
    moving.set_defaults(run=_move)

    for action in (describing, moving):
        add_json(action)
        add_bootstrap_server(action)


def _move(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        known = client.describe_cluster(include_fenced_brokers=True).nodes
        if all(node.node_id != options.broker for node in known):
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {options.broker} is not registered")
        wanted = [tp for topic, numbers in options.topics for tp in _replicas(client, options.broker, topic, numbers)]
        replicas = {TopicPartitionReplica(*tp, options.broker): options.to for tp in wanted}
        try:
            client.alter_replica_log_dirs(replicas)
        except AdminError as error:
            for replica, refusal in sorted(error.errors.items()):
                what = f"{TopicPartition(*replica[:2])} cannot be moved to {options.to} of broker {options.broker}"
                raise KafkaError(refusal.code, f"{what}: {refusal.message}") from None
            raise
    done = {"broker": options.broker, "to": options.to, "moving": list(map(str, wanted))}
    show(options, done, f"moving {len(replicas)} replica(s) to {options.to}")


def _replicas(client: AdminClient, broker_id: int, topic: str, numbers: Collection[int] | None) -> list[TopicPartition]:
    """Raises KafkaError if the topic does not exist, or has no replica on the broker."""
    if numbers is None:
        partitions = client.describe_topics(topic)[topic].partitions
        numbers = [each.partition for each in partitions if broker_id in each.replicas]
        if not numbers:
            message = f"broker {broker_id} has no replica of topic {topic}"
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, message)
    return [TopicPartition(topic, number) for number in numbers]


def _print(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        described = _describe(client, options.broker_list, options.topic_list)
    show(options, described, _table(described))


def _describe(client: AdminClient, broker_ids: list[int] | None, topics: list[str] | None) -> dict[str, Any]:
    """The object that --json prints."""
    wanted = None if topics is None else _partitions(client, topics)
    if broker_ids is None:
        broker_ids = [node.node_id for node in client.describe_cluster().nodes]
    found = client.describe_log_dirs(dict.fromkeys(broker_ids), wanted)
    brokers = [
        {"broker": broker_id, "logDirs": [_log_dir(path, each) for path, each in dirs.items()]}
        for broker_id, dirs in found.items()
    ]
    return {"version": VERSION, "brokers": brokers}


def _partitions(client: AdminClient, topics: list[str]) -> Collection[TopicPartition]:
    described = client.describe_topics(dict.fromkeys(topics))
    return {TopicPartition(name, each.partition) for name, topic in described.items() for each in topic.partitions}


def _log_dir(path: str, result: LogDirDescription) -> dict[str, Any]:
    return {
        "logDir": path,
        "error": None if result.error is None else result.error.code.name,
        "totalBytes": result.total_bytes,
        "usableBytes": result.usable_bytes,
        "partitions": [
            {
                "partition": str(tp),
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for (tp, _), replica in result.replicas.items()
        ],
    }


def _table(described: dict[str, Any]) -> str:
    directories, partitions = [], []
    for broker in described["brokers"]:
        for found in broker["logDirs"]:
            held = found["partitions"]
            cells = [broker["broker"], len(held), sum(each["size"] for each in held)]
            cells += [found["usableBytes"], found["totalBytes"], found["error"] or "-", found["logDir"]]
            directories.append([str(cell) for cell in cells])
            for each in held:
                cells = [broker["broker"], each["size"], each["offsetLag"], each["partition"]]
                partitions.append([*(str(cell) for cell in cells), "future" if each["isFuture"] else "current"])
    heads = ["BROKER", "PARTITIONS", "SIZE", "USABLE", "TOTAL", "ERROR", "LOG DIR"]
    parts = [columns(heads, directories)]
    if partitions:
        parts.append(columns(["BROKER", "SIZE", "OFFSET LAG", "PARTITION", "LOG"], partitions))
    return "\n\n".join(parts)
