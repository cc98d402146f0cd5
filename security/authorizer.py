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
        self._index: AclIndex | None = None
        """The index from which `_verdicts` were derived."""

    def decide(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> Verdict:
        return self._decide(principal, host, operation, resource)

    def decide_by_type(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> Verdict:
        """Whether the operation is allowed on any resource of the type, existing or not (KIP-679)."""
        return self._decide(principal, host, operation, resource_type)

    def operations(self, client: Client, resource: Resource) -> int:
        """The operations that the client is authorized for on the resource, as a bit field."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource.type]
            if self.decide(client.principal, client.host, operation, resource).allowed
        )

    def _decide(self, principal: Principal, host: str, operation: Operation, asked: Resource | ResourceType) -> Verdict:
        if principal in self._super_users:
            return _SUPER_USER
        index = self._acls()
        if index is not self._index:
            self._index, self._verdicts = index, {}
        question = (principal, host, operation, asked)
        verdict = self._verdicts.get(question)
        if verdict is None:
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            if isinstance(asked, ResourceType):
                verdict = self._any_of_type(index, str(principal), host, operation, asked)
            else:
                verdict = self._one(index, str(principal), host, operation, asked)
            self._verdicts[question] = verdict
        return verdict

    def _one(self, index: AclIndex, principal: str, host: str, operation: Operation, resource: Resource) -> Verdict:
        verdict = self._no_acl
        for entry in index.matching(resource):
            applies = entry.matches_client(principal, host) and entry.applies_to(operation)
            if applies and entry.permission is Permission.DENY:
                return Verdict(allowed=False, reason=Reason.ENTRY, entry=entry)
            if applies:
                verdict = Verdict(allowed=True, reason=Reason.ENTRY, entry=entry)
            elif not verdict.entry:
                verdict = _NO_ENTRY
        return verdict

    def _any_of_type(
        self, index: AclIndex, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> Verdict:
        entries = list(index.of_type(resource_type))
        if self._no_acl.allowed and not any(_covers_all(entry) for entry in entries):
            return self._no_acl  # some resource name is matched by no entry
        own = [entry for entry in entries if entry.matches_client(principal, host) and entry.applies_to(operation)]
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
