"""The state of a partition's followers on its leader: their log end offsets, the ISR and the high watermark.

The high watermark is the smallest log end offset of the maximal ISR: the committed ISR and the replicas that the
leader has proposed to add. A joining replica therefore holds back the high watermark before it may be elected, and a
leaving one holds it back until the controller has removed it (KIP-497).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId

UNKNOWN_BROKER_EPOCH = -1


class Follower:
    """One follower, as its fetches describe it. Its offsets are unknown until its first fetch in this leader epoch."""

    __slots__ = (
        "_fetched_ms",
        "_leader_end_offset",
        "broker_epoch",
        "caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, now_ms: int) -> None:
        self.log_start_offset = self.log_end_offset = -1
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.caught_up_ms = now_ms
        """When it was last caught up with the leader."""
        self._fetched_ms = now_ms
        self._leader_end_offset = -1

    def fetched(
        self, offset: int, *, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Its log covers `log_start_offset` up to `offset`. Source: Kafka, Replica.updateFetchStateOrThrow."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif 0 <= self._leader_end_offset <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.log_start_offset, self.log_end_offset = log_start_offset, offset
        self.broker_epoch = broker_epoch
        self._fetched_ms = now_ms
        self._leader_end_offset = leader_end_offset


class InSyncReplicas:
    """The in-sync replicas of one partition while this broker leads it under one leader epoch."""

    def __init__(
        self,
        leader: BrokerId,
        replicas: Sequence[BrokerId],
        isr: Collection[BrokerId],
        partition_epoch: int,
        *,
        epoch_start_offset: int,
        now_ms: int,
    ) -> None:
        """`epoch_start_offset` is the log end offset at the start of the leader epoch."""
        self.isr = frozenset(isr)
        self.partition_epoch = partition_epoch
        self.proposed: frozenset[BrokerId] | None = None
        """The ISR requested from the controller, which may already have applied it."""
        self._asked = False
        """Whether a response to that request is outstanding."""
        self._outcome_unknown = False
        """Whether an earlier request for the same ISR got no response and may still reach the controller."""
        self._unresolved: frozenset[BrokerId] = frozenset()
        """Replicas that such a request may still add, although the controller has since refused the same proposal."""
        self.followers = {replica: Follower(now_ms) for replica in replicas if replica != leader}
        self._leader = leader
        self.epoch_start_offset = epoch_start_offset

    def fetched(
        self,
        replica: BrokerId,
        offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> bool:
        """Returns whether the replica's log start offset has moved.

        Raises KafkaError(NOT_LEADER_OR_FOLLOWER) if the broker has no replica or its broker epoch is stale.
        """
        follower = self.followers.get(replica)
        if follower is None or broker_epoch < follower.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica} has no replica of the partition, or its broker epoch is stale",
            )
        log_start_moved = log_start_offset != follower.log_start_offset
        follower.fetched(
            offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            leader_end_offset=leader_end_offset,
            now_ms=now_ms,
        )
        return log_start_moved

    def was_caught_up(self, replica: BrokerId, at_ms: int) -> None:
        """The replica had all records at `at_ms`, and its position has not changed since its last fetch."""
        follower = self.followers.get(replica)
        if follower is not None and follower.log_end_offset >= 0:
            follower.caught_up_ms = max(follower.caught_up_ms, at_ms)

    def holders(self, offset: int) -> Iterator[tuple[BrokerId, Follower]]:
        """The in-sync followers from which a client may continue reading at `offset`."""
        for replica in self.isr:
            follower = self.followers.get(replica)
            if follower is not None and follower.log_start_offset <= offset <= follower.log_end_offset:
                yield replica, follower

    @property
    def alone(self) -> bool:
        """Whether the leader is the only member of the ISR and no change is proposed."""
        return self.proposed is None and len(self.isr) == 1

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """The ISR, and the replicas that a request to the controller may add or has added to it."""
        return self.isr if self.proposed is None else self.isr | self.proposed | self._unresolved

    def committed_upto(self, leader_end_offset: int) -> int:
        """The high watermark: the maximal ISR has all records below it. It may decrease when a replica is added."""
        ends = [self.followers[replica].log_end_offset for replica in self.maximal_isr if replica != self._leader]
        return min([leader_end_offset, *ends])

    def reassigned(self, replicas: Collection[BrokerId], now_ms: int) -> None:
        """Replicas were added. None was removed, since that would have started a new leader epoch."""
        for replica in replicas:
            if replica != self._leader and replica not in self.followers:
                self.followers[replica] = Follower(now_ms)

    # --- in-sync replicas

    def proposal(
        self,
        *,
        high_watermark: int,
        leader_end_offset: int,
        lag_ms_max: int,
        may_join: Callable[[BrokerId], bool],
        now_ms: int,
    ) -> list[tuple[BrokerId, int]] | None:
        """The ISR to request, as (replica, broker epoch); None if it is unchanged or a request is outstanding.

        A replica that the controller would refuse, as far as this broker knows, is not proposed (`may_join`). The
        caller sends the proposal to the controller and then calls `changed`, `proposal_refused` or `proposal_failed`;
        until then this returns None.
        """
        if self._asked:
            return None
        if self.proposed is None:
            wanted = self._wanted(high_watermark, leader_end_offset, lag_ms_max, may_join, now_ms)
            if wanted == self.isr:
                return None
            self.proposed = wanted
        self._asked = True
        return [(replica, self._broker_epoch(replica)) for replica in sorted(self.proposed)]

    def _wanted(
        self,
        high_watermark: int,
        leader_end_offset: int,
        lag_ms_max: int,
        may_join: Callable[[BrokerId], bool],
        now_ms: int,
    ) -> frozenset[BrokerId]:
        wanted = {self._leader}
        for replica, follower in self.followers.items():
            if replica in self.isr:
                in_sync = follower.log_end_offset == leader_end_offset or now_ms - follower.caught_up_ms <= lag_ms_max
            else:
                has_all = follower.log_end_offset >= max(high_watermark, self.epoch_start_offset)
                in_sync = has_all and may_join(replica)
            if in_sync:
                wanted.add(replica)
        return frozenset(wanted)

    def changed(self, isr: Collection[BrokerId], partition_epoch: int) -> None:
        """The controller has changed the ISR. A partition epoch that is not newer than the current one is ignored."""
        if partition_epoch > self.partition_epoch:
            self.isr, self.partition_epoch = frozenset(isr), partition_epoch
            self._forget_proposal()

    def proposal_refused(self) -> None:
        """The controller has refused the proposal. An earlier request for it without a response may still be applied.

        In that case the current ISR is proposed next: the new partition epoch makes the earlier request stale.
        """
        if self._outcome_unknown and self.proposed is not None and self.proposed != self.isr:
            self._unresolved, self.proposed = self.proposed, self.isr
            self._asked = False
        else:
            self._forget_proposal()

    def _forget_proposal(self) -> None:
        self.proposed = None
        self._asked = self._outcome_unknown = False
        self._unresolved = frozenset()

    def proposal_failed(self) -> None:
        """No response came. The controller may have applied the request or may still do so; it is repeated."""
        self._asked = False
        self._outcome_unknown = self.proposed is not None

    def _broker_epoch(self, replica: BrokerId) -> int:
        return UNKNOWN_BROKER_EPOCH if replica == self._leader else self.followers[replica].broker_epoch
