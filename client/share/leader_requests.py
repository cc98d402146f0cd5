"""The ShareFetch and ShareAcknowledge requests of a share group's member. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from raylog.client.share.in_flight import Acknowledgement
from raylog.config.share_consumer import ShareConsumerSettings
from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol.messages import share_acknowledge, share_fetch
from raylog.protocol.registry import SHARE_ACKNOWLEDGE, SHARE_FETCH
from raylog.protocol.share import AcquireMode
from raylog.transport.peer_link import RequestFor, VersionFor

SECOND_VERSION: Final = 2
"""The first one of ShareFetch with the acquire mode, and of ShareAcknowledge with renewals."""

Partition = tuple[UUID, int]
"""Topic id and number."""
Item = TypeVar("Item")


def fetch_request(
    settings: ShareConsumerSettings,
    member_id: str,
    epoch: int,
    *,
    added: Collection[Partition],
    forgotten: Iterable[Partition],
    acknowledged: Sequence[Acknowledgement],
) -> RequestFor:
    """Acquire records of the session's partitions, after these changes; none of the acknowledgements renews."""
    told = {each.leader.partition: each for each in acknowledged}
    named = [
        (
            partition,
            share_fetch.FetchPartition(
                partition_index=partition[1],
                acknowledgement_batches=_batches(share_fetch.AcknowledgementBatch, told.get(partition)),
            ),
        )
        for partition in sorted({*added, *told})
    ]
    dropped = _by_topic((partition, partition[1]) for partition in sorted(forgotten))
    mode = AcquireMode.RECORD_LIMIT if settings.record_limit else AcquireMode.BATCH_OPTIMIZED

    def request(version_for: VersionFor) -> share_fetch.ShareFetchRequest:
        if settings.record_limit and version_for(SHARE_FETCH) < SECOND_VERSION:
            text = "share.acquire.mode=record_limit: the broker supports batch_optimized only"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        return share_fetch.ShareFetchRequest(
            group_id=settings.group_id,
            member_id=member_id,
            share_session_epoch=epoch,
            max_wait_ms=settings.fetch_wait_ms,
            min_bytes=settings.fetch_bytes_min,
            max_bytes=settings.fetch_bytes_max,
            max_records=settings.poll_records,
            batch_size=settings.poll_records,
            share_acquire_mode=mode,
            topics=tuple(
                share_fetch.FetchTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in _by_topic(named)
            ),
            forgotten_topics_data=tuple(
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=numbers) for topic_id, numbers in dropped
            ),
        )

    return request


def acknowledge_request(
    settings: ShareConsumerSettings, member_id: str, epoch: int, acknowledged: Sequence[Acknowledgement]
) -> RequestFor:
    """Acknowledge without acquiring."""
    named = [
        (
            each.leader.partition,
            share_acknowledge.AcknowledgePartition(
                partition_index=each.leader.tp.partition,
                acknowledgement_batches=_batches(share_acknowledge.AcknowledgementBatch, each),
            ),
        )
        for each in acknowledged
    ]
    renews = any(each.renewals for each in acknowledged)

    def request(version_for: VersionFor) -> share_acknowledge.ShareAcknowledgeRequest:
        if renews and version_for(SHARE_ACKNOWLEDGE) < SECOND_VERSION:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker cannot renew acquisition locks")
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=settings.group_id,
            member_id=member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=tuple(
                share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in _by_topic(named)
            ),
        )

    return request


def _batches(kind: type[Any], acknowledgement: Acknowledgement | None) -> tuple[Any, ...]:
    return tuple(
        kind(first_offset=first, last_offset=last, acknowledge_types=kinds)
        for first, last, kinds in (() if acknowledgement is None else acknowledgement.batches())
    )


def _by_topic(items: Iterable[tuple[Partition, Item]]) -> list[tuple[UUID, tuple[Item, ...]]]:
    found: dict[UUID, list[Item]] = {}
    for (topic_id, _), item in items:
        found.setdefault(topic_id, []).append(item)
    return [(topic_id, tuple(each)) for topic_id, each in found.items()]
