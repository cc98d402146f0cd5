"""Topics that the broker itself requests from the controller: those a client has named, and internal topics."""

from __future__ import annotations

from collections.abc import Mapping

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


class TopicCreation:
    """Sends one request per topic at a time; clients that need the topic get a retriable error until it exists."""

    def __init__(self, link: PeerLink) -> None:
        self._link = link
        self._asked: set[str] = set()

    def request(
        self,
        topic: str,
        now: Now,
        *,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        if topic in self._asked:
            return
        self._asked.add(topic)
        wanted = CreatableTopic(
            name=topic,
            num_partitions=num_partitions,
            replication_factor=replication_factor,
            configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()),
        )
        request = CreateTopicsRequest(topics=(wanted,), timeout_ms=ANSWER_MS_MAX)

        def answered(response: CreateTopicsResponse, now: Now) -> None:
            self._asked.discard(topic)

        def failed(error: KafkaError, now: Now) -> None:
            self._asked.discard(topic)

        self._link.request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)
