"""(shell) Code of a program that sees what a consumer returns and commits: Kafka's ConsumerInterceptor."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.given_values import checked_interceptors
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.ids import TopicPartition

log = logging.getLogger("raylog.client")


class ConsumerInterceptor:
    """Override either method. An exception is logged, and the records go on as they were before this interceptor."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """What poll() returns in place of these records. The positions are behind all of them in any case."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets were committed, by whatever way. Called by a later call of the consumer, in its thread."""

    def close(self) -> None:
        """The consumer was closed."""


class Interceptors:
    """Called in their order; each gets the records of the one before."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        """Raises ConfigError."""
        self._interceptors: Sequence[ConsumerInterceptor] = checked_interceptors(interceptors, ConsumerInterceptor)

    def __len__(self) -> int:
        return len(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for interceptor in self._interceptors if records else ():
            try:
                records = interceptor.on_consume(records)
            except Exception:
                log.exception("error in on_consume of an interceptor")
        return records

    def on_commits(self, commits: list[Mapping[TopicPartition, OffsetAndMetadata]]) -> None:
        """All that were acknowledged since the last call, which are taken out of the list."""
        while commits:
            offsets = commits.pop(0)
            for interceptor in self._interceptors:
                try:
                    interceptor.on_commit(offsets)
                except Exception:
                    log.exception("error in on_commit of an interceptor")

    def close(self) -> None:
        """Can be called twice: a rebalance callback in close() may close the consumer too."""
        interceptors, self._interceptors = self._interceptors, ()
        for interceptor in interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("error in close of an interceptor")
