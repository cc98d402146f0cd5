"""Fetch (key 1) on a controller, internal: the metadata log, up to where it is committed, for those who follow it.

One partition is served, under Kafka's own id of it, without sessions. Waits for news up to max_wait_ms (KIP-595).
Where a follower begins to read says how far it has come, which DescribeQuorum tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.controller.metadata_log import METADATA_PARTITION, METADATA_TOPIC_ID
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, Offset
from raylog.protocol.fetch import FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse
from raylog.transport.request import Parked

if TYPE_CHECKING:
    from raylog.controller.controller import Controller
    from raylog.transport.request import RequestContext


def handle(controller: Controller, context: RequestContext, request: FetchRequest) -> FetchResponse | Parked:
    wanted = [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
    if len(wanted) != 1 or wanted[0][0] != METADATA_TOPIC_ID or wanted[0][1].partition != 0:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    fetch = DelayedMetadataFetch(controller, context, Offset(wanted[0][1].fetch_offset), request)
    response, has_news = fetch.read()
    if response.responses[0].partitions[0].error_code == ErrorCode.NONE and request.replica_id != NO_BROKER_ID:
        controller.observers.fetched(
            BrokerId(request.replica_id), fetch.start, leader_end_offset=controller.next_offset, now=context.now
        )
    return response if has_news or request.max_wait_ms <= 0 else Parked(fetch, [METADATA_PARTITION])


class DelayedMetadataFetch:
    """A follower that has everything there is, and waits for more."""

    def __init__(self, controller: Controller, context: RequestContext, start: Offset, request: FetchRequest) -> None:
        self._controller = controller
        self._context = context
        self.start = start
        self._max_bytes = request.max_bytes
        self.deadline_ms = context.now.monotonic_ms + request.max_wait_ms

    def try_complete(self, grown_bytes: int) -> bool:
        response, has_news = self.read()
        if has_news:
            self._context.reply(response)
        return has_news

    def complete(self) -> None:
        self._context.reply(self.read()[0])

    def read(self) -> tuple[FetchResponse, bool]:
        """The answer, and whether it tells the follower something new."""
        log = self._controller.log
        high_watermark = self._controller.high_watermark
        try:
            piece = log.read(self.start, max_bytes=self._max_bytes, upto=high_watermark)
            result = FetchPartitionResponse(
                partition_index=0,
                high_watermark=high_watermark,
                last_stable_offset=high_watermark,
                log_start_offset=log.log_start_offset,
                records=(piece.records,) if piece.records else (),
            )
        except KafkaError as error:
            result = FetchPartitionResponse(partition_index=0, error_code=error.code, records=())
        topic = FetchTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[result])
        return FetchResponse(responses=[topic]), bool(result.records) or result.error_code != ErrorCode.NONE
