"""Topics that the broker itself requests from the controller: those a client has named, and internal topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from raylog.broker.metadata_follower import ANSWER_MS_MAX
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.protocol.header import encode_request
from raylog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raylog.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from raylog.protocol.registry import CREATE_TOPICS, api_for
from raylog.quotas.client_quotas import shortened
from raylog.security.principal import Client, encode_host, encode_principal
from raylog.transport.peer_link import PeerLink

if TYPE_CHECKING:
    from raylog.transport.exchange import Exchange

REQUEST_PARTITIONS: Final = 100
"""About as many partitions as one request creates, so that the controller serves others between two requests."""
WAITING_MAX: Final = 10_000
"""How many topics may wait for their creation. Clients request the others again."""


class Requester(NamedTuple):
    """The client that a topic is created for; its quota of changes is charged (KIP-599)."""

    client: Client
    client_id: str | None
    """As much of it as quotas tell apart: it is kept while the topic waits."""

    @classmethod
    def of(cls, exchange: Exchange) -> Self:
        client_id = exchange.client_id
        return cls(exchange.client, None if client_id is None else shortened(client_id))


class TopicCreation:
    """Sends one request at a time; clients that need a topic get a retriable error until it exists.

    Internal topics are not delayed by others: each has a request of its own.
    """

    def __init__(self, link: PeerLink, *, num_partitions: Callable[[], int]) -> None:
        self._link = link
        self._num_partitions = num_partitions
        """Of topics with the default configuration."""
        self._waiting: dict[Requester | None, list[str]] = {}
        self._known: set[str] = set()
        """The topics that wait."""
        self._requested: set[str] = set()
        """The topics of the request under way."""
        self._internal: set[str] = set()
        """The internal topics whose requests are under way."""

    def request(self, topic: str, now: Now, *, requester: Requester | None = None) -> None:
        """Create the topic with the default configuration, in the name of `requester` if that is to be charged."""
        if topic not in self._requested and topic not in self._known and len(self._known) < WAITING_MAX:
            self._known.add(topic)
            self._waiting.setdefault(requester, []).append(topic)
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
        requester = next(iter(self._waiting))
        waiting = self._waiting.pop(requester)
        most = max(REQUEST_PARTITIONS // self._num_partitions(), 1)
        topics, rest = waiting[:most], waiting[most:]
        if rest:
            self._waiting[requester] = rest  # behind those of other clients
        self._known.difference_update(topics)
        self._requested.update(topics)
        wanted = tuple(CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1) for topic in topics)
        self._send(wanted, self._requested, now, requester)

    def _send(
        self, topics: tuple[CreatableTopic, ...], under_way: set[str], now: Now, requester: Requester | None = None
    ) -> None:
        def ended(now: Now) -> None:
            under_way.difference_update(topic.name for topic in topics)
            self._send_next(now)

        def answered(response: CreateTopicsResponse | EnvelopeResponse, now: Now) -> None:
            ended(now)

        def failed(error: KafkaError, now: Now) -> None:
            self._waiting.clear()
            self._known.clear()  # the controller is away: clients that still need them ask again
            ended(now)

        wanted = CreateTopicsRequest(topics=topics, timeout_ms=ANSWER_MS_MAX)
        request = wanted if requester is None else in_the_name_of(requester, wanted)
        self._link.request(request, answered, failed, now=now, timeout_ms=ANSWER_MS_MAX)


def in_the_name_of(requester: Requester, request: CreateTopicsRequest) -> EnvelopeRequest:
    client, spec = requester.client, api_for(CREATE_TOPICS)
    assert spec is not None
    data = encode_request(request, api_version=spec.highest, correlation_id=0, client_id=requester.client_id)
    return EnvelopeRequest(
        request_data=b"".join(data),
        request_principal=encode_principal(client.principal, token_authenticated=client.token_authenticated),
        client_host_address=encode_host(client.host),
    )
