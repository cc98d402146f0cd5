"""The broker: logs, metadata and connections wired together. Told of events and of the time; touches no socket.

Its shell (the actor's listener, or the simulator) owns the sockets and the clock. It reports what happens
(`connection_opened`, `bytes_received`, `writable_changed`, `connection_closed`, `tick`) and after each report looks at
`take_touched()`: connections that have output to write, want to be read from again, or are to be closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from raylog.broker import config
from raylog.broker.dispatch import dispatch
from raylog.broker.group_offsets import OFFSETS_TOPIC, GroupOffsetShards
from raylog.broker.listeners import Endpoint, Listener
from raylog.broker.metadata import Metadata
from raylog.broker.request import ClientConnection
from raylog.broker.topic_config import MIN_INSYNC_REPLICAS, log_settings, topic_configs
from raylog.controller.image import MetadataImage, TopicImage
from raylog.controller.records import MetadataRecord, PartitionCreated, TopicDeleted
from raylog.controller.topics import METADATA_TOPIC
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, BrokerId, LeaderEpoch, TopicPartition
from raylog.logstore.disk import Disk
from raylog.logstore.log_dir import LogDir
from raylog.logstore.settings import LogSettings
from raylog.replication.delayed import DelayedOperations
from raylog.replication.fetch_sessions import FetchSessions
from raylog.replication.partition import Partition
from raylog.security.cluster_secret import NONCE_BYTES, SecretVerifier

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID = UUID(int=1)
"""Kafka's reserved id of the metadata topic."""
METADATA_LOG_SETTINGS = LogSettings(flush_messages=1, retention_ms=-1, segment_ms=(1 << 63) - 1)
"""What the controller has answered is on the disk itself, not only in the page cache."""
CHECKPOINT_INTERVAL_MS = 60_000
"""Kafka's log.flush.offset.checkpoint.interval.ms."""
SHRINK_IDLE_MS = 10_000
"""A connection quiet for so long gives back the large buffer it may hold."""
FLUSH_CHECK_INTERVAL_MS = 1000
"""How often flush.ms is looked at: logs are flushed up to so much later than they ask for."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who this incarnation of the broker is, and the secret its cluster shares."""

    broker_id: BrokerId
    cluster_id: str
    incarnation_id: UUID
    cluster_secret: bytes


class Broker:
    """One incarnation: made over its log directory, serves until `close`. Any InvariantViolation ends it."""

    def __init__(
        self,
        identity: BrokerIdentity,
        configs: Configs,
        disk: Disk,
        log_path: str,
        *,
        new_id: Callable[[], UUID],
        new_nonce: Callable[[int], bytes],
        now: Now,
    ) -> None:
        """Locks and recovers the log directory. Raises KafkaError with what is wrong with it."""
        self.identity = identity
        self.configs = configs
        self.new_id = new_id
        self._new_nonce = new_nonce
        self.endpoints: dict[str, Endpoint] = {}
        """What Metadata tells clients, by listener name; filled by `serve`."""
        self.partitions: dict[TopicPartition, Partition] = {}
        self.delayed = DelayedOperations()
        self.fetch_sessions = FetchSessions(
            slots_max=configs[config.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
            first_session_id=identity.incarnation_id.int,
        )
        self._connections: dict[ClientConnection, None] = {}
        """All open connections, the one idle longest first."""
        self._connections_per_host: dict[str, int] = {}
        self._touched: dict[ClientConnection, None] = {}
        self._runnable: deque[ClientConnection] = deque()
        self._disk = disk
        self._disk_work: list[DiskWork] = []
        self._chores = self._plan_chores(now)
        self.offsets = GroupOffsetShards(self._offsets_partitions, on_append=lambda tp: self.delayed.grown(tp, 0))
        default_settings = log_settings(topic_configs({}, configs))
        self._log_dir = LogDir.open(
            disk,
            log_path,
            cluster_id=identity.cluster_id,
            broker_id=identity.broker_id,
            settings_for=lambda topic: METADATA_LOG_SETTINGS if topic == METADATA_TOPIC else default_settings,
            now_ms=now.wall_ms,
            new_id=new_id,
        )
        try:
            self.metadata = self._load_metadata(now.wall_ms)
            self._take_over_logs(now.wall_ms)
        except BaseException:
            self._log_dir.abandon()
            raise

    # --- life

    def serve(self, endpoints: Mapping[str, Endpoint], *, client_listener: str, now: Now) -> None:
        """Register under the endpoints that are now listened on; from here on requests can be served."""
        self.endpoints = dict(endpoints)
        shown = self.endpoints[client_listener]
        self.metadata.register_broker(
            self.identity.broker_id,
            incarnation_id=self.identity.incarnation_id,
            host=shown.host,
            port=shown.port,
            now_ms=now.wall_ms,
        )
        for tp, _, image in self.metadata.image.partitions_led_by(self.identity.broker_id):
            if tp in self.partitions:
                self.partitions[tp].leader_epoch = image.leader_epoch

    def close(self, now: Now) -> None:
        """A clean stop: everything on disk and marked as such, so that the next start need not scan."""
        for connection in list(self._connections):
            connection.close("the broker stops")
            self.connection_closed(connection)
        self._log_dir.close(now.wall_ms)

    def abandon(self) -> None:
        """Let go of the log directory without calling the stop a clean one: the next start scans, as after a crash."""
        self._log_dir.abandon()

    # --- connections

    def connection_opened(self, listener: Listener, peer_host: str, now: Now) -> ClientConnection | None:
        """The new connection, or None where a bound on connections says no."""
        from_host = self._connections_per_host.get(peer_host, 0)
        if len(self._connections) >= self.configs[config.MAX_CONNECTIONS] and not listener.internal:
            return None
        if from_host >= self.configs[config.MAX_CONNECTIONS_PER_IP] and not listener.internal:
            return None
        verifier = None
        if listener.internal:
            verifier = SecretVerifier(self.identity.cluster_secret, self._new_nonce(NONCE_BYTES))
        frame_bytes_max = self.configs[config.SOCKET_REQUEST_MAX_BYTES]
        connection = ClientConnection(listener, peer_host, frame_bytes_max=frame_bytes_max, verifier=verifier, now=now)
        self._connections[connection] = None
        self._connections_per_host[peer_host] = from_host + 1
        return connection

    def bytes_received(self, connection: ClientConnection, count: int, now: Now) -> None:
        connection.bytes_received(count)
        connection.last_active_ms = now.monotonic_ms
        self._connections[connection] = self._connections.pop(connection)
        self.touch(connection)
        self._run(now)

    def writable_changed(self, connection: ClientConnection, now: Now, *, writable: bool) -> None:
        """The peer reads again (or does not): requests that waited for it are served (or wait)."""
        connection.set_writable(writable=writable)
        self.touch(connection)
        self._run(now)

    def output_taken(self, connection: ClientConnection, now: Now) -> None:
        """Serve what the connection held back until its output was taken."""
        self.touch(connection)
        self._run(now)

    def connection_closed(self, connection: ClientConnection) -> None:
        """The socket is gone: what is parked for it is dropped. Closing twice is allowed."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._touched.pop(connection, None)
        connection.close("closed by the peer")
        remaining = self._connections_per_host[connection.peer_host] - 1
        if remaining:
            self._connections_per_host[connection.peer_host] = remaining
        else:
            del self._connections_per_host[connection.peer_host]
        if connection.parked_ticket is not None:
            self.delayed.drop(connection.parked_ticket)

    def touch(self, connection: ClientConnection) -> None:
        """An answer was given outside the connection's own turn: its output and its next request want attention."""
        self._touched[connection] = None
        self._runnable.append(connection)

    def take_touched(self) -> list[ClientConnection]:
        touched, self._touched = self._touched, {}
        return list(touched)

    def _run(self, now: Now) -> None:
        """Serve what the touched connections hold; serving one may complete what another has parked, and touch it."""
        while self._runnable:
            connection = self._runnable.popleft()
            while (frame := connection.next_request()) is not None:
                dispatch(self, connection, frame, now)

    # --- time

    def tick(self, now: Now) -> None:
        """Do what has come due: expired long polls, idle connections, flushes, checkpoints, retention."""
        self.delayed.expire(now.monotonic_ms)
        self._run(now)
        for chore in self._chores:
            if now.monotonic_ms >= chore.due_ms:
                chore.due_ms = now.monotonic_ms + chore.interval_ms
                chore.do(now)

    def next_tick_ms(self) -> int:
        """When `tick` has something to do, at the earliest (monotonic)."""
        due_ms = min(chore.due_ms for chore in self._chores)
        deadline_ms = self.delayed.next_deadline_ms()
        return due_ms if deadline_ms is None else min(due_ms, deadline_ms)

    def _plan_chores(self, now: Now) -> list[_Chore]:
        idle_ms = self.configs[config.CONNECTIONS_MAX_IDLE_MS]
        planned = [
            (FLUSH_CHECK_INTERVAL_MS, self._flush_logs),
            (CHECKPOINT_INTERVAL_MS, self._write_checkpoints),
            (self.configs[config.LOG_RETENTION_CHECK_INTERVAL_MS], self._apply_retention),
        ]
        if idle_ms >= 0:
            planned.append((max(idle_ms // 10, 1), self._close_idle))
        planned.append((SHRINK_IDLE_MS, self._shrink_idle))
        return [_Chore(interval_ms, do, now.monotonic_ms + interval_ms) for interval_ms, do in planned]

    def take_disk_work(self) -> list[DiskWork]:
        """What the disk should do in its own time, off the loop; each is to be run and then reported as done."""
        work, self._disk_work = self._disk_work, []
        return work

    def _flush_logs(self, now: Now) -> None:
        """Logs that are due are flushed here; segments that were closed since are made durable in the background."""
        for partition in self.partitions.values():
            with _disk_may_fail():
                partition.log.flush_if_due(now.wall_ms)
                plan = partition.log.plan_sync()
                if plan is not None:
                    self._disk_work.append(
                        DiskWork(partial(plan.run, self._disk), partial(partition.log.sync_ended, plan))
                    )

    def _write_checkpoints(self, now: Now) -> None:
        with _disk_may_fail():
            self._log_dir.write_checkpoints()

    def _apply_retention(self, now: Now) -> None:
        """Old segments go; and partitions that could not be made, for want of space perhaps, are tried again."""
        with _disk_may_fail():
            self._take_over_logs(now.wall_ms)
        for partition in self.partitions.values():
            with _disk_may_fail():
                partition.log.apply_retention(now.wall_ms, upto=partition.high_watermark)

    def _shrink_idle(self, now: Now) -> None:
        for connection in self._connections:
            if now.monotonic_ms - connection.last_active_ms < SHRINK_IDLE_MS:
                return
            connection.shrink()

    def _close_idle(self, now: Now) -> None:
        idle_ms = self.configs[config.CONNECTIONS_MAX_IDLE_MS]
        for connection in self._connections:
            if now.monotonic_ms - connection.last_active_ms < idle_ms:
                return
            if not connection.in_work:
                connection.close("idle for longer than connections.max.idle.ms")
                self._touched[connection] = None

    # --- topics and partitions

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def partition(self, tp: TopicPartition) -> Partition:
        """The partition this broker leads. Raises KafkaError: unknown, or its disk has failed."""
        partition = self.partitions.get(tp)
        if partition is not None:
            return partition
        topic = self.image.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    def topic_configs(self, topic: TopicImage) -> Configs:
        return topic_configs(topic.configs, self.configs)

    def create_internal_topic(self, topic: str, now: Now) -> None:
        """Create __consumer_offsets on first use. Raises KafkaError."""
        if topic in self.image.topics:
            return
        self.metadata.create_topic(
            topic,
            topic_id=self.new_id(),
            num_partitions=self.configs[config.OFFSETS_TOPIC_NUM_PARTITIONS],
            replication_factor=1,
            assignments=None,
            configs={"segment.bytes": str(self.configs[config.OFFSETS_TOPIC_SEGMENT_BYTES]), "retention.ms": "-1"},
            validate_only=False,
            now_ms=now.wall_ms,
        )

    def _load_metadata(self, now_ms: int) -> Metadata:
        log = self._log_dir.logs.get(METADATA_PARTITION)
        if log is None:
            if self._log_dir.logs:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the log directory holds {len(self._log_dir.logs)} partition(s) but no {METADATA_PARTITION}:"
                    " without the metadata log nothing says what they are; restore it, or use an empty directory",
                )
            log = self._log_dir.create_log(METADATA_PARTITION, METADATA_TOPIC_ID, now_ms)
        partition = Partition(METADATA_PARTITION, METADATA_TOPIC_ID, log, LeaderEpoch(0))
        metadata = Metadata(partition, on_change=self._metadata_changed)
        metadata.load()
        return metadata

    def _take_over_logs(self, now_ms: int) -> None:
        """Open a partition for each one the image gives this broker, and remove the directories of deleted topics.

        A crash while a partition was made can leave its directory empty and without a topic id: it is made again.
        """
        image = self.image
        for tp, log in sorted(self._log_dir.logs.items()):
            topic = image.topics.get(tp.topic)
            if tp == METADATA_PARTITION or (topic is not None and topic.topic_id == log.topic_id):
                continue
            never_finished = log.topic_id == ZERO_TOPIC_ID and log.log_end_offset == 0
            if log.topic_id not in image.deleted_topic_ids and not never_finished:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"directory {tp} has topic id {log.topic_id}, which the metadata log does not know: it is kept;"
                    " move it elsewhere",
                )
            self._log_dir.delete_log(tp)
        for tp, topic_id, partition in image.partitions_led_by(self.identity.broker_id):
            if tp not in self.partitions:
                self._open_partition(tp, topic_id, partition.leader_epoch, now_ms)

    def _open_partition(self, tp: TopicPartition, topic_id: UUID, leader_epoch: LeaderEpoch, now_ms: int) -> None:
        """A disk that fails leaves the partition closed: clients get KAFKA_STORAGE_ERROR, a later round tries again."""
        configs = self.topic_configs(self.image.topics[tp.topic])
        with _disk_may_fail():
            log = self._log_dir.logs.get(tp) or self._log_dir.create_log(tp, topic_id, now_ms)
            log.settings = log_settings(configs)
            if log.settings.flush_messages == 1:
                log.flush()  # what a crash has left unsynced must not be read before it is certain
            self.partitions[tp] = Partition(
                tp, topic_id, log, leader_epoch, min_insync_replicas=configs[MIN_INSYNC_REPLICAS]
            )

    def _metadata_changed(self, record: MetadataRecord, now_ms: int) -> None:
        match record:
            case PartitionCreated():
                topic = self.image.topics_by_id[record.topic_id]
                tp = TopicPartition(topic.name, record.partition)
                self._open_partition(tp, record.topic_id, record.leader_epoch, now_ms)
            case TopicDeleted():
                self._close_topic(record.topic_id)

    def _close_topic(self, topic_id: UUID) -> None:
        gone = [tp for tp, partition in self.partitions.items() if partition.topic_id == topic_id]
        for tp in gone:
            del self.partitions[tp]
            with _disk_may_fail():  # what is left is removed by the next start
                self._log_dir.delete_log(tp)
            self.delayed.grown(tp, 0)

    def _offsets_partitions(self) -> Mapping[int, Partition]:
        topic = self.image.topics.get(OFFSETS_TOPIC)
        count = len(topic.partitions) if topic is not None else 0
        found = {number: self.partitions.get(TopicPartition(OFFSETS_TOPIC, number)) for number in range(count)}
        return {number: partition for number, partition in found.items() if partition is not None}


@dataclass(frozen=True, slots=True)
class DiskWork:
    """`run` may block, touches no state, and belongs into another thread; `done` is told how it ended, on the loop."""

    run: Callable[[], None]
    done: Callable[[OSError | None], None]


@dataclass(slots=True)
class _Chore:
    """Something the broker does by itself, now and then."""

    interval_ms: int
    do: Callable[[Now], None]
    due_ms: int


@contextmanager
def _disk_may_fail() -> Iterator[None]:
    """For chores: the log that failed has put itself offline and tells its clients; the others go on."""
    try:
        yield
    except KafkaError as error:
        if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
            raise
