"""Committed offsets: the requests that fetch and commit them, and what their responses say. Pure.

They name topics by id, as far as the broker supports that and the ids of all their topics are known. If one is not, as
that of a deleted topic or of one that may not be described, they use the last version with names, as Kafka's clients
do: the response then has an error for the partitions of this topic, and for no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final
from uuid import UUID

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
from raylog.protocol.registry import OFFSET_FETCH
from raylog.protocol.schema import Message
from raylog.transport.peer_link import VersionFor

TOPICS_BY_ID_SINCE: Final = 10
"""Of OffsetCommit and of OffsetFetch."""
GROUPS_SINCE: Final = 8
NOT_ITS_TURN: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
)
"""Errors of a commit after the group has rebalanced."""
OF_TOPICS: Final = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Errors of single topics. The more a retry can help, the earlier, so that other topics are retried if they need it."""


class _TopicRequest(CoordinatorRequest):
    """Names its topics by id or by name, as decided before each attempt."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        partitions: Iterable[TopicPartition],
        request: Callable[[VersionFor], Message],
        read: Callable[[Any], KafkaError | None],
        deadline_ms: int,
        *,
        retries: bool,
    ) -> None:
        super().__init__(request, read, deadline_ms, retries=retries)
        self.topics = frozenset(tp.topic for tp in partitions)
        self._metadata = metadata
        self._topic_ids: dict[str, UUID] = {}
        """By topic; empty if the topics are named."""

    def prepare(self) -> None:
        known = {topic: self._metadata.topic(topic) for topic in self.topics}
        self._topic_ids = {name: topic.topic_id for name, topic in known.items() if topic is not None}
        self.version_max = None
        if len(self._topic_ids) < len(known) or ZERO_TOPIC_ID in self._topic_ids.values():
            self._topic_ids = {}
            self.version_max = TOPICS_BY_ID_SINCE - 1

    def _by_partition(self, topics: Iterable[Any]) -> dict[TopicPartition, Any]:
        """The parts of a response."""
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        results: dict[TopicPartition, Any] = {}
        for topic in topics:
            name = topic.name or names.get(topic.topic_id, "")
            results |= {TopicPartition(name, result.partition_index): result for result in topic.partitions}
        if any(result.error_code is ErrorCode.UNKNOWN_TOPIC_ID for result in results.values()):
            self._metadata.expire()  # the topic was deleted, and may have been created again
        return results


class OffsetCommit(_TopicRequest):
    """A commit of offsets of some partitions.

    A retry leaves out the partitions of which a later commit was made: it would overwrite newer offsets.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        member: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        retries: bool,
        automatic: bool = False,
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = lambda _: None,
        renewed: Callable[[], GroupMetadata | None] = lambda: None,
    ) -> None:
        """`renewed` returns the member with its present epoch, if it has owned the partitions all the time.

        An `automatic` commit is not retried for a topic that does not exist: no program waits for its offsets.
        """
        super().__init__(metadata, offsets, self._request, self._read, deadline_ms, retries=retries)
        self.offsets = offsets
        self._member = member
        self._automatic = automatic
        self._on_committed = on_committed
        self._renewed = renewed
        self._sent = offsets
        """Those of the last attempt."""
        self._replaced: set[TopicPartition] = set()
        """The partitions of later commits."""

    def prepare(self) -> None:
        super().prepare()
        if self.attempts:
            self._sent = {tp: offset for tp, offset in self.offsets.items() if tp not in self._replaced}
            if not self._sent:
                self.finish(None)

    def followed_by(self, later: CoordinatorRequest) -> None:
        if isinstance(later, OffsetCommit):
            self._replaced |= later.offsets.keys()

    def may_retry(self, error: KafkaError) -> bool:
        """A stale epoch as well: the commit and the heartbeat that has brought a new one have crossed."""
        if self.retries and error.code is ErrorCode.STALE_MEMBER_EPOCH:
            member = self._renewed()
            if member is not None and member.generation_id > self._member.generation_id:
                self._member = member
                return True
        if self._automatic and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        return super().may_retry(error)

    def _request(self, version_for: VersionFor) -> Message:
        return _commit(self._topic_ids, self._member, self._sent)

    def _read(self, response: Any) -> KafkaError | None:
        results = self._by_partition(response.topics)
        codes = {tp: result.error_code for tp, result in results.items() if result.error_code is not ErrorCode.NONE}
        error = _commit_failed(codes, self._member) if codes else None
        error = error or _lacking(self._sent.keys() - results.keys(), "OffsetCommit")
        if error is None:
            self._on_committed(self._sent)
        return error


class OffsetFetch(_TopicRequest):
    """A fetch of committed offsets; `result` has the partitions with a committed offset."""

    def __init__(
        self, metadata: ClusterMetadata, group_id: str, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(metadata, self.partitions, self._request, self._read, deadline_ms, retries=True)
        self.result: dict[TopicPartition, OffsetAndMetadata] = {}
        self._group_id = group_id

    def _request(self, version_for: VersionFor) -> Message:
        return _fetch(self._topic_ids, self._group_id, self.partitions, version_for(OFFSET_FETCH))

    def _read(self, response: Any) -> KafkaError | None:
        results: dict[TopicPartition, Any] = {}
        for answer in response.groups or (response,):
            if answer.error_code is not ErrorCode.NONE:
                return _failed(answer.error_code)
            results |= self._by_partition(answer.topics)
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


def _lacking(partitions: AbstractSet[TopicPartition], api: str) -> KafkaError | None:
    """No partition may pass for one that was committed, or that has no committed offset."""
    if not partitions:
        return None
    names = ", ".join(map(str, sorted(partitions)))
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response to {api} lacks {names}")


def _commit_failed(codes: Mapping[TopicPartition, ErrorCode], member: GroupMetadata) -> KafkaError:
    """Of several errors the first in the order of OF_TOPICS; any other one comes before these."""
    code = min(codes.values(), key=lambda each: OF_TOPICS.index(each) if each in OF_TOPICS else -1)
    if code in NOT_ITS_TURN:
        why = "the group has rebalanced" if member.generation_id >= 0 else "the group has members of its own"
        text = f"offsets of group {member.group_id!r} were not committed: {why} ({code.name})"
        return KafkaError(code, text)
    names = ", ".join(str(tp) for tp in sorted(codes) if codes[tp] is code)
    return KafkaError(code, f"offsets of group {member.group_id!r} were not committed for {names}: {code.sentence}")


def _failed(code: ErrorCode) -> KafkaError:
    return KafkaError(code, f"committed offsets cannot be fetched: {code.sentence}")


def _commit(
    topic_ids: Mapping[str, UUID], member: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> Message:
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
        topic_id = topic_ids.get(topic, ZERO_TOPIC_ID)
        topics.append(OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=tuple(partitions)))
    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=tuple(topics),
    )


def _fetch(
    topic_ids: Mapping[str, UUID], group_id: str, partitions: frozenset[TopicPartition], version: int
) -> Message:
    wanted = by_topic(partitions)
    if version < GROUPS_SINCE:
        topics = tuple(OffsetFetchRequestTopic(name=topic, partition_indexes=numbers) for topic, numbers in wanted)
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)
    of_group = tuple(
        OffsetFetchRequestTopics(
            name=topic,
            topic_id=topic_ids.get(topic, ZERO_TOPIC_ID),
            partition_indexes=numbers,
        )
        for topic, numbers in wanted
    )
    return OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group_id, topics=of_group),), require_stable=True
    )


def _known(epoch: int) -> int | None:
    return None if epoch == NO_LEADER_EPOCH else epoch
