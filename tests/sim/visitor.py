"""A client that sends the requests that every broker must serve to each of them, and retries until they succeed."""

from __future__ import annotations

from typing import Any

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.sim.broker_host import BrokerHost
from tests.sim.client import SimClient
from tests.sim.producer_ids import GivenProducerIds
from tests.sim.world import World

PAUSE_MS_MAX = 1000
AGAIN_MS_MAX = 100


class Visitor(SimClient):
    """In each tour it requests from every broker an auto-created topic, a coordinator and a producer id."""

    def __init__(self, world: World, hosts: list[BrokerHost], given: GivenProducerIds, *, name: str) -> None:
        super().__init__(world, hosts, name)
        self._given = given
        self._last_tour = False
        self._left = list(hosts)
        """The brokers that have not responded in this tour."""

    def leave_after_one_more_tour(self) -> None:
        self._last_tour = True
        self._left = list(self.hosts)

    def begin(self) -> None:
        if not self._left:
            if self._last_tour:
                self.finished = True
                return
            self._left = list(self.hosts)
        broker_id = self._left[0].broker_id
        self.describe(f"{self.name}-{broker_id}", self._described, broker_id=broker_id, create=True)

    def _described(self, topic: Any) -> None:
        if self._has_answered(topic.error_code):
            request = FindCoordinatorRequest(coordinator_keys=(self.name,))
            self.ask(self._left[0].broker_id, request, self._coordinator_found)

    def _coordinator_found(self, answer: Any) -> None:
        if self._has_answered(answer.coordinators[0].error_code):
            self.ask(self._left[0].broker_id, InitProducerIdRequest(transaction_timeout_ms=-1), self._id_given)

    def _id_given(self, answer: Any) -> None:
        if self._given.is_new(answer):
            del self._left[0]
            self.later(PAUSE_MS_MAX, self.begin)
        else:
            self.later(AGAIN_MS_MAX, self.begin)

    def _has_answered(self, code: ErrorCode) -> bool:
        if code == ErrorCode.NONE:
            return True
        assert code.retriable, code.name
        self.later(AGAIN_MS_MAX, self.begin)
        return False
