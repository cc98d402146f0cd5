"""Reports to the controller in which log directories this broker has its replicas (KIP-858).

A failed directory is reported only after this, so that the controller knows which replicas have failed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby, islice
from typing import Final, NamedTuple
from uuid import UUID

from raylog.broker.metadata_follower import ANSWER_MS_MAX
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId, TopicPartition
from raylog.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from raylog.transport.peer_link import PeerLink

ASSIGNMENTS_MAX: Final = 2250
"""Replicas in one request, as in Kafka."""


class _Placed(NamedTuple):
    directory_id: UUID
    topic_id: UUID
    partition: int


class DirectoryAssignments:
    """One request is in flight; further replicas go into the next one."""

    def __init__(
        self,
        link: PeerLink,
        broker_id: BrokerId,
        *,
        broker_epoch: Callable[[], int],
        on_settled: Callable[[Now], None],
    ) -> None:
        """`on_settled` is called when the controller knows all directories again."""
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._on_settled = on_settled
        self._pending: dict[TopicPartition, _Placed] = {}
        self._in_flight = False

    @property
    def are_settled(self) -> bool:
        """Whether the controller knows the directory of every replica."""
        return not self._pending

    def placed(self, tp: TopicPartition, topic_id: UUID, directory_id: UUID) -> None:
        """The replica is in this directory, and the controller does not know it yet. `ask` reports it."""
        self._pending[tp] = _Placed(directory_id, topic_id, tp.partition)

    def ask(self, now: Now) -> None:
        """Send what is pending; to be called when a controller is available again, and from time to time."""
        if self._in_flight or not self._pending or not self._link.ready:
            return
        asked = dict(islice(self._pending.items(), ASSIGNMENTS_MAX))
        self._in_flight = True
        self._link.request(
            AssignReplicasToDirsRequest(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch(),
                directories=tuple(
                    RequestDirectoryData(id_=directory_id, topics=_by_topic(list(replicas)))
                    for directory_id, replicas in groupby(sorted(asked.values()), lambda placed: placed.directory_id)
                ),
            ),
            lambda response, now: self._answered(asked, response, now),
            lambda _, now: self._failed(),
            now=now,
            timeout_ms=ANSWER_MS_MAX,
        )

    def _answered(
        self, asked: Mapping[TopicPartition, _Placed], response: AssignReplicasToDirsResponse, now: Now
    ) -> None:
        """A replica that the controller refuses was deleted or moved to another broker meanwhile."""
        self._in_flight = False
        if response.error_code != ErrorCode.NONE:
            return  # another incarnation must be registered first
        for tp, placed in asked.items():
            if self._pending.get(tp) == placed:
                del self._pending[tp]
        if self._pending:
            self.ask(now)
        else:
            self._on_settled(now)

    def _failed(self) -> None:
        self._in_flight = False


def _by_topic(replicas: list[_Placed]) -> tuple[RequestTopicData, ...]:
    return tuple(
        RequestTopicData(
            topic_id=topic_id,
            partitions=tuple(RequestPartitionData(partition_index=placed.partition) for placed in inside),
        )
        for topic_id, inside in groupby(replicas, lambda placed: placed.topic_id)
    )
