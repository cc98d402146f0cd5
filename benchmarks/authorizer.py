"""(shell) The authorizer alone, in this process: decisions with 10,000 access control lists, first and cached."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from benchmarks.figures import Figure, figure, progress
from raylog.security.acl import AclBinding, Operation, PatternType, Permission, Resource, ResourceType
from raylog.security.acl_index import AccessControlLists
from raylog.security.authorizer import Authorizer
from raylog.security.principal import Client, Principal

USERS = 500
TOPICS_OF_USER = 14
PREFIXES_OF_USER = 4
"""Of several lengths."""
SHARED = 1000
"""Users who may all read one topic."""
CLIENTS = [Client(Principal("User", f"user-{number}"), "10.0.0.1") for number in range(USERS)]


def measure(runs: int) -> list[Figure]:
    lists = _lists()
    authorizer = Authorizer(lambda: lists.index, super_users=[], allow_if_no_acl=False)
    named = [
        (client, Operation.READ, Resource.topic(f"topic-{client.principal.name}-{number}"))
        for client in CLIENTS
        for number in range(TOPICS_OF_USER)
    ]
    prefixed = [
        (client, Operation.WRITE, Resource.topic(f"team-{client.principal.name}-{'x' * number}-events"))
        for client in CLIENTS
        for number in range(PREFIXES_OF_USER)
    ]
    refused = [
        (client, Operation.READ, Resource.topic(f"topic-user-{(number + 1) % USERS}-0"))
        for number, client in enumerate(CLIENTS)
    ]
    any_topic = [(client, Operation.WRITE, ResourceType.TOPIC) for client in CLIENTS]
    shared = [(client, Operation.READ, Resource.topic("shared")) for client in CLIENTS]

    def decide(asked: Sequence[tuple[Client, Operation, Resource | ResourceType]], *, allowed: bool = True) -> None:
        for client, operation, resource in asked:
            assert authorizer.decide(client.principal, client.host, operation, resource).allowed is allowed

    def forget() -> None:
        """A change of the lists ends all cached verdicts."""
        lists.add(UUID(int=0), _entry(ResourceType.GROUP, "another", "User:another"))
        lists.remove(UUID(int=0))

    figures = []
    for name, asked, allowed in (
        ("of a topic by name", named, True),
        ("by a prefix", prefixed, True),
        ("that is refused", refused, False),
        (f"of a topic that {SHARED} users may read", shared, True),
        ("of any topic", any_topic, True),
    ):
        first, cached = [], []
        for _ in range(runs):
            forget()
            decide(asked[:1], allowed=allowed)
            first.append(_microseconds(partial(decide, asked[1:], allowed=allowed), len(asked) - 1))
            cached.append(_microseconds(partial(decide, asked, allowed=allowed), len(asked)))
        figures.append(figure(f"authorizer: first decision {name}", "us", first, solid=50, aim=10))
        figures.append(figure("  cached", "us", cached, solid=1, aim=0.3))
    changed = []
    for _ in range(runs):
        forget()
        changed.append(_microseconds(lambda: decide(named[:1]), 1))
    figures.append(figure("authorizer: first decision after a change of the lists", "us", changed))
    changes = [_microseconds(forget, 2) for _ in range(runs)]
    figures.append(figure("authorizer: one change of the lists", "us", changes))
    for each in figures:
        progress(f"{each.path}: {each.median:.2f} {each.unit}")
    return figures


def _lists() -> AccessControlLists:
    """10,000 entries: those of USERS users by name and by prefix, and SHARED of one topic."""
    lists = AccessControlLists()
    ids = itertools.count(1)
    for client in CLIENTS:
        user = client.principal.name
        for number in range(TOPICS_OF_USER):
            entry = _entry(ResourceType.TOPIC, f"topic-{user}-{number}", f"User:{user}")
            lists.add(UUID(int=next(ids)), entry)
        for number in range(PREFIXES_OF_USER):
            prefix = f"team-{user}-{'x' * number}"
            entry = _entry(ResourceType.TOPIC, prefix, f"User:{user}", Operation.WRITE, PatternType.PREFIXED)
            lists.add(UUID(int=next(ids)), entry)
    for number in range(SHARED):
        lists.add(UUID(int=next(ids)), _entry(ResourceType.TOPIC, "shared", f"User:user-{number}"))
    assert len(lists) == 10_000
    return lists


def _entry(
    kind: ResourceType,
    name: str,
    principal: str,
    operation: Operation = Operation.READ,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, "*", operation, Permission.ALLOW)


def _microseconds(work: Callable[[], None], count: int) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e6 / count
