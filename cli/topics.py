"""`raylog topics`: create, list, describe and delete topics, with the options and output of kafka-topics."""

from __future__ import annotations

import argparse
import base64
from uuid import UUID

from raylog.cli.arguments import Subparsers, add_bootstrap_server, key_and_value, open_client, whole_number
from raylog.client import cluster_admin as admin
from raylog.client.cluster_client import ClusterClient
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.metadata import MetadataResponseTopic


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("topics", help="create, list, describe and delete topics")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create a topic")
    create.add_argument("topic", metavar="NAME")
    create.add_argument("--partitions", type=whole_number(1), default=admin.BROKER_DEFAULT, metavar="N")
    create.add_argument("--replication-factor", type=whole_number(1), default=admin.BROKER_DEFAULT, metavar="N")
    create.add_argument("--config", type=key_and_value, action="append", default=[], metavar="KEY=VALUE")
    create.add_argument("--if-not-exists", action="store_true", help="succeed without a change if the topic exists")
    create.set_defaults(run=_create)

    listing = actions.add_parser("list", help="print the names of all topics")
    listing.add_argument("--exclude-internal", action="store_true", help="omit the cluster's internal topics")
    listing.set_defaults(run=_list)

    describe = actions.add_parser("describe", help="print partitions, leaders, replicas and configuration")
    describe.add_argument("topics", metavar="NAME", nargs="*", help="default: all topics")
    describe.set_defaults(run=_describe)

    delete = actions.add_parser("delete", help="delete topics and all their records")
    delete.add_argument("topics", metavar="NAME", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="succeed if the topic does not exist")
    delete.set_defaults(run=_delete)

    for action in (create, listing, describe, delete):
        add_bootstrap_server(action)


def _create(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        try:
            admin.create_topic(
                client,
                options.topic,
                num_partitions=options.partitions,
                replication_factor=options.replication_factor,
                configs=dict(options.config),
            )
        except KafkaError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
                return
            raise
    print(f"Created topic {options.topic}.")


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        topics = client.view(None).metadata.topics
    for topic in sorted(topics, key=_name):
        if not (topic.is_internal and options.exclude_internal):
            print(_name(topic))


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        view = client.view(options.topics or None)
        names = options.topics or sorted(_name(topic) for topic in view.metadata.topics)
        for name in names:
            _print_topic(client, view.topic(name))


def _print_topic(client: ClusterClient, topic: MetadataResponseTopic) -> None:
    name = _name(topic)
    own = ",".join(f"{entry.name}={entry.value}" for entry in admin.topic_configs(client, name) if entry.is_own)
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    replication_factor = max((len(partition.replica_nodes) for partition in partitions), default=0)
    print(
        f"Topic: {name}\tTopicId: {id_text(topic.topic_id)}\tPartitionCount: {len(partitions)}"
        f"\tReplicationFactor: {replication_factor}\tConfigs: {own}"
    )
    for partition in partitions:
        leader = partition.leader_id if partition.leader_id >= 0 else "none"
        print(
            f"\tTopic: {name}\tPartition: {partition.partition_index}\tLeader: {leader}"
            f"\tReplicas: {_ids(partition.replica_nodes)}\tIsr: {_ids(partition.isr_nodes)}"
        )


def _delete(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        for name in options.topics:
            try:
                admin.delete_topic(client, name)
            except KafkaError as error:
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and options.if_exists:
                    continue
                raise
            print(f"Deleted topic {name}.")


def _name(topic: MetadataResponseTopic) -> str:
    return topic.name or ""


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(str(broker) for broker in brokers)


def id_text(topic_id: UUID) -> str:
    """The id as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
