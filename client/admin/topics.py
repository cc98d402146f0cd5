"""Topics: create, delete, list, describe and grow them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from raylog.client.admin.calls import (
    ANY_BROKER,
    CONTROLLER,
    Answer,
    Call,
    Steps,
    ask,
    distinct,
    named,
    several,
)
from raylog.client.admin.cluster import operations_in
from raylog.client.errors import AdminError
from raylog.client.given_values import items_of, shown
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, ZERO_TOPIC_ID
from raylog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from raylog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.security.acl import Operation

BROKER_DEFAULT: Final = -1
_name = named("topic")


class NewTopic(NamedTuple):
    """A topic to be created; -1: as many partitions or replicas as the brokers are configured for."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    """The brokers of each partition, the preferred leader first, in place of the two numbers."""
    configs: Mapping[str, str] | None = None


class CreatedTopic(NamedTuple):
    """-1 and the zero UUID where the broker does not say."""

    name: str
    topic_id: UUID
    num_partitions: int
    replication_factor: int
    configs: dict[str, str | None]


class TopicListing(NamedTuple):
    name: str
    topic_id: UUID
    is_internal: bool


class PartitionDescription(NamedTuple):
    """`leader` is None if there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    """`authorized_operations` is None unless it was asked for."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[Operation] | None


class NewPartitions(NamedTuple):
    """How many partitions a topic is to have, and the brokers of the new ones."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


def create_topics(
    topics: Iterable[NewTopic | str] | NewTopic | str, *, validate_only: bool = False, timeout: float | None = None
) -> Steps[dict[str, CreatedTopic]]:
    """Create topics, or only check that they could be. A name stands for a topic with the brokers' defaults."""
    given = [topics] if isinstance(topics, (NewTopic, str)) else items_of("topics", topics)
    for topic in given:
        if not isinstance(topic, (NewTopic, str)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a topic must be a NewTopic or a name, not {shown(topic)}")
    listed = [NewTopic(topic) if isinstance(topic, str) else topic for topic in given]
    distinct((topic.name for topic in listed), _name)
    wanted = {topic.name: _creatable(topic) for topic in listed}

    def request(names: Sequence[str], left_ms: int) -> CreateTopicsRequest:
        chosen = tuple(wanted[name] for name in names)
        return CreateTopicsRequest(topics=chosen, timeout_ms=left_ms, validate_only=validate_only)

    def read(response: Any, _: Sequence[str]) -> Iterator[Answer]:
        for each in response.topics:
            configs = {entry.name: entry.value for entry in each.configs or ()}
            made = CreatedTopic(each.name, each.topic_id, each.num_partitions, each.replication_factor, configs)
            yield Answer(each.name, made, each.error_code, each.error_message)

    found = yield Call(dict.fromkeys(wanted, CONTROLLER), _name, request, read)
    return found.checked()


def delete_topics(
    topics: Iterable[str | UUID] | str | UUID, *, timeout: float | None = None
) -> Steps[dict[str | UUID, None]]:
    """Delete topics with all their records, by name or by id."""
    given: list[str | UUID] = [topics] if isinstance(topics, (str, UUID)) else items_of("topics", topics)
    for topic in given:
        if not isinstance(topic, (str, UUID)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a topic must be a name or a UUID, not {shown(topic)}")
    wanted = distinct(given, _name)

    def request(items: Sequence[str | UUID], left_ms: int) -> DeleteTopicsRequest:
        # Versions up to 5 and from 6 on name the topic in different fields; the codec writes those of its version.
        states = tuple(
            DeleteTopicState(name=None, topic_id=item)
            if isinstance(item, UUID)
            else DeleteTopicState(name=item, topic_id=ZERO_TOPIC_ID)
            for item in items
        )
        names = tuple(item for item in items if isinstance(item, str))
        return DeleteTopicsRequest(topic_names=names, topics=states, timeout_ms=left_ms)

    def read(response: Any, items: Sequence[str | UUID]) -> Iterator[Answer]:
        ids = {item for item in items if isinstance(item, UUID)}
        for each in response.responses:
            item = each.topic_id if each.topic_id in ids else each.name
            yield Answer(item, None, each.error_code, each.error_message)

    found = yield Call(dict.fromkeys(wanted, CONTROLLER), _name, request, read)
    return found.checked()


def list_topics(*, include_internal: bool = True, timeout: float | None = None) -> Steps[list[TopicListing]]:
    """The topics that this client may see, by name."""
    response = yield from _metadata(None)
    listed = (TopicListing(each.name or "", each.topic_id, each.is_internal) for each in response.topics)
    return sorted(each for each in listed if include_internal or not each.is_internal)


def describe_topics(
    topics: Iterable[str] | str | None = None,
    *,
    include_authorized_operations: bool = False,
    timeout: float | None = None,
) -> Steps[dict[str, TopicDescription]]:
    """Partitions, leaders and replicas of these topics, or of all that this client may see."""
    wanted = None if topics is None else distinct(several(topics), _name)
    if wanted is not None and not wanted:
        return {}
    response = yield from _metadata(wanted, authorized_operations=include_authorized_operations)
    shown = {each.name or "": each for each in response.topics}
    described, errors = {}, {}
    for name in sorted(shown) if wanted is None else wanted:
        each = shown.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each is None else each.error_code
        if each is None or code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            errors[name] = KafkaError(code, _refusal(name, code))
        else:
            described[name] = _described(each)
    if errors:
        raise AdminError.of(errors, described)
    return described


def describe_topic_partitions(
    topics: Iterable[str] | str | None = None, *, page_size: int = 2000, timeout: float | None = None
) -> Steps[dict[str, TopicDescription]]:
    """As `describe_topics`, in pages of so many partitions, and with the eligible leader replicas (KIP-966)."""
    wanted = tuple(TopicRequest(name=name) for name in ([] if topics is None else distinct(several(topics), _name)))
    found: dict[str, TopicDescription] = {}
    errors: dict[str, KafkaError] = {}
    cursor: Cursor | None = None
    if topics is not None and not wanted:
        return {}
    while True:
        request = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=page_size, cursor=cursor)
        response = yield from ask(ANY_BROKER, "the topics", partial(_same, request), lambda each: each)
        for each in response.topics:
            name = each.name or ""
            if each.error_code:
                errors[name] = KafkaError(each.error_code, _refusal(name, each.error_code))
                continue
            before = found.get(name)
            described = _described(each)
            found[name] = (
                described if before is None else before._replace(partitions=before.partitions + described.partitions)
            )
        after = response.next_cursor
        if after is None:
            break
        if cursor is not None and (after.topic_name, after.partition_index) <= (
            cursor.topic_name,
            cursor.partition_index,
        ):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the pages of the topics do not go on")
        cursor = after
    for topic in wanted:
        if topic.name not in found and topic.name not in errors:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors[topic.name] = KafkaError(code, _refusal(topic.name, code))
    if errors:
        raise AdminError.of(errors, found)
    return found


def create_partitions(
    new_partitions: Mapping[str, int | NewPartitions], *, validate_only: bool = False, timeout: float | None = None
) -> Steps[dict[str, None]]:
    """Increase the number of partitions of topics to this number."""
    wanted = {
        name: _grown(name, NewPartitions(each) if isinstance(each, int) else each)
        for name, each in new_partitions.items()
    }

    def request(names: Sequence[str], left_ms: int) -> CreatePartitionsRequest:
        chosen = tuple(wanted[name] for name in names)
        return CreatePartitionsRequest(topics=chosen, timeout_ms=left_ms, validate_only=validate_only)

    def read(response: Any, _: Sequence[str]) -> Iterator[Answer]:
        for each in response.results:
            yield Answer(each.name, None, each.error_code, each.error_message)

    found = yield Call(dict.fromkeys(wanted, CONTROLLER), _name, request, read)
    return found.checked()


def _metadata(names: Sequence[str] | None, *, authorized_operations: bool = False) -> Steps[Any]:
    topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
    request = MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=authorized_operations,
    )
    return (yield from ask(ANY_BROKER, "the topics", lambda _: request, lambda response: response))


def _same(request: DescribeTopicPartitionsRequest, _: int) -> DescribeTopicPartitionsRequest:
    return request


def _refusal(name: str, code: ErrorCode) -> str:
    return f"topic {name!r}: {code.sentence}"


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = tuple(
        CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
        for number, brokers in (topic.replica_assignments or {}).items()
    )
    if assignments and (topic.num_partitions, topic.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
        text = f"{_name(topic.name)}: replica_assignments are used in place of num_partitions and replication_factor"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    configs = tuple(CreatableTopicConfig(name=key, value=value) for key, value in (topic.configs or {}).items())
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs=configs,
    )


def _grown(name: str, wanted: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if wanted.assignments is not None:
        assignments = tuple(CreatePartitionsAssignment(broker_ids=tuple(each)) for each in wanted.assignments)
    return CreatePartitionsTopic(name=name, count=wanted.total_count, assignments=assignments)


def _described(topic: Any) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            each.partition_index,
            None if each.leader_id == NO_BROKER_ID else each.leader_id,
            each.leader_epoch,
            each.replica_nodes,
            each.isr_nodes,
            each.offline_replicas,
            getattr(each, "eligible_leader_replicas", None),
            getattr(each, "last_known_elr", None),
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    )
    operations = operations_in(topic.topic_authorized_operations)
    return TopicDescription(topic.name or "", topic.topic_id, topic.is_internal, partitions, operations)
