"""(shell) Loading of a group coordinator: a partition of __consumer_offsets with a million commits, and compacted."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final

from benchmarks.figures import Figure, figure, progress
from raylog.config.consumer_groups import consumer_group_settings
from raylog.config.groups import GroupLimits
from raylog.config.share_groups import share_group_settings
from raylog.config.streams_groups import streams_group_settings
from raylog.config.table import broker_configs
from raylog.coordination.event_log import EventLog
from raylog.core.clock import Now
from raylog.core.ids import LeaderEpoch, Offset, TopicPartition
from raylog.core.outcome import Outcome
from raylog.groupcoord import records
from raylog.groupcoord.records import OffsetCommitted
from raylog.groupcoord.shard import GroupCounts, GroupShard
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.groupcoord.topics import ImageTopics
from raylog.logstore.cleaner import CleanerBuffers, clean
from raylog.logstore.disk import RealDisk
from raylog.logstore.log import Log
from raylog.logstore.settings import LogSettings
from raylog.metadata.image import MetadataImage
from raylog.protocol.records.compaction import SECRET_BYTES

COMMITS: Final = 1_000_000
GROUPS: Final = 1000
PARTITIONS: Final = 5
"""That each group commits at a time."""
EPOCH: Final = LeaderEpoch(0)
LIMITS: Final = GroupLimits(6000, 1_800_000, 0, 100, 1_000_000)
NOW_MS: Final = 1_700_000_000_000
BUFFERS: Final = CleanerBuffers(128 << 20, 512 << 10, 0.9, float("inf"))


def measure(runs: int, folder: str | None) -> list[Figure]:
    with TemporaryDirectory(prefix="raylog-bench-", dir=folder) as path:
        log = _filled(Path(path))
        name = f"load of {COMMITS} commits of {GROUPS} groups"
        before_mb = log.size_bytes / 1e6
        loads = [_load(log) for _ in range(runs)]
        _compact(log)
        progress(f"{name}: {before_mb:.1f} MB, compacted {log.size_bytes / 1e6:.1f} MB")
        compacted = [_load(log) for _ in range(runs)]
        log.abandon()
    return [figure(name, "CPU-s", loads), figure(f"{name}, compacted", "CPU-s", compacted)]


def _filled(path: Path) -> Log:
    log = Log.open(
        RealDisk(),
        str(path / "log"),
        TopicPartition(OFFSETS_TOPIC, 0),
        LogSettings(is_compacted=True, segment_bytes=20 << 20),
        now_ms=NOW_MS,
        recovery_point=Offset(0),
        clean=False,
    )
    appended: EventLog[OffsetCommitted] = EventLog(
        log, EPOCH, encode=records.encode, decode=lambda header, record: None, replay=lambda event: None
    )
    for number in range(COMMITS // PARTITIONS):
        group = f"group-{number % GROUPS}"
        commits = [OffsetCommitted(group, "orders", each, number, 0, "", NOW_MS) for each in range(PARTITIONS)]
        appended.commit(Outcome(None, commits), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.flush()
    return log


def _load(log: Log) -> float:
    partition: Any = SimpleNamespace(log=log, leader_epoch=EPOCH)
    shard = GroupShard(
        partition,
        limits=lambda: LIMITS,
        consumer_settings=lambda _: consumer_group_settings(broker_configs({})),
        share_settings=lambda _: share_group_settings(broker_configs({})),
        streams_settings=lambda _: streams_group_settings(broker_configs({})),
        initialize=lambda *_: None,
        topics=ImageTopics(MetadataImage),
        new_id=lambda: "",
        on_append=lambda tp, size: None,
        counts=GroupCounts(),
    )
    begun = time.process_time()
    while shard.load_some():
        pass
    shard.loaded(Now(0, NOW_MS))
    seconds = time.process_time() - begun
    assert len(shard.group_ids()) == GROUPS
    return seconds


def _compact(log: Log) -> None:
    found = log.cleanable(limit=log.log_end_offset, now_ms=NOW_MS)
    assert found is not None
    plan = log.plan_cleaning(found, now_ms=NOW_MS, secret=bytes(SECRET_BYTES))
    assert log.begin_swaps(plan, clean(RealDisk(), plan, BUFFERS))
    while sync := log.swap_next(NOW_MS):
        sync()
