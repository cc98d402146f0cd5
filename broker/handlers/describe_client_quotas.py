"""DescribeClientQuotas (key 48), v0-1: the client quotas of the entities that match a filter (KIP-546). v1 flexible.

Requires DESCRIBE_CONFIGS on the cluster.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast

from raylog.core.errors import KafkaError
from raylog.protocol.codec import EncodedElements
from raylog.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from raylog.quotas.filters import QuotaFilter, parse_filter
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.quotas.client_quotas import QuotaEntity
    from raylog.transport.exchange import Exchange

STEP_ENTITIES: Final = 500
"""Entities that are filtered before other connections are served."""


def handle(
    broker: BrokerServices, exchange: Exchange, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse | None:
    try:
        broker.authorization.check(exchange, Operation.DESCRIBE_CONFIGS, CLUSTER)
        components = ((each.entity_type, each.match_type, each.match) for each in request.components)
        wanted = parse_filter(components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    exchange.answer_in_steps(_entries(broker, exchange, wanted))
    return None


def _entries(
    broker: BrokerServices, exchange: Exchange, wanted: QuotaFilter
) -> Generator[None, None, DescribeClientQuotasResponse]:
    entries = EncodedElements(EntryData, of=DescribeClientQuotasResponse, version=exchange.api_version)
    for number, of in enumerate(list(broker.image.client_quotas.entries), 1):
        values = broker.image.client_quotas.entries.get(of)
        if values is not None and wanted.matches(of):
            entries.add(_entry(of, values))
        if number % STEP_ENTITIES == 0:
            yield
    return DescribeClientQuotasResponse(entries=cast(Any, entries))


def _entry(of: QuotaEntity, values: dict[str, float]) -> EntryData:
    return EntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in of),
        values=tuple(ValueData(key=key, value=value) for key, value in values.items()),
    )
