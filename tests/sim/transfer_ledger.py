"""The transactions of a run, compared with the final logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.ids import TopicPartition
from raylog.groupcoord.shards import OFFSETS_TOPIC
from raylog.protocol.records.batch import split_batches
from raylog.protocol.records.markers import read_marker
from raylog.protocol.records.reader import read_batches
from raylog.txncoord.shards import TRANSACTION_TOPIC
from tests.sim.cluster import SimCluster
from tests.support.exchanges import Looking


@dataclass(slots=True)
class Transfer:
    """One transaction: its records, and the outcome as far as its client knows it."""

    number: int
    group: str
    written: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    """The acknowledged records; nothing is claimed about others."""
    moves_offset: bool = False
    """Whether it committed its number as the offset of the group."""
    commit_asked: bool = False
    committed: bool = False


class TransferLedger:
    """All transactions of a run, by number."""

    def __init__(self, topic: str, partition_count: int) -> None:
        self.topic = topic
        self.partitions = [TopicPartition(topic, number) for number in range(partition_count)]
        self.transfers: list[Transfer] = []

    def begin(self, group: str) -> Transfer:
        self.transfers.append(Transfer(len(self.transfers), group))
        return self.transfers[-1]

    def is_at_rest(self, cluster: SimCluster) -> bool:
        """Whether every transaction is complete in all partitions. Requires that the cluster `serves`."""
        topic = cluster.ledger.image.topics.get(TRANSACTION_TOPIC)
        for shown in topic.partitions if topic is not None else ():
            host, node = cluster.leader(TopicPartition(TRANSACTION_TOPIC, shown.partition))
            for shard in node.transactions.all(Looking(host.now())):
                if any(found.state.is_open for found in shard.transactions.by_id.values()):
                    return False
        return True

    def check(self, cluster: SimCluster, marks: Counter[str]) -> None:
        """Check that each transaction is visible completely or not at all, as its client was told. Requires
        `is_at_rest`."""
        if self.topic not in cluster.ledger.image.topics:
            return
        seen = {tp: self._seen(cluster, tp) for tp in self.partitions}
        for transfer in self.transfers:
            shown = {tp: values[transfer.number] for tp, values in seen.items() if transfer.number in values}
            name = f"transaction {transfer.number}"
            if transfer.committed:
                assert shown == transfer.written, f"{name} was committed, but consumers see {shown}"
            elif not transfer.commit_asked:
                assert not shown, f"{name} was not committed, but consumers see {shown}"
            else:
                assert not shown or shown == transfer.written, f"consumers see only a part of {name}: {shown}"
                marks["transaction in doubt, and committed"] += bool(shown)
                marks["transaction in doubt, and aborted"] += not shown
            marks["transaction committed"] += transfer.committed
        self._check_offsets(cluster, {number for values in seen.values() for number in values})

    def _seen(self, cluster: SimCluster, tp: TopicPartition) -> dict[int, list[bytes]]:
        """The committed records by number of the transaction, according to the markers in the log."""
        _, node = cluster.leader(tp)
        log = node.partitions[tp].log
        assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset, f"{tp}: a transaction is still open"
        batches = cluster.batches(tp)
        pending: dict[int, list[bytes]] = {}
        seen: dict[int, list[bytes]] = {}
        for position, header in split_batches(batches):
            if header.is_control:
                marker = read_marker(batches, position, header)
                assert marker is not None
                for value in pending.pop(header.producer_id, ()) if marker.committed else ():
                    seen.setdefault(int(value.split(b"/")[0]), []).append(value)
                pending.pop(header.producer_id, None)
            else:
                batch = batches[position : position + header.size_bytes]
                values = [record.value or b"" for record in read_batches(batch, from_offset=header.base_offset)]
                pending.setdefault(header.producer_id, []).extend(values)
        return seen

    def _check_offsets(self, cluster: SimCluster, seen: set[int]) -> None:
        if OFFSETS_TOPIC not in cluster.ledger.image.topics:
            assert not any(transfer.moves_offset for transfer in self.transfers), "committed offsets are gone"
            return
        count = len(cluster.ledger.image.topics[OFFSETS_TOPIC].partitions)
        for group in sorted({transfer.group for transfer in self.transfers}):
            moved = [each.number for each in self.transfers if each.group == group and each.moves_offset]
            host, node = cluster.leader(TopicPartition(OFFSETS_TOPIC, coordinator_partition(group, count)))
            offsets = node.groups.shard(Looking(host.now()), group).offsets
            assert not offsets.unstable(group), f"{group}: a pending offset is not resolved"
            found = offsets.fetch_all(group).get(TopicPartition(self.topic, 0))
            expected = max((number for number in moved if number in seen), default=None)
            told = None if found is None else found.offset
            assert told == expected, (
                f"{group}: offset {told} is committed, but the last transaction committed {expected}"
            )
