"""An admin client that reassigns partitions, and replaces or cancels reassignments before they complete."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import TopicPartition
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.metadata.image import PartitionImage
from raylog.metadata.node_roles import only_brokers
from raylog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.ledger import MetadataLedger
from tests.sim.world import World

PAUSES_MS = (0, 20, 300, 1000, 2500)
NOT_DONE = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT})
"""Retriable errors."""

_Key = tuple[UUID, int]


@dataclass(slots=True)
class _Task:
    """A request in progress, until there is a response."""

    tp: TopicPartition
    topic_id: UUID
    replicas: tuple[int, ...] | None
    """None: cancel the current reassignment."""
    in_doubt: bool = False
    """Whether an earlier attempt may still arrive."""

    @property
    def key(self) -> _Key:
        return self.topic_id, self.tp.partition


class Reassigner(SimClient):
    """Runs one task after the other, through any broker. No other client reassigns partitions."""

    def __init__(
        self, world: World, hosts: list[BrokerHost], ledger: MetadataLedger, topic: str, *, replicas_min: int, name: str
    ) -> None:
        super().__init__(world, hosts, name)
        self.tasks_left: int | None = None
        """The number of tasks still to begin; None for no limit."""
        self._ledger = ledger
        self._topics = (topic, topic, topic, OFFSETS_TOPIC)
        self._replicas_min = replicas_min
        self._task: _Task | None = None
        self._asked: dict[_Key, frozenset[int]] = {}
        """The final replicas of each partition."""
        self._in_doubt: set[_Key] = set()
        """Partitions for which an attempt may have arrived after a later request."""

    def begin(self) -> None:
        if self._task is None:
            if self.tasks_left == 0 or len(only_brokers(host.broker_id for host in self.hosts)) == 1:
                self.finished = True
                return
            self._task = self._new_task()
            if self._task is None:
                self.later(max(PAUSES_MS), self.begin)
                return
            if self.tasks_left is not None:
                self.tasks_left -= 1
        task = self._task
        wanted = ReassignablePartition(partition_index=task.tp.partition, replicas=task.replicas)
        topic = ReassignableTopic(name=task.tp.topic, partitions=(wanted,))
        request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=(topic,))
        broker_id = self.any_broker()
        host = self.host(broker_id)
        seen = host.incarnation, host.links_lost

        def answered(answer: Any) -> None:
            task.in_doubt |= seen != (host.incarnation, host.links_lost)
            self._answered(task, answer)

        self.ask(broker_id, request, answered, partial(self._lost, task))

    def must_have_come_to_what_was_asked(self) -> None:
        """Final check, when no reassignment is in progress."""
        for key, replicas in self._asked.items():
            topic = self._ledger.image.topics_by_id.get(key[0])
            if topic is not None and key not in self._in_doubt:
                shown = topic.partitions[key[1]]
                assert set(only_brokers(shown.replicas)) == replicas, (
                    f"{topic.name}-{key[1]} was reassigned to {replicas}, but is {shown}"
                )
                self.world.marks["partition where it was to be"] += 1

    def _new_task(self) -> _Task | None:
        rng, image = self.world.rng, self._ledger.image
        others = sorted(image.topics)
        name = rng.choice(self._topics) if rng.random() < 0.7 or not others else rng.choice(others)
        topic = image.topics.get(name)
        if topic is None or len(image.broker_ids) < max(2, self._replicas_min):
            return None
        moving = [one for one in topic.partitions if one.is_reassigning]
        shown = rng.choice(moving if moving and rng.random() < 0.6 else topic.partitions)
        tp = TopicPartition(name, shown.partition)
        if shown.is_reassigning and rng.random() < 0.4:
            return _Task(tp, topic.topic_id, None)
        known = sorted(image.broker_ids)
        count = len(known) if rng.random() < 0.5 else rng.randint(max(1, self._replicas_min), len(known))
        return _Task(tp, topic.topic_id, tuple(rng.sample(known, count)))

    def _lost(self, task: _Task) -> None:
        task.in_doubt = True
        self.restart()

    def _answered(self, task: _Task, answer: Any) -> None:
        (topic,) = answer.responses
        (result,) = topic.partitions
        code = answer.error_code or result.error_code
        if code != ErrorCode.NONE:
            self.world.marks[f"reassigner met {code.name}"] += 1
        if code in NOT_DONE:
            task.in_doubt |= code == ErrorCode.REQUEST_TIMED_OUT
            self.restart()
            return
        found = self._ledger.image.topics_by_id.get(task.topic_id)
        if task.in_doubt:
            self._in_doubt.add(task.key)
        if found is not None and task.key not in self._in_doubt:
            self._look_at(task, code, found.partitions[task.tp.partition])
        self._task = None
        self.later(self.world.rng.choice(PAUSES_MS), self.begin)

    def _look_at(self, task: _Task, code: ErrorCode, shown: PartitionImage) -> None:
        """The response to a request sent once must match the partition, since no other client reassigns it."""
        staying = frozenset(set(only_brokers(shown.replicas)) - set(shown.removing))
        if code == ErrorCode.NONE and task.replicas is not None:
            assert staying == set(task.replicas), f"{task.tp} was reassigned to {task.replicas}, but is {shown}"
            self._asked[task.key] = staying
        elif code in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
            assert task.replicas is None, code.name
            assert not shown.is_reassigning, f"the reassignment was cancelled, but continues: {shown}"
            self._asked[task.key] = staying
        else:
            nobody_to_go_back_to = code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and task.replicas is None
            assert nobody_to_go_back_to, f"{task.tp} to {task.replicas}: {code.name}"
