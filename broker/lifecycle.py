"""A broker's life in its cluster: registered, caught up, unfenced; and heartbeats on a connection that is held open.

    UNREGISTERED --registered--> CATCHING_UP --has replayed its registration--> CAUGHT_UP
         ^                                                                          |
         +------------------ the controller knows it no more -----------------------+

The connection is the controller's first sign of life: when the process ends, it breaks, and the controller fences the
broker at once. Source: KIP-631.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from raylog.broker.metadata import ANSWER_MS_MAX, CONTROLLER, MetadataFollower
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from raylog.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from raylog.protocol.messages.broker_registration import Listener as RegisteredListener
from raylog.transport.endpoints import Endpoint
from raylog.transport.node import Node

NO_BROKER_EPOCH = -1


class LifecycleState(Enum):
    UNREGISTERED = "unregistered"
    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"


class BrokerLifecycle:
    """Begins with `start`; `on_caught_up` is called once, when the image first holds this broker's registration."""

    def __init__(
        self,
        node: Node,
        follower: MetadataFollower,
        *,
        rack: str | None,
        heartbeat_interval_ms: int,
        on_caught_up: Callable[[Now], None],
        now: Now,
    ) -> None:
        self.state = LifecycleState.UNREGISTERED
        self.broker_epoch = NO_BROKER_EPOCH
        self._identity = node.identity
        self._follower = follower
        self._rack = rack
        self._on_caught_up: Callable[[Now], None] | None = on_caught_up
        self._endpoints: Mapping[str, Endpoint] = {}
        self._asked = False
        """One question at a time: its answer, or its failure, leads to the next."""
        self.link = node.new_link(CONTROLLER, on_ready=self._go_on)
        node.add_chore(heartbeat_interval_ms, self._go_on, now)

    def start(self, endpoints: Mapping[str, Endpoint]) -> None:
        """From now on register under these endpoints, by listener name, whenever there is a controller."""
        self._endpoints = endpoints

    def _go_on(self, now: Now) -> None:
        if not self.link.ready or self._asked or not self._endpoints:
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
        )
        self._asked = True
        self.link.request(request, self._registered, self._failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _registered(self, response: BrokerRegistrationResponse, now: Now) -> None:
        self._asked = False
        if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise InvariantViolation(f"the controller is not one of cluster {self._identity.cluster_id}")
        if response.error_code != ErrorCode.NONE:
            return  # another incarnation is believed to be alive, or the disk is full: the next heartbeat asks again
        self.broker_epoch = response.broker_epoch
        self.state = LifecycleState.CATCHING_UP
        self._follower.when_reached(self.broker_epoch, self._caught_up, now)

    def _caught_up(self, now: Now) -> None:
        self.state = LifecycleState.CAUGHT_UP
        on_caught_up, self._on_caught_up = self._on_caught_up, None
        if on_caught_up is not None:
            on_caught_up(now)
        self._go_on(now)

    def _send_heartbeat(self, now: Now) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._follower.next_offset - 1,
            want_fence=self.state is not LifecycleState.CAUGHT_UP,
        )
        self._asked = True
        self.link.request(request, self._heartbeat_answered, self._failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _heartbeat_answered(self, response: BrokerHeartbeatResponse, now: Now) -> None:
        self._asked = False
        if response.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self.state = LifecycleState.UNREGISTERED
            self._go_on(now)

    def _failed(self, error: KafkaError, now: Now) -> None:
        self._asked = False
