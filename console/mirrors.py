"""(shell) Mirrors into this cluster, as their own topics here tell: what was copied, when the flows were last alive."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from raylog.client.consumer.fetched import ConsumerRecord
from raylog.console.fields import Fields
from raylog.console.mirror_rows import flow_rows, heartbeats_in, progress_in
from raylog.console.topic_rows import led
from raylog.console.visitor import Visitor
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.policies import HEARTBEATS
from raylog.transport.system_time import now

PROGRESS_TOPIC: Final = re.compile(r"raylog-mirror-progress\.(.+)\.internal")
FLOWS_MAX: Final = 50
READ_MAX: Final = 2_000
"""The last records that are read of each partition; the topics are compacted."""
READ_MS_MAX: Final = 3_000
POLL_SECONDS: Final = 0.2


async def list_flows(visitor: Visitor, _: Fields) -> Any:
    """The flows of raylog's mirrors, with the offset up to which each partition of the source is copied.

    Flows of MirrorMaker 2 are known by their heartbeats alone. How much is still to be copied only the source knows.
    """
    topics = await visitor.topics()
    flows = {found[1]: name for name in sorted(topics) if (found := PROGRESS_TOPIC.fullmatch(name))}
    flows = dict(list(flows.items())[:FLOWS_MAX])
    wanted = [topics[name] for name in flows.values()]
    if HEARTBEATS in topics:
        wanted.append(topics[HEARTBEATS])
    records = await _last_records(visitor, led(wanted))
    beats = heartbeats_in(each for each in records if each.topic == HEARTBEATS)
    copied = {
        source: progress_in(source, (each for each in records if each.topic == name)) for source, name in flows.items()
    }
    return flow_rows(copied, beats, now().wall_ms)


async def _last_records(visitor: Visitor, partitions: Iterable[TopicPartition]) -> list[ConsumerRecord]:
    """Those of the partitions that the identity may read, in the order of each."""
    bounds = await visitor.bounds(partitions, committed=True)
    starts = {tp: max(first, end - READ_MAX) for tp, (first, end) in bounds.items() if first < end}
    records: list[ConsumerRecord] = []
    if not starts:
        return records
    deadline_ms = now().monotonic_ms + READ_MS_MAX
    async with visitor.readers:
        consumer = visitor.consumer()
        try:
            consumer.assign(starts)
            for tp, start in starts.items():
                consumer.seek(tp, start)
            while now().monotonic_ms < deadline_ms:
                records += await consumer.poll(POLL_SECONDS)
                if all([await consumer.position(tp) >= bounds[tp][1] for tp in starts]):
                    break
        except KafkaError:
            if not records:
                raise
        finally:
            await consumer.close()
    return records
