"""Quorum machines over lists in place of logs, with a network that loses, repeats and delays messages. One seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID

from raylog.config.controller import QuorumTimeouts
from raylog.controller.quorum.election_state import ElectionState
from raylog.controller.quorum.events import (
    BeginEpoch,
    EpochSeen,
    Event,
    Flushed,
    LeaderSeen,
    LogEnd,
    Message,
    PeerLost,
    Ready,
    RequestVote,
    Ticked,
    VoteAnswered,
    VoteRequested,
    VoterFetched,
    VotersReplaced,
)
from raylog.controller.quorum.quorum import Quorum
from raylog.core.ids import NO_BROKER_ID, NO_OFFSET, BrokerId, LeaderEpoch, Offset
from raylog.metadata.voters import QuorumVoter, VoterSet

TIMEOUTS = QuorumTimeouts(election_timeout_ms=100, fetch_timeout_ms=200, election_backoff_ms_max=100)
DELAY_MS_MAX = 60
FETCH_EVERY_MS = 15
FLUSH_CHANCE = 0.05
"""In each millisecond in which records wait for it."""
RECORDS_MAX = 3
"""Of one fetch: followers lag behind."""

KINDS = (
    *("append", "add", "remove", "start", "split") * 2,
    *("kill", "lose", "lost", "join"),
)


class Entry(NamedTuple):
    """A record of the log."""

    epoch: LeaderEpoch
    number: int
    """Unique."""
    voters: VoterSet | None = None


@dataclass
class Stored:
    """What is on a node's disk."""

    directory_id: UUID
    log: list[Entry] = field(default_factory=list)
    state: ElectionState = field(default_factory=ElectionState)


class Node:
    """One incarnation of one node."""

    def __init__(self, model: Model, node_id: BrokerId, stored: Stored) -> None:
        self.model = model
        self.node_id = node_id
        self.stored = stored
        self.log = list(stored.log)
        voters = self._newest_voters()
        self.quorum = Quorum(
            node_id,
            voters.voters,
            stored.state,
            directory_id=stored.directory_id,
            voters_offset=voters.offset,
            voters_before=voters.before,
            high_watermark=Offset(0),
            timeouts=TIMEOUTS,
            jitter_ms=lambda most: model.rng.randint(0, most),
            now_ms=model.now_ms,
        )
        self.fetch_ms = model.now_ms
        self.observed: dict[BrokerId, tuple[UUID, int]] = {}
        """On the leader: directory id and log end of observers."""

    @property
    def key(self) -> tuple[BrokerId, UUID]:
        return self.node_id, self.stored.directory_id

    @property
    def flushed_end(self) -> LogEnd:
        log = self.stored.log
        return LogEnd(log[-1].epoch if log else LeaderEpoch(0), Offset(len(log)))

    def _newest_voters(self) -> VotersReplaced:
        known = [(each.voters, Offset(offset)) for offset, each in enumerate(self.log) if each.voters is not None]
        (before, _), (newest, offset) = [(VoterSet(), NO_OFFSET), (VoterSet(), NO_OFFSET), *known][-2:]
        return VotersReplaced(newest, offset, before)

    def step(self, event: Event) -> Ready:
        led = self.quorum.is_leader
        ready = self.quorum.step(event, self.flushed_end, self.model.now_ms)
        if ready.save is not None:
            self.stored.state = ready.save
        for message in ready.send:
            self._send(message)
        if self.quorum.is_leader and not led:
            self.observed = {}
            self.append()
        elif led and not self.quorum.is_leader:
            self.flush()
        self.model.check(self)
        return ready

    def append(self, voters: VoterSet | None = None) -> None:
        self.log.append(Entry(self.quorum.leader_epoch, self.model.next_number(), voters))
        if voters is not None:
            self.step(self._newest_voters())

    def flush(self) -> None:
        self.stored.log = list(self.log)

    # --- messages

    def _send(self, message: Message) -> None:
        if isinstance(message, BeginEpoch):
            seen = LeaderSeen(self.node_id, message.leader_epoch)
            self.model.send(self.node_id, message.voter, lambda node: node.step(seen))
            return
        asked = VoteRequested(
            self.node_id,
            message.leader_epoch,
            message.log_end,
            pre_vote=message.pre_vote,
            directory_id=self.stored.directory_id,
        )
        self.model.send(self.node_id, message.voter, lambda node: node.vote_asked(self.key, asked, message))

    def vote_asked(self, candidate: tuple[BrokerId, UUID], asked: VoteRequested, message: RequestVote) -> None:
        if message.directory_id != self.stored.directory_id:
            return  # INVALID_VOTER_KEY
        granted = self.step(asked).granted
        answer = VoteAnswered(
            self.node_id,
            asked.leader_epoch,
            pre_vote=asked.pre_vote,
            granted=granted,
            leader_epoch=self.quorum.leader_epoch,
            leader_id=self.quorum.leader_id,
        )
        self.model.send(self.node_id, candidate[0], lambda node: node.step(answer), key=candidate)

    def fetch(self) -> None:
        """Fetch from the leader; without one an observer asks any other node."""
        leader = self.quorum.leader_id
        if leader == NO_BROKER_ID and not self.quorum.starts_elections:
            leader = self.model.any_other(self.node_id)
        if leader not in (NO_BROKER_ID, self.node_id):
            end, epoch = self.flushed_end, self.quorum.leader_epoch
            self.model.send(self.node_id, leader, lambda node: node.serve(self.key, end, epoch))

    def serve(self, asking: tuple[BrokerId, UUID], end: LogEnd, epoch: LeaderEpoch) -> None:
        quorum = self.quorum
        node_id, directory_id = asking
        if epoch > quorum.leader_epoch and quorum.voters.has(node_id, directory_id):
            self.step(EpochSeen(epoch, NO_BROKER_ID))
        if not quorum.is_leader or epoch != quorum.leader_epoch:
            seen = EpochSeen(quorum.leader_epoch, quorum.leader_id)
            self.model.send(self.node_id, node_id, lambda node: node.step(seen), key=asking)
            return
        log = self.stored.log
        diverges = end.end_offset > len(log) or (end.end_offset and log[end.end_offset - 1].epoch != end.last_epoch)
        if diverges:
            known = sum(each.epoch <= end.last_epoch for each in log)
            last = LogEnd(log[known - 1].epoch if known else LeaderEpoch(0), Offset(known))
            answer = partial(Node.truncated, epoch=epoch, leader=self.node_id, fetched=end, last=last)
        else:
            if quorum.voters.has(node_id, directory_id):
                self.step(VoterFetched(node_id, end.end_offset, directory_id))
            self.observed[node_id] = directory_id, end.end_offset
            entries = log[end.end_offset : end.end_offset + RECORDS_MAX]
            answer = partial(
                Node.extended,
                epoch=epoch,
                leader=self.node_id,
                fetched=end,
                entries=entries,
                high_watermark=quorum.high_watermark,
            )
        self.model.send(self.node_id, node_id, answer, key=asking)

    def _follows(self, leader: BrokerId, epoch: LeaderEpoch, fetched: LogEnd) -> bool:
        if self.quorum.leader_id == NO_BROKER_ID:
            self.step(EpochSeen(epoch, leader))
        return (leader, epoch) == (self.quorum.leader_id, self.quorum.leader_epoch) and fetched == self.flushed_end

    def truncated(self, *, epoch: LeaderEpoch, leader: BrokerId, fetched: LogEnd, last: LogEnd) -> None:
        if self._follows(leader, epoch, fetched):
            self.step(LeaderSeen(leader, epoch))
            cut = min(last.end_offset, sum(each.epoch <= last.last_epoch for each in self.log))
            assert cut >= self.quorum.high_watermark, "committed records are truncated"
            del self.log[cut:]
            self.flush()
            self.step(self._newest_voters())

    def extended(
        self, *, epoch: LeaderEpoch, leader: BrokerId, fetched: LogEnd, entries: list[Entry], high_watermark: Offset
    ) -> None:
        if self._follows(leader, epoch, fetched):
            self.step(LeaderSeen(leader, epoch))
            self.log += entries
            self.flush()
            if any(each.voters is not None for each in entries):
                self.step(self._newest_voters())
            self.quorum.follower_high_watermark(high_watermark, self.flushed_end)
            self.model.check(self)


class Model:
    """Nodes 1 to 6, of which the first ones are the voters at the beginning."""

    node_count = 6

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.marks: Counter[str] = Counter()
        self.lossy = True
        self._numbers = 0
        self._messages: list[tuple[int, BrokerId, tuple[BrokerId, UUID] | None, Callable[[Node], object]]] = []
        self._side: dict[BrokerId, int] = {}
        """While the network is split in two: the side of each node."""
        self.leaders: dict[LeaderEpoch, tuple[BrokerId, UUID]] = {}
        self.committed: list[Entry] = []
        ids = [BrokerId(number) for number in range(1, self.node_count + 1)]
        self.stored = {each: Stored(self._new_directory()) for each in ids}
        first = ids[: self.rng.choice((1, 2, 3, 3))]
        voters = VoterSet(QuorumVoter(each, self.stored[each].directory_id) for each in first)
        for each in first:
            self.stored[each] = Stored(
                self.stored[each].directory_id, [Entry(LeaderEpoch(1), 0, voters)], ElectionState(LeaderEpoch(1))
            )
        self.nodes: dict[BrokerId, Node] = {each: Node(self, each, self.stored[each]) for each in ids}

    # --- what nodes use

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def any_other(self, node_id: BrokerId) -> BrokerId:
        return self.rng.choice([each for each in self.stored if each != node_id])

    def send(
        self,
        sender: BrokerId,
        to: BrokerId,
        then: Callable[[Node], object],
        *,
        key: tuple[BrokerId, UUID] | None = None,
    ) -> None:
        """A message with a `key` is for this incarnation of the disk only: it is a response."""
        copies = 1
        if self.is_split(sender, to):
            return
        if self.lossy:
            copies = self.rng.choice((0, 1, 1, 1, 1, 1, 1, 2))
        for _ in range(copies):
            self._messages.append((self.now_ms + self.rng.randint(1, DELAY_MS_MAX), to, key, then))

    def is_split(self, one: BrokerId, other: BrokerId) -> bool:
        return self._side.get(one) != self._side.get(other)

    def check(self, node: Node) -> None:
        """Election safety, and that nothing committed is lost or differs between two nodes."""
        quorum = node.quorum
        if quorum.is_leader:
            leader = self.leaders.setdefault(quorum.leader_epoch, node.key)
            assert leader == node.key, f"epoch {quorum.leader_epoch} has the leaders {leader} and {node.key}"
        high_watermark = quorum.high_watermark
        assert high_watermark <= len(node.log), "more is committed than the log contains"
        known = node.log[:high_watermark]
        shared = min(len(known), len(self.committed))
        assert known[:shared] == self.committed[:shared], f"{node.key} and another node have committed other records"
        if len(known) > shared:
            self.committed = known

    # --- events

    def run(self, until_ms: int) -> None:
        while self.now_ms < until_ms:
            self.now_ms += 1
            due = [each for each in self._messages if each[0] <= self.now_ms]
            self._messages = [each for each in self._messages if each[0] > self.now_ms]
            for _, to, key, then in due:
                node = self.nodes.get(to)
                if node is not None and key in (None, node.key):
                    then(node)
            for node in list(self.nodes.values()):
                if self.now_ms >= node.quorum.deadline_ms:
                    node.step(Ticked())
                unflushed = node.quorum.is_leader and len(node.log) > len(node.stored.log)
                if unflushed and (not self.lossy or self.rng.random() < FLUSH_CHANCE):
                    node.flush()
                    node.step(Flushed())
                if self.now_ms >= node.fetch_ms:
                    node.fetch_ms = self.now_ms + FETCH_EVERY_MS
                    node.fetch()

    def disturb(self) -> None:
        """One random event."""
        rng = self.rng
        kind = rng.choice(KINDS)
        leaders = [node for node in self.nodes.values() if node.quorum.is_leader]
        node_id = rng.choice(list(self.stored))
        if kind == "append" and leaders:
            rng.choice(leaders).append()
        elif kind in ("add", "remove") and leaders:
            self.change_voters(rng.choice(leaders), kind)
        elif kind == "kill" and node_id in self.nodes:
            self.kill(node_id)
        elif kind == "start" and node_id not in self.nodes:
            self.nodes[node_id] = Node(self, node_id, self.stored[node_id])
        elif kind == "lose" and leaders and rng.random() < 0.3:
            self.lose_disk(rng.choice([node_id, rng.choice(leaders).node_id]))
        elif kind == "lost" and node_id in self.nodes and leaders:
            self.nodes[node_id].step(PeerLost(rng.choice(leaders).node_id))
        elif kind == "split":
            self._side = {each: rng.randint(0, 1) for each in self.stored}
        elif kind == "join":
            self._side = {}

    def change_voters(self, leader: Node, kind: str) -> None:
        quorum = leader.quorum
        if not self.may_change(quorum):
            return
        if kind == "remove" and len(quorum.voters) > 1:
            removed = self.rng.choice(quorum.voters.ids)
            left = quorum.voters.without(removed)
            if self._has_majority(left):
                leader.append(left)
                self.marks["leader removes itself" if removed == leader.node_id else "voter removed"] += 1
        elif kind == "add":
            end = len(leader.stored.log)
            ready = [
                QuorumVoter(node_id, directory_id)
                for node_id, (directory_id, its_end) in leader.observed.items()
                if node_id not in quorum.voters and its_end >= end - RECORDS_MAX
                if self.stored[node_id].directory_id == directory_id
            ]
            ready = [each for each in ready if not self.is_split(each.voter_id, leader.node_id)]
            if ready:
                leader.append(quorum.voters.with_voter(self.rng.choice(ready)))
                self.marks["voter added"] += 1

    def may_change(self, quorum: Quorum) -> bool:
        return quorum.may_change_voters

    def kill(self, node_id: BrokerId) -> None:
        """What is not flushed is lost. All that followed it notice, or not."""
        gone = self.nodes.pop(node_id)
        self.marks["unflushed records lost"] += len(gone.log) > len(gone.stored.log)
        for node in self.nodes.values():
            if self.rng.random() < 0.5:
                node.step(PeerLost(node_id))

    def lose_disk(self, node_id: BrokerId) -> None:
        """It comes back with another directory id, as an observer; never so that no majority is left."""
        logs = [node.log for node in self.nodes.values()] + [stored.log for stored in self.stored.values()]
        sets = [entry.voters for log in logs for entry in log[-8:] if entry.voters is not None]
        if not all(self._has_majority(voters, without=node_id) for voters in sets):
            return
        if node_id in self.nodes:
            self.kill(node_id)
        self.stored[node_id] = Stored(self.directory_after_loss(node_id))
        self.marks["disk lost"] += 1

    def _has_majority(self, voters: VoterSet, *, without: BrokerId = NO_BROKER_ID) -> bool:
        """Whether a majority of these voters still has its disk, without one of them."""
        there = [each for each in voters if self.stored[each.voter_id].directory_id == each.directory_id]
        return sum(each.voter_id != without for each in there) > len(voters) // 2

    def directory_after_loss(self, node_id: BrokerId) -> UUID:
        return self._new_directory()

    def heal(self) -> None:
        self.lossy = False
        self._side = {}
        for node_id, stored in self.stored.items():
            if node_id not in self.nodes:
                self.nodes[node_id] = Node(self, node_id, stored)

    def _new_directory(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128) | 1)
