"""Commands about topics: create topics, add partitions, delete topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from raylog.config.topic_lifecycle import PARTITIONS_PER_REQUEST_MAX
from raylog.controller.replica_placement import place, with_coordinator
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, BrokerId, LeaderEpoch
from raylog.core.outcome import Outcome
from raylog.metadata.image import MetadataImage, TopicImage
from raylog.metadata.node_roles import coordinators_of, only_brokers
from raylog.metadata.records import MetadataRecord, PartitionCreated, TopicCreated, TopicDeleted
from raylog.metadata.topic_names import check_topic_name, metric_name


def create_topic(
    image: MetadataImage,
    topic: str,
    *,
    topic_id: UUID,
    num_partitions: int,
    replication_factor: int,
    assignments: Sequence[Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> Outcome[TopicImage, MetadataRecord]:
    """Create a topic. Returns the topic as it will be after its records.

    `assignments[i]` are the brokers of partition i if the client chose them. The caller has validated `configs`.
    Raises KafkaError with the code that CreateTopics returns.
    """
    check_topic_name(topic)
    if topic in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists.")
    _check_collision(image, topic)
    if topic_id == ZERO_TOPIC_ID or topic_id in image.topics_by_id or topic_id in image.deleted_topics:
        raise ValueError(f"topic id {topic_id} already exists")
    if assignments is None:
        _check_partition_count(num_partitions)
        placement = place(image, num_partitions, replication_factor)
    else:
        _check_partition_count(len(assignments))
        placement = _check_placement(image, assignments, len(assignments[0]))
    records: list[MetadataRecord] = [TopicCreated(topic, topic_id, tuple(sorted((configs or {}).items())))]
    records += _partitions_created(image, topic, topic_id, placement, first=0)
    created = MetadataImage()
    for record in records:
        created.replay(record)
    return Outcome(created.topics[topic], records)


def create_partitions(
    image: MetadataImage, topic: str, *, total_count: int, assignments: Sequence[Sequence[int]] | None = None
) -> Outcome[None, MetadataRecord]:
    """Add partitions, up to `total_count` in total. Raises KafkaError with the code that CreatePartitions returns."""
    existing = _topic_of(image, topic)
    added = total_count - len(existing.partitions)
    if added == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {total_count} partition(s).")
    if added < 0:
        message = f"Topic '{topic}' has {len(existing.partitions)} partitions; {total_count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    _check_partition_count(added)
    first = existing.partitions[0]
    replication_factor = len(set(only_brokers(first.replicas)) - set(first.removing))
    if assignments is None:
        placement = place(image, added, replication_factor)
    elif len(assignments) != added:
        message = f"The request adds {added} partition(s), but contains {len(assignments)} assignment(s)."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    else:
        placement = _check_placement(image, assignments, replication_factor)
    records = _partitions_created(image, topic, existing.topic_id, placement, first=len(existing.partitions))
    return Outcome(None, records)


def delete_topic(image: MetadataImage, topic: str) -> Outcome[None, MetadataRecord]:
    """Delete the topic. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    return Outcome(None, [TopicDeleted(_topic_of(image, topic).topic_id)])


def _check_collision(image: MetadataImage, topic: str) -> None:
    """Reject a topic that differs from another only in '.' and '_', as Kafka does: metric names replace '.' by '_'."""
    other = image.names_by_metric.get(metric_name(topic))
    if other is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic}' collides with existing topics: {other}")


def _check_partition_count(count: int) -> None:
    if count < 1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    check_request(count)


def check_request(count: int) -> None:
    """Raises KafkaError(POLICY_VIOLATION) for a request that would create so many partitions."""
    if count > PARTITIONS_PER_REQUEST_MAX:
        message = f"Excessively large number of partitions per request: {count}, at most {PARTITIONS_PER_REQUEST_MAX}."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)


def request_refusal(image: MetadataImage, count: int, *, partitions_max: int) -> KafkaError | None:
    """Why a request may not create `count` partitions: too many for one request, or for max.partitions.per.cluster."""
    try:
        check_request(count)
    except KafkaError as error:
        return error
    existing = image.partition_count
    if not count or existing + count <= partitions_max:
        return None
    message = (
        f"The cluster has {existing} partitions and cannot have {count} more:"
        f" max.partitions.per.cluster={partitions_max}."
    )
    return KafkaError(ErrorCode.POLICY_VIOLATION, message)


def check_assignment(image: MetadataImage, assigned: Sequence[int]) -> tuple[BrokerId, ...]:
    """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT). Fenced brokers may be assigned, coordinators not."""
    replicas = tuple(BrokerId(broker_id) for broker_id in assigned)
    brokers = image.broker_ids
    unknown = sorted(set(replicas) - brokers)
    if not replicas or len(set(replicas)) != len(replicas) or unknown:
        message = f"Replicas {list(replicas)}: must be different brokers out of {sorted(brokers)}."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return replicas


def _check_placement(
    image: MetadataImage, assignments: Sequence[Sequence[int]], replication_factor: int
) -> list[tuple[BrokerId, ...]]:
    """Each partition must have `replication_factor` replicas, one of them alive. Raises INVALID_REPLICA_ASSIGNMENT."""
    placement = [check_assignment(image, assigned) for assigned in assignments]
    for replicas in placement:
        if len(replicas) != replication_factor:
            message = (
                f"Replicas {list(replicas)}: must be {replication_factor} replicas, as "
                "for every partition of the topic."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        if not image.active.intersection(replicas):
            message = f"Replicas {list(replicas)}: none of these brokers is alive."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return placement


def _partitions_created(
    image: MetadataImage, topic: str, topic_id: UUID, placement: Sequence[tuple[BrokerId, ...]], *, first: int
) -> list[MetadataRecord]:
    alive, coordinators = image.active, coordinators_of(topic, image.brokers)
    records: list[MetadataRecord] = []
    for partition, brokers in enumerate(placement, first):
        replicas = with_coordinator(partition, brokers, coordinators)
        isr = tuple(replica for replica in replicas if replica in alive)
        changed = None if isr == replicas else isr
        records.append(PartitionCreated(topic_id, partition, replicas, isr[0], LeaderEpoch(0), changed))
    return records


def _topic_of(image: MetadataImage, topic: str) -> TopicImage:
    found = image.topics.get(topic)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return found
