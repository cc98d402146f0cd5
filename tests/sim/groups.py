"""The groups of a run: their members, and the checks after all faults have ended."""

from __future__ import annotations

from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.ids import NO_BROKER_ID, BrokerId, TopicPartition
from raylog.groupcoord.classic.group import GroupState
from raylog.groupcoord.shards import OFFSETS_TOPIC
from tests.sim.cluster import SimCluster
from tests.sim.group_ledger import GroupLedger, read_group_records
from tests.sim.member import GroupTimes, Member
from tests.sim.world import World
from tests.support.exchanges import Looking


class SimGroup:
    """One group. Some of its members are static, and two of them may use the same instance id."""

    def __init__(
        self, world: World, cluster: SimCluster, topic: str, partition_count: int, offsets_count: int, *, name: str
    ) -> None:
        rng = world.rng
        self.name = name
        self.ledger = GroupLedger(name, topic)
        self._cluster = cluster
        self._partition_count = partition_count
        self._offsets_tp = TopicPartition(OFFSETS_TOPIC, coordinator_partition(name, offsets_count))
        times = GroupTimes.some(rng)
        self.members = [
            Member(
                world,
                cluster.brokers,
                self.ledger,
                times,
                partition_count,
                elected=self._elected,
                instance=f"{name}-instance-{rng.randint(0, 2)}" if rng.random() < 0.4 else None,
                name=f"{name}-member-{number}",
            )
            for number in range(rng.randint(1, 4))
        ]

    def _elected(self) -> BrokerId:
        """The committed leader of the group's partition."""
        shown = self._cluster.ledger.image.partition(self._offsets_tp)
        return NO_BROKER_ID if shown is None else shown.leader

    def end_trouble(self) -> None:
        for member in self.members:
            member.end_trouble()

    def commit_no_more(self) -> None:
        for member in self.members:
            member.quiet = True

    def is_stable(self) -> bool:
        """Whether all live members have assignments and fetched committed offsets, and each partition has one owner."""
        if not all(member.is_settled for member in self.members):
            return False
        living = [member for member in self.members if not member.dead]
        owned = sorted(number for member in living for number in member.part or ())
        return not living or (
            owned == list(range(self._partition_count)) and len({member.generation_id for member in living}) == 1
        )

    def is_agreed(self) -> bool:
        """Whether the coordinator knows exactly the live members. Requires that the cluster `serves`."""
        host, node = self._cluster.leader(self._offsets_tp)
        group = node.groups.shard(Looking(host.now()), self.name).classic.groups.get(self.name)
        living = {member.member_id: member for member in self.members if not member.dead}
        if group is None:
            return not living
        return (
            group.state is (GroupState.STABLE if living else GroupState.EMPTY)
            and not group.pending
            and group.members.keys() == living.keys()
            and all(member.generation_id == group.generation_id for member in living.values())
        )

    def check(self) -> None:
        """Compare the coordinator's log with the members' responses. Requires `is_agreed`."""
        records = read_group_records(self._cluster.batches(self._offsets_tp))
        self.ledger.check_log(record for _, record in records if record.group == self.name)
