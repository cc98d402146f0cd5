"""AlterClientQuotas (key 49), v0-1: set and remove client quotas, or with validate_only only validate the request.

v1 flexible. The changes of each entity are processed together, those of different entities separately. Requires
ALTER_CONFIGS on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import client_quotas
from raylog.controller.client_quotas import Alteration
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    ResponseEntryData,
)
from raylog.security.acl import CLUSTER, Operation

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(
    controller: ControllerServices, exchange: Exchange, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    alterations = [
        Alteration(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    ]
    try:
        controller.authorization.check(exchange, Operation.ALTER_CONFIGS, CLUSTER)
        outcome = client_quotas.alter(controller.image, alterations)
        results = outcome.response if request.validate_only else controller.decide(outcome, exchange.now)
    except KafkaError as error:
        results = [(of, error) for of, _ in alterations]
    return AlterClientQuotasResponse(entries=tuple(_result(of, error) for of, error in results))


def _result(of: tuple[tuple[str, str | None], ...], error: KafkaError | None) -> ResponseEntryData:
    parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in of)
    if error is None:
        return ResponseEntryData(error_code=ErrorCode.NONE, entity=parts)
    return ResponseEntryData(error_code=error.code, error_message=error.message, entity=parts)
