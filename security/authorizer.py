"""Who may do what: Kafka's StandardAuthorizer over the access control lists of the metadata (KIP-11, KIP-290, KIP-801).

An entry that denies outweighs all that allow. Where no entry speaks of the question the answer is no; but for a
resource that has no entries at all `allow.everyone.if.no.acl.found` may say yes. Super users are asked nothing, and the
nodes of the cluster are such.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from raylog.config.security import authorizer_settings
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
from raylog.security.principal import THE_CLUSTER, Client, Principal, parse_principal

log = logging.getLogger("raylog.security")
VERDICTS_MAX: Final = 10_000
"""Verdicts that are remembered; one more, and all are forgotten."""

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""What a client is told that may not do what it asks for, by the type of the resource."""


class Reason(Enum):
    """Why a verdict is what it is."""

    SUPER_USER = "a super user"
    ENTRY = "an entry says so"
    NO_ENTRY = "no entry allows it"
    NO_ACL = "the resource has no entries"


class Verdict(NamedTuple):
    allowed: bool
    reason: Reason
    entry: AclBinding | None = None
    """The one that says so."""


_SUPER_USER: Final = Verdict(allowed=True, reason=Reason.SUPER_USER)
_NO_ENTRY: Final = Verdict(allowed=False, reason=Reason.NO_ENTRY)


class Authorizer:
    """Asks `acls` for the index as it stands now. Verdicts are remembered as long as the index is the same."""

    def __init__(
        self, acls: Callable[[], AclIndex], *, super_users: Iterable[Principal], allow_if_no_acl: bool
    ) -> None:
        self._acls = acls
        self._super_users = frozenset({*super_users, THE_CLUSTER})
        self._no_acl = Verdict(allowed=allow_if_no_acl, reason=Reason.NO_ACL)
        self._verdicts: dict[tuple[Principal, str, Operation, Resource | ResourceType], Verdict] = {}
        self._index: AclIndex | None = None
        """The one that `_verdicts` are about."""

    def decide(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> Verdict:
        return self._decide(principal, host, operation, resource)

    def decide_by_type(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> Verdict:
        """Whether there can be a resource of the type with which this may be done (KIP-679)."""
        return self._decide(principal, host, operation, resource_type)

    def operations(self, client: Client, resource: Resource) -> int:
        """All that the client may do with the resource, as bits."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource.type]
            if self.decide(*client, operation, resource).allowed
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
            if not verdict.allowed:
                log.debug("denied", extra={"question": question, "reason": verdict.reason, "entry": verdict.entry})
        return verdict

    def _one(self, index: AclIndex, principal: str, host: str, operation: Operation, resource: Resource) -> Verdict:
        verdict = self._no_acl
        for entry in index.about(resource):
            speaks = entry.is_for(principal, host) and entry.speaks_of(operation)
            if speaks and entry.permission is Permission.DENY:
                return Verdict(allowed=False, reason=Reason.ENTRY, entry=entry)
            if speaks:
                verdict = Verdict(allowed=True, reason=Reason.ENTRY, entry=entry)
            elif not verdict.entry:
                verdict = _NO_ENTRY
        return verdict

    def _any_of_type(
        self, index: AclIndex, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> Verdict:
        entries = list(index.about_type(resource_type))
        if self._no_acl.allowed and not any(_covers_all(entry) for entry in entries):
            return self._no_acl  # there is always a name of which nobody has spoken
        own = [entry for entry in entries if entry.is_for(principal, host) and entry.speaks_of(operation)]
        denials = [entry for entry in own if entry.permission is Permission.DENY]
        for entry in own:
            if entry.permission is Permission.ALLOW and not any(_outweighs(denial, entry) for denial in denials):
                return Verdict(allowed=True, reason=Reason.ENTRY, entry=entry)
        return _NO_ENTRY


def configured(configs: Configs, acls: Callable[[], AclIndex]) -> Authorizer | None:
    """The one that authorizer.class.name asks for."""
    settings = authorizer_settings(configs)
    if settings is None:
        return None
    super_users = map(parse_principal, settings.super_users)
    return Authorizer(acls, super_users=super_users, allow_if_no_acl=settings.allow_if_no_acl)


def _covers_all(entry: AclBinding) -> bool:
    return entry.pattern_type is PatternType.LITERAL and entry.resource_name == WILDCARD


def _outweighs(denial: AclBinding, entry: AclBinding) -> bool:
    """Whether it denies every resource that the other allows."""
    if _covers_all(denial):
        return True
    if _covers_all(entry):
        return False
    if denial.pattern_type is PatternType.PREFIXED:
        return entry.resource_name.startswith(denial.resource_name)
    return entry.pattern_type is PatternType.LITERAL and entry.resource_name == denial.resource_name
