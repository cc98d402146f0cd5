"""From a frame to its handler and back: headers, versions, authentication, and the visible list of what is served."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from raylog.broker.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from raylog.broker.request import CloseConnection, NoResponse, Parked, RequestContext
from raylog.core.errors import ProtocolViolation
from raylog.protocol import registry
from raylog.protocol.framing import frame
from raylog.protocol.header import decode_request_header, decode_request_start, encode_response_header
from raylog.protocol.registry import ApiSpec, api_for

if TYPE_CHECKING:
    from raylog.broker.broker import Broker
    from raylog.broker.request import ClientConnection
    from raylog.core.clock import Now

HANDLERS: Final[dict[int, Callable[[Broker, RequestContext, Any], Any]]] = {
    registry.PRODUCE: produce.handle,
    registry.FETCH: fetch.handle,
    registry.LIST_OFFSETS: list_offsets.handle,
    registry.METADATA: metadata.handle,
    registry.OFFSET_COMMIT: offset_commit.handle,
    registry.OFFSET_FETCH: offset_fetch.handle,
    registry.FIND_COORDINATOR: find_coordinator.handle,
    registry.SASL_HANDSHAKE: sasl_handshake.handle,
    registry.API_VERSIONS: api_versions.handle,
    registry.CREATE_TOPICS: create_topics.handle,
    registry.DELETE_TOPICS: delete_topics.handle,
    registry.DELETE_RECORDS: delete_records.handle,
    registry.INIT_PRODUCER_ID: init_producer_id.handle,
    registry.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    registry.DESCRIBE_CONFIGS: describe_configs.handle,
    registry.SASL_AUTHENTICATE: sasl_authenticate.handle,
    registry.CREATE_PARTITIONS: create_partitions.handle,
    registry.DESCRIBE_CLUSTER: describe_cluster.handle,
}
"""What is served. The versions stand in `protocol.registry`."""

BEFORE_AUTHENTICATION: Final = frozenset({registry.API_VERSIONS, registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE})


def dispatch(broker: Broker, connection: ClientConnection, request_frame: memoryview, now: Now) -> None:
    """Serve one request: answer it, park it, or close a connection whose bytes make no sense.

    Never raises for anything the peer has sent. An exception that leaves here is a bug or a broken invariant.
    """
    try:
        _serve(broker, connection, request_frame, now)
    except (ProtocolViolation, CloseConnection) as reason:
        connection.close(str(reason))
        broker.touch(connection)


def _serve(broker: Broker, connection: ClientConnection, request_frame: memoryview, now: Now) -> None:
    key, version, correlation_id = decode_request_start(request_frame)
    spec = api_for(key)
    if spec is None:
        raise ProtocolViolation(f"no request has key {key}, or raylog does not serve it")
    if not connection.authenticated and key not in BEFORE_AUTHENTICATION:
        raise CloseConnection(f"{spec.name} on the internal listener before the cluster's secret was proven")
    if not spec.serves(version):
        if key != registry.API_VERSIONS:
            raise ProtocolViolation(f"{spec.name} is not served in version {version}")
        _answer(connection, spec, 0, correlation_id, api_versions.unsupported())
        return
    header, body = decode_request_header(request_frame)
    request = spec.decode_request(version, request_frame, body)

    def reply(response: Any) -> None:
        connection.parked_ticket = None
        _answer(connection, spec, version, correlation_id, response)
        broker.touch(connection)

    context = RequestContext(connection, version, header.client_id, now, reply)
    response = HANDLERS[key](broker, context, request)
    if isinstance(response, Parked):
        connection.parked_ticket = broker.delayed.park(response.operation, response.keys)
    elif isinstance(response, NoResponse):
        connection.answer(())
    else:
        _answer(connection, spec, version, correlation_id, response)


def _answer(connection: ClientConnection, spec: ApiSpec, version: int, correlation_id: int, response: Any) -> None:
    header = encode_response_header(spec.key, version, correlation_id)
    connection.answer(frame([header, *spec.encode_response(version, response)]))
