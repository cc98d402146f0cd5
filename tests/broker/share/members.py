"""Members of share groups that talk to brokers of a test: heartbeats, sessions and acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from raylog.metadata.config_resources import GROUP
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.messages.share_acknowledge import AcknowledgementBatch as Acknowledged
from raylog.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from raylog.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from raylog.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from raylog.transport.accepted_connection import AcceptedConnection
from tests.support.direct_broker import DirectBroker

CONFIG: dict[str, Any] = {"offsets.topic.num.partitions": 3, "share.coordinator.state.topic.num.partitions": 2}
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Batch = tuple[int, int, Sequence[int]]


def started(**more: object) -> DirectBroker:
    """A broker that coordinates the group g, which begins with the earliest records; topic t has two partitions."""
    broker = DirectBroker({**CONFIG, **more})
    broker.call(FindCoordinatorRequest(coordinator_keys=("g",)))
    broker.settle()
    broker.create_topic("t", partitions=2)
    configure(broker, "g", **{"share.auto.offset.reset": "earliest"})
    return broker


def configure(broker: DirectBroker, group: str, **values: str) -> None:
    configs = tuple(AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items())
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    (response,) = broker.call(IncrementalAlterConfigsRequest(resources=(resource,))).responses
    assert not response.error_code, response


class ShareMember:
    """One member of a share group, with a connection of its own. It fetches all partitions of one topic."""

    def __init__(self, broker: DirectBroker, member_id: str = "m", *, group: str = "g", topic: str = "t") -> None:
        self.broker = broker
        self.member_id = member_id
        self.group = group
        self.topic = topic
        self.member_epoch = 0
        self.session_epoch = -1
        self.assigned: dict[UUID, tuple[int, ...]] = {}
        self.connection: AcceptedConnection = broker.connect()

    @property
    def topic_id(self) -> UUID:
        return self.broker.broker.image.topics[self.topic].topic_id

    def beat(self, **more: Any) -> Any:
        given: dict[str, Any] = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.member_epoch}
        if self.member_epoch == 0:
            given["subscribed_topic_names"] = (self.topic,)
        response = self.broker.call(
            ShareGroupHeartbeatRequest(**{**given, **more}), version=1, connection=self.connection
        )
        if not response.error_code:
            self.member_epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
        return response

    def join(self) -> None:
        """Heartbeats until there is an assignment."""
        for _ in range(20):
            self.beat()
            if self.assigned:
                return
            self.broker.pass_time(100)
        raise AssertionError("there is no assignment")

    def fetch(self, *partitions: int, acks: dict[int, list[Batch]] | None = None, **more: Any) -> Any:
        """A ShareFetch with the next epoch of the session; `partitions` are added to it."""
        self.session_epoch += 1
        added = dict.fromkeys(partitions, ()) | {
            number: tuple(
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
                for first, last, types in batches
            )
            for number, batches in (acks or {}).items()
        }
        named = tuple(
            FetchPartition(partition_index=number, acknowledgement_batches=batches) for number, batches in added.items()
        )
        given: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
            "topics": (FetchTopic(topic_id=self.topic_id, partitions=named),) if named else (),
        }
        return self.broker.call(ShareFetchRequest(**{**given, **more}), version=2, connection=self.connection)

    def acquired(self, *partitions: int, **more: Any) -> dict[int, list[tuple[int, int, int]]]:
        """What the next ShareFetch gives, by partition: first and last offset, and the number of the delivery."""
        response = self.fetch(*partitions, **more)
        assert not response.error_code, response.error_message
        return {
            each.partition_index: [
                (one.first_offset, one.last_offset, one.delivery_count) for one in each.acquired_records
            ]
            for topic in response.responses
            for each in topic.partitions
            if each.acquired_records
        }

    def acknowledge(self, number: int, *batches: Batch, epoch: int | None = None, **more: Any) -> Any:
        """A ShareAcknowledge with the next epoch of the session, or with `epoch`. Returns the code of the partition."""
        if epoch is None:
            self.session_epoch += 1
        partition = AcknowledgePartition(
            partition_index=number,
            acknowledgement_batches=tuple(
                Acknowledged(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
                for first, last, types in batches
            ),
        )
        given: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session_epoch if epoch is None else epoch,
            "topics": (AcknowledgeTopic(topic_id=self.topic_id, partitions=(partition,)),) if batches else (),
        }
        response = self.broker.call(ShareAcknowledgeRequest(**{**given, **more}), version=2, connection=self.connection)
        if response.error_code or not batches:
            return response.error_code
        return response.responses[0].partitions[0].error_code

    def vanish(self) -> None:
        """The connection breaks."""
        self.broker.broker.connection_closed(self.connection, self.broker.now())
        self.broker.settle()
