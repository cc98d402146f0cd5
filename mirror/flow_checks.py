"""Refuses flows that would copy records in a circle. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.core.errors import ConfigError
from raylog.mirror.config import FlowConfig


def check_built(flows: Sequence[FlowConfig]) -> None:
    """Raises ConfigError for loops that would copy records without end."""
    steps = [(flow.source.alias, flow.target.alias) for flow in flows if not flow.policy.names_source]
    for start in sorted({source for source, _ in steps}):
        reached, new = set[str](), {start}
        while new:
            new = {target for source, target in steps if source in new} - reached
            reached |= new
        if start in reached:
            text = f"the flows lead from {start} back to it, and names that do not tell the source cannot end the loop"
            raise ConfigError(f"replication.policy.class: {text}: use DefaultReplicationPolicy, or disable a flow")
