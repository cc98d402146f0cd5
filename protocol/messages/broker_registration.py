"""BrokerRegistration (key 62). Made by script/generate_messages.py; change that, not this."""

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol.schema import Api, array, boolean, error, int16, int32, int64, string, uint16, uuid

API = Api(key=62, name="BrokerRegistration", lowest=0, highest=4, flexible_from=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Stands in `BrokerRegistrationRequest.listeners`."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Stands in `BrokerRegistrationRequest.features`."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationRequest:
    """A new incarnation of a broker makes itself known."""

    api: ClassVar[Api] = API
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: UUID = uuid()
    listeners: tuple[Listener, ...] = array(Listener)
    features: tuple[Feature, ...] = array(Feature)
    rack: str | None = string(None, null_since=0)
    is_migrating_zk_broker: bool = boolean(since=1)
    log_dirs: tuple[UUID, ...] = array(uuid, since=2)
    previous_broker_epoch: int = int64(-1, since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationResponse:
    """The epoch of the incarnation."""

    api: ClassVar[Api] = API
    throttle_time_ms: int = int32()
    error_code: ErrorCode = error()
    broker_epoch: int = int64(-1)
