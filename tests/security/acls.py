"""Entries, filters and a naive authorizer: what the tests of this folder share."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from raylog.security.acl import AclBinding, Operation, PatternType, Permission, Resource, ResourceType
from raylog.security.principal import Principal

NAMES = ("a", "ab", "abc", "b", "ba")
USERS = (Principal("User", "alice"), Principal("User", "bob"))
HOSTS = ("10.0.0.1", "10.0.0.2")
REAL_OPERATIONS = [operation for operation in Operation if operation > Operation.ALL]
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)


def binding(
    name: str = "a",
    *,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def _is_possible(one: AclBinding) -> bool:
    return one.pattern_type is PatternType.LITERAL or one.resource_name != "*"


bindings = st.builds(
    AclBinding,
    st.sampled_from(TYPES),
    st.sampled_from((*NAMES, "*")),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    st.sampled_from((*map(str, USERS), "User:*")),
    st.sampled_from((*HOSTS, "*")),
    st.sampled_from((Operation.ALL, *REAL_OPERATIONS[:10])),
    st.sampled_from((Permission.ALLOW, Permission.DENY)),
).filter(_is_possible)

about_one_right = st.builds(
    binding,
    st.sampled_from((*NAMES, "*")),
    pattern=st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    operation=st.just(Operation.WRITE),
    permission=st.sampled_from((Permission.ALLOW, Permission.DENY)),
).filter(_is_possible)
"""To write to topics, for User:alice: entries that get in each other's way."""


def naive_decide(
    entries: Sequence[AclBinding],
    principal: Principal,
    host: str,
    operation: Operation,
    resource: Resource,
    *,
    allow_if_no_acl: bool = False,
) -> bool:
    """The rules one after another, as in Kafka's documentation."""
    about = []
    for entry in entries:
        same_name = entry.resource_name == resource.name or entry.resource_name == "*"
        prefix = entry.pattern_type is PatternType.PREFIXED and resource.name.startswith(entry.resource_name)
        if entry.resource_type is resource.type and (same_name or prefix):
            about.append(entry)
    if not about:
        return allow_if_no_acl
    own = [
        entry
        for entry in about
        if entry.principal in (str(principal), "User:*") and (entry.host == host or entry.host == "*")
    ]
    if any(e.permission is Permission.DENY and e.operation in (operation, Operation.ALL) for e in own):
        return False
    sufficient = {operation, Operation.ALL}
    if operation is Operation.DESCRIBE:
        sufficient |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        sufficient.add(Operation.ALTER_CONFIGS)
    return any(e.permission is Permission.ALLOW and e.operation in sufficient for e in own)
