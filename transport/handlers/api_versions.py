"""ApiVersions (key 18), v0-4: the APIs that this node serves, and their versions.

v3 flexible, client software name and version (KIP-511), features (KIP-584); v4 supported features may start at 0. A
newer version gets a v0 response with UNSUPPORTED_VERSION and the list, and the client retries with a lower one. No ACL
check.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from raylog.protocol.registry import api_for

if TYPE_CHECKING:
    from raylog.transport.accepted_connection import AcceptedConnection
    from raylog.transport.exchange import Exchange, Server

SOFTWARE_CHARACTERS_MAX = 64
"""How much of a name a connection keeps."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(node: Server, exchange: Exchange, request: ApiVersionsRequest) -> ApiVersionsResponse:
    names = (request.client_software_name, request.client_software_version)
    if exchange.api_version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    exchange.connection.software = (names[0][:SOFTWARE_CHARACTERS_MAX], names[1][:SOFTWARE_CHARACTERS_MAX])
    features = node.features()
    return ApiVersionsResponse(
        api_keys=_served(node, exchange.connection),
        supported_features=tuple(
            feature for feature in features.supported if feature.min_version > 0 or exchange.api_version >= 4
        ),
        finalized_features_epoch=features.finalized_epoch,
        finalized_features=features.finalized,
    )


def unsupported(node: Server, connection: AcceptedConnection) -> ApiVersionsResponse:
    """The response to an unsupported version, to be encoded in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served(node, connection))


def _served(node: Server, connection: AcceptedConnection) -> tuple[ApiVersion, ...]:
    specs = (api_for(key) for key in node.handlers_on(connection.listener))
    return tuple(
        ApiVersion(api_key=spec.key, min_version=spec.advertised_from, max_version=spec.highest)
        for spec in specs
        if spec is not None and (connection.listener.internal or not spec.internal)
    )
