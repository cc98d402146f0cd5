"""`raylog topics`: create, list, describe and delete topics, with the options and output of kafka-topics."""

from __future__ import annotations

import argparse
import base64
from uuid import UUID

from raylog.cli.arguments import Subparsers, add_bootstrap_server, key_and_value, open_client, whole_number
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.admin.topics import BROKER_DEFAULT, NewTopic, TopicDescription
from raylog.core.errors import ErrorCode, KafkaError


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("topics", help="create, list, describe and delete topics")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create a topic")
    create.add_argument("topic", metavar="NAME")
    create.add_argument("--partitions", type=whole_number(1), default=BROKER_DEFAULT, metavar="N")
    create.add_argument("--replication-factor", type=whole_number(1), default=BROKER_DEFAULT, metavar="N")
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
            configs = dict(options.config)
            client.create_topics(
                NewTopic(options.topic, options.partitions, options.replication_factor, configs=configs)
            )
        except KafkaError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
                return
            raise
    print(f"Created topic {options.topic}.")


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        topics = client.list_topics(include_internal=not options.exclude_internal)
    for topic in topics:
        print(topic.name)


def _describe(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        for topic in client.describe_topics(dict.fromkeys(options.topics) or None).values():
            _print_topic(client, topic)


def _print_topic(client: AdminClient, topic: TopicDescription) -> None:
    name, partitions = topic.name, topic.partitions
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    entries = client.describe_configs(resource)[resource].values()
    own = ",".join(f"{entry.name}={entry.value}" for entry in entries if entry.is_own)
    replication_factor = max((len(partition.replicas) for partition in partitions), default=0)
    print(
        f"Topic: {name}\tTopicId: {id_text(topic.topic_id)}\tPartitionCount: {len(partitions)}"
        f"\tReplicationFactor: {replication_factor}\tConfigs: {own}"
    )
    for partition in partitions:
        leader = "none" if partition.leader is None else partition.leader
        print(
            f"\tTopic: {name}\tPartition: {partition.partition}\tLeader: {leader}"
            f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
        )


def _delete(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        for name in options.topics:
            try:
                client.delete_topics(name)
            except KafkaError as error:
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and options.if_exists:
                    continue
                raise
            print(f"Deleted topic {name}.")


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(str(broker) for broker in brokers)


def id_text(topic_id: UUID) -> str:
    """The id as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
