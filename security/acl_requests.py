"""Entries and filters of access control lists as the requests about them carry them, and their rules."""

from __future__ import annotations

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages.create_acls import AclCreation
from raylog.protocol.messages.delete_acls import DeleteAclsFilter
from raylog.protocol.messages.describe_acls import DescribeAclsRequest
from raylog.security.acl import (
    CLUSTER,
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from raylog.security.authorizer import Authorizer
from raylog.security.principal import parse_principal


def binding_of(asked: AclCreation) -> AclBinding:
    return AclBinding(
        ResourceType(asked.resource_type),
        asked.resource_name,
        PatternType(asked.resource_pattern_type),
        asked.principal,
        asked.host,
        Operation(asked.operation),
        Permission(asked.permission_type),
    )


def filter_of(asked: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    return AclFilter(
        ResourceType(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        Operation(asked.operation),
        Permission(asked.permission_type),
    )


def check_binding(binding: AclBinding) -> None:
    """Raises KafkaError(INVALID_REQUEST) for a binding that cannot be an entry of an access control list."""
    if binding.resource_type <= ResourceType.ANY:
        raise _invalid(f"Resource type {binding.resource_type.name} is not valid for an access control entry.")
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Pattern type {binding.pattern_type.name} is not valid for an access control entry.")
    if binding.operation <= Operation.ANY:
        raise _invalid(f"Operation {binding.operation.name} is not valid for an access control entry.")
    if binding.permission <= Permission.ANY:
        raise _invalid(f"Permission {binding.permission.name} is not valid for an access control entry.")
    if not binding.resource_name:
        raise _invalid("The resource name must not be empty.")
    if binding.resource_type is ResourceType.CLUSTER and binding.resource_name != CLUSTER.name:
        raise _invalid(f"The name of the cluster resource must be {CLUSTER.name}, not {binding.resource_name}.")
    if binding.pattern_type is PatternType.PREFIXED and binding.resource_name == WILDCARD:
        raise _invalid(
            "The wildcard * requires pattern type LITERAL; as a prefix it matches "
            "only names that begin with an asterisk."
        )
    parse_principal(binding.principal)


def check_filter(wanted: AclFilter) -> None:
    """Raises KafkaError(INVALID_REQUEST) for a filter with a type, an operation or a permission that is not known."""
    if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        raise _invalid("The filter contains an unknown type, operation or permission.")


def check_configured(authorizer: Authorizer | None) -> None:
    """Raises KafkaError(SECURITY_DISABLED): without an authorizer access control lists are neither kept nor shown."""
    if authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No authorizer is configured: set authorizer.class.name.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
