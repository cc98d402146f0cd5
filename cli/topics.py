"""`raylog topics`: create, list, describe, alter and delete topics, with the options and output of kafka-topics.

With --json `describe` prints an array of objects:

    [{"topic": "flights", "topic_id": "...", "internal": false, "partition_count": 1, "replication_factor": 2,
      "configs": {"retention.ms": "5000"},
      "partitions": [{"partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1], "offline_replicas": [2]}]}]

The leader of a partition without one is null. The options that choose partitions leave out all others, and topics
without such a partition.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from raylog.cli.arguments import Subparsers, add_bootstrap_server, key_and_value, names, open_client, whole_number
from raylog.cli.configs import refuse_unknown_keys
from raylog.cli.output import add_json, show
from raylog.cli.usage import UsageError
from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigEntry, ConfigResource, ConfigResourceType
from raylog.client.admin.partitions import PartitionReassignment
from raylog.client.admin.topics import BROKER_DEFAULT, NewTopic, PartitionDescription, TopicDescription
from raylog.core.config import INT_MAX, SHORT_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition, id_text

MIN_ISR: Final = "min.insync.replicas"
DESCRIBED_AT_ONCE: Final = 100
"""Most topics whose configuration one request asks for: the answer has some 30 keys for each."""

Chosen = Callable[[PartitionDescription, int], bool]
"""Whether a partition is shown, by what is known of it and its min.insync.replicas."""
FILTERS: Final[Mapping[str, tuple[Chosen, str]]] = {
    "under_replicated_partitions": (
        lambda partition, _: len(partition.isr) < len(partition.replicas),
        "only partitions with fewer in-sync replicas than replicas",
    ),
    "unavailable_partitions": (lambda partition, _: partition.leader is None, "only partitions without a leader"),
    "under_min_isr_partitions": (
        lambda partition, min_isr: partition.leader is None or len(partition.isr) < min_isr,
        f"only partitions with fewer in-sync replicas than {MIN_ISR}",
    ),
    "at_min_isr_partitions": (
        lambda partition, min_isr: len(partition.isr) == min_isr,
        f"only partitions with exactly {MIN_ISR} in-sync replicas",
    ),
}
"""The options of `describe` that choose partitions."""


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("topics", help="create, list, describe, alter and delete topics")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    create = actions.add_parser("create", help="create a topic")
    create.add_argument("topic", metavar="NAME")
    create.add_argument("--partitions", type=whole_number(1, INT_MAX), default=BROKER_DEFAULT, metavar="N")
    create.add_argument("--replication-factor", type=whole_number(1, SHORT_MAX), default=BROKER_DEFAULT, metavar="N")
    create.add_argument("--config", type=key_and_value, action="append", default=[], metavar="KEY=VALUE")
    create.add_argument("--if-not-exists", action="store_true", help="succeed without a change if the topic exists")
    create.set_defaults(run=_create)

    listing = actions.add_parser("list", help="print the names of all topics")
    listing.set_defaults(run=_list)

    describe = actions.add_parser("describe", help="print partitions, leaders, replicas and configuration")
    describe.add_argument("topics", metavar="NAME", nargs="*", help="default: all topics")
    which = describe.add_mutually_exclusive_group()
    for name, (_, text) in FILTERS.items():
        which.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    which.add_argument(
        "--topics-with-overrides", action="store_true", help="only topics with values of their own, without partitions"
    )
    describe.set_defaults(run=_describe)

    alter = actions.add_parser("alter", help="add partitions to topics, and set or delete keys of their configuration")
    alter.add_argument("topics", metavar="NAME", nargs="+")
    alter.add_argument("--partitions", type=whole_number(1, INT_MAX), metavar="N", help="the new number of partitions")
    alter.add_argument("--config", type=key_and_value, action="append", default=[], metavar="KEY=VALUE")
    alter.add_argument("--delete-config", type=names, action="extend", default=[], metavar="KEY[,...]")
    alter.add_argument("--if-exists", action="store_true", help="ignore topics that do not exist")
    alter.set_defaults(run=_alter)

    delete = actions.add_parser("delete", help="delete topics and all their records")
    delete.add_argument("topics", metavar="NAME", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="succeed if the topic does not exist")
    delete.set_defaults(run=_delete)

    for action in (listing, describe):
        action.add_argument("--exclude-internal", action="store_true", help="omit the cluster's internal topics")
    for action in (create, listing, describe, alter, delete):
        add_json(action)
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
                show(options, {"created": []}, "")
                return
            raise
    show(options, {"created": [options.topic]}, f"Created topic {options.topic}.")


def _list(options: argparse.Namespace) -> None:
    with open_client(options) as client:
        topics = client.list_topics(include_internal=not options.exclude_internal)
    found = [topic.name for topic in topics]
    show(options, found, "\n".join(found))


# --- describe


def _describe(options: argparse.Namespace) -> None:
    chosen = next((chosen for name, (chosen, _) in FILTERS.items() if getattr(options, name)), None)
    with open_client(options) as client:
        topics = client.describe_topics(dict.fromkeys(options.topics) or None).values()
        wanted = [topic for topic in topics if not (options.exclude_internal and topic.is_internal)]
        configs = _configs(client, wanted)
        moving = {} if chosen is None else client.list_partition_reassignments()
    described = []
    for topic in wanted:
        own, partitions = configs[topic.name], topic.partitions
        if chosen is not None:
            min_isr = int(own[MIN_ISR].value or 1)
            partitions = tuple(each for each in partitions if chosen(_before_move(topic.name, each, moving), min_isr))
        if partitions or chosen is None:
            described.append(_topic(topic, own, partitions))
    if options.topics_with_overrides:
        described = [{**topic, "partitions": []} for topic in described if topic["configs"]]
    lines = [line for topic in described for line in _lines(topic, with_head=chosen is None)]
    show(options, described, "\n".join(lines))


def _configs(client: AdminClient, topics: Iterable[TopicDescription]) -> dict[str, dict[str, ConfigEntry]]:
    """The configuration of each topic, by its name."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics]
    found: dict[str, dict[str, ConfigEntry]] = {}
    for start in range(0, len(resources), DESCRIBED_AT_ONCE):
        described = client.describe_configs(resources[start : start + DESCRIBED_AT_ONCE])
        found.update((resource.name, entries) for resource, entries in described.items())
    return found


def _before_move(
    topic: str, partition: PartitionDescription, moving: Mapping[TopicPartition, PartitionReassignment]
) -> PartitionDescription:
    """Without the replicas that a reassignment is adding: they are not expected to be in sync yet."""
    reassignment = moving.get(TopicPartition(topic, partition.partition))
    if reassignment is None:
        return partition
    present = tuple(replica for replica in partition.replicas if replica not in reassignment.adding_replicas)
    return partition._replace(replicas=present)


def _topic(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], partitions: Iterable[PartitionDescription]
) -> dict[str, Any]:
    """One object of the array that --json prints."""
    return {
        "topic": topic.name,
        "topic_id": id_text(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": max((len(partition.replicas) for partition in topic.partitions), default=0),
        "configs": {entry.name: entry.value for entry in configs.values() if entry.is_own},
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline_replicas": list(each.offline_replicas),
            }
            for each in partitions
        ],
    }


def _lines(topic: Mapping[str, Any], *, with_head: bool) -> list[str]:
    """As kafka-topics prints them."""
    name = topic["topic"]
    own = ",".join(f"{key}={value}" for key, value in topic["configs"].items())
    head = (
        f"Topic: {name}\tTopicId: {topic['topic_id']}\tPartitionCount: {topic['partition_count']}"
        f"\tReplicationFactor: {topic['replication_factor']}\tConfigs: {own}"
    )
    lines = [
        f"\tTopic: {name}\tPartition: {each['partition']}"
        f"\tLeader: {'none' if each['leader'] is None else each['leader']}"
        f"\tReplicas: {_ids(each['replicas'])}\tIsr: {_ids(each['isr'])}"
        for each in topic["partitions"]
    ]
    return [head, *lines] if with_head else lines


# --- alter and delete


def _alter(options: argparse.Namespace) -> None:
    changes = {**dict(options.config), **dict.fromkeys(options.delete_config)}
    if not changes and options.partitions is None:
        raise UsageError("--partitions, --config or --delete-config is required")
    twice = sorted(dict(options.config).keys() & set(options.delete_config))
    if twice:
        raise UsageError(f"{twice[0]}: cannot be set and deleted at the same time")
    with open_client(options) as client:
        topics = list(dict.fromkeys(options.topics))
        if options.if_exists:
            existing = {topic.name for topic in client.list_topics()}
            topics = [topic for topic in topics if topic in existing]
        resources = {ConfigResource(ConfigResourceType.TOPIC, topic): changes for topic in topics}
        for resource in resources:
            refuse_unknown_keys(client, resource, options.delete_config)
        if changes:  # so that no topic has grown if a value is refused
            client.incremental_alter_configs(resources, validate_only=True)
        if options.partitions is not None:
            client.create_partitions(dict.fromkeys(topics, options.partitions))
        if changes:
            client.incremental_alter_configs(resources)
    show(options, {"altered": topics}, "\n".join(f"Altered topic {topic}." for topic in topics))


def _delete(options: argparse.Namespace) -> None:
    deleted = []
    with open_client(options) as client:
        for name in options.topics:
            try:
                client.delete_topics(name)
            except KafkaError as error:
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and options.if_exists:
                    continue
                raise
            deleted.append(name)
            if not options.json:
                print(f"Deleted topic {name}.")
    show(options, {"deleted": deleted}, "")


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
