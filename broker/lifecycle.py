"""A broker's lifecycle: registered, caught up, unfenced; and its heartbeats on a connection that is kept open.

    UNREGISTERED --registered--> CATCHING_UP --has replayed its registration--> CAUGHT_UP --stop requested----+
         ^                                     and opened its partitions            |                         v
         +------------------ unknown to the controller -----------------------------+     PENDING_CONTROLLED_SHUTDOWN
                                                                                                              |
    any other state --stop requested----> SHUTTING_DOWN <--the controller agrees or does not respond-----------+

The controller detects the end of the process first by this connection: when it breaks, the controller fences the
broker at once. A broker that is stopped requests the shutdown in its heartbeats, until other brokers lead its
partitions and all brokers know the new leaders. Source: KIP-631.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from uuid import UUID

from raylog.broker.active_controller import ActiveController
from raylog.broker.metadata_follower import ANSWER_MS_MAX, MetadataFollower
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.metadata.features import registered_ranges
from raylog.metadata.levels import DIRECTORIES_LEVEL, METADATA_FEATURE, SUPPORTED, SUPPORTED_WITH_COORDINATORS
from raylog.metadata.node_roles import is_coordinator
from raylog.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from raylog.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from raylog.protocol.messages.broker_registration import Listener as RegisteredListener
from raylog.transport.endpoints import Endpoint
from raylog.transport.node import NEVER_MS, Node
from raylog.transport.peer_link import PeerLink

log = logging.getLogger("raylog.broker")
NO_BROKER_EPOCH = -1
SHUTDOWN_POLL_MS = 20
"""How often a broker asks whether it may stop; other brokers learn the new leaders within one round trip."""
SHUTDOWN_MS_MAX = 20_000
"""After this time it stops without the controller's approval. Kafka waits five minutes."""
SILENT_CONTROLLER_MS_MAX = 3000
"""It also stops when the controller has not responded for this long, for example while it starts."""


class LifecycleState(Enum):
    UNREGISTERED = "unregistered"
    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    SHUTTING_DOWN = "shutting down"


class BrokerLifecycle:
    """Begins with `start`; `on_caught_up` is called once, when the image first contains this broker's registration.
    It begins to open the partitions in the image, and `opened` is to be called when they are open.

    Ends with `begin_shutdown`: the broker may be closed once it is SHUTTING_DOWN. Until then it serves as before.
    """

    def __init__(
        self,
        node: Node,
        follower: MetadataFollower,
        active: ActiveController,
        *,
        rack: str | None,
        directory_ids: Callable[[], tuple[UUID, ...]],
        failed_directory_ids: Callable[[], tuple[UUID, ...]],
        previous_broker_epoch: int,
        heartbeat_interval_ms: int,
        controlled_shutdown: bool,
        on_caught_up: Callable[[Now], None],
        now: Now,
    ) -> None:
        self.state = LifecycleState.UNREGISTERED
        self.broker_epoch = NO_BROKER_EPOCH
        self._identity = node.identity
        self._is_coordinator = is_coordinator(node.identity.node_id)
        self._levels = SUPPORTED_WITH_COORDINATORS if self._is_coordinator else SUPPORTED
        self._follower = follower
        self._rack = rack
        self._directory_ids = directory_ids
        self._failed_directory_ids = failed_directory_ids
        self._previous_broker_epoch = previous_broker_epoch
        self._controlled_shutdown = controlled_shutdown
        self._on_caught_up: Callable[[Now], None] | None = on_caught_up
        self._opened = False
        self._refused = ErrorCode.NONE
        """The last refusal of a registration, which is logged once."""
        self._can_serve = True
        self._endpoints: Mapping[str, Endpoint] = {}
        self._asked = False
        """One request at a time: its response, or its failure, leads to the next."""
        self._shutdown_until_ms = self._answer_until_ms = self._poll_ms = NEVER_MS
        """In controlled shutdown: its deadline, the deadline for a response, and the time of the next heartbeat."""
        self.link = active.new_link(on_ready=self._send_next)
        active.on_found.append(self._send_next)
        active.notify_standby = self._notify_standby
        self._active = active
        node.add_periodic_task(heartbeat_interval_ms, self._send_next, now)

    def start(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Register these endpoints, by listener name, whenever a controller is available."""
        self._endpoints = endpoints

    def begin_shutdown(self, now: Now) -> None:
        """A stop is requested. Without a controller that knows this broker it may stop at once."""
        if self.state is not LifecycleState.CAUGHT_UP or not self._controlled_shutdown:
            self._end()
            return
        self.state = LifecycleState.PENDING_CONTROLLED_SHUTDOWN
        self._shutdown_until_ms = now.monotonic_ms + SHUTDOWN_MS_MAX
        self._answer_until_ms = now.monotonic_ms + SILENT_CONTROLLER_MS_MAX
        self._send_next(now)

    def tick(self, now: Now) -> None:
        if self.state is not LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            return
        if now.monotonic_ms >= min(self._shutdown_until_ms, self._answer_until_ms):
            self._end()
        elif now.monotonic_ms >= self._poll_ms:
            self._poll_ms = NEVER_MS
            self._send_next(now)

    def next_deadline_ms(self) -> int:
        return min(self._shutdown_until_ms, self._answer_until_ms, self._poll_ms)

    def _end(self) -> None:
        self.state = LifecycleState.SHUTTING_DOWN
        self._shutdown_until_ms = self._answer_until_ms = self._poll_ms = NEVER_MS

    def _send_next(self, now: Now) -> None:
        if not self.link.ready or self._asked or not self._endpoints or self.state is LifecycleState.SHUTTING_DOWN:
            return
        if self.state is LifecycleState.UNREGISTERED:
            self._register(now)
        else:
            self._send_heartbeat(now)

    def _register(self, now: Now) -> None:
        identity = self._identity
        listeners = tuple(
            RegisteredListener(name=name, host=endpoint.host, port=endpoint.port)
            for name, endpoint in self._endpoints.items()
        )
        request = BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=listeners,
            rack=self._rack,
            log_dirs=self._directory_ids(),
            previous_broker_epoch=self._previous_broker_epoch,
            features=tuple(
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in registered_ranges(self._levels)
            ),
        )
        self._asked = True
        self.link.request(request, self._registered, self._failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _registered(self, response: BrokerRegistrationResponse, now: Now) -> None:
        self._asked = False
        if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise InvariantViolation(
                f"the controller does not belong to cluster {self._identity.cluster_id} of this broker"
            )
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and not self._is_coordinator:
            raise InvariantViolation(
                f"the cluster is at a level of {METADATA_FEATURE} that this broker does "
                f"not support: it supports {SUPPORTED}; several log directories need level {DIRECTORIES_LEVEL}"
            )
        if self.state is LifecycleState.SHUTTING_DOWN:
            return
        if response.error_code != ErrorCode.NONE:
            if response.error_code != ErrorCode.NOT_CONTROLLER:
                self._note_refusal(response.error_code)
            return  # the next heartbeat retries
        self._refused = ErrorCode.NONE
        self.broker_epoch = response.broker_epoch
        self.state = LifecycleState.CATCHING_UP
        self._active.notify_standbys(now)
        self._follower.notify_at(self.broker_epoch, self._caught_up, now)

    def _note_refusal(self, error: ErrorCode) -> None:
        """Another process with this broker id has a session, perhaps the last incarnation; or the controller's disk is
        full; or this is a coordinator, and the metadata level is to be raised first."""
        if error is not self._refused:
            self._refused = error
            log.warning("registration refused", extra={"broker_id": self._identity.node_id, "error": error.name})

    def _caught_up(self, now: Now) -> None:
        if self.state is LifecycleState.SHUTTING_DOWN:
            return
        on_caught_up, self._on_caught_up = self._on_caught_up, None
        if on_caught_up is not None:
            on_caught_up(now)
        self._ask_to_serve(now)

    def opened(self, now: Now) -> None:
        """The partitions that the image had when it caught up are open."""
        self._opened = True
        self._ask_to_serve(now)

    def directory_failed(self, now: Now) -> None:
        """One of several log directories has failed: the controller learns it from the next heartbeat."""
        if self.state is LifecycleState.CAUGHT_UP:
            self._send_next(now)

    def serve_no_more(self, now: Now) -> bool:
        """The last log directory has failed: the broker asks to be fenced, and stays fenced until it is restarted.

        Returns False if that was known.
        """
        if not self._can_serve:
            return False
        self._can_serve = False
        if self.state is LifecycleState.CAUGHT_UP:
            self._send_next(now)
        return True

    def _ask_to_serve(self, now: Now) -> None:
        caught_up = self._opened and self._follower.next_offset > self.broker_epoch
        if caught_up and self.state is LifecycleState.CATCHING_UP:
            self.state = LifecycleState.CAUGHT_UP
            self._send_next(now)

    def _send_heartbeat(self, now: Now) -> None:
        self._asked = True
        self.link.request(self._heartbeat(), self._heartbeat_answered, self._failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _notify_standby(self, link: PeerLink, now: Now) -> None:
        if self.state is not LifecycleState.UNREGISTERED:
            present = replace(self._heartbeat(), want_fence=False, want_shut_down=False)  # it may arrive late
            link.request(present, _ignore, _ignore, now=now, timeout_ms=ANSWER_MS_MAX)

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._follower.next_offset - 1,
            want_fence=self.state is LifecycleState.CATCHING_UP or not self._can_serve,
            want_shut_down=self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=self._failed_directory_ids(),
        )

    def _heartbeat_answered(self, response: BrokerHeartbeatResponse, now: Now) -> None:
        self._asked = False
        unknown = response.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
        if self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
            if unknown or response.should_shut_down:
                self._end()
                return
            self._poll_ms = now.monotonic_ms + SHUTDOWN_POLL_MS
            if response.error_code == ErrorCode.NONE:
                self._answer_until_ms = now.monotonic_ms + SILENT_CONTROLLER_MS_MAX
        elif unknown and self.state is not LifecycleState.SHUTTING_DOWN:
            self.state = LifecycleState.UNREGISTERED
            self._send_next(now)

    def _failed(self, error: KafkaError, now: Now) -> None:
        self._asked = False


def _ignore(_: object, now: Now) -> None:
    """A standby controller only listens."""
