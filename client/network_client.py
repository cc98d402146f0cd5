"""Connections of a client to the brokers of a cluster, and its metadata, sans-IO. It is Kafka's NetworkClient.

Its driver (`network_loop`, the simulator, the tests) reports events: a connection is made or lost, bytes have arrived,
time has passed. After each event it takes the links with something to do, and asks when the next deadline is. What
uses the network (a producer, a consumer) is a `Service`: it runs after each event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from raylog.client.cluster_metadata import ClusterMetadata
from raylog.client.cluster_view import Node
from raylog.client.controller_nodes import as_metadata, controllers_request
from raylog.config.client_network import NetworkSettings
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.schema import Message
from raylog.security.sasl.mechanism import SaslClient
from raylog.transport.peer_link import LinkPolicy, LinkState, OnAnswer, OnFailure, PeerLink, RequestFor

log = logging.getLogger("raylog.client")
NEVER_MS: Final = (1 << 63) - 1
RESPONSE_BYTES_MAX: Final = (1 << 31) - 1
"""A consumer chooses how much it fetches; a broker may send one batch that is larger."""

UNREACHED_ATTEMPTS: Final = 5
"""So many requests for metadata in a row may fail, about two seconds, before a warning is logged: a broker restarts."""
UNREACHED_AGAIN: Final = 60
"""The warning is repeated after so many failures, about one minute."""


class Service(Protocol):
    """A user of the network."""

    def run(self, now: Now) -> None:
        """Go on with what the last event has made possible."""

    def next_deadline_ms(self) -> int | None:
        """When `run` has something to do even without an event (monotonic)."""


@dataclass(frozen=True, slots=True)
class Address:
    """The destination of a link."""

    host: str
    port: int
    node: Node | None
    """None for an address of bootstrap.servers, of which no broker id is known."""


class Random(Protocol):
    """What a client uses of `random.Random`."""

    def uniform(self, low: float, high: float, /) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


class NetworkClient:
    """Requests go to a broker by id, or to any; each ends with exactly one call of one of its two functions."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        settings: NetworkSettings,
        random: Random,
        *,
        in_flight_max: int | None = None,
        create_topics: bool = False,
        of_controllers: bool = False,
    ) -> None:
        """`of_controllers`: the servers are controllers, and so are the nodes of the metadata."""
        self.settings = settings
        self._of_controllers = of_controllers
        self.jitter: Callable[[], float] = partial(random.uniform, 0.8, 1.2)
        self.metadata = ClusterMetadata(settings, self.jitter, create_topics=create_topics)
        self.services: list[Service] = []
        self._random = random
        self._policy = LinkPolicy(
            backoff_ms=settings.reconnect_backoff_ms,
            backoff_ms_max=settings.reconnect_backoff_ms_max,
            connect_ms_max=settings.setup_timeout_ms,
            in_flight_max=in_flight_max,
            on_demand=True,
            idle_ms_max=settings.idle_ms_max,
            jitter=self.jitter,
            response_bytes_max=RESPONSE_BYTES_MAX,
        )
        self._addresses: dict[PeerLink, Address] = {}
        self._links: dict[tuple[int, bool], PeerLink] = {}
        """By broker id, and whether it is for requests to a coordinator."""
        self._retired: list[PeerLink] = []
        """Links to brokers that are gone: what waits for them ends with the connection, or at its deadline."""
        self._touched: dict[PeerLink, None] = {}
        self._bootstrap = [self._new_link(Address(host, port, None)) for host, port in servers]

    # --- requests

    def ask(
        self,
        node_id: int,
        request: Message | RequestFor,
        on_answer: OnAnswer,
        on_failure: OnFailure,
        now: Now,
        *,
        timeout_ms: int | None = None,
        answered: bool = True,
        version_max: int | None = None,
        coordinator: bool = False,
    ) -> None:
        """Send to the broker with this id, which must be in the metadata.

        Requests to a `coordinator` have a connection of their own, where no fetch that waits for records delays them.
        """
        timeout_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        link = self.link(node_id, coordinator=coordinator)
        link.request(
            request,
            on_answer,
            on_failure,
            now=now,
            timeout_ms=timeout_ms,
            answered=answered,
            version_max=version_max,
        )

    def ask_any(self, request: Message | RequestFor, on_answer: OnAnswer, on_failure: OnFailure, now: Now) -> None:
        """Send to the least loaded broker."""
        link = self._least_loaded(now)
        link.request(request, on_answer, on_failure, now=now, timeout_ms=self.settings.request_timeout_ms)

    def link(self, node_id: int, *, coordinator: bool = False) -> PeerLink:
        """The link to a broker, which must be in the metadata."""
        node = self.metadata.nodes[node_id]
        link = self._links.get((node_id, coordinator))
        if link is None:
            link = self._links[node_id, coordinator] = self._new_link(Address(node.host, node.port, node))
        return link

    def address(self, link: PeerLink) -> Address:
        return self._addresses[link]

    @property
    def connection_count(self) -> int:
        """Of the links with an authenticated connection."""
        return sum(link.ready for link in self._addresses)

    def feature_level(self, name: str) -> int:
        """The finalized level of the cluster's feature, as of the newest answer of a broker; 0 if it has none."""
        told = (link.finalized_features for link in self._addresses)
        _, levels = max(told, key=lambda each: each[0], default=(-1, {}))
        return levels.get(name, 0)

    # --- events

    def link_connected(self, link: PeerLink, login: SaslClient | None, now: Now) -> None:
        link.connected(login, now)
        self.run(now)

    def link_bytes_received(self, link: PeerLink, count: int, now: Now) -> None:
        link.bytes_received(count, now)
        self.run(now)

    def link_lost(self, link: PeerLink, reason: str, now: Now) -> None:
        """The connection is closed, or could not be made."""
        if not link.closing:  # the broker may be gone
            self.metadata.expire()
        link.lost(reason, now)
        self.run(now)

    def link_refused(self, link: PeerLink, error: KafkaError, now: Now) -> None:
        """This end could not authenticate the peer, or has no valid credentials."""
        link.refuse(error)
        if link.wants_connection:
            link.lost(error.message, now)
        self.run(now)

    def login_renewed(self, link: PeerLink, login: SaslClient, now: Now) -> None:
        link.renew(login, now)
        self.run(now)

    def tick(self, now: Now) -> None:
        for link in list(self._addresses):
            link.tick(now)
        for link in [link for link in self._retired if link.state is LinkState.DOWN and not link.load]:
            self._retired.remove(link)
            del self._addresses[link]
        self.run(now)

    def run(self, now: Now) -> None:
        """Let everything go on that can; called after every event, and after changes by the user."""
        due_ms = self.metadata.next_request_ms()
        if due_ms is not None and now.monotonic_ms >= due_ms and self._metadata_is_used:
            request: Message | RequestFor = self.metadata.request(now)
            if self._of_controllers:
                request = controllers_request
            self.ask_any(request, self._metadata_answered, self._metadata_failed, now)
        for service in self.services:
            service.run(now)

    def close(self) -> None:
        """Close every connection; nothing may be asked afterwards."""
        for link in self._addresses:
            link.disconnect()

    # --- what the driver takes

    @property
    def has_touched(self) -> bool:
        """Whether `take_touched` would return anything."""
        return bool(self._touched)

    def take_touched(self) -> Sequence[PeerLink]:
        """The links that need a connection or a login, have output, or are to be closed."""
        touched, self._touched = list(self._touched), {}
        return touched

    def next_tick_ms(self) -> int:
        """The earliest time at which `tick` has work to do (monotonic)."""
        due = [link.next_tick_ms() for link in self._addresses]
        due += [service.next_deadline_ms() for service in self.services]
        if self._metadata_is_used:
            due.append(self.metadata.next_request_ms())
        return min((ms for ms in due if ms is not None), default=NEVER_MS)

    # --- links

    @property
    def _metadata_is_used(self) -> bool:
        return bool(self.services)

    def _new_link(self, address: Address) -> PeerLink:
        link = PeerLink(
            f"{address.host}:{address.port}",
            client_id=self.settings.client_id,
            on_touched=self._touch,
            policy=self._policy,
        )
        self._addresses[link] = address
        return link

    def _touch(self, link: PeerLink) -> None:
        self._touched[link] = None

    def _least_loaded(self, now: Now) -> PeerLink:
        """A ready link before one that must connect; one of bootstrap.servers if no known broker can be reached."""
        known = [self.link(node_id) for node_id in self.metadata.nodes]
        candidates = [link for link in known if not link.fails and not link.in_backoff(now)]
        if not candidates and (not known or self.settings.rebootstrap):
            candidates = [link for link in self._bootstrap if not link.in_backoff(now)]
        candidates = candidates or [link for link in known if not link.in_backoff(now)] or known or self._bootstrap
        fewest = min((not link.ready, link.load) for link in candidates)
        equal = [link for link in candidates if (not link.ready, link.load) == fewest]
        return equal[self._random.randrange(len(equal))]

    def _metadata_failed(self, error: KafkaError, now: Now) -> None:
        """A consumer polls on without an error: only the log shows why it gets nothing."""
        self.metadata.failed(error, now)
        if self.metadata.attempts == UNREACHED_ATTEMPTS or self.metadata.attempts % UNREACHED_AGAIN == 0:
            log.warning("brokers not reached", extra={"client_id": self.settings.client_id, "reason": error.message})

    def _metadata_answered(self, response: Any, now: Now) -> None:
        if self._of_controllers:
            try:
                response = as_metadata(response)
            except KafkaError as error:
                self._metadata_failed(error, now)
                return
        if not response.brokers:
            self._metadata_failed(KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker is shown as alive"), now)
            return
        self.metadata.answered(response, now)
        for key, link in list(self._links.items()):
            node = self.metadata.nodes.get(key[0])
            if node is None:
                self._retired.append(self._links.pop(key))
                link.disconnect()
            elif self._addresses[link].node != node:
                self._addresses[link] = Address(node.host, node.port, node)
                link.redirect(f"{node.host}:{node.port}")
