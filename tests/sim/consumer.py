"""A consumer that believes nothing: what it has read once must be there, unchanged, whenever it reads again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from raylog.protocol.records.reader import read_batches
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.world import World


class Consumer(SimClient):
    """Reads all partitions of one topic by long polls in a fetch session, commits, and resumes from its commits."""

    def __init__(self, world: World, host: BrokerHost, topic: str, partition_count: int, *, name: str) -> None:
        super().__init__(world, host, name)
        self._topic = topic
        self._topic_id: UUID | None = None
        self._partition_count = partition_count
        self.seen: dict[TopicPartition, dict[int, bytes]] = {
            TopicPartition(topic, number): {} for number in range(partition_count)
        }
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        """The least that the broker may remember: the last commit acknowledged, or a lower one that is on its way."""
        self._session: tuple[int, int] = (0, 0)
        self._group = f"group-{name}"

    def connected(self) -> None:
        self._session = (0, 0)
        topic = MetadataRequestTopic(name=self._topic)
        self.send(MetadataRequest(topics=(topic,), allow_auto_topic_creation=True), self._described)

    def _described(self, answer: Any) -> None:
        (topic,) = answer.topics
        if topic.error_code != ErrorCode.NONE or len(topic.partitions) < self._partition_count:
            self.reconnect()
            return
        self._topic_id = topic.topic_id
        self.send(FindCoordinatorRequest(coordinator_keys=(self._group,)), lambda _: self._fetch_positions())

    def _fetch_positions(self) -> None:
        assert self._topic_id is not None
        topic = OffsetFetchRequestTopics(
            name=self._topic, topic_id=self._topic_id, partition_indexes=tuple(range(self._partition_count))
        )
        group = OffsetFetchRequestGroup(group_id=self._group, topics=(topic,))
        self.send(OffsetFetchRequest(groups=(group,)), self._resume)

    def _resume(self, answer: Any) -> None:
        (group,) = answer.groups
        if group.error_code != ErrorCode.NONE:
            self.reconnect()
            return
        for found in group.topics[0].partitions:
            acknowledged = self._committed.get(found.partition_index, -1)
            assert found.committed_offset >= acknowledged, (
                f"{self._group}: commit of {acknowledged} was acknowledged, {found.committed_offset} is remembered"
            )
            self._positions[found.partition_index] = max(found.committed_offset, 0)
        if self.world.rng.random() < 0.3:  # now and then, read everything again
            self._positions = dict.fromkeys(self._positions, 0)
        self._poll()

    def _poll(self) -> None:
        session_id, epoch = self._session
        rng = self.world.rng
        assert self._topic_id is not None
        partitions = [
            FetchPartition(
                partition=number, fetch_offset=position, partition_max_bytes=rng.choice((300, 4000, 1 << 20))
            )
            for number, position in sorted(self._positions.items())
        ]
        topic = FetchTopic(name=self._topic, topic_id=self._topic_id, partitions=partitions)
        request = FetchRequest(
            max_wait_ms=rng.choice((0, 20, 500)),
            min_bytes=rng.choice((1, 1, 2000)),
            max_bytes=rng.choice((1000, 1 << 20)),
            isolation_level=rng.choice((0, 1)),
            session_id=session_id,
            session_epoch=epoch,
            topics=[topic],
        )
        self.send(request, self._fetched)

    def _fetched(self, answer: Any) -> None:
        if answer.error_code != ErrorCode.NONE:
            self._session = (0, 0)
            self._poll()
            return
        self._session = (answer.session_id, self._session[1] + 1 if answer.session_id else -1)
        for topic in answer.responses:
            for result in topic.partitions:
                if result.error_code == ErrorCode.NONE:
                    self._take(result.partition_index, b"".join(result.records or ()), result.high_watermark)
                else:
                    self.world.marks[f"fetch {result.error_code.name}"] += 1
                    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR, result.error_code.name
        if self.world.rng.random() < 0.2:
            self._commit()
        elif not self.finished:
            self._poll()

    def _take(self, number: int, records: bytes, high_watermark: int) -> None:
        seen = self.seen[TopicPartition(self._topic, number)]
        for record in read_batches(records, from_offset=self._positions[number]):
            assert record.offset == self._positions[number], (
                f"offset {record.offset} after {self._positions[number] - 1}"
            )
            assert record.offset < high_watermark, "a record above the high watermark"
            value = record.value or b""
            before = seen.setdefault(record.offset, value)
            assert before == value, f"partition {number}, offset {record.offset}: {before!r} has become {value!r}"
            self._positions[number] = record.offset + 1

    def _commit(self) -> None:
        positions = dict(self._positions)
        assert self._topic_id is not None
        topic = OffsetCommitRequestTopic(
            name=self._topic,
            topic_id=self._topic_id,
            partitions=tuple(
                OffsetCommitRequestPartition(partition_index=number, committed_offset=position, committed_metadata="")
                for number, position in positions.items()
            ),
        )
        self._committed = {
            number: min(self._committed.get(number, -1), position) for number, position in positions.items()
        }
        request = OffsetCommitRequest(group_id=self._group, generation_id_or_member_epoch=-1, topics=(topic,))
        self.send(request, lambda answer: self._committed_as(positions, answer))

    def _committed_as(self, positions: dict[int, int], answer: Any) -> None:
        for result in answer.topics[0].partitions:
            if result.error_code == ErrorCode.NONE:
                self._committed[result.partition_index] = positions[result.partition_index]
                self.world.marks["commit acknowledged"] += 1
        if not self.finished:
            self._poll()
