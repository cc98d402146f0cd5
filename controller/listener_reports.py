"""Where the other controllers listen, as they have reported it, while `kraft.version` is 0.

From level 1 on the metadata log has the listeners of each voter. Before, a voter reports its own to the leader, once in
each epoch, and learns from the answer where the leader listens: each can then tell clients where the active one is.
"""

from __future__ import annotations

from raylog.controller.quorum.quorum import Quorum
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch
from raylog.metadata.voters import QuorumVoter
from raylog.protocol.messages.update_raft_voter import CurrentLeader


class ListenerReports:
    """What one controller has learned. Nothing of it is durable."""

    def __init__(self, internal: str) -> None:
        """`internal` is the name of the listener for nodes, which find each other without reports."""
        self._internal = internal
        self._reported: dict[BrokerId, QuorumVoter] = {}
        self._answered: tuple[BrokerId, LeaderEpoch] | None = None
        """The leader that has this controller's report."""

    def reported(self, voter: QuorumVoter) -> None:
        """A voter has reported its listeners to this controller, the leader."""
        self._reported[voter.voter_id] = voter

    def of_clients(self, voter: QuorumVoter) -> tuple[tuple[str, str, int], ...]:
        """Its listeners for clients."""
        return tuple(each for each in voter.endpoints if each[0] != self._internal)

    def is_due(self, quorum: Quorum, own: QuorumVoter) -> bool:
        """Whether this controller is to report its listeners to the leader."""
        leader = quorum.leader_id, quorum.leader_epoch
        is_known = quorum.leader_id not in (NO_BROKER_ID, own.voter_id)
        return is_known and self._answered != leader and bool(self.of_clients(own))

    def answered(self, quorum: Quorum, own: QuorumVoter, leader: CurrentLeader) -> None:
        """The leader has the report. Its own listener of the same name is the first of those for clients."""
        leader_id = BrokerId(leader.leader_id)
        self._answered = leader_id, LeaderEpoch(leader.leader_epoch)
        if leader.host:
            name = self.of_clients(own)[0][0]
            self._reported[leader_id] = QuorumVoter(leader_id, endpoints=((name, leader.host, leader.port),))

    def completed(self, quorum: Quorum, own: QuorumVoter) -> list[QuorumVoter]:
        """The voters; those without listeners in the log have the reported ones."""
        found = []
        for each in quorum.voters:
            known = own if each.voter_id == own.voter_id else each
            reported = self._reported.get(each.voter_id)
            if not known.endpoints and reported is not None:
                known = QuorumVoter(each.voter_id, each.directory_id, reported.endpoints)
            found.append(known)
        return found
