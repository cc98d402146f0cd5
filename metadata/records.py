"""The records of the metadata log: changes of topics, partitions, brokers, producer ids, access control lists,
credentials, client quotas and delegation tokens.

Each record is a frozen dataclass named in the past tense. On disk a record is the value of an ordinary Kafka record:
a msgpack array `[kind, field, ...]`, fields in the order of the class. A kind never changes its meaning, and a field is
added at the end only, with a default, so that every old log can be replayed. What concerns the quorum itself are
control records in Kafka's own format (`control_records.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple
from uuid import UUID

import msgpack

from raylog.core.errors import InvariantViolation
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, ProducerId
from raylog.metadata.control_records import (
    ControlRecord,
    KRaftVersionChanged,
    VotersChanged,
    decode_control,
    encode_control,
)
from raylog.metadata.levels import (
    CLIENT_METRICS_LEVEL,
    DIRECTORIES_LEVEL,
    FEATURES_LEVEL,
    FIRST_LEVEL,
    GROUP_CONFIGS_LEVEL,
    METADATA_FEATURE,
    PASSWORDS_LEVEL,
    unknown_kind,
)
from raylog.protocol.records.batch import BatchHeader, split_batches
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import read_records, whole_batches
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
    """The complete configuration of the topic from now on."""

    topic_id: UUID
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BrokerConfigsChanged:
    """The complete dynamic configuration of a broker; for NO_BROKER_ID: the cluster-wide defaults."""

    broker_id: BrokerId
    configs: tuple[tuple[str, str], ...]
    """All but the passwords."""
    passwords: tuple[tuple[str, bytes], ...] = ()
    """Encrypted by `raylog.security.password_cipher`."""


@dataclass(frozen=True, slots=True)
class PartitionCreated:
    topic_id: UUID
    partition: int
    replicas: tuple[BrokerId, ...]
    """The preferred leader first."""
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...] | None = None
    """None means all replicas."""
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    former: tuple[BrokerId, ...] = ()
    """These three as in `PartitionImage`; set in snapshots only."""
    partition_epoch: int = 0
    """As in `PartitionImage`; not 0 in snapshots only."""
    emptied: tuple[BrokerId, ...] = ()
    """As in `PartitionImage`; set in snapshots only."""


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """`leader` is NO_BROKER_ID if no eligible replica is alive."""

    topic_id: UUID
    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...] | None = None
    """None means unchanged."""
    emptied: tuple[BrokerId, ...] = ()
    """Replicas that were in sync and have lost their records."""


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """These replicas have all committed records; no other replica is eligible as leader."""

    topic_id: UUID
    partition: int
    isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class ReplicasChanged:
    """The complete assignment of a partition from now on, with its ISR and leader, changed or not."""

    topic_id: UUID
    partition: int
    replicas: tuple[BrokerId, ...]
    """All of them, including those being added and removed."""
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    """Raised if the leader changes or a replica was removed."""


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A new incarnation of the broker. It is fenced until it has caught up."""

    broker_id: BrokerId
    incarnation_id: UUID
    broker_epoch: int
    """The offset of this record, as in Kafka: larger than the epoch of any incarnation before."""
    endpoints: tuple[tuple[str, str, int], ...]
    """(listener name, host, port) as advertised to clients."""
    rack: str | None = None
    directory_id: UUID | None = None
    """Identifies its log directory (KIP-858), if it has one."""
    features: tuple[tuple[str, int, int], ...] = ()
    """(name, lowest, highest level) of the features that it supports (KIP-584); empty from a broker of level 1."""
    directory_ids: tuple[UUID, ...] = ()
    """Its log directories, if it has several."""

    @property
    def log_dirs(self) -> tuple[UUID, ...]:
        """The ids of its log directories that work. A broker that returns without one of them has lost its replicas."""
        return self.directory_ids or (() if self.directory_id is None else (self.directory_id,))


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """The broker has no session. It leads no partition and receives no new replicas."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerDirectoriesChanged:
    """These log directories of the broker still work, as Kafka's BrokerRegistrationChangeRecord (KIP-858)."""

    broker_id: BrokerId
    broker_epoch: int
    directory_ids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class ReplicasAssignedToDirectory:
    """The broker has its replicas of these partitions in this log directory (KIP-858).

    A replica without such a record is in the only log directory of its broker, or the broker has just created it.
    """

    broker_id: BrokerId
    directory_id: UUID
    partitions: tuple[tuple[UUID, int], ...]
    """Pairs of topic id and partition."""


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    """The broker was removed from the cluster. It may register again."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ControlledShutdownBegun:
    """The broker is shutting down: it receives no leaderships and no replicas until it registers again."""

    broker_id: BrokerId
    broker_epoch: int
    end_offset: Offset
    """End offset of the records that move its leaderships away; a broker that has replayed them knows the leaders."""


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """All ids below `next_producer_id` are allocated to brokers."""

    next_producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """The first record of each epoch of the metadata log. It commits the records of earlier epochs before it."""

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


@dataclass(frozen=True, slots=True)
class ScramCredentialSet:
    """What brokers keep of a user's password, as Kafka's UserScramCredentialRecord (KIP-554)."""

    user: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramCredentialRemoved:
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ClientQuotaSet:
    """A quota of an entity, as Kafka's ClientQuotaRecord (KIP-546)."""

    entity: tuple[tuple[str, str | None], ...]
    """Pairs of entity type and name, ordered by type; None is the default entity."""
    key: str
    value: float


@dataclass(frozen=True, slots=True)
class ClientQuotaRemoved:
    entity: tuple[tuple[str, str | None], ...]
    key: str


@dataclass(frozen=True, slots=True)
class DelegationTokenCreated:
    """All that is known of a token but its secret, as Kafka's DelegationTokenRecord (KIP-48)."""

    token_id: str
    owner: tuple[str, str]
    """A principal: type and name."""
    requester: tuple[str, str]
    renewers: tuple[tuple[str, str], ...]
    issue_timestamp: int
    """This and the following in milliseconds of the wall clock."""
    max_timestamp: int
    expiry_timestamp: int


@dataclass(frozen=True, slots=True)
class DelegationTokenExpiryChanged:
    """A token was renewed, or ends earlier."""

    token_id: str
    expiry_timestamp: int


@dataclass(frozen=True, slots=True)
class DelegationTokenRemoved:
    token_id: str


@dataclass(frozen=True, slots=True)
class GroupConfigsChanged:
    """The complete configuration of the group from now on; without any key it has none."""

    group_id: str
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ClientMetricsConfigsChanged:
    """The complete configuration of a client metrics subscription from now on; without any key it does not exist."""

    name: str
    configs: tuple[tuple[str, str], ...]


DataRecord = (
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
    | ScramCredentialSet
    | ScramCredentialRemoved
    | ClientQuotaSet
    | ClientQuotaRemoved
    | DelegationTokenCreated
    | DelegationTokenExpiryChanged
    | DelegationTokenRemoved
    | BrokerDirectoriesChanged
    | ReplicasAssignedToDirectory
    | GroupConfigsChanged
    | ClientMetricsConfigsChanged
)
"""What the metadata log holds as data."""
MetadataRecord = DataRecord | ControlRecord

_KINDS: dict[int, type[DataRecord]] = {
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
    19: ScramCredentialSet,
    20: ScramCredentialRemoved,
    21: ClientQuotaSet,
    22: ClientQuotaRemoved,
    23: DelegationTokenCreated,
    24: DelegationTokenExpiryChanged,
    25: DelegationTokenRemoved,
    26: BrokerDirectoriesChanged,
    27: ReplicasAssignedToDirectory,
    32: GroupConfigsChanged,
    33: ClientMetricsConfigsChanged,
}
_INTRODUCED: dict[type[MetadataRecord], int] = {
    FeatureLevelChanged: 2,
    ScramCredentialSet: 3,
    ScramCredentialRemoved: 3,
    ClientQuotaSet: 3,
    ClientQuotaRemoved: 3,
    DelegationTokenCreated: 3,
    DelegationTokenExpiryChanged: 3,
    DelegationTokenRemoved: 3,
    BrokerDirectoriesChanged: DIRECTORIES_LEVEL,
    ReplicasAssignedToDirectory: DIRECTORIES_LEVEL,
    GroupConfigsChanged: GROUP_CONFIGS_LEVEL,
    ClientMetricsConfigsChanged: CLIENT_METRICS_LEVEL,
    KRaftVersionChanged: FEATURES_LEVEL,
    VotersChanged: FEATURES_LEVEL,
}
"""The metadata level that introduced a kind, where that is not the first."""


def _uuid(value: Any) -> UUID:
    if not isinstance(value, bytes):  # of another type it would be an AssertionError
        raise TypeError(f"{value!r} is not a UUID")
    return UUID(bytes=value)


def _uuid_or_none(value: Any) -> UUID | None:
    return None if value is None else _uuid(value)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "topic_id": _uuid_or_none,
    "incarnation_id": _uuid_or_none,
    "directory_id": _uuid_or_none,
    "acl_id": _uuid_or_none,
    "directory_ids": lambda values: tuple(_uuid(value) for value in values),
    "partitions": lambda values: tuple((_uuid(topic_id), partition) for topic_id, partition in values),
}
"""How the fields that contain UUIDs are read, by their names. A UUID is written as its 16 bytes."""


class _Layout(NamedTuple):
    """How a kind is written: its number, then its fields in this order."""

    number: int
    names: tuple[str, ...]
    decoders: tuple[tuple[int, Callable[[Any], Any]], ...]
    """Those of `_DECODERS`, by the positions of their fields."""


def _layout_of(number: int, kind: type[DataRecord]) -> _Layout:
    names = tuple(field.name for field in fields(kind))
    return _Layout(number, names, tuple((at, _DECODERS[name]) for at, name in enumerate(names) if name in _DECODERS))


_LAYOUTS = {kind: _layout_of(number, kind) for number, kind in _KINDS.items()}


def required_level(record: MetadataRecord) -> int:
    """The lowest metadata level at which `record` may be written."""
    if isinstance(record, BrokerConfigsChanged) and record.passwords:
        return PASSWORDS_LEVEL
    if isinstance(record, FeatureLevelChanged) and record.feature != METADATA_FEATURE:
        return FEATURES_LEVEL
    return _INTRODUCED.get(type(record), FIRST_LEVEL)


def encode(record: DataRecord) -> bytes:
    number, names, _ = _LAYOUTS[type(record)]
    packed: bytes = msgpack.packb((number, *(getattr(record, name) for name in names)), default=_uuid_bytes)
    return packed


def _uuid_bytes(value: UUID) -> bytes:
    return value.bytes


def decode(value: bytes) -> DataRecord:
    """The record in `value`. Raises UnsupportedLevel for an unknown kind, InvariantViolation for other bytes."""
    try:
        number, *values = msgpack.unpackb(value, use_list=False)
        kind = _KINDS.get(number)
        if kind is None and isinstance(number, int):
            raise unknown_kind(number)
        if kind is None:
            raise ValueError(f"{number!r} is not the number of a record kind")
        _, names, decoders = _LAYOUTS[kind]
        for at, decoded in decoders:
            if at < len(values):
                values[at] = decoded(values[at])
        return kind(*values[: len(names)])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvariantViolation(f"not a metadata record: {value[:40]!r}") from error


def batch_of(records: Sequence[MetadataRecord], *, now_ms: int) -> bytearray:
    """The record batch that holds the records: all of them data, or all control records. Raises InvariantViolation."""
    data = [NewRecord(None, encode(each), now_ms) for each in records if not isinstance(each, ControlRecord)]
    if len(data) == len(records):
        return build_batch(data)
    if data:
        raise InvariantViolation("data and control records cannot be in one batch")
    control = (encode_control(each) for each in records if isinstance(each, ControlRecord))
    return build_batch([NewRecord(key, value, now_ms) for key, value in control], control=True)


def decode_batches(batches: Buffer, *, from_offset: Offset) -> Iterator[tuple[Offset, MetadataRecord]]:
    """The records in record batches of the metadata log, with their offsets. Raises InvariantViolation as `decode`.

    A truncated last batch is left out.
    """
    for position, header in _whole(batches):
        if header.next_offset <= from_offset:
            continue
        for record in read_records(batches, position, header):
            if record.offset >= from_offset:
                found = decode_control(record) if header.is_control else decode(record.value or b"")
                yield Offset(record.offset), found


def voters_in(batches: Buffer) -> Iterator[tuple[Offset, VotersChanged]]:
    """The voter sets in record batches of the metadata log, with their offsets. Other records are not decoded."""
    for position, header in _whole(batches):
        for record in read_records(batches, position, header) if header.is_control else ():
            found = decode_control(record)
            if isinstance(found, VotersChanged):
                yield Offset(record.offset), found


def _whole(batches: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    size_bytes, _ = whole_batches(batches)
    return split_batches(memoryview(batches)[:size_bytes])
