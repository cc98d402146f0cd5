"""Envelope (key 58), v0, internal: a client's request that a broker forwards to the controller (KIP-590).

It contains the request exactly as the client sent it; the response contains the client's response. The request is
authorized for the principal and host of the client, which the broker sends along. If the client is over its quota of
changes, the broker finds the throttle time in the client's response, and mutes the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from raylog.controller.handlers import (
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_quorum,
    elect_leaders,
    expire_delegation_token,
    incremental_alter_configs,
    list_partition_reassignments,
    remove_raft_voter,
    renew_delegation_token,
    unregister_broker,
    update_features,
)
from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol import registry
from raylog.protocol.header import decode_request_header, decode_request_start, encode_response_header
from raylog.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from raylog.protocol.registry import api_for
from raylog.security.principal import ANONYMOUS, Client, decode_host, decode_principal
from raylog.transport.throttling import with_throttle_time

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange

FORWARDED_HANDLERS: Final[Mapping[int, Callable[[ControllerServices, Exchange, Any], Any]]] = {
    registry.CREATE_TOPICS: create_topics.handle_forwarded,
    registry.DELETE_TOPICS: delete_topics.handle,
    registry.CREATE_PARTITIONS: create_partitions.handle,
    registry.CREATE_ACLS: create_acls.handle,
    registry.DELETE_ACLS: delete_acls.handle,
    registry.ALTER_CONFIGS: alter_configs.handle,
    registry.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    registry.ELECT_LEADERS: elect_leaders.handle,
    registry.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.handle,
    registry.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.handle,
    registry.UNREGISTER_BROKER: unregister_broker.handle,
    registry.UPDATE_FEATURES: update_features.handle,
    registry.DESCRIBE_QUORUM: describe_quorum.handle,
    registry.ALTER_CLIENT_QUOTAS: alter_client_quotas.handle,
    registry.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.handle,
    registry.CREATE_DELEGATION_TOKEN: create_delegation_token.handle,
    registry.RENEW_DELEGATION_TOKEN: renew_delegation_token.handle,
    registry.EXPIRE_DELEGATION_TOKEN: expire_delegation_token.handle,
    registry.ADD_RAFT_VOTER: add_raft_voter.handle,
    registry.REMOVE_RAFT_VOTER: remove_raft_voter.handle,
}


def handle(controller: ControllerServices, exchange: Exchange, request: EnvelopeRequest) -> EnvelopeResponse:
    if not controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    data = memoryview(request.request_data)
    try:
        key, version, correlation_id = decode_request_start(data)
        spec, handler = api_for(key), FORWARDED_HANDLERS.get(key)
        if spec is None or handler is None or not spec.serves(version):
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        header, body = decode_request_header(data)
        forwarded = spec.decode_request(version, data, body)
        client = _client_of(request)
    except ProtocolViolation:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    inner = exchange.of_forwarded(spec, version, header.client_id, client)
    response = handler(controller, inner, forwarded)
    if inner.throttle_ms:
        response = with_throttle_time(response, spec, version, inner.throttle_ms)
    encoded = [encode_response_header(key, version, correlation_id), *spec.encode_response(version, response)]
    return EnvelopeResponse(response_data=b"".join(encoded))


def _client_of(request: EnvelopeRequest) -> Client:
    """Raises KafkaError(PRINCIPAL_DESERIALIZATION_FAILURE)."""
    encoded = request.request_principal
    principal, by_token = (ANONYMOUS, False) if encoded is None else decode_principal(encoded)
    return Client(principal, decode_host(request.client_host_address), by_token)
