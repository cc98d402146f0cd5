"""A controller: one voter of the metadata log; while it leads the log, it manages the cluster's metadata.

Like every node it is driven by events and the time. A command is decided against the image, appended and replayed in
one step. Its response is sent when its records are committed, that is, on the disks of a majority of the voters. One
fsync makes all commands of a round durable, so every response, also to a read, waits for the records before it. When a
controller stops leading it drops uncommitted records and closes all connections: the outcome of requests that are still
waiting is unknown to their clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from raylog.config.controller import controller_settings
from raylog.config.network import connection_limits, listener_settings
from raylog.config.topic import topic_configs
from raylog.controller import brokers, delegation_tokens, features
from raylog.controller.broker_sessions import BrokerPresence, BrokerSessions
from raylog.controller.configs import unclean_election_rule
from raylog.controller.coordinators import LeadershipReturns, place_coordinators
from raylog.controller.delegation_tokens import DelegationTokens
from raylog.controller.elections import (
    ElectionType,
    TopicRule,
    balance_leaders,
    count_unclean,
    elect_leaders,
    unclean_elections,
)
from raylog.controller.handlers import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    create_topics,
    envelope,
    fetch,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from raylog.controller.handlers.from_clients import CLIENT_HANDLERS
from raylog.controller.listener_reports import ListenerReports
from raylog.controller.metadata_log import MetadataLog
from raylog.controller.mutation_quotas import MutationQuotas
from raylog.controller.observers import Observers
from raylog.controller.quorum.events import Flushed
from raylog.controller.quorum.quorum import Quorum
from raylog.controller.quorum_membership import update_voter
from raylog.controller.snapshot_schedule import SnapshotSchedule
from raylog.controller.voter import Voter
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import NO_DIRECTORY_ID, BrokerId, LeaderEpoch, Offset
from raylog.core.outcome import Outcome
from raylog.logstore.disk import Disk
from raylog.metadata.effective_configs import effective_configs
from raylog.metadata.features import advertised_features
from raylog.metadata.image import MetadataImage, TopicImage
from raylog.metadata.node_roles import is_coordinator
from raylog.metadata.records import ControllerElected, MetadataRecord
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.metadata.voters import QuorumVoter, VoterSet, voter_ids
from raylog.protocol import registry
from raylog.quotas.client_quotas import Limit
from raylog.quotas.rate import Sampling
from raylog.security import authorizer
from raylog.security.authenticator import Authenticator
from raylog.security.authorization import Authorization
from raylog.security.decision_log import PERIOD_MS as DECISION_LOG_PERIOD_MS
from raylog.security.delegation_tokens import TokenKey
from raylog.security.password_cipher import PasswordCipher
from raylog.security.principal import Principal
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.advertised_features import AdvertisedFeatures
from raylog.transport.authentication import ClientAuthentication
from raylog.transport.commits import CommitPoint, CommitSource
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.exchange import Handler
from raylog.transport.handlers import api_versions, sasl_authenticate, sasl_handshake
from raylog.transport.listeners import plan_controller_listeners
from raylog.transport.node import Job, Node, NodeIdentity

Response = TypeVar("Response")
log = logging.getLogger("raylog.controller")

FILES_CHECK_INTERVAL_MS = 1000
"""How often the controller checks that the files of the metadata log still exist."""
CHECKPOINT_INTERVAL_MS = 60_000
CHECK_INTERVAL_MS = 1000
"""How often the controller checks that each partition of an internal topic has its coordinator, and that the quorum
knows its listeners."""
TOKEN_REMOVALS_MAX = 1000
"""Expired delegation tokens that are removed before other requests are served. Kafka's limit for one batch."""

QUORUM_APIS: Final[dict[int, Handler]] = {
    registry.FETCH: fetch.handle,
    registry.VOTE: vote.handle,
    registry.BEGIN_QUORUM_EPOCH: begin_quorum_epoch.handle,
    registry.FETCH_SNAPSHOT: fetch_snapshot.handle,
}
"""Requests between voters. Their responses reveal no uncommitted records and are sent at once."""
HANDLERS: Final[dict[int, Handler]] = {
    **QUORUM_APIS,
    registry.SASL_HANDSHAKE: sasl_handshake.handle,
    registry.API_VERSIONS: api_versions.handle,
    registry.CREATE_TOPICS: create_topics.handle,
    registry.SASL_AUTHENTICATE: sasl_authenticate.handle,
    registry.ENVELOPE: envelope.handle,
    registry.BROKER_REGISTRATION: broker_registration.handle,
    registry.BROKER_HEARTBEAT: broker_heartbeat.handle,
    registry.ALLOCATE_PRODUCER_IDS: allocate_producer_ids.handle,
    registry.ALTER_PARTITION: alter_partition.handle,
    registry.ASSIGN_REPLICAS_TO_DIRS: assign_replicas_to_dirs.handle,
    registry.UPDATE_RAFT_VOTER: update_raft_voter.handle,
}


WITHOUT_COMMIT: Final = frozenset(
    {*QUORUM_APIS, registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE, registry.API_VERSIONS}
)
"""The APIs whose responses reveal no uncommitted records."""


class Controller(Node):
    """One incarnation: opens its log directory and serves until `close`."""

    handlers = HANDLERS
    """On the listener for other nodes."""
    commit_ms_max = None
    keeps_idle_links = True

    def __init__(
        self,
        identity: NodeIdentity,
        configs: Configs,
        disk: Disk,
        log_path: str,
        *,
        may_be_new: bool,
        new_id: Callable[[], UUID],
        new_nonce: Callable[[int], bytes],
        now: Now,
        voters: Sequence[BrokerId] = voter_ids(1),
        known: Sequence[BrokerId] = (),
    ) -> None:
        """Lock and recover the directory. Raises KafkaError with the reason if that fails.

        `voters` are those that the quorum began with, and apply until its log contains others; a controller that is to
        join is given none. `known` are controllers that may know the leader (controller.quorum.bootstrap.servers).
        `may_be_new` lets it create the metadata log if there is none; for a voter that had one this would lose data.
        """
        super().__init__(identity, connection_limits(configs), new_nonce=new_nonce, now=now)
        self.authorization = Authorization(authorizer.configured(configs, lambda: self.image.acls.index))
        if self.authorization.authorizer is not None:
            decisions = self.authorization.decisions
            self.add_periodic_task(DECISION_LOG_PERIOD_MS, lambda _: decisions.begin_period(), now)
        self.configs = configs
        self.settings = controller_settings(configs)
        self.slow_requests.configure(self.settings.slow_request_ms)
        self.new_id = new_id
        sampling = Sampling(self.settings.mutation_quota.window_count, self.settings.mutation_quota.window_ms)
        self.mutation_quotas = MutationQuotas(sampling, quotas=lambda: self.image.client_quotas)
        self.delegation_tokens = DelegationTokens(self.settings.delegation_tokens)
        self.cipher = PasswordCipher(identity.cluster_secret, new_nonce)
        self.sessions = self._no_sessions()
        self.presence = BrokerPresence()
        self.unclean_elections = 0
        """Leaders that were elected outside of the ISR since the start."""
        self._returns = LeadershipReturns()
        self.observers = Observers()
        token_secret = self.settings.delegation_tokens.secret_key
        self._client_authentication = ClientAuthentication(
            configs,
            plan_controller_listeners(configs),
            credentials=lambda: self.image,
            new_nonce=new_nonce,
            cluster_secret=identity.cluster_secret,
            token_key=None if token_secret is None else TokenKey(token_secret),
            clock=lambda: self.now,
            add_job=self.add_job,
        )
        self.watch_deadline(self._client_authentication.token_keys.next_deadline_ms)
        self.endpoints: dict[str, Endpoint] = {}
        """Where nodes and clients reach this controller, by listener name; filled by `start`."""
        self.listener_reports = ListenerReports(listener_settings(configs).inter_broker_name)
        self.metadata_log = MetadataLog.open(
            disk,
            log_path,
            identity,
            voters=VoterSet.of_ids(voters),
            may_be_new=may_be_new,
            new_id=new_id,
            now_ms=now.wall_ms,
        )
        self.voter = Voter(
            self,
            self.metadata_log,
            known=known,
            timeouts=self.settings.quorum,
            jitter_ms=lambda most: int.from_bytes(new_nonce(4), "big") % (most + 1),
            leadership=self,
            now=now,
        )
        self.watch_deadline(self.voter.next_deadline_ms)
        self.watch_deadline(lambda: self.sessions.next_expiry_ms())
        self.snapshots = SnapshotSchedule(self, self.metadata_log, interval_bytes=self.settings.snapshot_interval_bytes)
        self.add_periodic_task(CHECKPOINT_INTERVAL_MS, self._write_checkpoints, now)
        self.add_periodic_task(FILES_CHECK_INTERVAL_MS, lambda _: self.metadata_log.log.check_files(), now)
        self.add_periodic_task(self.settings.imbalance_check_interval_ms, self._balance_leaders, now)
        check_interval_ms = self.settings.delegation_tokens.check_interval_ms
        self.add_periodic_task(check_interval_ms, lambda _: self.add_steps(self._remove_expired_tokens), now)
        self.add_periodic_task(CHECK_INTERVAL_MS, self._check_each_second, now)
        if self.quorum.is_voter and not self.quorum.others:
            self._become_only_leader(now)

    @property
    def quorum(self) -> Quorum:
        return self.voter.quorum

    @property
    def image(self) -> MetadataImage:
        """On the leader all appended records, on a follower those known to be committed."""
        return self.metadata_log.image

    @property
    def is_active(self) -> bool:
        """Whether it leads the metadata log, and so is the active controller."""
        return self.quorum.is_leader

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The leader epoch of the metadata log."""
        return self.quorum.leader_epoch

    @property
    def high_watermark(self) -> Offset:
        return self.quorum.high_watermark

    @property
    def directory_id(self) -> UUID:
        """The id of the directory that holds the metadata log (KIP-858)."""
        return self.metadata_log.directory_id

    @property
    def allows_unclean(self) -> TopicRule:
        """Whether a topic currently allows unclean leader election."""
        return unclean_election_rule(self.image, self.configs)

    @property
    def next_offset(self) -> Offset:
        """The offset of the next record to be appended."""
        return self.metadata_log.end_offset

    @property
    def as_voter(self) -> QuorumVoter:
        """This controller as a voter, with its listeners."""
        endpoints = tuple((name, each.host, each.port) for name, each in self.endpoints.items())
        return QuorumVoter(self.identity.node_id, self.directory_id, endpoints)

    def voters_with_listeners(self) -> list[QuorumVoter]:
        """The voters, with their listeners as far as they are known here."""
        return self.listener_reports.completed(self.quorum, self.as_voter)

    @property
    def configs_in_force(self) -> Configs:
        return effective_configs(self.image, self.configs, self.identity.node_id)

    def topic_configs(self, topic: TopicImage) -> Configs:
        return topic_configs(topic.configs, self.configs_in_force)

    def decide(self, outcome: Outcome[Response, MetadataRecord], now: Now) -> Response:
        """Append and replay. The response may be sent as usual: sending waits until its records are committed.

        Raises KafkaError(NOT_CONTROLLER) if this controller is not active. If its disk is full, the only voter raises
        KafkaError(KAFKA_STORAGE_ERROR); one of several raises InvariantViolation, since another one may have space.
        """
        self.check_active()
        unclean = count_unclean(self.image, outcome.records)
        try:
            response = self.metadata_log.decide(outcome, leader_epoch=self.leader_epoch, now_ms=now.wall_ms)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR and self.quorum.others:
                raise InvariantViolation(f"the active controller cannot write: {error.message}") from error
            raise
        self.unclean_elections += unclean
        self.voter.voters_changed(now)
        return response

    def check_active(self) -> None:
        """Raises KafkaError(NOT_CONTROLLER) if this controller is not active."""
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    def features(self) -> AdvertisedFeatures:
        return advertised_features(
            self.image.feature_levels, self.image.metadata_level, offset=self.metadata_log.next_offset - 1
        )

    # --- leadership

    def _become_only_leader(self, now: Now) -> None:
        """Become leader as the only voter. Raises KafkaError if the disk fails."""
        try:
            self.tick(now)
        except InvariantViolation as error:
            self.abandon()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.metadata_log.log.path}: {error}") from error

    def leadership_begins(self, now: Now) -> None:
        """Replay the whole log. All of it is committed together with the record that begins the epoch."""
        gone = sorted(self.presence.disconnected)
        self.journal.note(now, "active", leader_epoch=self.leader_epoch, end_offset=self.next_offset)
        log.info("active", extra={"leader_epoch": self.leader_epoch, "end_offset": self.next_offset, "gone": gone})
        try:
            is_new = self.next_offset == 0
            self.metadata_log.replay_upto(self.next_offset)
            elected = ControllerElected(self.identity.node_id)
            self.decide(Outcome(None, [elected, *(features.NEW_CLUSTER if is_new else ())]), now)
        except KafkaError as error:
            raise InvariantViolation(
                f"elected leader, but the metadata log cannot be read or written: {error.message}"
            ) from error
        self._returns = LeadershipReturns()
        self.observers = Observers()
        self.sessions.start_all(self.image.alive, now_ms=now.monotonic_ms, disconnected=self.presence.disconnected)

    def leadership_ends(self, now: Now) -> None:
        self.journal.note(now, "no longer active", leader_epoch=self.leader_epoch, leader=self.quorum.leader_id)
        log.info("no longer active", extra={"leader_epoch": self.leader_epoch, "leader": self.quorum.leader_id})
        self.sessions = self._no_sessions()
        self.metadata_log.flush()  # a follower fetches from the end of its log on disk
        self.metadata_log.rewind(self.high_watermark)
        self.close_connections(now, "this controller is no longer active")
        self.commits.lost(METADATA_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.presence = BrokerPresence()

    def quorum_changed(self) -> None:
        self.delayed.grown(METADATA_PARTITION, 0)

    # --- responses and commits

    @property
    def all_committed(self) -> bool:
        return not self.is_active or self.high_watermark == self.next_offset

    def commit_sources(self, api_key: int) -> Sequence[CommitSource]:
        """Every response may reveal the records before it, except those between voters."""
        return () if api_key in WITHOUT_COMMIT else (self,)

    def commit_point(self) -> CommitPoint | None:
        """The end of the metadata log; None if all of it is committed."""
        return None if self.all_committed else CommitPoint(METADATA_PARTITION, self.next_offset)

    def run(self, now: Now) -> None:
        """Process requests, flush appended records and send committed responses, until nothing is left to do."""
        super().run(now)
        while self._flush(now) or self._answer_committed():
            super().run(now)
        if self.snapshots.is_due and self.all_committed:  # otherwise the image holds records that may be lost
            self.snapshots.begin(now)

    def _flush(self, now: Now) -> bool:
        flushed = self.metadata_log.flushed_end.end_offset
        if flushed == self.next_offset or not self.is_active:
            return False
        self.metadata_log.flush()
        self.voter.step(Flushed(), now)
        self.delayed.grown(METADATA_PARTITION, self.next_offset - flushed)
        return True

    def _answer_committed(self) -> bool:
        """Send the responses whose records are committed now; returns whether there were any."""
        before = len(self.commits)
        if self.is_active:
            self.commits.committed(METADATA_PARTITION, self.high_watermark)
        return len(self.commits) < before

    # --- clients

    def handlers_on(self, listener: Listener) -> Mapping[int, Handler]:
        return self.handlers if listener.internal else CLIENT_HANDLERS

    def connection_limit(self, address: str) -> Limit | None:
        return self.image.client_quotas.ip_limit(address)

    def new_authenticator(self, listener: Listener, peer_host: str) -> Authenticator:
        if listener.internal:
            return super().new_authenticator(listener, peer_host)
        return self._client_authentication.new_authenticator(listener, peer_host)

    def connection_opened(self, listener: Listener, peer_host: str, now: Now) -> AcceptedConnection | None:
        connection = super().connection_opened(listener, peer_host, now)
        if (
            connection is not None
            and not connection.refused
            and self._client_authentication.identifies(listener, peer_host)
        ):
            self.identify(connection, None)
        return connection

    def principal_without_sasl(
        self, connection: AcceptedConnection, certificate: bytes | None
    ) -> Principal | Callable[[], Principal]:
        return self._client_authentication.principal_without_sasl(
            connection.listener, connection.peer_host, certificate
        )

    # --- broker sessions

    def connection_closed(self, connection: AcceptedConnection, now: Now) -> None:
        super().connection_closed(connection, now)
        self.presence.connection_lost(connection)
        self._fence(self.sessions.connection_lost(connection), now)

    def tick(self, now: Now) -> None:
        offline_reason = self.metadata_log.log.offline_reason
        if offline_reason is not None:
            raise InvariantViolation(f"the metadata log is offline: {offline_reason}")
        self.voter.tick(now)
        self._client_authentication.token_keys.tick(now)
        self._fence(self.sessions.expire(now_ms=now.monotonic_ms), now)
        super().tick(now)

    def _fence(self, broker_ids: list[BrokerId], now: Now) -> None:
        for broker_id in broker_ids:
            self.journal.note(now, "broker fenced", broker=broker_id)
            self._returns.fenced(self.image, broker_id, now_ms=now.monotonic_ms)
            try:
                self.decide(brokers.fence_broker(self.image, broker_id, self.allows_unclean), now)
            except KafkaError:  # for instance, a full disk: tried again after another session timeout
                self.sessions.start_all([broker_id], now_ms=now.monotonic_ms)
        self.run(now)

    # --- automatic leader elections

    def _balance_leaders(self, now: Now) -> None:
        """Hold unclean elections, which a restart may have allowed, then preferred ones. If the disk fails they are
        tried again at the next check."""
        allows_unclean = self.allows_unclean
        allowed = [topic for topic in self.image.topics.values() if allows_unclean(topic)]
        with suppress(KafkaError):
            records = [record for topic in allowed for record in unclean_elections(self.image, topic)]
            self.decide(Outcome(None, records), now)
            if self.settings.leader_rebalance:
                self.decide(balance_leaders(self.image, imbalance_percent_max=self.settings.imbalance_percent_max), now)

    def _check_each_second(self, now: Now) -> None:
        self._place_coordinators(now)
        self._report_listeners(now)

    def _report_listeners(self, now: Now) -> None:
        """Have the listeners of this voter recorded if they have changed, as they may with each start, or reported to
        the leader while `kraft.version` is 0. If it fails it is tried again at the next check."""
        own = self.as_voter
        known = self.quorum.voters.get(own.voter_id)
        if known is None or not own.endpoints:
            return
        if known.directory_id == NO_DIRECTORY_ID:
            if self.listener_reports.is_due(self.quorum, own):
                self.voter.report(own, partial(self.listener_reports.answered, self.quorum, own), now)
        elif known.directory_id != own.directory_id or known == own:
            return
        elif self.is_active:
            with suppress(KafkaError):
                self.decide(update_voter(self.image, self.quorum, own), now)
        else:
            self.voter.report(own, lambda _: None, now)

    def _place_coordinators(self, now: Now) -> None:
        """Also let coordinators lead that may. If the disk fails it is tried again at the next check."""
        if self.is_active and any(map(is_coordinator, self.image.brokers)):
            with suppress(KafkaError):
                self.decide(Outcome(None, list(place_coordinators(self.image))), now)
                due = self._returns.due(self.image, now_ms=now.monotonic_ms)
                self.decide(elect_leaders(self.image, due, ElectionType.PREFERRED), now)

    def _remove_expired_tokens(self, now: Now) -> bool:
        """Remove some of them; returns whether there may be more. If it fails it is tried again at the next check."""
        outcome = delegation_tokens.remove_expired(self.image, now_ms=now.wall_ms, most=TOKEN_REMOVALS_MAX)
        try:
            return self.decide(outcome, now)
        except KafkaError:
            return False

    # --- lifecycle

    def start(self, endpoints: Mapping[str, Endpoint], now: Now) -> None:
        self.endpoints = dict(endpoints)

    def close(self, now: Now) -> None:
        self.sessions = self._no_sessions()  # connections that the controller closes fence no broker
        super().close(now)
        self.metadata_log.close()

    def abandon(self) -> None:
        self.metadata_log.abandon()

    def _no_sessions(self) -> BrokerSessions:
        return BrokerSessions(timeout_ms=self.settings.broker_session_timeout_ms)

    def _write_checkpoints(self, now: Now) -> None:
        """Write checkpoints and delete files of old segments, off the loop."""
        for checkpoint in self.metadata_log.plan_checkpoints():
            self.add_job(Job(checkpoint.run, partial(self.metadata_log.checkpoint_ended, checkpoint)))
        deletion = self.metadata_log.plan_deletion(now.wall_ms)
        if deletion is not None:
            self.add_job(Job(deletion.run, partial(self.metadata_log.deletion_ended, deletion)))
