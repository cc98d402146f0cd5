"""The producer ids this broker assigns: from a block allocated by the controller, with the next block in reserve."""

from __future__ import annotations

from collections import deque

from raylog.broker.lifecycle import BrokerLifecycle
from raylog.broker.metadata_follower import ANSWER_MS_MAX
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ProducerId
from raylog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

REFILL_THRESHOLD = 100
"""With this few ids left the next block is requested, so that no producer has to wait for it."""


class ProducerIds:
    """No id is ever assigned twice, by any broker: blocks are allocated in the metadata log."""

    def __init__(self, lifecycle: BrokerLifecycle, *, node_id: int) -> None:
        self._lifecycle = lifecycle
        self._node_id = node_id
        self._blocks: deque[range] = deque()
        self._asked = False

    def take(self, now: Now) -> ProducerId:
        """Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS), which clients retry, if no id is available yet."""
        self.refill(now)
        if not self._blocks:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "No producer ids are available until the controller allocates a block.",
            )
        block = self._blocks[0]
        if len(block) == 1:
            self._blocks.popleft()
        else:
            self._blocks[0] = block[1:]
        return ProducerId(block[0])

    def refill(self, now: Now) -> None:
        if self._asked or sum(map(len, self._blocks)) > REFILL_THRESHOLD:
            return
        self._asked = True
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._lifecycle.broker_epoch)
        self._lifecycle.link.request(request, self._allocated, self._failed, now=now, timeout_ms=ANSWER_MS_MAX)

    def _allocated(self, response: AllocateProducerIdsResponse, now: Now) -> None:
        self._asked = False
        if response.error_code == ErrorCode.NONE:
            first = response.producer_id_start
            self._blocks.append(range(first, first + response.producer_id_len))

    def _failed(self, error: KafkaError, now: Now) -> None:
        self._asked = False
