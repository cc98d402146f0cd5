"""DeleteAcls (key 31), v1-3: remove every entry that one of the filters matches (KIP-140).

v1 prefixed patterns (KIP-290); v2 flexible; v3 user resources. Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import acls
from raylog.core.errors import KafkaError
from raylog.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from raylog.security.acl import CLUSTER, AclBinding, Operation
from raylog.security.acl_requests import check_configured, filter_of

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(controller: ControllerServices, exchange: Exchange, request: DeleteAclsRequest) -> DeleteAclsResponse:
    try:
        check_configured(controller.authorization.authorizer)
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        outcome = acls.remove(controller.image, [filter_of(each) for each in request.filters])
        results = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return refused(request, error)
    return DeleteAclsResponse(filter_results=tuple(map(_result, results)))


def refused(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    """The response that rejects the whole request, with the error for each filter."""
    return DeleteAclsResponse(filter_results=tuple(_result(error) for _ in request.filters))


def _result(found: KafkaError | list[AclBinding]) -> DeleteAclsFilterResult:
    if isinstance(found, KafkaError):
        return DeleteAclsFilterResult(error_code=found.code, error_message=found.message)
    return DeleteAclsFilterResult(
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                resource_type=binding.resource_type,
                resource_name=binding.resource_name,
                pattern_type=binding.pattern_type,
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
            for binding in found
        )
    )
