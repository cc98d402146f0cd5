"""The control records of the metadata log: `kraft.version` and the quorum's voters, as Kafka writes them (KIP-853).

They are in control batches of their own. Key: int16 version, int16 type. Value: a flexible message. Sources: Kafka's
ControlRecordType, KRaftVersionRecord.json, VotersRecord.json.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final
from uuid import UUID

from raylog.core.errors import InvariantViolation, ProtocolViolation
from raylog.core.ids import BrokerId
from raylog.metadata.levels import unknown_kind
from raylog.metadata.voters import QuorumVoter, VoterSet
from raylog.protocol import codec
from raylog.protocol.records.reader import Record
from raylog.protocol.schema import Api, array, int16, int32, message, string, uint16, uuid
from raylog.protocol.schema import struct as structure

KRAFT_VERSIONS: Final = (0, 1)
"""The levels of `kraft.version` that this version of raylog supports. With 1 the voters can change."""
_KEY = struct.Struct(">hh")
_KEY_VERSION = 0
_KRAFT_VERSION, _KRAFT_VOTERS = 5, 6
"""Kafka's types of control records."""


@dataclass(frozen=True, slots=True)
class KRaftVersionChanged:
    """The finalized level of `kraft.version` from now on. Kafka's KRaftVersionRecord."""

    level: int


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """The voters from now on, for the quorum even before the record is committed. Kafka's VotersRecord."""

    voters: VoterSet


ControlRecord = KRaftVersionChanged | VotersChanged


@message
class _KRaftVersionValue:
    api: ClassVar[Api] = Api(key=-1, name="KRaftVersionRecord", lowest=0, highest=0, flexible_from=0)
    version: int = int16()
    k_raft_version: int = int16()


@message
class _Endpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()


@message
class _Versions:
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message
class _Voter:
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    endpoints: tuple[_Endpoint, ...] = array(_Endpoint)
    k_raft_version_feature: _Versions = structure(_Versions)


@message
class _VotersValue:
    api: ClassVar[Api] = Api(key=-1, name="VotersRecord", lowest=0, highest=0, flexible_from=0)
    version: int = int16()
    voters: tuple[_Voter, ...] = array(_Voter)


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """Key and value."""
    if isinstance(record, KRaftVersionChanged):
        return _KEY.pack(_KEY_VERSION, _KRAFT_VERSION), codec.encode(_KRaftVersionValue(k_raft_version=record.level), 0)
    lowest, highest = KRAFT_VERSIONS
    versions = _Versions(min_supported_version=lowest, max_supported_version=highest)
    voters = tuple(
        _Voter(
            voter_id=each.voter_id,
            voter_directory_id=each.directory_id,
            endpoints=tuple(_Endpoint(name=name, host=host, port=port) for name, host, port in each.endpoints),
            k_raft_version_feature=versions,
        )
        for each in record.voters
    )
    return _KEY.pack(_KEY_VERSION, _KRAFT_VOTERS), codec.encode(_VotersValue(voters=voters), 0)


def decode_control(record: Record) -> ControlRecord:
    """Raises UnsupportedLevel for an unknown type, InvariantViolation for other bytes."""
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind == _KRAFT_VERSION:
            return KRaftVersionChanged(codec.decode(_KRaftVersionValue, 0, record.value or b"").k_raft_version)
        if kind != _KRAFT_VOTERS:
            raise unknown_kind(kind)
        voters = codec.decode(_VotersValue, 0, record.value or b"").voters
    except (struct.error, ProtocolViolation) as error:
        raise InvariantViolation(f"not a control record of the metadata log: {record!r}"[:200]) from error
    return VotersChanged(
        VoterSet(
            QuorumVoter(
                BrokerId(each.voter_id),
                each.voter_directory_id,
                tuple((end.name, end.host, end.port) for end in each.endpoints),
            )
            for each in voters
        )
    )
