"""Kafka's StandardAuthorizer over the access control lists in the metadata (KIP-11, KIP-290, KIP-801).

A matching DENY entry takes precedence over all ALLOW entries. Without a matching entry the operation is denied, except
that `allow.everyone.if.no.acl.found` allows it if no entry at all matches the resource. Super users, which include the
nodes of the cluster, are allowed everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from raylog.config.authorization import authorizer_settings
from raylog.core.config import Configs
from raylog.core.errors import ErrorCode
from raylog.security.acl import (
    OPERATIONS,
    WILDCARD,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from raylog.security.acl_index import AclIndex
from raylog.security.principal import CLUSTER_PRINCIPAL, Client, Principal, parse_principal

VERDICTS_MAX: Final = 10_000
"""Size of the verdict cache; the cache is cleared when it is full."""

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code of a denied operation, by the type of the resource."""


class Reason(Enum):
    """The reason of a verdict."""

    SUPER_USER = "the principal is a super user"
    ENTRY = "an entry matches"
    NO_ENTRY = "no entry allows the operation"
    NO_ACL = "no entry matches the resource"


class Verdict(NamedTuple):
    allowed: bool
    reason: Reason
    entry: AclBinding | None = None
    """The entry that decided, if the reason is ENTRY."""


_SUPER_USER: Final = Verdict(allowed=True, reason=Reason.SUPER_USER)
_NO_ENTRY: Final = Verdict(allowed=False, reason=Reason.NO_ENTRY)


class Authorizer:
    """Decides by the index that `acls` returns. Verdicts are cached until the index changes."""

    def __init__(
        self, acls: Callable[[], AclIndex], *, super_users: Iterable[Principal], allow_if_no_acl: bool
    ) -> None:
        self._acls = acls
        self._super_users = frozenset({*super_users, CLUSTER_PRINCIPAL})
        self._no_acl = Verdict(allowed=allow_if_no_acl, reason=Reason.NO_ACL)
        self._verdicts: dict[tuple[Principal, str, Operation, Resource | ResourceType], Verdict] = {}
        self._generation: object = None
        """The generation of the index from which `_verdicts` were derived."""

    def decide(
        self, principal: Principal, host: str, operation: Operation, resource: Resource | ResourceType
    ) -> Verdict:
        """In place of a resource, a type stands for any resource of it, whether it exists or not (KIP-679)."""
        index = self._acls()
        if index.generation is self._generation:
            verdict = self._verdicts.get((principal, host, operation, resource))
            if verdict is not None:
                return verdict
        return self._first(index, principal, host, operation, resource)

    def operations(self, client: Client, resource: Resource) -> int:
        """The operations that the client is authorized for on the resource, as a bit field."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource.type]
            if self.decide(client.principal, client.host, operation, resource).allowed
        )

    def _first(
        self,
        index: AclIndex,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: Resource | ResourceType,
    ) -> Verdict:
        """A verdict that is not cached."""
        if index.generation is not self._generation or len(self._verdicts) >= VERDICTS_MAX:
            self._generation, self._verdicts = index.generation, {}
        if principal in self._super_users:
            verdict = _SUPER_USER
        elif isinstance(resource, ResourceType):
            verdict = self._any_of_type(index, str(principal), host, operation, resource)
        else:
            verdict = self._one(index, str(principal), host, operation, resource)
        self._verdicts[principal, host, operation, resource] = verdict
        return verdict

    def _one(self, index: AclIndex, principal: str, host: str, operation: Operation, resource: Resource) -> Verdict:
        allowing: AclBinding | None = None
        for entry in index.matching(resource, principal=principal, host=host):
            if entry.applies_to(operation):
                if entry.permission is Permission.DENY:
                    return Verdict(allowed=False, reason=Reason.ENTRY, entry=entry)
                allowing = entry
        if allowing is not None:
            return Verdict(allowed=True, reason=Reason.ENTRY, entry=allowing)
        return _NO_ENTRY if index.has_any(resource) else self._no_acl

    def _any_of_type(
        self, index: AclIndex, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> Verdict:
        if self._no_acl.allowed and not index.has_any_for_all(resource_type):
            return self._no_acl  # some resource name is matched by no entry
        own = [
            entry
            for entry in index.of_type(resource_type, principal=principal, host=host)
            if entry.applies_to(operation)
        ]
        denials = [entry for entry in own if entry.permission is Permission.DENY]
        for entry in own:
            if entry.permission is Permission.ALLOW and not any(_denies_all_of(denial, entry) for denial in denials):
                return Verdict(allowed=True, reason=Reason.ENTRY, entry=entry)
        return _NO_ENTRY


def configured(configs: Configs, acls: Callable[[], AclIndex]) -> Authorizer | None:
    """The authorizer that authorizer.class.name configures, or None."""
    settings = authorizer_settings(configs)
    if settings is None:
        return None
    super_users = map(parse_principal, settings.super_users)
    return Authorizer(acls, super_users=super_users, allow_if_no_acl=settings.allow_if_no_acl)


def _covers_all(entry: AclBinding) -> bool:
    return entry.pattern_type is PatternType.LITERAL and entry.resource_name == WILDCARD


def _denies_all_of(denial: AclBinding, entry: AclBinding) -> bool:
    """Whether `denial` matches every resource that `entry` matches."""
    if _covers_all(denial):
        return True
    if _covers_all(entry):
        return False
    if denial.pattern_type is PatternType.PREFIXED:
        return entry.resource_name.startswith(denial.resource_name)
    return entry.pattern_type is PatternType.LITERAL and entry.resource_name == denial.resource_name
