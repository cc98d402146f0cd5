"""A consumer that checks everything: records that it has read once must be unchanged whenever it reads them again."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, TopicPartition
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from raylog.protocol.records.reader import read_batches
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.replica_watch import ReplicaWatch
from tests.sim.world import World

REFRESH = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Errors on which a client refreshes its metadata."""


class Consumer(SimClient):
    """Reads all partitions of one topic by long polls, one session per leader; commits, and resumes from there."""

    late_bytes = False  # a commit that arrived after a later one would take the group back, as in Kafka

    def __init__(
        self,
        world: World,
        hosts: list[BrokerHost],
        topic: str,
        partition_count: int,
        replica_watch: ReplicaWatch,
        *,
        offsets_count: int,
        name: str,
    ) -> None:
        super().__init__(world, hosts, name)
        self._replica_watch = replica_watch
        self._topic = topic
        self._topic_id: UUID | None = None
        self._partition_count = partition_count
        self.seen: dict[TopicPartition, dict[int, bytes]] = {
            TopicPartition(topic, number): {} for number in range(partition_count)
        }
        self._led: dict[BrokerId, list[int]] = {}
        self._leader_epochs: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        """The lowest valid committed offset: the last acknowledged commit, or a lower one that is in flight."""
        self._sessions: dict[BrokerId, tuple[int, int]] = {}
        self._group = f"group-{name}"
        self._offsets_tp = TopicPartition(OFFSETS_TOPIC, coordinator_partition(self._group, offsets_count))
        self._coordinator = BrokerId(-1)
        self._committing = False

    def begin(self) -> None:
        if not self.finished:
            self.describe(self._topic, self._described, create=True)

    def _described(self, topic: Any) -> None:
        if topic.error_code != ErrorCode.NONE or len(topic.partitions) < self._partition_count:
            self.restart()
            return
        epochs = {partition.partition_index: partition.leader_epoch for partition in topic.partitions}
        if any(epoch < self._leader_epochs.get(number, epoch) for number, epoch in epochs.items()):
            self.restart()  # a broker that is behind: its leader may be one that has been deposed
            return
        self._topic_id = topic.topic_id
        self._leader_epochs = epochs
        self._led.clear()
        self._sessions.clear()
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.NONE:
                self._led.setdefault(partition.leader_id, []).append(partition.partition_index)
        request = FindCoordinatorRequest(coordinator_keys=(self._group,))
        self.ask(self.any_broker(), request, self._coordinator_found)

    def _coordinator_found(self, answer: Any) -> None:
        (found,) = answer.coordinators
        if found.error_code != ErrorCode.NONE:
            self._refused(found.error_code)
            return
        self._coordinator = found.node_id
        assert self._topic_id is not None
        topic = OffsetFetchRequestTopics(
            name=self._topic, topic_id=self._topic_id, partition_indexes=tuple(range(self._partition_count))
        )
        group = OffsetFetchRequestGroup(group_id=self._group, topics=(topic,))
        self.ask(self._coordinator, OffsetFetchRequest(groups=(group,)), self._resume)

    def _resume(self, answer: Any) -> None:
        (group,) = answer.groups
        code = group.error_code or group.topics[0].partitions[0].error_code
        if code != ErrorCode.NONE:
            self._refused(code)
            return
        # A leader that does not know of its successor returns outdated offsets.
        deposed = self._replica_watch.elected(self._offsets_tp) != self._coordinator
        for found in group.topics[0].partitions:
            acknowledged = -1 if deposed else self._committed.get(found.partition_index, -1)
            assert found.committed_offset >= acknowledged, (
                f"{self._group}: commit of {acknowledged} was acknowledged, but {found.committed_offset} is stored"
            )
            self._positions[found.partition_index] = max(found.committed_offset, 0)
        if self.world.rng.random() < 0.3:  # now and then, read everything again
            self._positions = dict.fromkeys(self._positions, 0)
        self._committing = False
        for broker_id in self._led:
            self._poll(broker_id)
        if sum(map(len, self._led.values())) < self._partition_count:
            self.later(300, self.restart)

    def _poll(self, broker_id: BrokerId) -> None:
        if self.finished:
            return
        session_id, epoch = self._sessions.get(broker_id, (0, 0))
        rng = self.world.rng
        assert self._topic_id is not None
        partitions = [
            FetchPartition(
                partition=number,
                fetch_offset=self._positions[number],
                partition_max_bytes=rng.choice((300, 4000, 1 << 20)),
                current_leader_epoch=rng.choice((NO_LEADER_EPOCH, self._leader_epochs[number])),
            )
            for number in self._led[broker_id]
        ]
        topic = FetchTopic(name=self._topic, topic_id=self._topic_id, partitions=partitions)
        request = FetchRequest(
            max_wait_ms=rng.choice((0, 100, 500, 500)),
            min_bytes=rng.choice((1, 1, 2000)),
            max_bytes=rng.choice((1000, 1 << 20)),
            isolation_level=rng.choice((0, 1)),
            session_id=session_id,
            session_epoch=epoch,
            topics=[topic],
        )
        named = {one.partition: LeaderEpoch(one.current_leader_epoch) for one in partitions}
        self.ask(broker_id, request, partial(self._fetched, broker_id, named, self.world.time_ms))

    def _fetched(self, broker_id: BrokerId, named: dict[int, LeaderEpoch], asked_ms: int, answer: Any) -> None:
        """`named` are the leader epochs in the request."""
        if answer.error_code != ErrorCode.NONE:
            self._sessions[broker_id] = (0, 0)
            self._poll(broker_id)
            return
        epoch = self._sessions.get(broker_id, (0, 0))[1]
        self._sessions[broker_id] = (answer.session_id, epoch + 1 if answer.session_id else -1)
        for topic in answer.responses:
            for result in topic.partitions:
                if result.error_code != ErrorCode.NONE:
                    self._refused(result.error_code)
                    return
                leader_epoch = named[result.partition_index]
                if leader_epoch != NO_LEADER_EPOCH:
                    leadership = topic.topic_id, result.partition_index, leader_epoch
                    self._replica_watch.answered(broker_id, leadership, asked_ms=asked_ms)
                self._take(result.partition_index, b"".join(result.records or ()), result.high_watermark)
        if self.world.rng.random() < 0.15 and not self._committing:
            self._commit()
        self._poll(broker_id)

    def _take(self, number: int, records: bytes, high_watermark: int) -> None:
        seen = self.seen[TopicPartition(self._topic, number)]
        for record in read_batches(records, from_offset=self._positions[number]):
            assert record.offset == self._positions[number], (
                f"offset {record.offset} after {self._positions[number] - 1}"
            )
            assert record.offset < high_watermark, "a record above the high watermark"
            value = record.value or b""
            before = seen.setdefault(record.offset, value)
            assert before == value, f"partition {number}, offset {record.offset}: {before!r} has changed to {value!r}"
            self._positions[number] = record.offset + 1

    def _commit(self) -> None:
        self._committing = True
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
        self.ask(self._coordinator, request, partial(self._committed_as, positions))

    def _committed_as(self, positions: dict[int, int], answer: Any) -> None:
        self._committing = False
        for result in answer.topics[0].partitions:
            if result.error_code != ErrorCode.NONE:
                self._refused(result.error_code)
                return
            self._committed[result.partition_index] = positions[result.partition_index]
            self.world.marks["commit acknowledged"] += 1

    def _refused(self, code: ErrorCode) -> None:
        assert code in REFRESH, code.name
        self.world.marks[f"consumer met {code.name}"] += 1
        self.restart()
