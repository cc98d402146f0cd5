"""The broker: connects logs, metadata and connections. It receives events and the time, and uses no socket.

Code shared by all nodes (connections, links, delayed requests) is in `raylog.transport.node`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from raylog.broker.active_controller import ActiveController
from raylog.broker.api_handlers import HANDLERS, TELEMETRY_HANDLERS
from raylog.broker.client_telemetry import ClientTelemetry
from raylog.broker.consumer_lag import ConsumerLag
from raylog.broker.directory_assignments import DirectoryAssignments
from raylog.broker.handlers.delete_records import LIVE_BROKERS_CHANGED
from raylog.broker.handlers.forwarded import PARTITIONS_OPENED
from raylog.broker.handlers.metadata import LEADERS_CHANGED
from raylog.broker.isr_changes import IsrChanges
from raylog.broker.latest_offsets import LatestOffsets
from raylog.broker.lifecycle import BrokerLifecycle, LifecycleState
from raylog.broker.local_readers import LocalReaders
from raylog.broker.log_cleaner import CleaningRunner, DirectRunner, LogCleaner
from raylog.broker.metadata_follower import MetadataFollower
from raylog.broker.partitions import PartitionTable
from raylog.broker.pending_bytes import PendingBytes
from raylog.broker.producer_ids import ProducerIds
from raylog.broker.replica_fetchers import CopyHooks, ReplicaFetchers
from raylog.broker.share.first_offset import first_offset
from raylog.broker.share.sessions import SessionKey, ShareSessions
from raylog.broker.share.share_partition import ShareLimits
from raylog.broker.share.share_partitions import SharePartitions
from raylog.broker.streams_topics import StreamsTopics
from raylog.broker.topic_creation import Requester, TopicCreation
from raylog.broker.traffic import BrokerTraffic
from raylog.config.authentication import LOCAL_PRINCIPAL_MAPPING
from raylog.config.compaction import COMPACT
from raylog.config.consumer_groups import DISABLED, ConsumerGroupSettings
from raylog.config.delegation_tokens import delegation_token_settings
from raylog.config.group_resource import (
    group_configs,
    settings_of_group,
    share_settings_of_group,
    streams_settings_of_group,
)
from raylog.config.internal_topics import InternalTopic
from raylog.config.log import LOG_DIR_FAILURE_TIMEOUT_MS, PRODUCER_COMPRESSION
from raylog.config.network import connection_limits
from raylog.config.settings import broker_settings
from raylog.config.share_groups import ShareGroupSettings
from raylog.config.streams_groups import StreamsGroupSettings
from raylog.config.table import with_dynamic_configs
from raylog.config.topic import topic_configs
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.groupcoord.consumer.records import Partitions
from raylog.groupcoord.shards import OFFSETS_TOPIC, GroupShards
from raylog.groupcoord.share.groups import OnInitialized
from raylog.groupcoord.topics import ImageTopics
from raylog.logstore.disk import Disk
from raylog.logstore.log_dir import Jobs, run_in_order
from raylog.metadata.effective_configs import ALL_BROKERS, dynamic_texts, effective_configs
from raylog.metadata.features import TRANSACTION_FEATURE, TRANSACTION_RECORDS_1, advertised_features
from raylog.metadata.image import MetadataImage, TopicImage
from raylog.metadata.levels import COMPACTION_LEVEL, FEATURES_LEVEL, MIXED_GROUPS_LEVEL
from raylog.metadata.node_roles import is_coordinator
from raylog.metadata.records import (
    BrokerConfigsChanged,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ClientMetricsConfigsChanged,
    ClientQuotaRemoved,
    ClientQuotaSet,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ReplicasChanged,
    TopicCreated,
    TopicDeleted,
)
from raylog.metadata.topic_names import INTERNAL_TOPICS
from raylog.metadata.voters import voter_ids
from raylog.quotas.client_quotas import CONSUMER_BYTE_RATE, Limit
from raylog.quotas.rate import Sampling
from raylog.quotas.usage import Throttled
from raylog.replication.fetch_sessions import FetchSessions
from raylog.replication.partition import Partition
from raylog.replication.partition_change import Change, PartitionChange, SessionChange
from raylog.replication.throttle import ReplicationThrottle
from raylog.security import authorizer
from raylog.security.acl import Operation, Resource
from raylog.security.authenticator import Authenticator, NoSasl
from raylog.security.authorization import Authorization
from raylog.security.decision_log import PERIOD_MS as DECISION_LOG_PERIOD_MS
from raylog.security.delegation_tokens import TokenKey
from raylog.security.local_users import LocalUsers
from raylog.security.password_cipher import PasswordCipher
from raylog.security.principal import ANONYMOUS, Principal
from raylog.sharecoord.persister import Persister
from raylog.sharecoord.shards import SHARE_STATE_TOPIC, ShareShards
from raylog.sharecoord.states import UNINITIALIZED_START_OFFSET
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.advertised_features import AdvertisedFeatures
from raylog.transport.authentication import ClientAuthentication
from raylog.transport.endpoints import UNIX_PEER, Endpoint, Listener
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import Node, NodeIdentity
from raylog.transport.peer_link import PeerLink
from raylog.transport.throttling import RequestQuotas
from raylog.txncoord.marker_sender import MarkerSender
from raylog.txncoord.shards import TRANSACTION_TOPIC, TransactionShards
from raylog.txncoord.verification import Verification

FLUSH_CHECK_INTERVAL_MS_MAX = 1000
"""How often flush.ms is checked: logs are flushed up to this much later than configured. Kafka's default is never."""
DELETE_CHECK_INTERVAL_MS = 5000
"""How often file.delete.delay.ms is checked: files are deleted up to this much later."""
OFFLINE_CHECK_INTERVAL_MS = 1000
"""How often the log directory is checked, and requests and local readers that wait for an offline log are failed."""

PEER_PREFIX = "broker-"


def peer_name(broker_id: BrokerId) -> str:
    """The name under which other nodes link to this broker."""
    return f"{PEER_PREFIX}{broker_id}"


class Broker(Node):
    """One incarnation: created over its log directory, serves until `close`. Any InvariantViolation ends it."""

    handlers = HANDLERS

    def __init__(
        self,
        identity: NodeIdentity,
        configs: Configs,
        disk: Disk,
        log_paths: Sequence[str],
        *,
        new_id: Callable[[], UUID],
        new_nonce: Callable[[int], bytes],
        now: Now,
        run_all: Callable[[Jobs], None] = run_in_order,
        cleaning: CleaningRunner | None = None,
        voters: Sequence[BrokerId] = voter_ids(1),
    ) -> None:
        """Locks the log directories and recovers their logs through `run_all`. Raises KafkaError with the cause.

        `cleaning` carries out cleanings of compacted logs; None for the thread of the job. `voters` are the controllers
        of the cluster, one of which is active.
        """
        super().__init__(identity, connection_limits(configs), new_nonce=new_nonce, now=now)
        self.disk = disk
        self.authorization = Authorization(authorizer.configured(configs, lambda: self.image.acls.index))
        if self.authorization.authorizer is not None:
            decisions = self.authorization.decisions
            self.add_periodic_task(DECISION_LOG_PERIOD_MS, lambda _: decisions.begin_period(), now)
        self.configs = self._static_configs = configs
        """The effective configuration: dynamic values in the metadata log override the static ones."""
        self._cipher = PasswordCipher(identity.cluster_secret, new_nonce)
        self.settings = broker_settings(configs)
        """The same, as typed settings."""
        token_secret = delegation_token_settings(configs).secret_key
        self.token_key = None if token_secret is None else TokenKey(token_secret)
        self._client_authentication = ClientAuthentication(
            configs,
            plan_listeners(configs),
            credentials=lambda: self.image,
            new_nonce=new_nonce,
            cluster_secret=identity.cluster_secret,
            token_key=self.token_key,
            clock=lambda: self.now,
            add_job=self.add_job,
        )
        self.endpoints: dict[str, Endpoint] = {}
        """The advertised endpoints by listener name; set by `start`."""
        self.fetch_sessions = FetchSessions(
            slots_max=self.settings.requests.fetch_sessions_max,
            first_session_id=identity.incarnation_id.int,
            on_unsettled=self._follower_was_caught_up,
        )
        sampling = Sampling(self.settings.quotas.window_count, self.settings.quotas.window_ms)
        self.request_quotas = RequestQuotas(sampling, clock_ns=lambda: self.work_clock_ns())
        """What clients use of their quotas; asked while there are quotas, see `quotas`."""
        self.new_id = new_id
        self.traffic = BrokerTraffic()
        self.telemetry = ClientTelemetry(lambda: self.image.client_metrics)
        if self.settings.metrics.shown_at is not None:
            self.handlers = {**HANDLERS, **TELEMETRY_HANDLERS}
        self._readers_to_check = False
        """Whether quotas have changed that may limit local readers."""
        self.leader_throttle = ReplicationThrottle(now_ms=now.monotonic_ms)
        self._follower_throttle = ReplicationThrottle(now_ms=now.monotonic_ms)
        self._leader_changed: dict[TopicPartition, None] = {}
        self._leader_epochs: dict[TopicPartition, LeaderEpoch] = {}
        """Leader epochs of the partitions led here, for which requests may wait for commits."""
        self._uncommitted_bytes = PendingBytes()
        """Those above the high watermarks of partitions led here."""
        self._unstable_bytes = PendingBytes()
        """Those of them that are committed and above the last stable offsets."""
        self._stable_offsets: dict[TopicPartition, Offset] = {}
        """The last stable offsets that waiting requests have been tried with."""
        self.peers_lost_ms: dict[BrokerId, int] = {}
        """When a connection to each broker last broke."""
        self._local_users = LocalUsers(configs[LOCAL_PRINCIPAL_MAPPING])
        self.local_readers = LocalReaders(
            self.partition,
            may_read=lambda client, tp: self.authorization.client_may(client, Operation.READ, Resource.topic(tp.topic)),
            principal_of=lambda user: self._local_users.principal_of(user) or ANONYMOUS,
            is_limited=lambda client: self.image.client_quotas.may_limit(CONSUMER_BYTE_RATE, client.principal.name),
        )
        self.groups = GroupShards(
            self,
            limits=lambda: self.settings.groups,
            consumer_settings=self.consumer_group_settings,
            share_settings=self.share_group_settings,
            streams_settings=self.streams_group_settings,
            initialize=self._initialize_share_state,
            topics=ImageTopics(lambda: self.image),
            new_id=lambda: str(new_id()),
        )
        self.table = PartitionTable(
            disk,
            log_paths,
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            configs=configs,
            new_id=new_id,
            background=self,
            on_change=self._partition_begins_elsewhere,
            on_gone=self._partition_gone,
            on_progress=self._directories_progressed,
            on_placed=lambda tp, topic_id, directory_id: self.assignments.placed(tp, topic_id, directory_id),
            move_rate=lambda: self.settings.replication.move_rate_bytes_per_sec,
            now_ms=now.wall_ms,
            run_all=run_all,
        )
        self.partitions = self.table.online
        self.log_cleaner = LogCleaner(
            self.partitions,
            self,
            disk,
            DirectRunner(disk) if cleaning is None else cleaning,
            settings=lambda: self.settings.cleaner,
            new_secret=new_nonce,
            is_moving=self.table.moves.is_moving,
            on_cleaned=self.table.write_cleaned,
            now=now,
        )
        active = ActiveController(self, voters)
        self.follower = MetadataFollower(
            self, active, on_record=self._metadata_changed, on_replayed=self._follow_leaders
        )
        self.lifecycle = BrokerLifecycle(
            self,
            self.follower,
            active,
            rack=self.settings.membership.rack,
            directory_ids=lambda: self.table.directory_ids,
            failed_directory_ids=self._failed_directory_ids,
            previous_broker_epoch=self.table.log_dirs.previous_broker_epoch,
            heartbeat_interval_ms=self.settings.membership.heartbeat_interval_ms,
            controlled_shutdown=self.settings.membership.controlled_shutdown,
            on_caught_up=self._caught_up,
            now=now,
        )
        self.assignments = DirectoryAssignments(
            self.lifecycle.link,
            identity.node_id,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            on_settled=self.lifecycle.directory_failed,
        )
        active.on_found.append(self.assignments.ask)
        self._failed_since_ms: int | None = None
        """Since when a log directory has failed, as long as the controller does not know it."""
        self.producer_ids = ProducerIds(self.lifecycle, node_id=identity.node_id)
        self._coordination_links: dict[BrokerId, PeerLink] = {}
        markers = MarkerSender(lambda: self.image, self._coordination_link)
        self._on_coordination_link = markers.send_waiting
        self.transactions = TransactionShards(
            self,
            commits=self.commits,
            markers=markers,
            new_producer_id=self.producer_ids.take,
            timeout_ms_max=lambda: self.settings.transactions.timeout_ms_max,
            on_completed=lambda completion: self.delayed.grown(completion, 0),
            flexible=lambda: self.image.feature_level(TRANSACTION_FEATURE) >= TRANSACTION_RECORDS_1,
        )
        self.share_states = ShareShards(
            self,
            updates_max=lambda: self.settings.share_groups.updates_max,
            exists=self._has_partition,
            on_pruned=self.partition_changed,
        )
        self.persister = Persister(
            identity.node_id,
            self.share_states,
            coordinator=lambda key, now: self.find_coordinator(SHARE_STATE_TOPIC, key.text, now)[1],
            link_to=self._coordination_link,
            commits=self.commits,
            clock=lambda: self.now,
        )
        self.share_partitions = SharePartitions(
            self.persister,
            led=self.led,
            limits=self.share_limits,
            first_offset=lambda group, partition, now: first_offset(
                self.share_group_settings(group).auto_offset_reset, partition, now
            ),
            on_available=lambda key: self.delayed.grown(key, 0),
        )
        self.share_sessions = ShareSessions(sessions_max=lambda: self.settings.share_groups.sessions_max)
        self.verification = Verification(
            identity.node_id,
            self.transactions,
            lambda transactional_id: self.coordinator_of(TRANSACTION_TOPIC, transactional_id)[1],
            self._coordination_link,
            delayed=self.delayed,
            settings=lambda: self.settings.transactions,
            supports_2=lambda: self.supports_transactions_2,
            clock=lambda: self.now,
        )
        self.latest_offsets = LatestOffsets(
            identity.node_id, self.partitions, lambda: self.image, self._coordination_link
        )
        self.consumer_lag = ConsumerLag(
            identity.node_id, self.groups, self.partitions, lambda: self.image, self._coordination_link
        )
        self._topic_creation = TopicCreation(
            self.lifecycle.link, num_partitions=lambda: self.settings.topics.num_partitions
        )
        self.streams_topics = StreamsTopics(self.lifecycle.link)
        self.isr_changes = IsrChanges(
            self.lifecycle.link,
            identity.node_id,
            self.partitions,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            lag_ms_max=lambda: self.settings.replication.lag_ms_max,
            may_join=self._may_join,
            on_change=self.partition_committed,
        )
        active.on_found.append(self.isr_changes.ask)
        self.fetchers = ReplicaFetchers(
            identity.node_id,
            self.partitions,
            new_link=self._link_to,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            limits=lambda: self.settings.replica_fetch,
            hooks=CopyHooks(
                truncate=self.table.truncate,
                restart=self.table.restart,
                is_in_sync=self._is_in_sync,
                free_ms=self._free_to_copy_ms,
                on_copied=self._copied,
                on_committed=self.partition_committed,
            ),
        )
        token_keys = self._client_authentication.token_keys
        for deadlines in (
            self.groups,
            self.transactions,
            self.persister,
            self.share_partitions,
            self.fetchers,
            self.lifecycle,
            self.log_cleaner,
            self.table.moves,
            token_keys,
        ):
            self.watch_deadline(deadlines.next_deadline_ms)
        self._following = False
        self._first_opened: int | None = None
        """The ticket of the last partition to be opened before this broker asks to serve."""
        self._accepting = False
        self._add_periodic_tasks(now)

    def _add_periodic_tasks(self, now: Now) -> None:
        settings = self.settings
        disk_settings, replication, transactions = settings.log_dir, settings.replication, settings.transactions
        for interval_ms, task in (
            (min(disk_settings.flush_check_interval_ms, FLUSH_CHECK_INTERVAL_MS_MAX), self.table.flush),
            (replication.lag_ms_max // 2, self.isr_changes.check_all),
            (replication.high_watermark_checkpoint_interval_ms, self.table.write_high_watermarks),
            (DELETE_CHECK_INTERVAL_MS, self.table.delete_retired),
            (OFFLINE_CHECK_INTERVAL_MS, self._check_disk),
            (disk_settings.recovery_point_interval_ms, self.table.write_recovery_points),
            (disk_settings.log_start_offset_interval_ms, self.table.write_log_start_offsets),
            (disk_settings.retention_check_interval_ms, self._apply_retention),
            (settings.offsets.retention_check_interval_ms, self._expire_offsets),
            (settings.share_groups.prune_interval_ms, self.share_states.prune),
            (transactions.abort_check_interval_ms, self.transactions.time_out),
            (transactions.id_expiration_check_interval_ms, self._expire_transactional_ids),
        ):
            self.add_periodic_task(interval_ms, task, now)

    # --- lifecycle

    @property
    def accepting(self) -> bool:
        """True once the cluster has registered this incarnation, this broker has caught up with the metadata, and it
        can authenticate clients."""
        authentication = self._client_authentication
        return self._accepting and authentication.token_keys.attempted and not authentication.changing

    def start(self, endpoints: Mapping[str, Endpoint], now: Now) -> None:
        self.endpoints = dict(endpoints)
        self.lifecycle.start(endpoints)
        self.tick(now)

    def begin_shutdown(self, now: Now) -> None:
        self.log_cleaner.stop()
        self.lifecycle.begin_shutdown(now)
        self.run(now)

    @property
    def can_close(self) -> bool:
        return self.lifecycle.state is LifecycleState.SHUTTING_DOWN

    def close(self, now: Now) -> None:
        """A clean stop: all data is flushed and the directory marked clean, so the next start need not recover."""
        super().close(now)
        self.local_readers.close()
        self.table.close(broker_epoch=self.lifecycle.broker_epoch)

    def abandon(self) -> None:
        """Release the log directories without marking the stop as clean: the next start recovers, as after a crash."""
        self.table.abandon()

    def connection_limit(self, address: str) -> Limit | None:
        return self.image.client_quotas.ip_limit(address)

    def prepare_scrape(self, now: Now, done: Callable[[], None]) -> None:
        self._begin_event(now)
        self.consumer_lag.refresh(now, done)
        self.run(now)

    def new_authenticator(self, listener: Listener, peer_host: str) -> Authenticator:
        if peer_host.startswith(UNIX_PEER):
            principal = self._local_users.principal_of(int(peer_host.removeprefix(UNIX_PEER)))
            if principal is not None:
                return NoSasl(principal)
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

    def connection_closed(self, connection: AcceptedConnection, now: Now) -> None:
        super().connection_closed(connection, now)
        for key in self.share_sessions.connection_closed(connection):
            self.end_share_session(key, now, orderly=False)

    def principal_without_sasl(
        self, connection: AcceptedConnection, certificate: bytes | None
    ) -> Principal | Callable[[], Principal]:
        return self._client_authentication.principal_without_sasl(
            connection.listener, connection.peer_host, certificate
        )

    # --- time

    def tick(self, now: Now) -> None:
        self.groups.tick(now)
        self.transactions.tick(now)
        self.persister.tick(now)
        self.share_partitions.tick(now)
        self.fetchers.tick(now)
        self.lifecycle.tick(now)
        self.log_cleaner.tick(now)
        self.table.moves.tick(now)
        self._client_authentication.token_keys.tick(now)
        super().tick(now)

    # --- the cluster

    def features(self) -> AdvertisedFeatures:
        return advertised_features(
            self.image.feature_levels, self.image.metadata_level, offset=self.follower.next_offset - 1
        )

    @property
    def image(self) -> MetadataImage:
        return self.follower.image

    @property
    def supports_transactions_2(self) -> bool:
        """Whether all brokers know transactions of version 2. As in Kafka, `transaction.version` only tells clients
        whether to use them: requests of clients that have not learned of a downgrade are served."""
        return self.image.metadata_level >= FEATURES_LEVEL

    def alive_on(
        self, listener_name: str, *, also_fenced: bool = False
    ) -> Iterator[tuple[BrokerId, str, int, str | None]]:
        """(id, host, port, rack) of each unfenced broker or coordinator on the listener of this name, or of fenced ones
        as well."""
        for broker_id, broker in sorted(self.image.brokers.items()):
            endpoint = broker.endpoint(listener_name)
            if (also_fenced or not broker.fenced) and endpoint is not None:
                yield broker_id, *endpoint, broker.registration.rack

    def controller_on(self, listener_name: str) -> BrokerId:
        """The broker that clients are to take for the controller: this one, since every broker forwards requests to the
        controller. A coordinator names another broker; NO_BROKER_ID if none is alive."""
        if not is_coordinator(self.identity.node_id):
            return self.identity.node_id
        alive = (broker_id for broker_id, *_ in self.alive_on(listener_name))
        return next((broker_id for broker_id in alive if not is_coordinator(broker_id)), BrokerId(NO_BROKER_ID))

    def find_coordinator(self, topic: str, key: str, now: Now) -> tuple[TopicPartition, BrokerId]:
        """As `coordinator_of`, but creates the internal topic if it does not exist yet."""
        if topic not in self.image.topics:
            self.request_topic(topic, now)
        return self.coordinator_of(topic, key)

    def coordinator_of(self, topic: str, key: str) -> tuple[TopicPartition, BrokerId]:
        """The partition of an internal topic that stores `key`, and its leader.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) if the topic or its leader is missing, or being created.
        """
        count = self.partition_count(topic)
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} is being created.")
        tp = TopicPartition(topic, coordinator_partition(key, count))
        shown = self.image.partition(tp)
        if shown is None or shown.leader == NO_BROKER_ID:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{tp} has no leader.")
        if shown.leader == self.identity.node_id and self.table.directories.is_opening(tp):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{tp} is being created.")
        return tp, shown.leader

    def partition_of_group(self, group_id: str, now: Now) -> TopicPartition:
        """The partition of __consumer_offsets that stores the group; if the topic does not exist yet, it is requested,
        and this is the partition that will."""
        count = self.partition_count(OFFSETS_TOPIC)
        if not count:
            self.request_topic(OFFSETS_TOPIC, now)
            count = self.settings.offsets_topic.num_partitions
        return TopicPartition(OFFSETS_TOPIC, coordinator_partition(group_id, count))

    def request_topic(self, topic: str, now: Now, *, requester: Requester | None = None) -> None:
        """Request the topic from the controller, with the defaults or as an internal topic.

        While there are quotas, a topic that is not internal is charged to `requester`.
        """
        if topic == OFFSETS_TOPIC:
            self._request_internal_topic(topic, self.settings.offsets_topic, now)
        elif topic == TRANSACTION_TOPIC:
            self._request_internal_topic(topic, self.settings.transaction_topic, now)
        elif topic == SHARE_STATE_TOPIC:
            self._request_internal_topic(topic, self.settings.share_state_topic, now)
        else:
            self._topic_creation.request(topic, now, requester=None if self.quotas is None else requester)

    def _request_internal_topic(self, topic: str, wanted: InternalTopic, now: Now) -> None:
        """Limits the replicas to the number of live brokers, but not below min.insync.replicas.

        While there may be brokers that do not compact logs, all records are kept.
        """
        can_compact = wanted.is_compacted and self.image.metadata_level >= COMPACTION_LEVEL
        brokers = self.image.broker_ids
        least = min(wanted.min_insync_replicas, len(brokers))
        self._topic_creation.request_internal(
            topic,
            now,
            num_partitions=wanted.num_partitions,
            replication_factor=min(wanted.replication_factor, max(len(self.image.active & brokers), least)),
            configs={
                "segment.bytes": str(wanted.segment_bytes),
                "min.insync.replicas": str(wanted.min_insync_replicas),
                **({"cleanup.policy": COMPACT} if can_compact else {"retention.ms": "-1", "retention.bytes": "-1"}),
                "compression.type": PRODUCER_COMPRESSION,
            },
        )

    def _caught_up(self, now: Now) -> None:
        self._configs_changed()
        self._quotas_changed()
        self.telemetry.subscriptions_changed()
        try:
            self.table.follow(self.image)
        except KafkaError as error:
            raise InvariantViolation(error.message) from error
        self._following = True
        self._first_opened = self.table.directories.last_ticket
        self.producer_ids.refill(now)
        self._directories_progressed(now)

    def _directories_progressed(self, now: Now) -> None:
        """Partitions were opened, or could not be opened."""
        self._follow_leaders(now)
        self.assignments.ask(now)
        self.delayed.grown(PARTITIONS_OPENED, 0)
        if self._first_opened is not None and self.table.directories.has_opened(self._first_opened):
            self._first_opened = None
            self.lifecycle.opened(now)

    def _metadata_changed(self, record: MetadataRecord, now: Now) -> None:
        self.fetch_sessions.all_changed()
        if self._following:
            self.table.metadata_changed(record, now)
        match record:
            case BrokerUnfenced(broker_epoch=self.lifecycle.broker_epoch):
                self._accepting = True
            case LeaderChanged() | ReplicasChanged():
                self.delayed.grown(LEADERS_CHANGED, 0)
            case BrokerFenced() | BrokerRegistered() | BrokerUnregistered():
                self.delayed.grown(LIVE_BROKERS_CHANGED, 0)
            case BrokerConfigsChanged() if self._following and record.broker_id in (ALL_BROKERS, self.identity.node_id):
                self._configs_changed()
                if record.broker_id == self.identity.node_id:
                    self.on_keys_set()
            case ClientQuotaSet() | ClientQuotaRemoved() if self._following:
                self._quotas_changed()
            case ClientMetricsConfigsChanged():
                self.telemetry.subscriptions_changed()
            case TopicCreated() | PartitionCreated():
                self.groups.topics_changed()
            case TopicDeleted() if self._following:
                topic = self.image.deleted_topics[record.topic_id]
                self.groups.topics_changed()
                self.groups.topic_deleted(topic, now)
                self.traffic.topic_deleted(topic)
                self.share_states.topic_deleted(record.topic_id, now)

    def _configs_changed(self) -> None:
        self.configs = effective_configs(self.image, self._static_configs, self.identity.node_id, cipher=self._cipher)
        self.settings = broker_settings(self.configs)
        self.table.configs_changed(self.configs)
        self._client_authentication.configs_changed(self.configs)
        self.slow_requests.configure(self.settings.requests.slow_ms)

    def consumer_group_settings(self, group_id: str) -> ConsumerGroupSettings:
        """What applies to a group of the consumer protocol: the broker's settings, and what is set for the group."""
        stored, settings = self.image.group_configs.get(group_id), self.settings.consumer_groups
        if self.image.metadata_level < MIXED_GROUPS_LEVEL:
            settings = replace(settings, migration=DISABLED, mixed=False)
        return settings if stored is None else settings_of_group(settings, group_configs(stored, self.configs))

    def streams_group_settings(self, group_id: str) -> StreamsGroupSettings:
        """What applies to a streams group: the broker's settings, and what is set for the group."""
        stored, settings = self.image.group_configs.get(group_id), self.settings.streams_groups
        return settings if stored is None else streams_settings_of_group(settings, group_configs(stored, self.configs))

    # --- share groups

    def share_group_settings(self, group_id: str) -> ShareGroupSettings:
        """What applies to a share group: the broker's settings, and what is set for the group."""
        stored, settings = self.image.group_configs.get(group_id), self.settings.share_groups
        return settings if stored is None else share_settings_of_group(settings, group_configs(stored, self.configs))

    def share_limits(self, group_id: str) -> ShareLimits:
        """What applies to the records of a share group."""
        settings = self.share_group_settings(group_id)
        return ShareLimits(settings.lock_duration_ms, settings.delivery_count_max, settings.in_flight_max)

    def share_read_committed(self, group_id: str) -> bool:
        """Whether a share group gets no records of aborted transactions."""
        return self.share_group_settings(group_id).read_committed

    def end_share_session(self, key: SessionKey, now: Now, *, orderly: bool) -> None:
        """Release what the member has acquired, and forget the share-partitions of a group without sessions."""
        self.share_partitions.release(key.group, key.member_id, now, orderly=orderly)
        if not self.share_sessions.has_group(key.group):
            self.share_partitions.group_unused(key.group)

    def _initialize_share_state(
        self, group: str, partitions: Partitions, state_epoch: int, on_initialized: OnInitialized, now: Now
    ) -> None:
        self.persister.initialize_all(
            group,
            dict.fromkeys(partitions, UNINITIALIZED_START_OFFSET),
            state_epoch=state_epoch,
            on_results=lambda errors, now: on_initialized(partitions - errors.keys(), now),
            now=now,
        )

    def _has_partition(self, topic_id: UUID, number: int) -> bool:
        topic = self.image.topics_by_id.get(topic_id)
        return topic is not None and 0 <= number < len(topic.partitions)

    def configs_after(self, changes: Mapping[str, str | None], *, replace: bool) -> Configs:
        """The effective configuration with other dynamic values of this broker; None deletes one.

        With `replace` those that are not contained are deleted.
        """
        own = {} if replace else dynamic_texts(self.image, self.identity.node_id, cipher=self._cipher)
        texts = {name: text for name, text in {**own, **changes}.items() if text is not None}
        cluster = dynamic_texts(self.image, ALL_BROKERS, cipher=self._cipher)
        return with_dynamic_configs(self._static_configs, cluster=cluster, broker=texts)

    def _quotas_changed(self) -> None:
        quotas = self.image.client_quotas
        self.request_quotas.usage.quotas_changed(quotas)
        self.quotas = self.request_quotas if quotas else None
        if not self._readers_to_check:
            self._readers_to_check = True
            self.add_steps(self._check_readers)  # once for many changes

    def _check_readers(self, _: Now) -> bool:
        self._readers_to_check = False
        self.local_readers.quotas_changed()
        return False

    def throttled(self) -> list[Throttled]:
        """The throttled time of clients since the start, for each quota."""
        return self.request_quotas.usage.throttled.all() + self.connection_rates.throttled.all()

    # --- partitions

    def partition(self, tp: TopicPartition) -> Partition:
        """The partition, if led here. Raises KafkaError: unknown, led by another broker or not open yet, or its disk
        has failed."""
        partition = self.partitions.get(tp)
        if partition is not None and partition.is_leader:
            if partition.log.offline_reason is not None:  # also for requests that do not need the disk
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is offline: {partition.log.offline_reason}")
            return partition
        shown = self.image.partition(tp)
        if shown is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if shown.leader == self.identity.node_id and not self.table.directories.is_opening(tp):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def replica(self, tp: TopicPartition) -> Partition:
        """The partition, also if another broker leads it. Raises KafkaError as `partition` does."""
        partition = self.partitions.get(tp)
        if partition is None or partition.log.offline_reason is not None:
            return self.partition(tp)
        return partition

    @property
    def configs_in_force(self) -> Configs:
        return self.configs

    def topic_configs(self, topic: TopicImage) -> Configs:
        return topic_configs(topic.configs, self.configs)

    def _apply_retention(self, now: Now) -> None:
        if self._following:
            self.table.apply_retention(now)
            self._follow_leaders(now)

    def partition_appended(self, tp: TopicPartition, grown_bytes: int) -> None:
        """This broker has appended to a partition it leads: followers may fetch now, readers after the commit."""
        partition = self.partitions[tp]
        self.local_readers.changed(tp)
        self._grown(tp, Change.APPENDED, grown_bytes)
        point = partition.commit_point()
        if point is None:
            self._committed_grew(partition, grown_bytes)
        else:
            self._uncommitted_bytes.appended(
                tp, grown_bytes, end_offset=Offset(point.end_offset), upto=partition.high_watermark
            )

    def partition_committed(self, tp: TopicPartition) -> None:
        """The high watermark of a replica has moved: complete requests that wait for commits or for data."""
        partition = self.partitions[tp]
        self.local_readers.changed(tp)
        if partition.is_leader:
            code = ErrorCode.NONE if partition.has_enough_replicas else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self.commits.committed(tp, partition.high_watermark, code)
        self._committed_grew(partition, self._uncommitted_bytes.passed(tp, partition.high_watermark))

    def _committed_grew(self, partition: Partition, grown_bytes: int) -> None:
        """More may be read: with read_committed once the last stable offset has moved as well."""
        tp = partition.topic_partition
        self._grown(tp, Change.COMMITTED, grown_bytes)
        high_watermark = partition.high_watermark
        stable_offset = partition.log.last_stable_offset(high_watermark)
        if stable_offset < high_watermark or tp in self._unstable_bytes:
            if grown_bytes:
                self._unstable_bytes.appended(tp, grown_bytes, end_offset=high_watermark, upto=stable_offset)
            grown_bytes = self._unstable_bytes.passed(tp, stable_offset)
        former = self._stable_offsets.get(tp)
        if stable_offset != former:
            self._stable_offsets[tp] = stable_offset
            self._grown(tp, Change.STABLE, 0 if former is None else grown_bytes)

    def partition_changed(self, tp: TopicPartition) -> None:
        """Another property of a replica has changed: its log start offset, its leader, a transaction in it."""
        if tp in self.partitions:
            self.partition_committed(tp)
        for change in Change:
            self._grown(tp, change, 0)

    def _grown(self, tp: TopicPartition, change: Change, grown_bytes: int) -> None:
        """Try to complete the requests that wait for this change, by themselves or with their fetch session."""
        self.delayed.grown(PartitionChange(tp, change), grown_bytes)
        for session_id in self.fetch_sessions.changed(tp):
            self.delayed.grown(SessionChange(session_id, change), grown_bytes)

    def _follower_was_caught_up(self, tp: TopicPartition, replica: BrokerId, at_ms: int) -> None:
        partition = self.partitions.get(tp)
        if partition is not None:
            partition.follower_was_caught_up(replica, at_ms)

    def _follow_leaders(self, now: Now) -> None:
        """Fetch partitions whose leader has changed from the new leader."""
        changed, self._leader_changed = self._leader_changed, {}
        self.fetchers.leaders_changed(changed, now)

    def peer_endpoint(self, peer: str) -> Endpoint | None:
        if not peer.startswith(PEER_PREFIX):
            return None
        broker = self.image.brokers.get(BrokerId(int(peer.removeprefix(PEER_PREFIX))))
        where = broker.endpoint(self.settings.listeners.inter_broker_name) if broker is not None else None
        if where is None:
            raise OSError(f"{peer} is not registered in the cluster")
        return Endpoint(*where)

    def _link_to(self, broker_id: BrokerId, on_ready: Callable[[Now], None]) -> PeerLink:
        def lost(now: Now) -> None:
            self.peers_lost_ms[broker_id] = now.monotonic_ms

        return self.new_link(peer_name(broker_id), on_ready=on_ready, on_lost=lost)

    def _coordination_link(self, broker_id: BrokerId) -> PeerLink:
        """For requests between coordinators and partition leaders."""
        link = self._coordination_links.get(broker_id)
        if link is None:
            link = self._coordination_links[broker_id] = self._link_to(broker_id, self._on_coordination_link)
        return link

    def _free_to_copy_ms(self, partition: Partition, now: Now) -> int:
        """Replicas that are not in sync are throttled if their topic lists them."""
        if not partition.throttled_as_follower or self._is_in_sync(partition):
            return now.monotonic_ms
        rate = self.settings.replication.follower_rate_bytes_per_sec
        return self._follower_throttle.free_ms(rate_bytes_per_sec=rate, now_ms=now.monotonic_ms)

    def _copied(self, partition: Partition, size_bytes: int, now: Now) -> None:
        self.traffic.replication_bytes_in += size_bytes
        if partition.throttled_as_follower and not self._is_in_sync(partition):
            rate = self.settings.replication.follower_rate_bytes_per_sec
            self._follower_throttle.used(size_bytes, rate_bytes_per_sec=rate, now_ms=now.monotonic_ms)

    def _is_in_sync(self, partition: Partition) -> bool:
        """As decided by the controller."""
        shown = self.image.partition(partition.topic_partition)
        return shown is not None and self.identity.node_id in shown.isr

    def _partition_begins_elsewhere(self, tp: TopicPartition) -> None:
        """The log start offset of a replica has changed, or its leader epoch."""
        partition = self.partitions[tp]
        self._leader_changed[tp] = None
        if self._leader_epochs.get(tp, partition.leader_epoch) != partition.leader_epoch:
            self.commits.lost(tp, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.is_leader and self._leader_epochs.get(tp) != partition.leader_epoch:
            self.journal.note(self.now, "partition led", tp=tp, leader_epoch=partition.leader_epoch)
        self._leader_epochs[tp] = partition.leader_epoch
        self._leadership_changed(tp)
        self.partition_changed(tp)

    def _partition_gone(self, tp: TopicPartition) -> None:
        """A partition was deleted, or is led by another broker."""
        if tp in self._leader_epochs:
            self.journal.note(self.now, "partition released", tp=tp)
        self._leader_changed[tp] = None
        self._leader_epochs.pop(tp, None)
        self._uncommitted_bytes.forget(tp)
        self._unstable_bytes.forget(tp)
        self._stable_offsets.pop(tp, None)
        self.commits.lost(tp, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._leadership_changed(tp)
        self.local_readers.gone(tp)
        for change in Change:
            self._grown(tp, change, 0)

    def _leadership_changed(self, tp: TopicPartition) -> None:
        if tp.topic in INTERNAL_TOPICS:
            self.groups.leadership_changed(tp, self.now)
            self.transactions.leadership_changed(tp, self.now)
            self.share_states.leadership_changed(tp, self.now)
        self.share_partitions.leadership_changed(tp)

    def _check_disk(self, now: Now) -> None:
        """Detect deleted files, and fail requests that wait for a log that is offline.

        The controller elects other leaders for the replicas of a failed directory. Without any directory the broker
        can lead no partition: it has itself fenced, so that others lead them.
        """
        if not self.table.check_files():
            self.fetch_sessions.all_changed()
        self._report_failed_directories(now)
        self.local_readers.close_offline()
        for tp in self.commits.logs:
            partition = self.partitions.get(tp) if isinstance(tp, TopicPartition) else None
            if partition is None or partition.log.offline_reason is not None:
                self.commits.lost(tp, ErrorCode.KAFKA_STORAGE_ERROR)

    def _report_failed_directories(self, now: Now) -> None:
        reason = self.table.offline_reason
        if reason is not None:
            if self.lifecycle.serve_no_more(now):
                self.journal.note(now, "log directory offline", reason=reason)
            return
        self.assignments.ask(now)
        shown = self.image.brokers.get(self.identity.node_id)
        failed = set(self.table.failed_directory_ids)
        if shown is None or failed.isdisjoint(shown.registration.log_dirs):
            self._failed_since_ms = None
        elif self._failed_since_ms is None:
            self._failed_since_ms = now.monotonic_ms
            self.journal.note(now, "log directory offline", directory_ids=sorted(map(str, failed)))
            self.lifecycle.directory_failed(now)
        elif now.monotonic_ms - self._failed_since_ms > self.settings.log_dir.failure_timeout_ms:
            rule = LOG_DIR_FAILURE_TIMEOUT_MS.name
            raise InvariantViolation(f"a failed log directory could not be reported to the controller within {rule}")

    def _failed_directory_ids(self) -> tuple[UUID, ...]:
        """Those to be reported; none before the controller knows which replicas are in them."""
        return self.table.failed_directory_ids if self.assignments.are_settled else ()

    def _may_join(self, replica: BrokerId, partition: Partition) -> bool:
        number = partition.topic_partition.partition
        return self.image.is_active(replica) and self.image.is_directory_online(replica, partition.topic_id, number)

    def _expire_offsets(self, now: Now) -> None:
        self.groups.expire(retention_ms=self.settings.offsets.retention_ms)

    def _expire_transactional_ids(self, now: Now) -> None:
        self.transactions.expire(expiration_ms=self.settings.transactions.id_expiration_ms, now=now)

    def partition_count(self, topic: str) -> int:
        shown = self.image.topics.get(topic)
        return len(shown.partitions) if shown is not None else 0

    def led(self, tp: TopicPartition) -> Partition | None:
        partition = self.partitions.get(tp)
        return partition if partition is not None and partition.is_leader else None
