"""An admin client that creates, grows, fills and deletes topics through any broker, and checks every response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from raylog.config.topic import RETENTION_MS
from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId
from raylog.metadata.node_roles import is_coordinator
from raylog.metadata.records import TopicConfigsChanged
from raylog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.schema import Message
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.ledger import MetadataLedger
from tests.sim.producer_ids import GivenProducerIds
from tests.sim.world import World

TOPICS_MAX = 3
PAUSE_MS_MAX = 300
TOPIC, SET = 2, 0
"""A type of resource and an operation, as AlterConfigs knows them."""
NOT_DONE = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,  # the controller's disk is full
        ErrorCode.INVALID_REPLICATION_FACTOR,  # no broker is alive
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # a broker has never been there yet
    }
)
"""Temporary errors with which the request had no effect."""
NOT_ACKNOWLEDGED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


@dataclass(slots=True)
class _Topic:
    """A topic that the client has created, and what it knows about it."""

    name: str
    topic_id: UUID
    partition_count: int
    written: dict[int, int] = field(default_factory=dict)
    """Records acknowledged, by partition."""
    in_doubt: dict[int, int] = field(default_factory=dict)
    """Records with an unknown outcome, by partition."""
    name_is_free_after_it: bool = False
    """Whether no request to create it can still be in flight after its deletion."""
    retention_ms: str | None = None
    """The value set last; None if it was never set."""
    retention_in_doubt: bool = False
    """Whether a request to set it may still be in flight."""


@dataclass(slots=True)
class _Task:
    """A task in progress, repeated until its outcome is known."""

    kind: str
    topic: _Topic
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    in_doubt: bool = False
    """Whether an earlier attempt may have been executed."""


class Admin(SimClient):
    """Runs one task after the other. A name is reused only if no request to create it can still be in flight."""

    def __init__(
        self,
        world: World,
        hosts: list[BrokerHost],
        ledger: MetadataLedger,
        given: GivenProducerIds,
        *,
        name: str,
    ) -> None:
        super().__init__(world, hosts, name)
        self.topics: list[_Topic] = []
        self.deleted_ids: list[UUID] = []
        self.tasks_left: int | None = None
        """The number of tasks still to begin; None for no limit."""
        self._tasks: dict[str, Callable[[_Task, BrokerId], None]] = {
            "create": self._create,
            "grow": self._grow,
            "configure": self._configure,
            "delete": self._delete,
            "write": self._write,
            "take an id": self._take_id,
        }
        self._ledger = ledger
        self._given = given
        self._task: _Task | None = None
        self._names_made = 0
        self._free_names: list[str] = []

    def begin(self) -> None:
        if self._task is None:
            if self.tasks_left == 0:
                self.finished = True
                return
            self._task = self._new_task()
            if self.tasks_left is not None:
                self.tasks_left -= 1
        self._tasks[self._task.kind](self._task, self.any_broker())

    def _new_task(self) -> _Task:
        rng = self.world.rng
        kinds = ["create"] if len(self.topics) < TOPICS_MAX else []
        if self.topics:
            kinds += ["grow", "configure", "delete", "delete", "write", "write"]
        kinds += ["take an id"]
        kind = rng.choice(kinds)
        if kind != "create":
            return _Task(kind, rng.choice(self.topics) if self.topics else _NO_TOPIC)
        if self._free_names and rng.random() < 0.7:
            name = self._free_names.pop()
            self.world.marks["name of a deleted topic used again"] += 1
        else:
            name = f"{self.name}-{self._names_made}"
            self._names_made += 1
        count = rng.randint(1, 3)
        assignments: tuple[CreatableReplicaAssignment, ...] = ()
        brokers = [host for host in self.hosts if not is_coordinator(host.broker_id)]
        if rng.random() < 0.5:
            assignments = tuple(
                CreatableReplicaAssignment(partition_index=number, broker_ids=(rng.choice(brokers).broker_id,))
                for number in range(count)
            )
        return _Task(kind, _Topic(name, UUID(int=0), count), assignments)

    def _done(self) -> None:
        self._task = None
        self.later(PAUSE_MS_MAX, self.begin)

    def _lost(self, task: _Task) -> None:
        task.in_doubt = True
        self.restart()

    def _refused(self, task: _Task, code: ErrorCode) -> None:
        """Check the error of the controller, or of the broker in place of it; the task is retried."""
        self.world.marks[f"admin met {code.name}"] += 1
        if code == ErrorCode.REQUEST_TIMED_OUT:
            task.in_doubt = True
        else:
            assert code in NOT_DONE, f"{task.kind}: {code.name}"
        self.restart()

    # --- tasks; `begin` calls the current one again until it is done

    def _create(self, task: _Task, broker_id: BrokerId) -> None:
        topic = task.topic
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=-1 if task.assignments else topic.partition_count,
            replication_factor=-1 if task.assignments else self.world.rng.choice((-1, 1)),
            assignments=task.assignments,
        )
        seen = self._links_of(broker_id)

        def created(answer: Any) -> None:
            (result,) = answer.topics
            if result.error_code == ErrorCode.NONE:
                self._created(task, result.topic_id)
                self.describe(topic.name, partial(self._must_show, topic, broker_id, seen), broker_id=broker_id)
            elif result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                assert task.in_doubt, f"{topic.name} exists, but was not created by a client"
                self.world.marks["envelope answer lost"] += 1
                self.describe(topic.name, partial(self._found, task), broker_id=broker_id)
            else:
                self._refused(task, result.error_code)

        request = CreateTopicsRequest(topics=(wanted,), timeout_ms=1000)
        self._ask(task, broker_id, request, created)

    def _found(self, task: _Task, shown: Any) -> None:
        if shown.error_code != ErrorCode.NONE:
            self.restart()  # the broker has lost the controller, and its image lags
            return
        self._created(task, shown.topic_id)
        self._done()

    def _created(self, task: _Task, topic_id: UUID) -> None:
        assert topic_id in self._ledger.image.topics_by_id, "answered before it was committed"
        task.topic.topic_id = topic_id
        self.topics.append(task.topic)
        self.world.marks["topic created"] += 1
        self._task = None
        task.topic.name_is_free_after_it = not task.in_doubt

    def _must_show(self, topic: _Topic, broker_id: BrokerId, seen: object, shown: Any) -> None:
        """The broker that forwarded a request knows its outcome, unless it has lost the controller."""
        if seen == self._links_of(broker_id):
            assert shown.topic_id == topic.topic_id, (
                f"{topic.name} was created, but the broker that responded does not return it"
            )
            assert len(shown.partitions) >= topic.partition_count, f"{topic.name} has too few partitions"
            self.world.marks["created topic shown at once"] += 1
        self._done()

    def _grow(self, task: _Task, broker_id: BrokerId) -> None:
        topic = task.topic
        count = topic.partition_count + 1

        def grown(answer: Any) -> None:
            (result,) = answer.results
            exists = result.error_code == ErrorCode.INVALID_PARTITIONS and task.in_doubt
            if result.error_code == ErrorCode.NONE or exists:
                assert len(self._ledger.image.topics_by_id[topic.topic_id].partitions) >= count, (
                    "answered before it was committed"
                )
                topic.partition_count = count
                self.world.marks["topic grown"] += 1
                self._done()
            else:
                self._refused(task, result.error_code)

        wanted = CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=(wanted,), timeout_ms=1000)
        self._ask(task, broker_id, request, grown)

    def _configure(self, task: _Task, broker_id: BrokerId) -> None:
        topic = task.topic
        value = str(10**12 + self.world.time_ms)

        def changed(answer: Any) -> None:
            (result,) = answer.responses
            if result.error_code == ErrorCode.NONE:
                record = TopicConfigsChanged(topic.topic_id, ((RETENTION_MS.name, value),))
                assert record in self._ledger.records, "answered before it was committed"
                topic.retention_ms = value
                topic.retention_in_doubt |= task.in_doubt
                self.world.marks["topic configured"] += 1
                self._done()
            else:
                self._refused(task, result.error_code)

        wanted = AlterableConfig(name=RETENTION_MS.name, config_operation=SET, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic.name, configs=(wanted,))
        request = IncrementalAlterConfigsRequest(resources=(resource,))
        self._ask(task, broker_id, request, changed)

    def _delete(self, task: _Task, broker_id: BrokerId) -> None:
        topic = task.topic

        def deleted(answer: Any) -> None:
            (result,) = answer.responses
            gone = result.error_code == ErrorCode.UNKNOWN_TOPIC_ID and task.in_doubt
            if result.error_code != ErrorCode.NONE and not gone:
                self._refused(task, result.error_code)
                return
            assert topic.topic_id in self._ledger.image.deleted_topics, "answered before it was committed"
            self.topics.remove(topic)
            self.deleted_ids.append(topic.topic_id)
            self.world.marks["topic deleted"] += 1
            if any(host.node is None for host in self.hosts):
                self.world.marks["topic deleted while a broker was away"] += 1
            if topic.name_is_free_after_it:
                self._free_names.append(topic.name)
            self._done()

        request = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=topic.topic_id),), timeout_ms=1000)
        self._ask(task, broker_id, request, deleted)

    def _write(self, task: _Task, broker_id: BrokerId) -> None:
        """Write one record without a producer id. Its offset must not overlap acknowledged records."""
        topic = task.topic
        number = self.world.rng.randrange(topic.partition_count)

        def described(shown: Any) -> None:
            self._task = None
            known = shown.error_code == ErrorCode.NONE and shown.topic_id == topic.topic_id
            if not known or len(shown.partitions) <= number or shown.partitions[number].error_code != ErrorCode.NONE:
                self._done()
                return
            records = memoryview(build_batch([NewRecord(None, b"x", self.world.now().wall_ms)]))
            wanted = ProduceTopic(topic_id=topic.topic_id, partitions=[ProducePartition(index=number, records=records)])
            request = ProduceRequest(acks=-1, timeout_ms=1000, topics=[wanted])
            topic.in_doubt[number] = topic.in_doubt.get(number, 0) + 1
            self.ask(shown.partitions[number].leader_id, request, written)

        def written(answer: Any) -> None:
            result = answer.responses[0].partitions[0]
            if result.error_code == ErrorCode.NONE:
                topic.in_doubt[number] -= 1
                before = topic.written.get(number, 0)
                assert before <= result.base_offset <= before + topic.in_doubt[number], (
                    f"{topic.name}-{number}: written at {result.base_offset} after {before} records"
                )
                topic.written[number] = before + 1
                self.world.marks["record written to a young topic"] += 1
            else:
                assert result.error_code in NOT_ACKNOWLEDGED, result.error_code
            self._done()

        self.describe(topic.name, described, broker_id=broker_id)

    def _take_id(self, task: _Task, broker_id: BrokerId) -> None:
        def taken(answer: Any) -> None:
            self._given.is_new(answer)
            self._done()

        self.ask(broker_id, InitProducerIdRequest(transaction_timeout_ms=-1), taken)

    def _ask(self, task: _Task, broker_id: BrokerId, request: Message, then: Callable[[Any], None]) -> None:
        """A broker that loses the controller forwards the request again, so it may be executed twice."""
        seen = self._links_of(broker_id)

        def answered(answer: Any) -> None:
            task.in_doubt |= seen != self._links_of(broker_id)
            then(answer)

        self.ask(broker_id, request, answered, partial(self._lost, task))

    def _links_of(self, broker_id: BrokerId) -> object:
        host = self.host(broker_id)
        return host.incarnation, host.links_lost


_NO_TOPIC = _Topic("", UUID(int=0), 0)
