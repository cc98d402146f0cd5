"""Access control lists: describe, add and delete entries. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from raylog.client.admin.calls import ANY_BROKER, CONTROLLER, Answer, Call, Steps, ask, distinct
from raylog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from raylog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from raylog.protocol.messages.describe_acls import DescribeAclsRequest
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType

NAME = "access control lists"


def describe_acls(wanted: AclFilter | None = None, *, timeout: float | None = None) -> Steps[list[AclBinding]]:
    """The entries that match, or all."""
    request = DescribeAclsRequest(**_filter(wanted or AclFilter()))

    def read(response: Any) -> list[AclBinding]:
        return [
            _binding(each.resource_type, each.resource_name, each.pattern_type, acl)
            for each in response.resources
            for acl in each.acls
        ]

    return (yield from ask(ANY_BROKER, NAME, lambda _: request, read))


def create_acls(
    bindings: Iterable[AclBinding] | AclBinding, *, timeout: float | None = None
) -> Steps[dict[AclBinding, None]]:
    """Add entries; existing ones are not changed."""
    wanted = distinct([bindings] if isinstance(bindings, AclBinding) else bindings, str)

    def request(items: Sequence[AclBinding], _: int) -> CreateAclsRequest:
        return CreateAclsRequest(creations=tuple(map(_creation, items)))

    def read(response: Any, items: Sequence[AclBinding]) -> Iterator[Answer]:
        for item, each in zip(items, response.results, strict=False):  # in the same order
            yield Answer(item, None, each.error_code, each.error_message)

    found = yield Call(dict.fromkeys(wanted, CONTROLLER), lambda _: NAME, request, read)
    return found.checked()


def delete_acls(
    filters: Iterable[AclFilter] | AclFilter, *, timeout: float | None = None
) -> Steps[dict[AclFilter, list[AclBinding]]]:
    """Delete the entries that match, and return those of each filter."""
    wanted = distinct([filters] if isinstance(filters, AclFilter) else filters, str)

    def request(items: Sequence[AclFilter], _: int) -> DeleteAclsRequest:
        return DeleteAclsRequest(filters=tuple(DeleteAclsFilter(**_filter(item)) for item in items))

    def read(response: Any, items: Sequence[AclFilter]) -> Iterator[Answer]:
        for item, result in zip(items, response.filter_results, strict=False):
            refused = [acl for acl in result.matching_acls if acl.error_code]
            error = result if result.error_code or not refused else refused[0]
            gone = [
                _binding(acl.resource_type, acl.resource_name, acl.pattern_type, acl) for acl in result.matching_acls
            ]
            yield Answer(item, gone, error.error_code, error.error_message)

    found = yield Call(dict.fromkeys(wanted, CONTROLLER), lambda _: NAME, request, read)
    return found.checked()


def _binding(resource_type: int, name: str, pattern_type: int, acl: Any) -> AclBinding:
    return AclBinding(
        ResourceType(resource_type),
        name,
        PatternType(pattern_type),
        acl.principal,
        acl.host,
        Operation(acl.operation),
        Permission(acl.permission_type),
    )


def _creation(binding: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        resource_pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def _filter(wanted: AclFilter) -> dict[str, Any]:
    """The fields that DescribeAcls and DeleteAcls share."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }
