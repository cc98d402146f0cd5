"""What passes through a broker, by topic: records and bytes that clients produce and fetch, and what was refused."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from typing import Final

from raylog.core.errors import ErrorCode

NOT_FAILURES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals that Kafka does not count as failed requests: the client, or a moved leader, is the cause."""


@dataclass(slots=True)
class Traffic:
    """Since the broker started. Produce and Fetch count once for each partition in a request, as in Kafka."""

    messages_in: int = 0
    bytes_in: int = 0
    """Of batches that clients produced, as they sent them."""
    bytes_out: int = 0
    """Of batches in responses to consumers."""
    bytes_rejected: int = 0
    """Of batches that were larger than max.message.bytes."""
    produces: int = 0
    fetches: int = 0
    failed_produces: int = 0
    failed_fetches: int = 0

    def add(self, other: Traffic) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def produce_refused(self, code: ErrorCode, size_bytes: int) -> None:
        self.produces += 1
        if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            self.bytes_rejected += size_bytes
        if code not in NOT_FAILURES:
            self.failed_produces += 1


class BrokerTraffic:
    """Counts of records and bytes by topic; a topic is dropped when it is deleted, and stays in the total."""

    def __init__(self) -> None:
        self.topics: defaultdict[str, Traffic] = defaultdict(Traffic)
        """Only of topics with partitions on this broker, so that clients cannot make it grow."""
        self.others = Traffic()
        """Requests for partitions that are not here, and topics that were deleted."""
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def total(self) -> Traffic:
        found = Traffic()
        for each in (self.others, *self.topics.values()):
            found.add(each)
        return found

    def topic_deleted(self, topic: str) -> None:
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self.others.add(gone)
