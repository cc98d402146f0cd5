"""The metadata log's records: what has been decided about topics, partitions, brokers, producer ids and rights.

Each record is a frozen dataclass named in the past tense. On disk a record is the value of an ordinary Kafka record:
a msgpack array `[kind, field, ...]`, fields in the order of the class. A kind is never given a new meaning; a field is
only ever added at the end, with a default, so that an old log can always be replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple
from uuid import UUID

import msgpack

from raylog.core.errors import InvariantViolation
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, ProducerId
from raylog.metadata.levels import FIRST_LEVEL, unknown_kind
from raylog.protocol.records.reader import read_batches
from raylog.protocol.wire import Buffer


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: str
    topic_id: UUID
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class TopicConfigsChanged:
    """What the topic's configuration is from now on, all of it."""

    topic_id: UUID
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BrokerConfigsChanged:
    """What is set for a broker while it runs, all of it; for NO_BROKER_ID: for every broker."""

    broker_id: BrokerId
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PartitionCreated:
    topic_id: UUID
    partition: int
    replicas: tuple[BrokerId, ...]
    """The preferred leader first."""
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...] | None = None
    """None: all replicas."""
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    former: tuple[BrokerId, ...] = ()
    """These three as in `PartitionImage`, for a log that begins with a partition that has a past."""
    partition_epoch: int = 0
    """In a snapshot: how often it had changed by then."""


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """`leader` is NO_BROKER_ID where no replica that may lead is alive."""

    topic_id: UUID
    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...] | None = None
    """None: as it was."""


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """These replicas have every record that is committed, and no other may be elected."""

    topic_id: UUID
    partition: int
    isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class ReplicasChanged:
    """Who holds the partition from now on, and what follows for its ISR and its leader: all of it, changed or not."""

    topic_id: UUID
    partition: int
    replicas: tuple[BrokerId, ...]
    """All of them, those that come and those that go included."""
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    """A new one where another leads, or a replica is gone."""


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A new incarnation of the broker has come; it is fenced until it has caught up."""

    broker_id: BrokerId
    incarnation_id: UUID
    broker_epoch: int
    """The offset of this record, as in Kafka: larger than the epoch of any incarnation before."""
    endpoints: tuple[tuple[str, str, int], ...]
    """(listener name, host, port) as they are told to clients."""
    rack: str | None = None
    directory_id: UUID | None = None
    """Names the log directory that it has (KIP-858): another one is an empty one."""
    features: tuple[tuple[str, int, int], ...] = ()
    """(name, lowest, highest level) of the features that it supports (KIP-584); empty from a broker of level 1."""


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """The broker is not heard of any more: it leads nothing and is given nothing."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    """The broker will not come back: it is none of the cluster's any more, until it registers anew."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ControlledShutdownBegun:
    """The broker wants to stop: it is given nothing, to lead or to hold, until it registers again."""

    broker_id: BrokerId
    broker_epoch: int
    end_offset: Offset
    """One past the last record of what this takes from it: who has replayed all below knows who leads in its place."""


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """All ids below `next_producer_id` have been handed out to some broker."""

    next_producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """The first record of each epoch of the metadata log: what its leader found in the log is committed with it."""

    controller_id: BrokerId


@dataclass(frozen=True, slots=True)
class AccessControlEntryAdded:
    """The fields and numbers of Kafka's AccessControlEntryRecord (KIP-801)."""

    acl_id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AccessControlEntryRemoved:
    acl_id: UUID


@dataclass(frozen=True, slots=True)
class FeatureLevelChanged:
    """The finalized level of a feature from now on, as Kafka's FeatureLevelRecord (KIP-584)."""

    feature: str
    level: int


MetadataRecord = (
    TopicCreated
    | TopicDeleted
    | PartitionCreated
    | LeaderChanged
    | IsrChanged
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | ProducerIdsAllocated
    | TopicConfigsChanged
    | BrokerConfigsChanged
    | ReplicasChanged
    | BrokerUnregistered
    | ControllerElected
    | ControlledShutdownBegun
    | AccessControlEntryAdded
    | AccessControlEntryRemoved
    | FeatureLevelChanged
)

_KINDS: dict[int, type[MetadataRecord]] = {
    1: TopicCreated,
    2: TopicDeleted,
    3: PartitionCreated,
    4: LeaderChanged,
    5: BrokerRegistered,
    6: ProducerIdsAllocated,
    7: BrokerFenced,
    8: BrokerUnfenced,
    9: TopicConfigsChanged,
    10: BrokerConfigsChanged,
    11: IsrChanged,
    12: ReplicasChanged,
    13: BrokerUnregistered,
    14: ControllerElected,
    15: ControlledShutdownBegun,
    16: AccessControlEntryAdded,
    17: AccessControlEntryRemoved,
    18: FeatureLevelChanged,
}
_INTRODUCED: dict[type[MetadataRecord], int] = {
    FeatureLevelChanged: 2,
}
"""The metadata level that introduced a kind, where that is not the first."""
_UUID_FIELDS = frozenset({"topic_id", "incarnation_id", "directory_id", "acl_id"})


class _Layout(NamedTuple):
    """How a kind is written: its number, then its fields in this order."""

    number: int
    names: tuple[str, ...]
    uuids: tuple[int, ...]
    """Positions of the fields that are UUIDs, written as their 16 bytes."""


def _layout_of(number: int, kind: type[MetadataRecord]) -> _Layout:
    names = tuple(field.name for field in fields(kind))
    return _Layout(number, names, tuple(at for at, name in enumerate(names) if name in _UUID_FIELDS))


_LAYOUTS = {kind: _layout_of(number, kind) for number, kind in _KINDS.items()}


def required_level(record: MetadataRecord) -> int:
    """The lowest metadata level at which `record` may be written."""
    return _INTRODUCED.get(type(record), FIRST_LEVEL)


def encode(record: MetadataRecord) -> bytes:
    number, names, uuids = _LAYOUTS[type(record)]
    values = [getattr(record, name) for name in names]
    for at in uuids:
        if values[at] is not None:
            values[at] = values[at].bytes
    packed: bytes = msgpack.packb((number, *values))
    return packed


def decode(value: bytes) -> MetadataRecord:
    """The record in `value`. Raises UnsupportedLevel for an unknown kind, InvariantViolation for other bytes."""
    try:
        number, *values = msgpack.unpackb(value, use_list=False)
        kind = _KINDS.get(number)
        if kind is None and isinstance(number, int):
            raise unknown_kind(number)
        if kind is None:
            raise ValueError(f"{number!r} is not the number of a kind")
        _, names, uuids = _LAYOUTS[kind]
        for at in uuids:
            if at < len(values) and values[at] is not None:
                values[at] = UUID(bytes=values[at])
        return kind(*values[: len(names)])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvariantViolation(f"not a metadata record of this version of raylog: {value[:40]!r}") from error


def decode_batches(batches: Buffer, *, from_offset: Offset) -> Iterator[tuple[Offset, MetadataRecord]]:
    """The records in record batches of the metadata log, with their offsets. Raises InvariantViolation as `decode`."""
    for record in read_batches(batches, from_offset=from_offset):
        yield Offset(record.offset), decode(record.value or b"")
