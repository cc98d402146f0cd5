"""The requests of the page, in one table. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from raylog.console import groups, messages, mirrors, overview, placement, security, topics, transactions
from raylog.console.fields import Fields
from raylog.console.visitor import Visitor

Handler = Callable[[Visitor, Fields], Awaitable[Any]]
"""Returns what is sent as JSON. Raises KafkaError."""


class Route(NamedTuple):
    """A GET changes nothing. A POST or DELETE does: it needs the CSRF token, and is refused in read-only mode."""

    method: str
    path: str
    handle: Handler


ROUTES: Final = (
    Route("GET", "/api/overview", overview.overview),
    Route("GET", "/api/throughput", overview.throughput),
    Route("GET", "/api/topics", topics.list_topics),
    Route("POST", "/api/topics", topics.create_topic),
    Route("GET", "/api/topics/sizes", topics.topic_sizes),
    Route("GET", "/api/topic", topics.describe_topic),
    Route("DELETE", "/api/topic", topics.delete_topic),
    Route("POST", "/api/topic/partitions", topics.grow_topic),
    Route("GET", "/api/topic/configs", topics.describe_configs),
    Route("POST", "/api/topic/configs", topics.alter_configs),
    Route("GET", "/api/messages", messages.browse),
    Route("POST", "/api/messages", messages.produce),
    Route("GET", "/api/message", messages.whole_record),
    Route("GET", "/api/groups", groups.list_groups),
    Route("GET", "/api/group", groups.describe_group),
    Route("DELETE", "/api/group", groups.delete_group),
    Route("POST", "/api/group/offsets", groups.reset_offsets),
    Route("GET", "/api/transactions", transactions.list_transactions),
    Route("POST", "/api/transactions/fence", transactions.fence),
    Route("GET", "/api/acls", security.list_acls),
    Route("POST", "/api/acls", security.create_acl),
    Route("DELETE", "/api/acls", security.delete_acl),
    Route("GET", "/api/users", security.list_users),
    Route("POST", "/api/users", security.set_user),
    Route("DELETE", "/api/users", security.delete_user),
    Route("GET", "/api/quotas", security.list_quotas),
    Route("POST", "/api/quotas", security.alter_quota),
    Route("GET", "/api/reassignments", placement.list_reassignments),
    Route("POST", "/api/reassignments", placement.reassign),
    Route("POST", "/api/elections", placement.elect_preferred),
    Route("GET", "/api/log-dirs", placement.list_log_dirs),
    Route("GET", "/api/log-dirs/replicas", placement.list_replicas),
    Route("POST", "/api/log-dirs/moves", placement.move_replica),
    Route("GET", "/api/mirrors", mirrors.list_flows),
)


def is_change(route: Route) -> bool:
    return route.method != "GET"
