"""The ledger requires of each controller exactly what Raft guarantees."""

from __future__ import annotations

from raylog.controller.features import NEW_CLUSTER
from raylog.core.ids import LeaderEpoch
from tests.sim.ledger import DurableLog, MetadataLedger
from tests.support.direct_quorum import LOG_PATH, DirectQuorum


def test_a_leader_must_have_all_records_committed_in_earlier_epochs_and_no_others() -> None:
    quorum = DirectQuorum(count=1)
    ledger = MetadataLedger()
    durable = DurableLog(quorum.disks[0], LOG_PATH)
    ledger.durable_of = lambda voter: durable
    for _ in range(2):
        leader = quorum.start(0)
        quorum.create_topic(leader, f"of epoch {leader.leader_epoch}")
        ledger.committed(leader.metadata_log, leader.high_watermark, leader.quorum.voters.ids)
        quorum.kill(0)
    # In the first epoch, besides the topic and the election, the feature levels of a new cluster.
    first = 2 + len(NEW_CLUSTER)
    assert [ledger.committed_before(LeaderEpoch(epoch)) for epoch in (1, 2, 3)] == [0, first, first + 2]
