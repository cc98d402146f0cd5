"""Sends ISR changes of the partitions that this broker leads to the controller, and applies its decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from raylog.broker.metadata_follower import ANSWER_MS_MAX
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, TopicPartition
from raylog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from raylog.replication.partition import Partition
from raylog.transport.peer_link import PeerLink

STALE_STATE_CODES = (
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The leader is behind the controller; its proposal stays until the metadata log brings the change."""
PROPOSALS_MAX: Final = 2000
"""The partitions of one request. The controller decides all of them in one event, so more of them would delay the
fetches of the other voters for longer than they wait before an election."""


class IsrChanges:
    """One request is in flight; further changes go into the next one."""

    def __init__(
        self,
        link: PeerLink,
        broker_id: BrokerId,
        partitions: Mapping[TopicPartition, Partition],
        *,
        broker_epoch: Callable[[], int],
        lag_ms_max: Callable[[], int],
        may_join: Callable[[BrokerId, Partition], bool],
        on_change: Callable[[TopicPartition], None],
    ) -> None:
        """`may_join` says whether the controller would accept a replica. `on_change` is called for partitions whose
        high watermark has moved."""
        self._link = link
        self._broker_id = broker_id
        self._partitions = partitions
        self._broker_epoch = broker_epoch
        self._lag_ms_max = lag_ms_max
        self._may_join = may_join
        self._on_change = on_change
        self.shrinks = self.expands = 0
        """Changes of an ISR that the controller has accepted."""
        self._dirty: dict[TopicPartition, None] = {}
        self._in_flight = False

    def check_all(self, now: Now) -> None:
        """Check all partitions led here: a follower that falls behind causes no event."""
        for tp, partition in self._partitions.items():
            if partition.is_leader:
                self._dirty[tp] = None
        self.ask(now)

    def check(self, tp: TopicPartition, now: Now) -> None:
        """Check a partition after one of its followers has fetched."""
        partition = self._partitions[tp]
        if partition.replicas is not None and len(partition.replicas.isr) <= len(partition.replicas.followers):
            self._dirty[tp] = None
            self.ask(now)

    def ask(self, now: Now) -> None:
        """Send the pending proposals; to be called when a controller is available again."""
        if self._in_flight or not self._link.ready:
            return
        asked: dict[TopicPartition, tuple[Partition, RequestPartitionData]] = {}
        dirty = iter(self._dirty)
        for tp in dirty:
            partition = self._partitions.get(tp)
            request = None if partition is None else self._proposal(partition, now)
            if partition is not None and request is not None:
                asked[tp] = partition, request
                if len(asked) == PROPOSALS_MAX:
                    break
        self._dirty = dict.fromkeys(dirty)
        if not asked:
            return
        self._in_flight = True
        before = {tp: 0 if (of := partition.replicas) is None else len(of.isr) for tp, (partition, _) in asked.items()}
        topics = tuple(
            RequestTopicData(topic_id=partition.topic_id, partitions=(request,))
            for partition, request in asked.values()
        )
        self._link.request(
            AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=topics),
            lambda response, now: self._answered(asked, before, response, now),
            lambda _, now: self._request_failed(asked),
            now=now,
            timeout_ms=ANSWER_MS_MAX,
        )

    def _proposal(self, partition: Partition, now: Now) -> RequestPartitionData | None:
        wanted = partition.propose_isr(
            lag_ms_max=self._lag_ms_max(),
            may_join=lambda replica: self._may_join(replica, partition),
            now_ms=now.monotonic_ms,
        )
        if wanted is None or partition.replicas is None:
            return None
        return RequestPartitionData(
            partition_index=partition.topic_partition.partition,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=tuple(
                BrokerState(
                    broker_id=replica, broker_epoch=self._broker_epoch() if replica == self._broker_id else broker_epoch
                )
                for replica, broker_epoch in wanted
            ),
            partition_epoch=partition.replicas.partition_epoch,
        )

    def _answered(
        self,
        asked: Mapping[TopicPartition, tuple[Partition, RequestPartitionData]],
        before: Mapping[TopicPartition, int],
        response: AlterPartitionResponse,
        now: Now,
    ) -> None:
        if response.error_code != ErrorCode.NONE:  # another incarnation must be registered first
            self._request_failed(asked)
            return
        self._in_flight = False
        for (tp, (partition, request)), topic in zip(asked.items(), response.topics, strict=True):
            [result] = topic.partitions
            replicas = partition.replicas
            if result.error_code == ErrorCode.NONE:
                self._count(before[tp], len(request.new_isr_with_epochs))
            if replicas is None or (partition.leader_epoch, replicas.partition_epoch) != (
                request.leader_epoch,
                request.partition_epoch,
            ):
                continue  # the metadata log was faster
            if result.error_code == ErrorCode.NONE:
                if partition.isr_changed([BrokerId(one) for one in result.isr], result.partition_epoch):
                    self._on_change(tp)
            elif result.error_code == ErrorCode.INELIGIBLE_REPLICA:
                replicas.proposal_refused()
            elif result.error_code not in STALE_STATE_CODES:
                replicas.proposal_failed()
        self.ask(now)

    def _count(self, before: int, after: int) -> None:
        self.shrinks += after < before
        self.expands += after > before

    def _request_failed(self, asked: Mapping[TopicPartition, tuple[Partition, RequestPartitionData]]) -> None:
        self._in_flight = False
        for tp, (partition, _) in asked.items():
            if partition.replicas is not None:
                partition.replicas.proposal_failed()
                self._dirty[tp] = None
