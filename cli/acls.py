"""`raylog acls`: list, add and remove access control lists (kafka-acls).

Resources, principals, hosts and operations have the names that kafka-acls uses. The default is all operations and all
hosts. `remove` deletes the entries that `add` creates for the same arguments, or, without a principal, all entries of
the resources; on a terminal it asks first. With --json the command prints an array of objects:

    [{"resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "LITERAL", "principal": "User:alice",
      "host": "*", "operation": "READ", "permission": "ALLOW"}]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from itertools import product
from typing import Final

from raylog.cli.arguments import Subparsers, add_bootstrap_server, open_client
from raylog.cli.columns import columns
from raylog.cli.usage import UsageError
from raylog.cli.values import printable
from raylog.security.acl import (
    CLUSTER,
    OPERATIONS,
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from raylog.transport.endpoints import HANDLE_PEER

PATTERN_TYPES: Final = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}
FILTER_TYPES: Final = {**PATTERN_TYPES, "any": PatternType.ANY, "match": PatternType.MATCH}
PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (Operation.IDEMPOTENT_WRITE,),
}
CONSUMER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
"""The operations that a producer and a consumer need, by resource type."""


def add_to(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("acls", help="list, add and remove access control lists")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="print all entries, or those of some resources")
    _add_resources(listing, FILTER_TYPES)
    listing.add_argument(
        "--principal", action="append", default=[], metavar="TYPE:NAME", help="print only the entries of this principal"
    )
    listing.set_defaults(run=_list)

    add = actions.add_parser("add", help="allow or deny operations to a principal")
    _add_resources(add, PATTERN_TYPES)
    _add_rights(add)
    add.set_defaults(run=_add)

    remove = actions.add_parser("remove", help="delete entries")
    _add_resources(remove, FILTER_TYPES)
    _add_rights(remove)
    remove.add_argument(
        "--force", action="store_true", help="without a principal, do not ask before all entries are deleted"
    )
    remove.set_defaults(run=_remove)

    for action in (listing, add, remove):
        action.add_argument("--json", action="store_true", help="print one JSON array")
        add_bootstrap_server(action, or_controller=True)


def operation(text: str) -> Operation:
    """For argparse: `DescribeConfigs`, `describe_configs` or `DESCRIBE_CONFIGS`."""
    for each in Operation:
        if each > Operation.ANY and each.name.replace("_", "") == text.replace("_", "").upper():
            return each
    raise argparse.ArgumentTypeError(f"{text!r}: unknown operation")


def _add_resources(parser: argparse.ArgumentParser, pattern_types: dict[str, PatternType]) -> None:
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="a topic, or * for all; can be repeated"
    )
    parser.add_argument("--group", action="append", default=[], metavar="NAME")
    parser.add_argument("--transactional-id", action="append", default=[], metavar="NAME")
    parser.add_argument("--cluster", action="store_true", help="the cluster resource")
    parser.add_argument(
        "--delegation-token", action="append", default=[], metavar="ID", help="a delegation token, or * for all"
    )
    parser.add_argument(
        "--user-principal",
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="a user as the owner of delegation tokens, or * for all",
    )
    parser.add_argument(
        "--resource-pattern-type",
        choices=list(pattern_types),
        default="literal",
        help="whether the names are full names or prefixes (default: %(default)s)",
    )


def _add_rights(parser: argparse.ArgumentParser) -> None:
    for word in ("allow", "deny"):
        parser.add_argument(f"--{word}-principal", action="append", default=[], metavar="TYPE:NAME")
        parser.add_argument(f"--{word}-host", action="append", default=[], metavar="ADDRESS")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--operation", type=operation, action="append", default=[], help="an operation, such as Read; can be repeated"
    )
    what.add_argument("--producer", action="store_true", help="the operations that a producer to the topics needs")
    what.add_argument(
        "--consumer", action="store_true", help="the operations that a consumer of the topics in the groups needs"
    )
    parser.add_argument(
        "--idempotent", action="store_true", help="with --producer: also IdempotentWrite on the cluster"
    )


def _list(options: argparse.Namespace) -> None:
    filters = [
        AclFilter(resource.type, resource.name, FILTER_TYPES[options.resource_pattern_type], principal)
        for resource, principal in product(_resources(options), options.principal or [None])
    ] or [AclFilter(principal=principal) for principal in options.principal or [None]]
    with open_client(options) as client:
        found = dict.fromkeys(binding for wanted in filters for binding in client.describe_acls(wanted))
    _print(options, list(found), otherwise="No ACLs found.")


def _add(options: argparse.Namespace) -> None:
    bindings = list(_bindings(options, PATTERN_TYPES[options.resource_pattern_type]))
    if not bindings:
        raise UsageError("--allow-principal or --deny-principal is required")
    for binding in bindings:
        _check_effective(binding)
    with open_client(options) as client:
        client.create_acls(dict.fromkeys(bindings))
    _print(options, bindings, otherwise="")


def _remove(options: argparse.Namespace) -> None:
    pattern_type = FILTER_TYPES[options.resource_pattern_type]
    filters = [
        AclFilter(
            binding.resource_type,
            binding.resource_name,
            binding.pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission,
        )
        for binding in _bindings(options, pattern_type)
    ]
    if not filters:
        if options.operation or options.producer or options.consumer or options.allow_host or options.deny_host:
            raise UsageError("--allow-principal or --deny-principal is required with hosts or operations")
        filters = [AclFilter(resource.type, resource.name, pattern_type) for resource in _resources(options)]
        if not options.force and sys.stdin.isatty() and not _is_confirmed(options):
            _print(options, [], otherwise="No ACLs were removed.")
            return
    with open_client(options) as client:
        removed = client.delete_acls(dict.fromkeys(filters))
    bindings = list(dict.fromkeys(binding for gone in removed.values() for binding in gone))
    _print(options, bindings, otherwise="No ACLs matched.")


def _is_confirmed(options: argparse.Namespace) -> bool:
    named = ", ".join(f"{each.type.name.lower()} {printable(each.name)}" for each in _resources(options))
    question = f"Delete all ACLs of {named} (pattern type {options.resource_pattern_type})? (y/N) "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _resources(options: argparse.Namespace) -> list[Resource]:
    return [
        *map(Resource.topic, options.topic),
        *map(Resource.group, options.group),
        *map(Resource.transactional_id, options.transactional_id),
        *([CLUSTER] if options.cluster else []),
        *map(Resource.delegation_token, options.delegation_token),
        *map(Resource.user, options.user_principal),
    ]


def _bindings(options: argparse.Namespace, pattern_type: PatternType) -> Iterator[AclBinding]:
    """Every entry that the arguments describe. Raises UsageError if arguments are missing."""
    resources = _resources(options)
    needed = PRODUCER if options.producer else CONSUMER if options.consumer else None
    if options.idempotent:
        if not options.producer:
            raise UsageError("--idempotent requires --producer")
        resources.append(CLUSTER)
    if not resources:
        raise UsageError(
            "a resource is required: --topic, --group, --transactional-id, --cluster, --delegation-token or"
            " --user-principal"
        )
    if needed is not None and not options.topic:
        raise UsageError("--producer and --consumer require --topic")
    if options.consumer and not options.group:
        raise UsageError("--consumer requires --group")
    for resource in resources:
        if needed is not None and resource.type not in needed:
            raise UsageError(f"--producer and --consumer do not apply to a {resource.type.name.lower()}")
        operations: Sequence[Operation] = options.operation or [Operation.ALL]
        if needed is not None:
            operations = needed[resource.type]
        of_cluster = resource.type is ResourceType.CLUSTER  # a cluster has only one
        for permission, principals, hosts in (
            (Permission.ALLOW, options.allow_principal, options.allow_host),
            (Permission.DENY, options.deny_principal, options.deny_host),
        ):
            for principal, host, each in product(principals, hosts or [WILDCARD], operations):
                pattern = PatternType.LITERAL if of_cluster else pattern_type
                yield AclBinding(*resource, pattern, principal, host, each, permission)


def _check_effective(binding: AclBinding) -> None:
    """Raises UsageError for an entry that applies to no request."""
    possible = (Operation.ALL, *OPERATIONS[binding.resource_type])
    if binding.operation not in possible:
        names = ", ".join(each.name for each in possible)
        raise UsageError(
            f"{binding.resource_type.name} only supports the operations {names}, not {binding.operation.name}"
        )
    if binding.host not in (WILDCARD, HANDLE_PEER):
        try:
            ip_address(binding.host)
        except ValueError:
            raise UsageError(
                f"{binding.host!r} is no host: must be an IP address, {WILDCARD} for all, or {HANDLE_PEER} for calls by"
                " an actor handle"
            ) from None


def _print(options: argparse.Namespace, bindings: Sequence[AclBinding], *, otherwise: str) -> None:
    found = [
        {
            "resource_type": each.resource_type.name,
            "resource_name": each.resource_name,
            "pattern_type": each.pattern_type.name,
            "principal": each.principal,
            "host": each.host,
            "operation": each.operation.name,
            "permission": each.permission.name,
        }
        for each in bindings
    ]
    if options.json:
        print(json.dumps(found))
    elif found:
        head = ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]
        print(columns(head, [list(each.values()) for each in found]))
    else:
        print(otherwise)
