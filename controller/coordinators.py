"""Coordinators that are nodes of their own: which partitions each leads, and when it gets them back.

The partitions of an internal topic are spread over the registered coordinators of its role. Each has its coordinator as
preferred leader, in addition to the brokers of its assignment, so that one of them can lead it at once:

    replicas 0 1 2           a coordinator has registered
    replicas 2000 0 1 2      it fetches the log, joins the ISR, and leads after HOLD_MS there
    leader 1                 it has crashed; when it is back, the same again, after twice the time at each further crash
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from raylog.controller import reassignments
from raylog.controller.replica_placement import with_coordinator
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, TopicPartition
from raylog.metadata.image import MetadataImage, PartitionImage, TopicImage
from raylog.metadata.node_roles import ROLE_OF_TOPIC, coordinators_of, is_coordinator, only_brokers
from raylog.metadata.records import ReplicasChanged

HOLD_MS = 10_000
"""How long a coordinator must have been in the ISR of a partition before it leads that again."""
HOLD_MS_MAX: Final = 640_000
CRASHES_FORGOTTEN_MS: Final = 1_800_000
"""A coordinator that has run for so long since its last crash counts as one that has never crashed."""


def place_coordinators(image: MetadataImage) -> Iterator[ReplicasChanged]:
    """The changes that give each partition of the internal topics the coordinator that it should have.

    A new coordinator is added to a partition while another one leads it, and replaces that when it leads itself.
    """
    for topic, partition in _coordinated(image):
        coordinators = coordinators_of(topic.name, image.brokers)
        leader, brokers = partition.leader, only_brokers(partition.replicas)
        wanted = with_coordinator(partition.partition, brokers, coordinators)
        if is_coordinator(leader) and leader not in wanted and coordinators:
            wanted = (wanted[0], leader, *brokers)
        if wanted != partition.replicas and (not partition.isr or set(partition.isr) & set(wanted)):
            yield from _changed(image, topic, partition, wanted)


def without_coordinator(image: MetadataImage, node: BrokerId) -> Iterator[ReplicasChanged]:
    """The changes that take a coordinator, which is fenced, off all partitions; none for a broker.

    Raises KafkaError(INVALID_REQUEST) if it has the only in-sync replica of one of them.
    """
    for topic, partition in _coordinated(image) if is_coordinator(node) else ():
        if partition.isr == (node,):
            tp = TopicPartition(topic.name, partition.partition)
            message = f"Coordinator {node} has the only in-sync replica of {tp}: start it, and stop it cleanly."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if node in partition.replicas:
            left = tuple(replica for replica in partition.replicas if replica != node)
            yield from _changed(image, topic, partition, left)


def _coordinated(image: MetadataImage) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for name in ROLE_OF_TOPIC:
        topic = image.topics.get(name)
        for partition in () if topic is None else topic.partitions:
            assert topic is not None
            yield topic, partition


def _changed(
    image: MetadataImage, topic: TopicImage, before: PartitionImage, replicas: tuple[BrokerId, ...]
) -> list[ReplicasChanged]:
    isr = tuple(replica for replica in replicas if replica in before.isr)
    alive = reassignments.eligible(image, topic.topic_id, before)
    return reassignments.changed(topic.topic_id, before, replace(before, replicas=replicas, isr=isr), alive)


@dataclass(frozen=True, slots=True)
class _InSync:
    """A coordinator that is in the ISR of a partition led by another node."""

    coordinator: BrokerId
    since_ms: int


@dataclass(frozen=True, slots=True)
class _Crashes:
    count: int
    last_ms: int


class LeadershipReturns:
    """When coordinators may lead their partitions again: soft state, which each new active controller begins anew."""

    def __init__(self) -> None:
        self._crashes: dict[BrokerId, _Crashes] = {}
        self._in_sync: dict[TopicPartition, _InSync] = {}

    def fenced(self, image: MetadataImage, node: BrokerId, *, now_ms: int) -> None:
        """A node has lost its session. It has crashed, or hangs, unless it was shutting down."""
        if is_coordinator(node) and image.brokers[node].shutdown_offset is None:
            self._crashes[node] = _Crashes(self._crash_count(node, now_ms) + 1, now_ms)

    def due(self, image: MetadataImage, *, now_ms: int) -> list[TopicPartition]:
        """The partitions that are to elect their preferred leader now. To be called about every second."""
        former, self._in_sync, due = self._in_sync, {}, []
        for topic, partition in _coordinated(image):
            preferred = partition.replicas[0]
            if not is_coordinator(preferred) or partition.leader == preferred or preferred not in partition.isr:
                continue
            tp = TopicPartition(topic.name, partition.partition)
            known = former.get(tp)
            if known is None or known.coordinator != preferred:
                known = _InSync(preferred, now_ms)
            self._in_sync[tp] = known
            if now_ms - known.since_ms >= self.hold_ms(preferred, now_ms):
                due.append(tp)
        return due

    def hold_ms(self, coordinator: BrokerId, now_ms: int) -> int:
        """How long it must be in the ISR: HOLD_MS after its first crash, then twice as long after each one."""
        return int(min(HOLD_MS << max(self._crash_count(coordinator, now_ms) - 1, 0), HOLD_MS_MAX))

    def _crash_count(self, coordinator: BrokerId, now_ms: int) -> int:
        crashes = self._crashes.get(coordinator)
        return crashes.count if crashes is not None and now_ms - crashes.last_ms < CRASHES_FORGOTTEN_MS else 0
