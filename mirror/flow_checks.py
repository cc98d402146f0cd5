"""Refuses flows that would copy records without end, or twice. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from raylog.config.consumer import AUTO_OFFSET_RESET, EARLIEST
from raylog.core.errors import ErrorCode, KafkaError
from raylog.mirror.config import FlowConfig
from raylog.mirror.loops import check_loops


def check_built(flows: Sequence[FlowConfig]) -> None:
    """Raises ConfigError."""
    edges: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for flow in flows:
        edges[flow.keeps_names].append((flow.source.alias, flow.target.alias))
    check_loops(edges[True], edges[False])


def check_mirror_maker(flow: FlowConfig, source_topics: Collection[str]) -> None:
    """Raises KafkaError if Apache's MirrorMaker copies from the target to the source, as far as its topics there tell.

    It does not say which records it has copied.
    """
    topic = f"mm2-configs{flow.policy.internal_separator}{flow.target.alias}{flow.policy.internal_separator}internal"
    if topic in source_topics:
        what = f"the source has topic {topic!r} of a MirrorMaker that copies the other way"
        text = f"{what}, and equal names: delete the topic if it does so no longer, or use DefaultReplicationPolicy"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def passing_flow(flow: FlowConfig) -> FlowConfig:
    """The flow as it passes on the records of a third cluster: from the first one on, since it learns of them late."""
    consumer = {**flow.source.consumer, AUTO_OFFSET_RESET.name: EARLIEST}
    return replace(flow, source=replace(flow.source, consumer=consumer))
