"""CreateAcls (key 30), v1-3: add entries to access control lists (KIP-140).

v1 prefixed patterns (KIP-290); v2 flexible; v3 user resources. Each entry is processed separately; an entry that exists
already is no error. Requires ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller import acls
from raylog.core.errors import KafkaError
from raylog.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from raylog.security.acl import CLUSTER, Operation
from raylog.security.acl_requests import binding_of, check_configured

if TYPE_CHECKING:
    from raylog.controller.services import ControllerServices
    from raylog.transport.exchange import Exchange


def handle(controller: ControllerServices, exchange: Exchange, request: CreateAclsRequest) -> CreateAclsResponse:
    try:
        check_configured(controller.authorization.authorizer)
        controller.authorization.check(exchange, Operation.ALTER, CLUSTER)
        outcome = acls.add(controller.image, [binding_of(each) for each in request.creations], new_id=controller.new_id)
        results = controller.decide(outcome, exchange.now)
    except KafkaError as error:
        return refused(request, error)
    return CreateAclsResponse(results=tuple(map(_result, results)))


def refused(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    """The response that rejects the whole request, with the error for each entry."""
    return CreateAclsResponse(results=tuple(_result(error) for _ in request.creations))


def _result(error: KafkaError | None) -> AclCreationResult:
    return (
        AclCreationResult() if error is None else AclCreationResult(error_code=error.code, error_message=error.message)
    )
