"""Topics that the broker itself requests from the controller: those a client has named, and internal topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from raylog.broker.metadata_follower import ANSWER_MS_MAX
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raylog.transport.peer_link import PeerLink

REQUEST_PARTITIONS: Final = 100
"""About as many partitions as one request creates, so that the controller serves others between two requests."""
WAITING_MAX: Final = 10_000
"""How many topics may wait for their creation. Clients request the others again."""


class TopicCreation:
    """Sends one request at a time; clients that need a topic get a retriable error until it exists.

    Internal topics are not delayed by others: each has a request of its own.
    """

    def __init__(self, link: PeerLink, *, num_partitions: Callable[[], int]) -> None:
        self._link = link
        self._num_partitions = num_partitions
        """Of topics with the default configuration."""
        self._waiting: dict[str, None] = {}
        self._requested: set[str] = set()
        """The topics of the request under way."""
        self._internal: set[str] = set()
        """The internal topics whose requests are under way."""

    def request(self, topic: str, now: Now) -> None:
        """Create the topic with the default configuration."""
        if topic not in self._requested and len(self._waiting) < WAITING_MAX:
            self._waiting[topic] = None
            self._send_next(now)

    def request_internal(
        self, topic: str, now: Now, *, num_partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        if topic in self._internal:
            return
        self._internal.add(topic)
        wanted = CreatableTopic(
            name=topic,
            num_partitions=num_partitions,
            replication_factor=replication_factor,
            configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in configs.items()),
        )
        self._send((wanted,), self._internal, now)

    def _send_next(self, now: Now) -> None:
        if self._requested or not self._waiting:
            return
        topics = list(islice(self._waiting, max(REQUEST_PARTITIONS // self._num_partitions(), 1)))
        for topic in topics:
            del self._waiting[topic]
        self._requested.update(topics)
        wanted = tuple(CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1) for topic in topics)
        self._send(wanted, self._requested, now)

    def _send(self, topics: tuple[CreatableTopic, ...], under_way: set[str], now: Now) -> None:
        def ended(now: Now) -> None:
            under_way.difference_update(topic.name for topic in topics)
            self._send_next(now)

        def answered(response: CreateTopicsResponse, now: Now) -> None:
            ended(now)

        def failed(error: KafkaError, now: Now) -> None:
            self._waiting.clear()  # the controller is away: clients that still need them ask again
            ended(now)

        request = CreateTopicsRequest(topics=topics, timeout_ms=ANSWER_MS_MAX)
        self._link.request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)
