"""(shell) Who may do what, who can log in, and how much: access control lists, users of SCRAM, quotas."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any, Final

from raylog.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from raylog.console.fields import Fields
from raylog.console.paging import Paging
from raylog.console.visitor import Visitor
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.password import Password
from raylog.quotas.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    entity,
)
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from raylog.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

RESOURCES: Final = {each.name: each for each in ResourceType if each > ResourceType.ANY}
PATTERNS: Final = {each.name: each for each in (PatternType.LITERAL, PatternType.PREFIXED)}
OPERATIONS: Final = {each.name: each for each in Operation if each > Operation.ANY}
PERMISSIONS: Final = {each.name: each for each in (Permission.ALLOW, Permission.DENY)}
MECHANISMS: Final = {"SCRAM-SHA-256": ScramMechanism.SHA_256, "SCRAM-SHA-512": ScramMechanism.SHA_512}
QUOTA_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
    CONNECTION_CREATION_RATE,
)
DEFAULT_NAME: Final = "<default>"
"""The entity for all that have no quota of their own, as Kafka's tools write it."""


# --- access control lists


async def list_acls(visitor: Visitor, fields: Fields) -> Any:
    """A page of the entries; the filter finds words in resource, principal, operation and permission."""
    found = await visitor.admin.describe_acls()
    return Paging.of(fields, ("name",)).page(found, _acl_text, {}).shown(_acl)


async def create_acl(visitor: Visitor, fields: Fields) -> Any:
    binding = _binding(fields)
    await visitor.admin.create_acls(binding)
    return _acl(binding)


async def delete_acl(visitor: Visitor, fields: Fields) -> Any:
    """Exactly this entry."""
    each = _binding(fields)
    wanted = AclFilter(
        each.resource_type,
        each.resource_name,
        each.pattern_type,
        each.principal,
        each.host,
        each.operation,
        each.permission,
    )
    found = await visitor.admin.delete_acls(wanted)
    return {"deleted": len(found[wanted])}


def _binding(fields: Fields) -> AclBinding:
    """Raises KafkaError."""
    return AclBinding(
        fields.choice("resource_type", RESOURCES),
        fields.text("resource_name"),
        fields.choice("pattern_type", PATTERNS, "LITERAL"),
        fields.text("principal"),
        fields.text("host", "*"),
        fields.choice("operation", OPERATIONS),
        fields.choice("permission", PERMISSIONS, "ALLOW"),
    )


def _acl(each: AclBinding) -> dict[str, Any]:
    return {
        "resource_type": each.resource_type.name,
        "resource_name": each.resource_name,
        "pattern_type": each.pattern_type.name,
        "principal": each.principal,
        "host": each.host,
        "operation": each.operation.name,
        "permission": each.permission.name,
    }


def _acl_text(each: AclBinding) -> str:
    resource = f"{each.resource_type.name} {each.resource_name} {each.pattern_type.name}"
    return f"{resource} {each.principal} {each.operation.name} {each.permission.name} {each.host}"


# --- users


async def list_users(visitor: Visitor, fields: Fields) -> Any:
    """A page of the users who have a password for SCRAM."""
    found = await visitor.admin.describe_user_scram_credentials()
    page = Paging.of(fields, ("name",)).page(found.items(), lambda each: each[0], {})
    names = {mechanism: name for name, mechanism in MECHANISMS.items()}
    return page.shown(
        lambda each: {
            "name": each[0],
            "mechanisms": [
                {"name": names.get(mechanism, str(mechanism)), "iterations": iterations}
                for mechanism, iterations in each[1].items()
            ],
        }
    )


async def set_user(visitor: Visitor, fields: Fields) -> Any:
    """A new password for `mechanism`, or for all that the user has; a new user gets all that exist.

    The password itself does not leave the console.
    """
    name = fields.text("name", characters_max=1_024)
    iterations = fields.number("iterations", ITERATIONS_MIN, least=ITERATIONS_MIN, most=ITERATIONS_MAX)
    password = Password(fields.text("password", characters_max=1_024))
    if fields.text("mechanism", ""):
        mechanisms: Iterable[ScramMechanism] = (fields.choice("mechanism", MECHANISMS),)
    else:
        mechanisms = await _mechanisms_of(visitor, name) or ScramMechanism
    await visitor.admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(name, password, mechanism, iterations) for mechanism in mechanisms]
    )
    return {"name": name}


async def delete_user(visitor: Visitor, fields: Fields) -> Any:
    """The passwords of a user, of all mechanisms."""
    name = fields.text("name", characters_max=1_024)
    found = await visitor.admin.describe_user_scram_credentials(name)
    await visitor.admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion(name, mechanism) for mechanism in found[name]]
    )
    return {"name": name}


async def _mechanisms_of(visitor: Visitor, name: str) -> Collection[ScramMechanism]:
    """Those for which the user has a password; none for a user that does not exist."""
    try:
        found = await visitor.admin.describe_user_scram_credentials(name)
    except KafkaError as error:
        if error.code is ErrorCode.RESOURCE_NOT_FOUND:
            return ()
        raise
    return found[name]


# --- quotas


async def list_quotas(visitor: Visitor, fields: Fields) -> Any:
    """A page of the entities that have quotas."""
    found = await visitor.admin.describe_client_quotas()
    page = Paging.of(fields, ("name",)).page(found.items(), lambda each: _entity_text(each[0]), {})
    return page.shown(
        lambda each: {
            "name": _entity_text(each[0]),
            "entity": {kind: DEFAULT_NAME if name is None else name for kind, name in each[0]},
            "values": {key: value for key, value in each[1].items() if math.isfinite(value)},
        }
    )


async def alter_quota(visitor: Visitor, fields: Fields) -> Any:
    """Set quotas of an entity, or remove those that are null."""
    parts = {
        kind: None if name == DEFAULT_NAME else name
        for kind, field in ((USER, "user"), (CLIENT_ID, "client_id"), (IP, "ip"))
        if (name := fields.text(field, ""))
    }
    if not parts:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a user, a client id or an IP address must be given")
    values = {key: None if text is None else _rate(fields, text) for key, text in fields.mapping("values").items()}
    if not values:
        raise fields.refused("values", "must have at least one quota")
    found: QuotaEntity = entity(parts)
    await visitor.admin.alter_client_quotas({found: values})
    return {"name": _entity_text(found)}


def _rate(fields: Fields, text: str) -> float:
    """Raises KafkaError."""
    try:
        rate = float(text)
    except ValueError:
        raise fields.refused("values", f"{text[:40]!r} is not a number") from None
    if not math.isfinite(rate):
        raise fields.refused("values", f"{text[:40]!r} is not a finite number")
    return rate


def _entity_text(found: QuotaEntity) -> str:
    return ", ".join(f"{kind} {DEFAULT_NAME if name is None else name}" for kind, name in found)
