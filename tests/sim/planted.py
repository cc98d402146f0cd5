"""The mistakes of brokers and controllers that the simulator must find (see `tests.sim.planting`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from raylog.broker import replica_fetchers
from raylog.broker.handlers import fetch
from raylog.broker.handlers.appending import Appending
from raylog.controller import brokers, coordinators, elections, isr, reassignments
from raylog.controller.broker_sessions import BrokerPresence
from raylog.controller.controller import Controller
from raylog.controller.handlers import alter_partition as alter_partition_handler
from raylog.controller.handlers import fetch as controller_fetch
from raylog.controller.metadata_log import MetadataLog
from raylog.controller.quorum.election_state import ElectionState
from raylog.controller.quorum.quorum import Quorum, Role
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset
from raylog.logstore.leader_epochs import LeaderEpochs
from raylog.logstore.log import Log
from raylog.logstore.log_producers import LogProducers
from raylog.metadata.image import MetadataImage, PartitionImage, TopicImage
from raylog.metadata.records import IsrChanged, LeaderChanged, ReplicasChanged
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.protocol.records.batch import split_batches
from raylog.replication import in_sync_replicas
from raylog.replication.in_sync_replicas import InSyncReplicas
from raylog.replication.partition import Partition
from tests.sim.planted_transactions import TRANSACTION_FAULTS
from tests.sim.planting import Planted, Replacement

# --- what a follower does


def _fetch_names_no_last_epoch() -> list[Replacement]:
    right = replica_fetchers._Copy.wanted

    def wanted(self: Any, limits: Any) -> Any:
        return replace(right(self, limits), last_fetched_epoch=NO_LEADER_EPOCH)

    return [(replica_fetchers._Copy, "wanted", wanted)]


def _truncates_by_high_watermark() -> list[Replacement]:
    return [(replica_fetchers, "_common_end", lambda partition, result: partition.high_watermark)]


def _truncates_at_each_election() -> list[Replacement]:
    right = replica_fetchers.ReplicaFetchers.leaders_changed

    def leaders_changed(self: Any, changed: Any, now: Any) -> None:
        for tp in changed:
            partition = self._partitions.get(tp)
            if partition is not None and not partition.is_leader:
                self._hooks.truncate(tp, partition.high_watermark)
        right(self, changed, now)

    return [(replica_fetchers.ReplicaFetchers, "leaders_changed", leaders_changed)]


def _takes_stale_answers() -> list[Replacement]:
    def forget(self: Any, tp: Any) -> None:
        self._waiting.pop(self._copies.pop(tp).key, None)

    return [(replica_fetchers._LeaderFetcher, "forget", forget)]


def _not_while_following(owner: Any, name: str) -> list[Replacement]:
    """Skip an action of the log while it appends as a follower."""
    append, right = Log.append_as_follower, getattr(owner, name)
    following = [False]

    def append_as_follower(self: Any, record_set: Any, *, now_ms: int) -> Any:
        following[0] = True
        try:
            return append(self, record_set, now_ms=now_ms)
        finally:
            following[0] = False

    def unless_following(self: Any, *args: Any, **named: Any) -> None:
        if not following[0]:
            right(self, *args, **named)

    return [(Log, "append_as_follower", append_as_follower), (owner, name, unless_following)]


def _followers_forget_producers() -> list[Replacement]:
    return _not_while_following(LogProducers, "note")


def _followers_forget_epochs() -> list[Replacement]:
    return _not_while_following(LeaderEpochs, "assign")


# --- what a leader does


def _leader_epoch_unchecked() -> list[Replacement]:
    return [(Partition, "check_leader_epoch", lambda self, current_leader_epoch: None)]


def _position_without_epoch() -> list[Replacement]:
    def note_position(self: Any, tp: Any, wanted: Any) -> None:
        partition = self._broker.partition(tp)
        replica = self._request.replica_state
        moved = partition.follower_fetched(
            BrokerId(replica.replica_id),
            wanted.fetch_offset,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=replica.replica_epoch,
            now_ms=self._exchange.now.monotonic_ms,
        )
        if moved:
            self._broker.partition_committed(tp)
        self._broker.isr_changes.check(tp, self._exchange.now)

    return [(fetch._Reading, "_note_position", note_position)]


def _counts_what_was_sent() -> list[Replacement]:
    right = fetch._Reading._read_partition

    def read_partition(self: Any, tp: Any, wanted: Any, remaining: int, *, first: bool, resident_only: bool) -> Any:
        result = right(self, tp, wanted, remaining, first=first, resident_only=resident_only)
        if self.is_follower and result.records:
            *_, (_, last) = split_batches(b"".join(result.records))
            state = self._request.replica_state
            self._broker.partition(tp).follower_fetched(
                BrokerId(state.replica_id),
                last.next_offset,
                log_start_offset=wanted.log_start_offset,
                broker_epoch=state.replica_epoch,
                now_ms=self._exchange.now.monotonic_ms,
            )
        return result

    return [(fetch._Reading, "_read_partition", read_partition)]


def _watermark_is_log_end() -> list[Replacement]:
    right: Any = vars(Partition)["high_watermark"].fget

    def high_watermark(self: Partition) -> Any:
        return self.log.log_end_offset if self.is_leader else right(self)

    return [(Partition, "high_watermark", property(high_watermark))]


def _new_leader_believes_its_log() -> list[Replacement]:
    right = Partition.leader_changed

    def leader_changed(self: Partition, shown: PartitionImage, now_ms: int) -> None:
        right(self, shown, now_ms)
        if self.is_leader:
            self._high_watermark = self.log.log_end_offset

    return [(Partition, "leader_changed", leader_changed)]


def _watermark_of(waited_for: Callable[[Any], frozenset[BrokerId]]) -> list[Replacement]:
    def committed_upto(self: Any, leader_end_offset: int) -> Any:
        ends = [self.followers[one].log_end_offset for one in waited_for(self) if one != self._leader]
        return min([leader_end_offset, *ends])

    return [
        (InSyncReplicas, "committed_upto", committed_upto),
        (InSyncReplicas, "alone", property(lambda self: len(waited_for(self)) == 1)),
    ]


def _shrink_before_commit() -> list[Replacement]:
    return _watermark_of(lambda self: self.isr if self.proposed is None else self.proposed)


def _pending_members_ignored() -> list[Replacement]:
    return _watermark_of(lambda self: self.isr)


def _joins_without_being_caught_up() -> list[Replacement]:
    right = InSyncReplicas._wanted

    def wanted(self: Any, *args: Any) -> Any:
        known = {replica for replica, follower in self.followers.items() if follower.log_end_offset >= 0}
        return right(self, *args) | (known - self.isr)

    return [(InSyncReplicas, "_wanted", wanted)]


def _joins_below_the_epoch() -> list[Replacement]:
    right = InSyncReplicas.__init__

    def init(self: Any, *args: Any, **named: Any) -> None:
        right(self, *args, **{**named, "epoch_start_offset": 0})

    return [(InSyncReplicas, "__init__", init)]


def _lost_answer_is_a_refusal() -> list[Replacement]:
    return [(InSyncReplicas, "proposal_failed", InSyncReplicas.proposal_refused)]


def _older_isr_is_believed() -> list[Replacement]:
    def changed(self: Any, isr: Any, partition_epoch: int) -> None:
        self.isr, self.partition_epoch = frozenset(isr), partition_epoch
        self.proposal_refused()

    return [(InSyncReplicas, "changed", changed)]


def _older_incarnation_is_heard() -> list[Replacement]:
    right = in_sync_replicas.InSyncReplicas.fetched

    def fetched(self: Any, replica: Any, offset: int, **named: Any) -> None:
        follower = self.followers.get(replica)
        if follower is not None and named["broker_epoch"] < follower.broker_epoch:
            named = {**named, "broker_epoch": follower.broker_epoch}
        right(self, replica, offset, **named)

    return [(InSyncReplicas, "fetched", fetched)]


def _acks_at_append() -> list[Replacement]:
    return [(Appending, "_wait_for_commit", lambda *_: None)]


def _repetition_is_acknowledged_at_once() -> list[Replacement]:
    wait, append = Appending._wait_for_commit, Partition.append_as_leader
    repeated = [False]

    def append_as_leader(self: Any, *args: Any, **named: Any) -> Any:
        appended = append(self, *args, **named)
        repeated[0] = appended.duplicate
        return appended

    def wait_for_commit(*args: Any) -> None:
        if not repeated[0]:
            wait(*args)

    return [(Partition, "append_as_leader", append_as_leader), (Appending, "_wait_for_commit", wait_for_commit)]


def _min_insync_ignored() -> list[Replacement]:
    return [(Partition, "has_enough_replicas", property(lambda self: self.is_leader))]


# --- what the controller does


def _broker_epoch_unchecked() -> list[Replacement]:
    def check_eligible(image: MetadataImage, replica: BrokerId, broker_epoch: int) -> None:
        if not image.is_alive(replica):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)

    return [(isr, "_check_eligible", check_eligible)]


def _fenced_broker_may_join() -> list[Replacement]:
    return [(isr, "_check_eligible", lambda image, replica, broker_epoch: None)]


def _partition_epoch_unchecked() -> list[Replacement]:
    right = isr.alter_partition

    def alter_partition(image: MetadataImage, leader: Any, topic_id: Any, partition: int, **named: Any) -> Any:
        topic = image.topics_by_id.get(topic_id)
        if topic is not None and partition < len(topic.partitions):
            named["partition_epoch"] = topic.partitions[partition].partition_epoch
        return right(image, leader, topic_id, partition, **named)

    return [(alter_partition_handler, "alter_partition", alter_partition)]


def _departed_stays_in_isr() -> list[Replacement]:
    def on_fenced(image: MetadataImage, broker_id: BrokerId, _: Any) -> Iterator[LeaderChanged]:
        alive = image.active - {broker_id}
        for _, topic_id, before in image.partitions_on(broker_id):
            if before.leader == broker_id:
                leader_epoch = LeaderEpoch(before.leader_epoch + 1)
                yield LeaderChanged(topic_id, before.partition, elections.elect(before, alive), leader_epoch)

    return [(brokers, "on_fenced", on_fenced)]


def _any_replica_may_lead() -> list[Replacement]:
    def elect(partition: PartitionImage, alive: Any, *, unclean: bool = False) -> BrokerId:
        return next((replica for replica in partition.replicas if replica in alive), NO_BROKER_ID)

    return [(elections, "elect", elect)]


def _last_member_is_dropped() -> list[Replacement]:
    right = elections.on_fenced

    def on_fenced(image: MetadataImage, broker_id: BrokerId, rule: Any) -> Iterator[LeaderChanged | IsrChanged]:
        alive = image.active - {broker_id}
        for record in right(image, broker_id, rule):
            if isinstance(record, LeaderChanged) and record.leader == NO_BROKER_ID:
                replicas = image.topics_by_id[record.topic_id].partitions[record.partition].replicas
                leader = next((one for one in replicas if one in alive), None)
                if leader is not None:
                    record = replace(record, leader=leader, isr=(leader,))
            yield record

    return [(brokers, "on_fenced", on_fenced)]


def _new_coordinator_in_sync_at_once() -> list[Replacement]:
    def changed(
        image: MetadataImage, topic: TopicImage, before: PartitionImage, wanted: tuple[BrokerId, ...]
    ) -> list[ReplicasChanged]:
        eligible = reassignments.eligible(image, topic.topic_id, before)
        after = replace(before, replicas=wanted, isr=wanted)
        return reassignments.changed(topic.topic_id, before, after, eligible)

    return [(coordinators, "_changed", changed)]


def _leader_epoch_not_raised() -> list[Replacement]:
    arrive, depart, right = elections.on_unfenced, elections.on_fenced, MetadataImage.replay

    def not_raised(records: Iterator[Any]) -> Iterator[Any]:
        for one in records:
            raised = isinstance(one, LeaderChanged)
            yield replace(one, leader_epoch=LeaderEpoch(one.leader_epoch - 1)) if raised else one

    def replay(self: MetadataImage, record: Any) -> None:
        if isinstance(record, LeaderChanged):
            partitions = self.topics_by_id[record.topic_id].partitions
            before = partitions[record.partition]
            partitions[record.partition] = replace(before, leader_epoch=LeaderEpoch(before.leader_epoch - 1))
        right(self, record)

    return [
        (brokers, "on_unfenced", lambda *args: not_raised(arrive(*args))),
        (brokers, "on_fenced", lambda *args: not_raised(depart(*args))),
        (MetadataImage, "replay", replay),
    ]


# --- what a voter of the metadata log does


def _saved_state(saved: Callable[[ElectionState, ElectionState], ElectionState]) -> list[Replacement]:
    """`saved(before, state)` is written to disk in place of `state`."""
    right = MetadataLog.save

    def save(self: MetadataLog, state: ElectionState) -> None:
        right(self, saved(self.election_state, state))

    return [(MetadataLog, "save", save)]


def _vote_not_saved() -> list[Replacement]:
    def saved(before: ElectionState, state: ElectionState) -> ElectionState:
        return state if state.leader_id != NO_BROKER_ID else replace(state, voted_for=NO_BROKER_ID)

    return _saved_state(saved)


def _epoch_not_saved() -> list[Replacement]:
    """The epoch is saved on the leader only: the log could not be opened without it."""

    def saved(before: ElectionState, state: ElectionState) -> ElectionState:
        return before if state.voted_for == state.leader_id == NO_BROKER_ID else state

    return _saved_state(saved)


def _vote_forgotten() -> list[Replacement]:
    right = Quorum.__init__

    def init(self: Quorum, node_id: BrokerId, voters: Any, state: ElectionState, **named: Any) -> None:
        right(self, node_id, voters, replace(state, voted_for=NO_BROKER_ID), **named)

    return [(Quorum, "__init__", init)]


def _votes_twice() -> list[Replacement]:
    right = Quorum._vote_requested

    def vote_requested(self: Quorum, event: Any, *args: Any) -> bool:
        if not event.pre_vote and event.leader_epoch == self.leader_epoch and self.role is not Role.CANDIDATE:
            self.state = replace(self.state, voted_for=NO_BROKER_ID)
        return right(self, event, *args)

    return [(Quorum, "_vote_requested", vote_requested)]


def _log_not_compared() -> list[Replacement]:
    right = Quorum._vote_requested

    def vote_requested(self: Quorum, event: Any, log_end: Any, now_ms: int) -> bool:
        return right(self, replace(event, log_end=max(event.log_end, log_end)), log_end, now_ms)

    return [(Quorum, "_vote_requested", vote_requested)]


def _committed_by(count: Callable[[Quorum, list[int]], int]) -> list[Replacement]:
    """`count(quorum, ends)` returns the commit point; `ends` are those of all voters, the largest first."""

    def commit(self: Quorum, log_end: Any, now_ms: int) -> None:
        if self.is_leader:
            ends = sorted([log_end.end_offset, *(each.end_offset for each in self.progress.values())], reverse=True)
            self.high_watermark = max(self.high_watermark, Offset(count(self, ends)))

    return [(Quorum, "_commit", commit)]


def _former_epochs_count() -> list[Replacement]:
    return _committed_by(lambda quorum, ends: ends[quorum.majority - 1])


def _leader_is_majority() -> list[Replacement]:
    def count(quorum: Quorum, ends: list[int]) -> int:
        return ends[0] if ends[0] > quorum.epoch_start_offset else 0

    return _committed_by(count)


def _fetched_is_committed() -> list[Replacement]:
    right = Quorum.follower_high_watermark

    def follower_high_watermark(self: Quorum, high_watermark: Offset, log_end: Any) -> None:
        right(self, log_end.end_offset, log_end)

    return [(Quorum, "follower_high_watermark", follower_high_watermark)]


def _not_synced(name: str) -> list[Replacement]:
    """The writes of this method of the metadata log are taken to be synced but are not."""
    right = vars(MetadataLog)[name]

    def unsynced(self: MetadataLog, *args: Any, **named: Any) -> None:
        disk: Any = self._disk
        disk.fsync = lambda handle: None
        try:
            right(self, *args, **named)
        finally:
            del disk.fsync

    return [(MetadataLog, name, unsynced)]


def _standby_does_not_sync() -> list[Replacement]:
    return _not_synced("append_fetched")


def _leader_does_not_sync() -> list[Replacement]:
    return _not_synced("flush")


def _tail_not_cut() -> list[Replacement]:
    return [(controller_fetch, "_diverging", lambda controller, wanted: None)]


def _before_the_beginning_agrees() -> list[Replacement]:
    def needs_snapshot(controller: Controller, wanted: Any) -> bool:
        return bool(wanted.fetch_offset < controller.metadata_log.start_offset)

    return [(controller_fetch, "_needs_snapshot", needs_snapshot)]


def _fetch_epoch_unchecked() -> list[Replacement]:
    right, read = controller_fetch._voter_fetched, controller_fetch.DelayedMetadataFetch._read

    def in_this_epoch(controller: Controller, wanted: Any) -> Any:
        return replace(wanted, current_leader_epoch=controller.leader_epoch)

    def take_in(controller: Controller, context: Any, voter: BrokerId, wanted: Any) -> None:
        right(controller, context, voter, in_this_epoch(controller, wanted))

    def read_(self: Any) -> Any:
        self._wanted = in_this_epoch(self._controller, self._wanted)
        return read(self)

    return [(controller_fetch, "_voter_fetched", take_in), (controller_fetch.DelayedMetadataFetch, "_read", read_)]


def _decisions_kept() -> list[Replacement]:
    right = Controller.leadership_ends

    def leadership_ends(self: Controller, now: Any) -> None:
        self.metadata_log.rewind = lambda offset: None  # type: ignore[method-assign]
        try:
            right(self, now)
        finally:
            del self.metadata_log.rewind

    return [(Controller, "leadership_ends", leadership_ends)]


def _answers_at_once() -> list[Replacement]:
    return [(Controller, "commit_sources", lambda self, api_key: ())]


def _answered_when_deposed() -> list[Replacement]:
    def leadership_ends(self: Controller, now: Any) -> None:
        self.sessions = self._no_sessions()
        self.commits.committed(METADATA_PARTITION, self.next_offset)
        self.metadata_log.rewind(self.high_watermark)
        self.presence = BrokerPresence()

    return [(Controller, "leadership_ends", leadership_ends)]


def _observers_before_begun() -> list[Replacement]:
    return [
        (controller_fetch.DelayedMetadataFetch, "_serves", lambda self: self._controller.quorum.is_leader),
    ]


def _observers_see_all() -> list[Replacement]:
    right = controller_fetch.DelayedMetadataFetch._read

    def read(self: Any) -> Any:
        quorum = self._controller.quorum
        if self.from_voter or not quorum.has_committed_in_epoch:
            return right(self)
        committed = quorum.high_watermark
        quorum.high_watermark = self._controller.metadata_log.flushed_end.end_offset
        try:
            return right(self)
        finally:
            quorum.high_watermark = committed

    return [(controller_fetch.DelayedMetadataFetch, "_read", read)]


def _snapshot_of_all() -> list[Replacement]:
    right = Controller.decide

    def decide(self: Controller, outcome: Any, now: Any) -> Any:
        response = right(self, outcome, now)
        if self.snapshots.is_due:
            self.metadata_log.flush()
            self.snapshots.begin(now)
        return response

    return [(Controller, "decide", decide)]


def _log_kept_at_install() -> list[Replacement]:
    right = MetadataLog.install

    def install(self: MetadataLog, snapshot: Any, image: MetadataImage) -> None:
        self._start_at = lambda offset: None  # type: ignore[method-assign]
        try:
            right(self, snapshot, image)
        finally:
            del self._start_at

    return [(MetadataLog, "install", install)]


_FAULTS: Final = (
    Planted(
        "stale-response",
        "A follower applies a fetch response from a leader of an older epoch.",
        _takes_stale_answers,
        12,
        "but leads epoch",
    ),
    Planted(
        "no-last-epoch",
        "A follower's Fetch omits the epoch of its last batch, so its log is never truncated.",
        _fetch_names_no_last_epoch,
        1,
        "joins the ISR",
    ),
    Planted(
        "coordinator-in-sync-at-once",
        "A coordinator is in the ISR of a partition as soon as it is added to its replicas.",
        _new_coordinator_in_sync_at_once,
        None,
    ),
    Planted(
        "truncated-to-watermark",
        "A follower whose log diverges from its leader's truncates it to its own high watermark.",
        _truncates_by_high_watermark,
        None,
    ),
    Planted(
        "truncated-at-election",
        "A follower truncates its log to its high watermark whenever the leader changes.",
        _truncates_at_each_election,
        1,
        "its log was opened or truncated",
    ),
    Planted(
        "producers-forgotten",
        "A follower does not keep producer state for the batches it replicates.",
        _followers_forget_producers,
        15,
        "was refused with OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    Planted(
        "epochs-forgotten",
        "A follower does not keep the leader epochs of the batches it replicates.",
        _followers_forget_epochs,
        0,
        "the cluster did not start",
    ),
    Planted(
        "epoch-unchecked",
        "A leader does not check the leader epoch in a Fetch.",
        _leader_epoch_unchecked,
        2,
        "responds for epoch",
    ),
    Planted(
        "position-unchecked",
        "A leader accepts a follower's fetch offset although the follower's log diverges from its own.",
        _position_without_epoch,
        None,
    ),
    Planted(
        "sent-is-replicated",
        "A leader counts batches as replicated once they are sent to a follower.",
        _counts_what_was_sent,
        0,
        "has exposed it to consumers",
    ),
    Planted(
        "watermark-at-end",
        "The high watermark of a leader is its log end offset.",
        _watermark_is_log_end,
        0,
        "has exposed it to consumers",
    ),
    Planted(
        "new-leader-high-watermark",
        "A new leader considers its whole log committed.",
        _new_leader_believes_its_log,
        39,
        "was readable",
    ),
    Planted(
        "shrink-uncommitted",
        "The high watermark no longer waits for a replica whose removal from the ISR is only proposed.",
        _shrink_before_commit,
        4,
        "has exposed it to consumers",
    ),
    Planted(
        "pending-ignored",
        "The high watermark waits for the committed ISR only, not for replicas that are proposed to join.",
        _pending_members_ignored,
        4,
        "was readable",
    ),
    Planted(
        "join-behind",
        "A leader proposes a follower for the ISR before it has caught up to the high watermark.",
        _joins_without_being_caught_up,
        2,
        "joins the ISR",
    ),
    Planted(
        "join-below-epoch",
        "A leader proposes a follower for the ISR before it has reached the start of the leader epoch.",
        _joins_below_the_epoch,
        None,
    ),
    Planted(
        "lost-is-refused",
        "A leader treats an ISR proposal without a response as refused.",
        _lost_answer_is_a_refusal,
        None,
    ),
    Planted(
        "older-isr", "A leader applies an ISR with an older partition epoch than its own.", _older_isr_is_believed, None
    ),
    Planted(
        "older-incarnation",
        "A leader accepts a fetch of an earlier incarnation of a follower.",
        _older_incarnation_is_heard,
        None,
    ),
    Planted(
        "ack-at-append",
        "acks=all is acknowledged as soon as the leader has appended the batch.",
        _acks_at_append,
        0,
        "but is above the high watermark",
    ),
    Planted(
        "ack-of-duplicate",
        "acks=all for a duplicate batch is acknowledged before the batch is committed.",
        _repetition_is_acknowledged_at_once,
        11,
        "but is above the high watermark",
    ),
    Planted(
        "min-insync-ignored",
        "acks=all is acknowledged with fewer in-sync replicas than min.insync.replicas.",
        _min_insync_ignored,
        12,
        "have it",
    ),
    Planted(
        "broker-epoch-unchecked",
        "The controller adds a replica to the ISR although it has restarted since the leader saw it.",
        _broker_epoch_unchecked,
        119,
        "joins the ISR",
    ),
    Planted(
        "fenced-joins",
        "The controller adds a fenced broker to the ISR.",
        _fenced_broker_may_join,
        35,
        "joins the ISR",
    ),
    Planted(
        "partition-epoch-unchecked",
        "The controller accepts an ISR proposal with an old partition epoch.",
        _partition_epoch_unchecked,
        None,
    ),
    Planted(
        "fenced-in-sync",
        "A fenced broker stays in every ISR.",
        _departed_stays_in_isr,
        7,
        "was readable",
    ),
    Planted(
        "unclean-leader", "A replica that is not in sync can be elected.", _any_replica_may_lead, 2, "was readable"
    ),
    Planted(
        "last-in-sync-replaced",
        "If the last in-sync replica is fenced, another replica replaces it in the ISR.",
        _last_member_is_dropped,
        0,
        "was readable",
    ),
    Planted(
        "epoch-not-raised",
        "An election does not raise the leader epoch.",
        _leader_epoch_not_raised,
        0,
        "an election started leader epoch",
    ),
    Planted("vote-unsaved", "A voter grants a vote before it is on disk.", _vote_not_saved, 1, "has lost"),
    Planted(
        "vote-forgotten",
        "A voter does not load its vote when it restarts.",
        _vote_forgotten,
        0,
        "has lost",
    ),
    Planted("votes-twice", "A voter grants two votes in one epoch.", _votes_twice, 21, "has changed its vote"),
    Planted(
        "epoch-unsaved",
        "A voter responds with a higher epoch before that epoch is on disk.",
        _epoch_not_saved,
        19,
        "has lost",
    ),
    Planted(
        "log-uncompared",
        "A voter grants its vote to a candidate whose log is less complete than its own.",
        _log_not_compared,
        10,
        "the new leader's log lacks committed records",
    ),
    Planted(
        "former-epochs",
        "A leader commits records of earlier epochs once a majority has them, without one of its own epoch.",
        _former_epochs_count,
        4,
        "were committed by count in epoch",
    ),
    Planted(
        "leader-is-majority",
        "The end of the leader's own log is committed, whatever the followers have.",
        _leader_is_majority,
        0,
        "is considered committed, but is on only",
    ),
    Planted(
        "fetched-is-committed",
        "A standby controller considers all fetched records committed.",
        _fetched_is_committed,
        0,
        "committed, but no leader has",
    ),
    Planted(
        "standby-unsynced",
        "A standby controller fetches the next records before the previous ones are on disk.",
        _standby_does_not_sync,
        0,
        "is considered committed, but is on only",
    ),
    Planted(
        "leader-unsynced",
        "The leader counts its own records towards the majority before they are on disk.",
        _leader_does_not_sync,
        0,
        "is considered committed, but is on only",
    ),
    Planted(
        "divergence-unchecked",
        "The leader does not check where a standby's log diverges from its own.",
        _tail_not_cut,
        10,
        "is considered committed, but is on only",
    ),
    Planted(
        "divergence-before-log-start",
        "The leader assumes that a standby's log agrees with its own before its log start offset.",
        _before_the_beginning_agrees,
        None,
    ),
    Planted(
        "fetch-epoch-unchecked",
        "The leader does not check the leader epoch in a standby's Fetch.",
        _fetch_epoch_unchecked,
        None,
    ),
    Planted(
        "uncommitted-kept",
        "A deposed controller keeps its uncommitted records in its image.",
        _decisions_kept,
        4,
        "the image is at offset",
    ),
    Planted(
        "responds-before-commit",
        "The controller responds before its records are committed.",
        _answers_at_once,
        1,
        "answered before it was committed",
    ),
    Planted(
        "responds-when-deposed",
        "A deposed controller sends the responses that waited for a commit, as if it had happened.",
        _answered_when_deposed,
        10,
        "answered before it was committed",
    ),
    Planted(
        "serves-before-commit",
        "A new leader serves brokers before it has committed a record of its own epoch.",
        _observers_before_begun,
        None,
    ),
    Planted(
        "uncommitted-fetched",
        "Brokers can fetch uncommitted metadata records.",
        _observers_see_all,
        0,
        "has uncommitted metadata records",
    ),
    Planted(
        "uncommitted-snapshot",
        "A snapshot contains uncommitted records.",
        _snapshot_of_all,
        2,
        "a snapshot covers offsets up to",
    ),
    Planted(
        "log-kept",
        "A fetched snapshot does not replace the log.",
        _log_kept_at_install,
        0,
        "the image is at offset",
    ),
)
FAULTS: Final = {fault.name: fault for fault in (*_FAULTS, *TRANSACTION_FAULTS)}
