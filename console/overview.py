"""(shell) The first page: nodes, a summary of all partitions, and the throughput."""

from __future__ import annotations

from typing import Any

from raylog.client.admin.cluster import ClusterNode, LogDirDescription, QuorumDescription, QuorumReplica
from raylog.console.fields import Fields
from raylog.console.series import pause_ms
from raylog.console.throughput import Look
from raylog.console.topic_rows import leader_sizes, led, replica_sizes, summary
from raylog.console.visitor import DETAIL_SECONDS, Visitor, if_permitted
from raylog.transport.system_time import now


async def overview(visitor: Visitor, _: Fields) -> Any:
    """Everything that the identity may see; what it may not is null."""
    cluster = await visitor.admin.describe_cluster(include_fenced_brokers=True)
    topics = await visitor.topics()
    quorum = await if_permitted(visitor.admin.describe_metadata_quorum(timeout=DETAIL_SECONDS))
    coordinators = await if_permitted(visitor.admin.describe_coordinators(timeout=DETAIL_SECONDS))
    features = await if_permitted(visitor.admin.describe_features(timeout=DETAIL_SECONDS))
    dirs = await visitor.log_dirs()
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller,
        "brokers": [_broker(each, dirs or {}) for each in cluster.nodes],
        "coordinators": [_node(each) for each in coordinators or ()],
        "quorum": None if quorum is None else _quorum(quorum),
        "features": {each.feature: each.finalized for each in features or () if each.finalized},
        "summary": summary(topics),
    }


async def throughput(visitor: Visitor, _: Fields) -> Any:
    """Look at the ends of all partitions now. `next_ms` is how long to wait before the next look."""
    began_ms = now().monotonic_ms
    topics = await visitor.topics()
    partitions = led(topics.values())
    time_ms = now().wall_ms
    ends = await visitor.ends(partitions)
    dirs = await visitor.log_dirs()
    sizes = leader_sizes(topics.values(), replica_sizes(dirs)) if dirs else None
    visitor.throughput.add(Look(time_ms, ends, sizes))
    return {**visitor.throughput.shown(), "next_ms": pause_ms(now().monotonic_ms - began_ms)}


def _broker(node: ClusterNode, dirs: dict[int, dict[str, LogDirDescription]]) -> dict[str, Any]:
    own = dirs.get(node.node_id)
    return {
        **_node(node),
        "rack": node.rack,
        "fenced": node.is_fenced,
        "log_dirs": None if own is None else len(own),
        "failed_log_dirs": None if own is None else sum(each.error is not None for each in own.values()),
        "size_bytes": None
        if own is None
        else sum(replica.size_bytes for each in own.values() for replica in each.replicas.values()),
        "usable_bytes": None if own is None else sum(max(0, each.usable_bytes) for each in own.values()),
        "total_bytes": None if own is None else sum(max(0, each.total_bytes) for each in own.values()),
    }


def _node(node: ClusterNode) -> dict[str, Any]:
    return {"id": node.node_id, "host": node.host, "port": node.port}


def _quorum(quorum: QuorumDescription) -> dict[str, Any]:
    end = max((each.log_end_offset for each in quorum.voters), default=0)
    return {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [_replica(each, end) for each in quorum.voters],
        "observers": [_replica(each, end) for each in quorum.observers],
    }


def _replica(replica: QuorumReplica, end: int) -> dict[str, Any]:
    return {
        "id": replica.replica_id,
        "log_end_offset": replica.log_end_offset,
        "lag": max(0, end - replica.log_end_offset),
        "last_caught_up_ms": replica.last_caught_up_timestamp_ms,
    }
