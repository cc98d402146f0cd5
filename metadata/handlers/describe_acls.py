"""DescribeAcls (key 29), v1-3: the ACL entries that match a filter (KIP-140).

v1 prefixed patterns (KIP-290); v2 flexible; v3 user resources. Answered from this node's image, in the order of the
resources. Requires DESCRIBE on the cluster.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from raylog.core.errors import KafkaError
from raylog.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from raylog.security.acl import CLUSTER, AclBinding, Operation, PatternType, ResourceType
from raylog.security.acl_requests import check_configured, check_filter, filter_of

if TYPE_CHECKING:
    from raylog.metadata.services import ImageServices
    from raylog.transport.exchange import Exchange


def handle(node: ImageServices, exchange: Exchange, request: DescribeAclsRequest) -> DescribeAclsResponse:
    wanted = filter_of(request)
    try:
        check_configured(node.authorization.authorizer)
        node.authorization.check(exchange, Operation.DESCRIBE, CLUSTER)
        check_filter(wanted)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    found = sorted((binding for binding in node.image.acls.entries.values() if wanted.matches(binding)), key=_resource)
    return DescribeAclsResponse(
        resources=tuple(
            DescribeAclsResource(
                resource_type=resource_type,
                pattern_type=pattern_type,
                resource_name=name,
                acls=tuple(
                    AclDescription(
                        principal=binding.principal,
                        host=binding.host,
                        operation=binding.operation,
                        permission_type=binding.permission,
                    )
                    for binding in bindings
                ),
            )
            for (resource_type, pattern_type, name), bindings in groupby(found, key=_resource)
        )
    )


def _resource(binding: AclBinding) -> tuple[ResourceType, PatternType, str]:
    return binding.resource_type, binding.pattern_type, binding.resource_name
