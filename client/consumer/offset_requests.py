"""Committed offsets: the requests that fetch and commit them, and what their responses say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final

from raylog.client.cluster_metadata import ClusterMetadata
from raylog.client.consumer.coordinator_requests import CoordinatorRequest
from raylog.client.group_offsets import GroupMetadata, OffsetAndMetadata
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_LEADER_EPOCH, NO_OFFSET, ZERO_TOPIC_ID, TopicPartition, by_topic
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raylog.protocol.registry import OFFSET_COMMIT, OFFSET_FETCH
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

TOPICS_BY_ID_SINCE: Final = 10
GROUPS_SINCE: Final = 8
NOT_ITS_TURN: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
)
"""Errors of a commit after the group has rebalanced."""


class OffsetCommit(CoordinatorRequest):
    """A commit of offsets of some partitions."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        member: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        retries: bool,
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = lambda _: None,
        renewed: Callable[[], GroupMetadata | None] = lambda: None,
    ) -> None:
        """`renewed` returns the member with its present epoch, if it has owned the partitions all the time."""
        super().__init__(self._request, self._read, deadline_ms, retries=retries)
        self.offsets = offsets
        self.topics = frozenset(tp.topic for tp in offsets)
        self._metadata = metadata
        self._member = member
        self._on_committed = on_committed
        self._renewed = renewed

    def may_retry(self, error: KafkaError) -> bool:
        """A stale epoch as well: the commit and the heartbeat that has brought a new one have crossed."""
        if self.retries and error.code is ErrorCode.STALE_MEMBER_EPOCH:
            member = self._renewed()
            if member is not None and member.generation_id > self._member.generation_id:
                self._member = member
                return True
        return super().may_retry(error)

    def _request(self, version_for: VersionFor) -> Message:
        return _commit(self._metadata, self._member, self.offsets, version_for)

    def _read(self, response: Any) -> KafkaError | None:
        results = _by_partition(response.topics, self._metadata)
        codes = [result.error_code for result in results.values()]
        error = next((_commit_failed(code, self._member) for code in codes if code is not ErrorCode.NONE), None)
        error = error or _lacking(self.offsets.keys() - results.keys(), "OffsetCommit")
        if error is None:
            self._on_committed(self.offsets)
        return error


class OffsetFetch(CoordinatorRequest):
    """A fetch of committed offsets; `result` has the partitions with a committed offset."""

    def __init__(
        self, metadata: ClusterMetadata, group_id: str, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(partial(_fetch, metadata, group_id, self.partitions), self._read, deadline_ms, retries=True)
        self.result: dict[TopicPartition, OffsetAndMetadata] = {}
        self.topics = frozenset(tp.topic for tp in self.partitions)
        self._metadata = metadata

    def _read(self, response: Any) -> KafkaError | None:
        results: dict[TopicPartition, Any] = {}
        for answer in response.groups or (response,):
            if answer.error_code is not ErrorCode.NONE:
                return _failed(answer.error_code)
            results |= _by_partition(answer.topics, self._metadata)
        for tp, found in results.items():
            if found.error_code is not ErrorCode.NONE:
                return _failed(found.error_code)
            if found.committed_offset < NO_OFFSET:
                text = f"the broker says that {found.committed_offset} is the committed offset of {tp}"
                return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
            if found.committed_offset != NO_OFFSET:
                epoch = _known(found.committed_leader_epoch)
                self.result[tp] = OffsetAndMetadata(found.committed_offset, found.metadata or "", epoch)
        return _lacking(self.partitions - results.keys(), "OffsetFetch")


def _by_partition(topics: Iterable[Any], metadata: ClusterMetadata) -> dict[TopicPartition, Any]:
    """The parts of a response."""
    results: dict[TopicPartition, Any] = {}
    for topic in topics:
        name = topic.name or metadata.name_of(getattr(topic, "topic_id", ZERO_TOPIC_ID)) or ""
        results |= {TopicPartition(name, result.partition_index): result for result in topic.partitions}
    return results


def _lacking(partitions: AbstractSet[TopicPartition], api: str) -> KafkaError | None:
    """No partition may pass for one that was committed, or that has no committed offset."""
    if not partitions:
        return None
    names = ", ".join(map(str, sorted(partitions)))
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response to {api} lacks {names}")


def _commit_failed(code: ErrorCode, member: GroupMetadata) -> KafkaError:
    if code in NOT_ITS_TURN:
        why = "the group has rebalanced" if member.generation_id >= 0 else "the group has members of its own"
        text = f"offsets of group {member.group_id!r} were not committed: {why} ({code.name})"
        return KafkaError(code, text)
    return KafkaError(code, f"offsets of group {member.group_id!r} were not committed: {code.sentence}")


def _failed(code: ErrorCode) -> KafkaError:
    return KafkaError(code, f"committed offsets cannot be fetched: {code.sentence}")


def _commit(
    metadata: ClusterMetadata,
    member: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    version_for: VersionFor,
) -> Message:
    by_id = version_for(OFFSET_COMMIT) >= TOPICS_BY_ID_SINCE
    topics = []
    for topic, numbers in by_topic(offsets):
        partitions = []
        for number in numbers:
            offset, text, epoch = offsets[TopicPartition(topic, number)]
            partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=NO_LEADER_EPOCH if epoch is None else epoch,
                    committed_metadata=text,
                )
            )
        topic_id = _topic_id(metadata, topic) if by_id else ZERO_TOPIC_ID
        topics.append(OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=tuple(partitions)))
    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=tuple(topics),
    )


def _fetch(
    metadata: ClusterMetadata, group_id: str, partitions: frozenset[TopicPartition], version_for: VersionFor
) -> Message:
    version = version_for(OFFSET_FETCH)
    wanted = by_topic(partitions)
    if version < GROUPS_SINCE:
        topics = tuple(OffsetFetchRequestTopic(name=topic, partition_indexes=numbers) for topic, numbers in wanted)
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)
    by_id = version >= TOPICS_BY_ID_SINCE
    of_group = tuple(
        OffsetFetchRequestTopics(
            name=topic,
            topic_id=_topic_id(metadata, topic) if by_id else ZERO_TOPIC_ID,
            partition_indexes=numbers,
        )
        for topic, numbers in wanted
    )
    return OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group_id, topics=of_group),), require_stable=True
    )


def _topic_id(metadata: ClusterMetadata, topic: str) -> Any:
    """Raises KafkaError, of a kind that is repeated, while the topic is not known."""
    known = metadata.topic(topic)
    if known is None or known.topic_id == ZERO_TOPIC_ID:
        code = known.error_code if known is not None and not known.usable else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} is not known yet")
    return known.topic_id


def _known(epoch: int) -> int | None:
    return None if epoch == NO_LEADER_EPOCH else epoch
