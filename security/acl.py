"""The words of authorization: what is guarded, what may be done to it, and the entries that say who may (KIP-11).

The numbers are Kafka's, on the wire and in the metadata log. A number that is not known reads as UNKNOWN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Self


class _Number(IntEnum):
    __hash__ = int.__hash__
    """That of an Enum is computed in Python, and every verdict is looked up by it."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)


class ResourceType(_Number):
    """ANY only in filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Number):
    """How an entry names resources (KIP-290): one of them, `*` for all; or all whose names begin so.

    ANY and MATCH only in filters: MATCH finds every pattern that covers the name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Number):
    """ANY only in filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Number):
    """ANY only in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD: Final = "*"
"""As a literal resource name: every resource of the type. As a host: every host."""
EVERYBODY: Final = "User:*"
"""As a principal: every one, of whatever type."""

IMPLIED: Final = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Who is allowed one of these is allowed the operation. To be denied one of them denies nothing else."""


class Resource(NamedTuple):
    """One thing that is guarded."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def group(cls, name: str) -> Self:
        return cls(ResourceType.GROUP, name)

    @classmethod
    def transactional_id(cls, name: str) -> Self:
        return cls(ResourceType.TRANSACTIONAL_ID, name)


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")


OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""What there is to be done with a resource, for answers that tell a client what it may do."""


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One entry of an access control list, and the resources it is about."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def is_for(self, principal: str, host: str) -> bool:
        return self.principal in (principal, EVERYBODY) and self.host in (host, WILDCARD)

    def speaks_of(self, operation: Operation) -> bool:
        """Whether it allows, or denies, the operation."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in IMPLIED.get(operation, ())


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which entries DescribeAcls and DeleteAcls mean; None and ANY leave open."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._matches_pattern(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == binding.resource_name
        if binding.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(binding.resource_name)
        return binding.resource_name in (self.resource_name, WILDCARD)
