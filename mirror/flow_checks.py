"""Refuses flows that would copy records without end, or twice. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from raylog.config.consumer import AUTO_OFFSET_RESET, EARLIEST
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.mirror.config import FlowConfig
from raylog.mirror.loops import check_loops

NO_FLOW: Final = "clusters: no flow is enabled: set <source>-><target>.enabled=true"


def check_built(flows: Sequence[FlowConfig]) -> None:
    """Raises ConfigError."""
    if not flows:
        raise ConfigError(NO_FLOW)
    edges: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for flow in flows:
        edges[flow.keeps_names].append((flow.source.alias, flow.target.alias))
    check_loops(edges[True], edges[False])


def check_mirror_maker(flow: FlowConfig, source_topics: Collection[str]) -> None:
    """Raises KafkaError if Apache's MirrorMaker copies from the target to the source, as far as its topics there tell.

    It does not say which records it has copied. The first topic is that of its workers, which are also there to write
    nothing but heartbeats; the second one is written by a flow that copies.
    """
    own, copying = f"mm2-configs.{flow.target.alias}.internal", flow.policy.checkpoints_topic(flow.target.alias)
    if own in source_topics and copying in source_topics:
        what = f"the source has {own!r} and {copying!r} of a MirrorMaker that copies the other way under the same names"
        text = f"{what}: delete the first topic if it does so no longer, or use DefaultReplicationPolicy"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def passing_flow(flow: FlowConfig) -> FlowConfig:
    """The flow as it passes on the records of a third cluster: from the first one on, since it learns of them late."""
    consumer = {**flow.source.consumer, AUTO_OFFSET_RESET.name: EARLIEST}
    return replace(flow, source=replace(flow.source, consumer=consumer))
