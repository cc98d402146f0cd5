"""The requests of the share coordinator (keys 83-87), served for other nodes and for this one.

Each names partitions by topic id; each partition has a result of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from raylog.coordination.shards import Coordinates
from raylog.core.clock import Now
from raylog.core.errors import KafkaError
from raylog.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from raylog.sharecoord.records import SharePartitionKey, StateBatch
from raylog.sharecoord.shards import ShareShard, ShareShards
from raylog.sharecoord.states import UNINITIALIZED_START_OFFSET, Write

_One = Callable[[ShareShard, SharePartitionKey, Any, Now], dict[str, Any]]
"""Serves one partition of a request, and returns the fields of its result. Raises KafkaError."""


def serve(shards: ShareShards, exchange: Coordinates, request: Any) -> Any:
    """The response to one of the five requests, which depends on the commit of what was written for it."""
    served = _SERVED[type(request)]
    results = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, wanted.partition)
            try:
                shard = shards.of(key, exchange.now)
                exchange.depends_on(shard)
                fields = served.one(shard, key, wanted, exchange.now)
            except KafkaError as error:
                fields = {"error_code": error.code, "error_message": error.message}
            partitions.append(served.partition_result(partition=wanted.partition, **fields))
        results.append(served.topic_result(topic_id=topic.topic_id, partitions=tuple(partitions)))
    return served.response(results=tuple(results))


def _initialize(shard: ShareShard, key: SharePartitionKey, wanted: Any, now: Now) -> dict[str, Any]:
    outcome = shard.states.initialize(
        key, state_epoch=wanted.state_epoch, start_offset=wanted.start_offset, now_ms=now.wall_ms
    )
    shard.append(outcome.records, now)
    return {}


def _read(shard: ShareShard, key: SharePartitionKey, wanted: Any, now: Now) -> dict[str, Any]:
    outcome = shard.states.read(key, leader_epoch=wanted.leader_epoch)
    shard.append(outcome.records, now)
    state = outcome.response
    batches = tuple(
        read_share_group_state.StateBatch(
            first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count
        )
        for first, last, delivery_state, count in state.batches
    )
    return {"state_epoch": state.state_epoch, "start_offset": state.start_offset, "state_batches": batches}


def _write(shard: ShareShard, key: SharePartitionKey, wanted: Any, now: Now) -> dict[str, Any]:
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in wanted.state_batches
    )
    write = Write(
        key,
        wanted.state_epoch,
        wanted.leader_epoch,
        wanted.start_offset,
        wanted.delivery_complete_count,
        batches,
    )
    shard.append(shard.states.write(write, now_ms=now.wall_ms).records, now)
    return {}


def _delete(shard: ShareShard, key: SharePartitionKey, wanted: Any, now: Now) -> dict[str, Any]:
    shard.append(shard.states.delete(key).records, now)
    return {}


def _summary(shard: ShareShard, key: SharePartitionKey, wanted: Any, now: Now) -> dict[str, Any]:
    state = shard.states.summary(key)
    if state is None:
        return {"start_offset": UNINITIALIZED_START_OFFSET, "state_epoch": 0, "leader_epoch": 0}
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.delivery_complete_count,
    }


class _Served(NamedTuple):
    one: _One
    partition_result: type[Any]
    topic_result: type[Any]
    response: type[Any]


_SERVED: Final[dict[type[Any], _Served]] = {
    initialize_share_group_state.InitializeShareGroupStateRequest: _Served(
        _initialize,
        initialize_share_group_state.PartitionResult,
        initialize_share_group_state.InitializeStateResult,
        initialize_share_group_state.InitializeShareGroupStateResponse,
    ),
    read_share_group_state.ReadShareGroupStateRequest: _Served(
        _read,
        read_share_group_state.PartitionResult,
        read_share_group_state.ReadStateResult,
        read_share_group_state.ReadShareGroupStateResponse,
    ),
    write_share_group_state.WriteShareGroupStateRequest: _Served(
        _write,
        write_share_group_state.PartitionResult,
        write_share_group_state.WriteStateResult,
        write_share_group_state.WriteShareGroupStateResponse,
    ),
    delete_share_group_state.DeleteShareGroupStateRequest: _Served(
        _delete,
        delete_share_group_state.PartitionResult,
        delete_share_group_state.DeleteStateResult,
        delete_share_group_state.DeleteShareGroupStateResponse,
    ),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: _Served(
        _summary,
        read_share_group_state_summary.PartitionResult,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
    ),
}
