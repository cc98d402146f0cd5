"""Which brokers hold the replicas of new partitions: spread evenly, and over as many racks as there are (KIP-36)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId
from raylog.metadata.image import MetadataImage


def place(image: MetadataImage, partition_count: int, replication_factor: int) -> list[tuple[BrokerId, ...]]:
    """The replicas of each partition, the preferred leader first. Raises KafkaError(INVALID_REPLICATION_FACTOR).

    Leaders are assigned round-robin to the live brokers, beginning with the one that has the fewest replicas. Further
    replicas follow in the same order, on unused racks first, at a distance that grows with each round: so different
    brokers take over the partitions of a failed one. Fenced brokers get replicas only if there are too few live
    brokers, as in Kafka. Coordinators get none.
    """
    brokers = image.broker_ids
    alive = image.active & brokers
    if not 1 <= replication_factor <= len(brokers) or not alive:
        known = f"{len(brokers)} broker(s), of which {len(alive)} are alive"
        message = (
            f"Replication factor {replication_factor}: must be between 1 and the number "
            f"of brokers; the cluster has {known}."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    held = image.replica_counts
    away = sorted(brokers - alive, key=lambda broker_id: (held[broker_id], broker_id))
    racks = {broker_id: image.brokers[broker_id].registration.rack for broker_id in alive}
    ring = _alternating(sorted(alive, key=lambda broker_id: (held[broker_id], broker_id)), racks)
    placement = []
    for number in range(partition_count):
        replicas = _replicas(ring, racks, number, min(replication_factor, len(ring)))
        missing = replication_factor - len(replicas)
        placement.append(replicas + tuple(away[(number + step) % len(away)] for step in range(missing)))
    return placement


def with_coordinator(
    partition: int, brokers: tuple[BrokerId, ...], coordinators: Sequence[BrokerId]
) -> tuple[BrokerId, ...]:
    """The replicas of a partition of an internal topic: its coordinator, if there are any, and these brokers."""
    return (coordinators[partition % len(coordinators)], *brokers) if coordinators else brokers


def _alternating(brokers: list[BrokerId], racks: Mapping[BrokerId, str | None]) -> list[BrokerId]:
    """One broker of each rack in turn, in the given order otherwise."""
    by_rack: dict[str | None, deque[BrokerId]] = {}
    for broker_id in brokers:
        by_rack.setdefault(racks[broker_id], deque()).append(broker_id)
    ring = []
    while by_rack:
        for rack, members in list(by_rack.items()):
            ring.append(members.popleft())
            if not members:
                del by_rack[rack]
    return ring


def _replicas(
    ring: list[BrokerId], racks: Mapping[BrokerId, str | None], number: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    count = len(ring)
    chosen = [ring[number % count]]
    distance = number // count % max(count - 1, 1)
    others = [ring[(number + 1 + (distance + step) % (count - 1)) % count] for step in range(count - 1)]
    while len(chosen) < replication_factor:
        used = {racks[broker_id] for broker_id in chosen}
        following = next((one for one in others if racks[one] not in used), others[0])
        others.remove(following)
        chosen.append(following)
    return tuple(chosen)
