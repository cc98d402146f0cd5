"""(shell) Where replicas are: reassignments with their progress, preferred leaders, log directories."""

from __future__ import annotations

from typing import Any, Final

from raylog.client.admin.cluster import LogDirDescription, TopicPartitionReplica
from raylog.client.admin.partitions import ElectionType
from raylog.console.fields import Fields
from raylog.console.paging import Paging
from raylog.console.topic_rows import reassignment_row, replica_sizes
from raylog.console.visitor import DETAIL_SECONDS, Visitor, what_succeeded
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition

REPLICAS_MAX: Final = 1_000
MOVES_MAX: Final = 1_000


# --- reassignments


async def list_reassignments(visitor: Visitor, fields: Fields) -> Any:
    """A page of those in progress, with how much of the leader's log each new replica has."""
    found = await visitor.admin.list_partition_reassignments()
    page = Paging.of(fields, ("name",)).page(found.items(), lambda each: str(each[0]), {})
    sizes: dict[TopicPartition, dict[int, int]] = {}
    topics = await visitor.topics()
    if page.items:
        sizes = replica_sizes(await visitor.log_dirs([tp for tp, _ in page.items]) or {})
    return page.shown(lambda each: reassignment_row(*each, topics.get(each[0].topic), sizes.get(each[0], {})))


async def reassign(visitor: Visitor, fields: Fields) -> Any:
    """Move partitions of a topic to these brokers, the preferred leader first; without brokers, cancel their moves."""
    topic = fields.text("topic", characters_max=249)
    numbers = _numbers(fields, "partitions")
    if not numbers:
        raise fields.refused("partitions", "must be numbers of partitions, such as 0,1")
    brokers = None if fields.flag("cancel") else _numbers(fields, "replicas")
    if brokers is not None and not brokers:
        raise fields.refused("replicas", "must be ids of brokers, such as 0,1,2")
    await visitor.admin.alter_partition_reassignments({(topic, number): brokers for number in numbers})
    visitor.forget()
    return {"topic": topic, "partitions": numbers}


async def elect_preferred(visitor: Visitor, fields: Fields) -> Any:
    """Have the first replica of each partition lead it, of a topic or of all, where it is in sync."""
    topic = fields.text("topic", "", characters_max=249)
    partitions = None
    if topic:
        described = (await visitor.admin.describe_topics(topic))[topic]
        partitions = [(topic, each.partition) for each in described.partitions]
    found = await visitor.admin.elect_leaders(ElectionType.PREFERRED, partitions)
    visitor.forget()
    refused = {
        str(tp): error.message for tp, error in found.items() if error and error.code != ErrorCode.ELECTION_NOT_NEEDED
    }
    return {"elected": sum(error is None for error in found.values()), "refused": refused}


# --- log directories


async def list_log_dirs(visitor: Visitor, _: Fields) -> Any:
    """The directories of all brokers that are alive."""
    cluster = await visitor.admin.describe_cluster()
    alive = [each.node_id for each in cluster.nodes]
    found, error = await what_succeeded(visitor.admin.describe_log_dirs(alive, timeout=DETAIL_SECONDS))
    if not any(found.values()) and error is not None:
        raise error
    return [_dir_row(broker, path, each) for broker, dirs in sorted(found.items()) for path, each in dirs.items()]


async def list_replicas(visitor: Visitor, fields: Fields) -> Any:
    """A page of the replicas in a directory, the largest first."""
    broker, path = fields.number("broker"), fields.text("path")
    found = (await visitor.admin.describe_log_dirs(broker))[broker]
    if path not in found:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"broker {broker} has no log directory {path!r}")
    orders = {"size": lambda each: -each[1].size_bytes}
    page = Paging.of(fields, ("size", "name")).page(found[path].replicas.items(), lambda each: str(each[0][0]), orders)
    return page.shown(
        lambda each: {
            "name": str(each[0][0]),
            "topic": each[0][0].topic,
            "partition": each[0][0].partition,
            "size_bytes": each[1].size_bytes,
            "lag": each[1].offset_lag,
            "is_future": each[1].is_future,
        }
    )


async def move_replica(visitor: Visitor, fields: Fields) -> Any:
    """To another directory of its broker."""
    replica = TopicPartitionReplica(
        fields.text("topic", characters_max=249), fields.number("partition", most=1 << 31), fields.number("broker")
    )
    await visitor.admin.alter_replica_log_dirs({replica: fields.text("path")})
    return {"replica": str(replica)}


def _dir_row(broker: int, path: str, found: LogDirDescription) -> dict[str, Any]:
    return {
        "broker": broker,
        "path": path,
        "error": None if found.error is None else found.error.code.sentence,
        "replicas": len(found.replicas),
        "future": sum(is_future for _, is_future in found.replicas),
        "size_bytes": sum(each.size_bytes for each in found.replicas.values()),
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
    }


def _numbers(fields: Fields, name: str) -> list[int]:
    """Raises KafkaError."""
    texts = fields.texts(name, entries_max=MOVES_MAX)
    return [Fields({name: each}).number(name, most=(1 << 31) - 1) for each in texts]
