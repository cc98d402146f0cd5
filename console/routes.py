"""The requests of the page, in one table. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from raylog.console import messages, overview, topics
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
)


def is_change(route: Route) -> bool:
    return route.method != "GET"
