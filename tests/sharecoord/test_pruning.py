"""__share_group_state does not grow without bound, and a coordinator loads the same state from what is left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from raylog.core.clock import Now
from raylog.core.ids import TopicPartition
from raylog.sharecoord.records import SharePartitionKey, ShareRecord, SnapshotWritten
from raylog.sharecoord.shards import ShareShard
from tests.broker.share.members import ACCEPT, ShareMember, started

STATE = TopicPartition("__share_group_state", 0)
INTERVAL_MS = 300_000


def test_redundant_records_are_deleted() -> None:
    broker = started(
        **{
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.snapshot.update.records.per.snapshot": 10,
        }
    )
    member = ShareMember(broker)
    member.join()
    assert member.acquired(0, 1) == {}
    for number in range(200):
        broker.produce([b"x"])
        assert member.acquired() == {0: [(number, number, 1)]}
        assert member.acknowledge(0, (number, number, [ACCEPT])) == 0
    broker.pass_time(2 * INTERVAL_MS + 1000)
    log = broker.broker.partitions[STATE].log
    assert log.log_end_offset > 200
    assert log.log_end_offset - log.log_start_offset < 30, "partition 1, which is not used, holds back the others"
    broker.restart()
    key = SharePartitionKey("g", member.topic_id, 0)
    snapshot = broker.broker.share_states.of(key, broker.now()).states.states[key].snapshot
    assert snapshot.start_offset >= 199
    broker.produce([b"x"])
    other = ShareMember(broker, "n")
    other.join()
    assert other.acquired(0) == {0: [(200, 200, 1)]}


def test_a_snapshot_that_is_not_committed_makes_nothing_redundant() -> None:
    """A new leader may not have it, and needs the one before."""
    log = SimpleNamespace(log_start_offset=0, log_end_offset=0)
    deleted: list[int] = []
    partition: Any = SimpleNamespace(log=log, leader_epoch=0, high_watermark=0, delete_records_before=deleted.append)
    shard = ShareShard(partition, updates_max=lambda: 10, exists=lambda *_: True, on_append=lambda *_: None)

    def append(decided: list[ShareRecord], now: Now) -> None:
        log.log_end_offset += len(decided)

    shard._log = SimpleNamespace(append=append)  # type: ignore[assignment]
    now = Now(0, 0)
    first, second = (SharePartitionKey("g", UUID(int=1), number) for number in range(2))
    for key in (first, second, first):
        shard.append([SnapshotWritten(key, 0, 0, 0, 0, 0, 0, 0, ())], now)
    partition.high_watermark = 2
    assert not shard.prune(now)
    shard.append([SnapshotWritten(second, 0, 0, 0, 0, 0, 0, 0, ())], now)
    partition.high_watermark = 3
    assert shard.prune(now)
    assert deleted == [1], "the last snapshot of the second that is surely committed"
