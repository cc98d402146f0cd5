"""The requests of the share coordinator: InitializeShareGroupState (key 83) v0, ReadShareGroupState (84) v0,
WriteShareGroupState (85) v0-1, DeleteShareGroupState (86) v0, ReadShareGroupStateSummary (87) v0-1 (KIP-932).

WriteShareGroupState v1 and ReadShareGroupStateSummary v1 have the number of completed deliveries (KIP-1226). Only nodes
of the cluster send them; as in Kafka they require CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raylog.core.errors import KafkaError
from raylog.protocol.error_responses import error_response
from raylog.security.acl import CLUSTER, Operation
from raylog.sharecoord import requests

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.transport.exchange import Exchange


def handle(broker: BrokerServices, exchange: Exchange, request: Any) -> Any:
    if not exchange.internal:
        try:
            broker.authorization.check(exchange, Operation.CLUSTER_ACTION, CLUSTER)
        except KafkaError as error:
            return error_response(request, error.code, error.message)
    return requests.serve(broker.share_states, exchange, request)
