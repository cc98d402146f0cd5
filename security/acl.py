"""The types of authorization: resources, operations, and the entries of access control lists (KIP-11).

The numbers are Kafka's, on the wire and in the metadata log. An unknown number is decoded as UNKNOWN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Self


class _Number(IntEnum):
    __hash__ = int.__hash__
    """Enum's own hash is slow Python code, and every cached verdict is looked up by it."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls(0)


class ResourceType(_Number):
    """ANY is used only in filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Number):
    """How an entry names resources (KIP-290): LITERAL is one name, or `*` for all; PREFIXED is all names with a prefix.

    ANY and MATCH are used only in filters: MATCH finds every pattern that covers the name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Number):
    """ANY is used only in filters."""

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
    """ANY is used only in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD: Final = "*"
"""As a literal resource name it stands for all resources of the type, as a host for all hosts."""
_ALL: Final = Operation.ALL  # an attribute of an Enum class takes longer to find than the rest of a comparison
ANY_PRINCIPAL: Final = "User:*"
"""As a principal it stands for all principals of all types."""

IMPLIED: Final = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""An ALLOW entry for one of these also allows the operation. A DENY entry applies to its own operation only."""


class Resource(NamedTuple):
    """A resource that authorization protects."""

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

    @classmethod
    def delegation_token(cls, token_id: str) -> Self:
        return cls(ResourceType.DELEGATION_TOKEN, token_id)

    @classmethod
    def user(cls, principal: object) -> Self:
        """`principal` as `User:alice`."""
        return cls(ResourceType.USER, str(principal))


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
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that exist on each type of resource; an entry can also be for ALL of them."""


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One entry of an access control list, with the pattern of the resources to which it applies."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """Such as `ALLOW User:alice from * to READ TOPIC:PREFIXED:flights-`."""
        resource = f"{self.resource_type.name}:{self.pattern_type.name}:{self.resource_name}"
        return f"{self.permission.name} {self.principal} from {self.host} to {self.operation.name} {resource}"

    def applies_to(self, operation: Operation) -> bool:
        """Whether the entry allows or denies the operation."""
        own = self.operation
        if own in (operation, _ALL):
            return True
        return own in IMPLIED.get(operation, ()) and self.permission is Permission.ALLOW


@dataclass(frozen=True, slots=True)
class AclFilter:
    """The filter of DescribeAcls and DeleteAcls; None and ANY match everything."""

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

    @property
    def only_binding(self) -> AclBinding | None:
        """The only entry that can match, if the filter gives all its values."""
        if self.resource_name is None or self.principal is None or self.host is None:
            return None
        if (
            self.resource_type is ResourceType.ANY
            or self.pattern_type in (PatternType.ANY, PatternType.MATCH)
            or self.operation is Operation.ANY
            or self.permission is Permission.ANY
        ):
            return None
        return AclBinding(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission,
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
