"""A client that changes the voters of the quorum again and again, as an administrator would with kafka-metadata-quorum.

It removes no voter without which the others have no majority of working disks, since nothing could be committed then.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.core.ids import BrokerId
from raylog.metadata.control_records import VotersChanged
from raylog.metadata.features import KRAFT_FEATURE
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from raylog.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from raylog.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.sim.client import SimClient
from tests.sim.cluster import SimCluster

PAUSE_MS_MAX = 300
LISTENERS = (Listener(name="CONTROLLER", host="h", port=1),)


class QuorumAdmin(SimClient):
    """It goes on until `finished` is set."""

    def __init__(self, cluster: SimCluster, *, name: str) -> None:
        self._cluster = cluster
        self._upgraded = False
        super().__init__(cluster.world, cluster.brokers, name)

    def begin(self) -> None:
        if self.finished:
            return
        if self._upgraded:
            self._describe()
            return

        def upgraded(answer: Any) -> None:
            self._upgraded = answer.error_code == ErrorCode.NONE
            self.later(PAUSE_MS_MAX, self.begin)

        key = FeatureUpdateKey(feature=KRAFT_FEATURE, max_version_level=1)
        self.ask(self.any_broker(), UpdateFeaturesRequest(feature_updates=(key,), timeout_ms=1000), upgraded)

    def _describe(self) -> None:
        topic = RequestTopicData(topic_name=METADATA_PARTITION.topic, partitions=(RequestPartitionData(),))

        def described(answer: Any) -> None:
            if answer.error_code != ErrorCode.NONE:
                self.later(PAUSE_MS_MAX, self.begin)
                return
            quorum = answer.topics[0].partitions[0]
            voters = {each.replica_id: each.replica_directory_id for each in quorum.current_voters}
            observers = {each.replica_id: each.replica_directory_id for each in quorum.observers}
            self._change(voters, {one: directory for one, directory in observers.items() if directory.int})

        self.ask(self.any_broker(), DescribeQuorumRequest(topics=(topic,)), described)

    def _change(self, voters: dict[int, UUID], observers: dict[int, UUID]) -> None:
        rng = self.world.rng
        dead = [voter for voter in voters if not self._works(voter)]
        removable = [voter for voter in voters if self._have_majority([each for each in voters if each != voter])]
        ready = [one for one in observers if one not in voters]
        if removable and len(voters) > 1 and (len(voters) > 3 or not ready or rng.random() < 0.5):
            removed = next((voter for voter in dead if voter in removable), rng.choice(removable))
            self._ask_for(
                "removed",
                removed,
                RemoveRaftVoterRequest(voter_id=removed, voter_directory_id=self._directory(removed)),
            )
        elif ready:
            added = rng.choice(ready)
            self._ask_for(
                "added",
                added,
                AddRaftVoterRequest(
                    voter_id=added, voter_directory_id=observers[added], listeners=LISTENERS, timeout_ms=1000
                ),
            )
        else:
            self.later(PAUSE_MS_MAX, self.begin)

    def _directory(self, voter: int) -> UUID:
        """That of the voter set: a response may show none, for a voter that has not fetched yet."""
        voters = self._cluster.ledger.image.voters
        known = None if voters is None else voters.get(BrokerId(voter))
        return UUID(int=1) if known is None else known.directory_id

    def _works(self, voter: int) -> bool:
        """Whether its disk still has the directory that is a voter."""
        directory = self._directory(voter)
        hosts = [host for host in self._cluster.controllers if host.voter_id == voter]
        return any(host.directory_id in (None, directory) for host in hosts)

    def _have_majority(self, voters: list[int]) -> bool:
        return sum(map(self._works, voters)) > len(voters) // 2

    def _ask_for(self, what: str, voter: int, request: Any) -> None:
        def answered(answer: Any) -> None:
            self.world.marks[f"voter {what}: {answer.error_code.name}"] += 1
            if answer.error_code == ErrorCode.NONE:
                sets = [each.voters for each in self._cluster.ledger.records if isinstance(each, VotersChanged)]
                in_some = any((voter in each) == (what == "added") for each in sets)
                assert in_some, f"voter {voter} was {what}, but it is not committed"
            self.later(PAUSE_MS_MAX, self.begin)

        self.ask(self.any_broker(), request, answered)
