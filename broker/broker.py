"""The broker: logs, metadata and connections wired together. Told of events and of the time; touches no socket.

Its shell (the actor's listener, or the simulator) owns the sockets and the clock. It reports what happens
(`connection_opened`, `bytes_received`, `writable_changed`, `connection_closed`, `tick`) and after each report looks at
`take_touched()`: connections that have output to write, want to be read from again, or are to be closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from raylog.broker import config
from raylog.broker.dispatch import dispatch
from raylog.broker.group_offsets import OFFSETS_TOPIC, GroupOffsetShards
from raylog.broker.listeners import Endpoint, Listener
from raylog.broker.local_readers import LocalReaders
from raylog.broker.metadata import Metadata
from raylog.broker.partitions import DiskWork, PartitionTable
from raylog.broker.request import ClientConnection
from raylog.broker.topic_config import topic_configs
from raylog.controller.image import MetadataImage, TopicImage
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, TopicPartition
from raylog.logstore.disk import Disk
from raylog.replication.delayed import DelayedOperations
from raylog.replication.fetch_sessions import FetchSessions
from raylog.replication.partition import Partition
from raylog.security.cluster_secret import NONCE_BYTES, SecretVerifier

CHECKPOINT_INTERVAL_MS = 60_000
"""Kafka's log.flush.offset.checkpoint.interval.ms."""
SHRINK_IDLE_MS = 10_000
"""A connection quiet for so long gives back the large buffer it may hold."""
FLUSH_CHECK_INTERVAL_MS = 1000
"""How often flush.ms is looked at: logs are flushed up to so much later than they ask for."""
OFFLINE_CHECK_INTERVAL_MS = 1000
"""How long local readers of a log that has gone offline by itself may wait in vain."""


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
        self.local_readers = LocalReaders(self.partition)
        self.offsets = GroupOffsetShards(self._offsets_partitions, on_append=self.partition_changed)
        self.table = PartitionTable(
            disk,
            log_path,
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            configs=configs,
            new_id=new_id,
            on_change=self.partition_changed,
            on_gone=self._partition_gone,
            now_ms=now.wall_ms,
        )
        self.partitions = self.table.online
        self._chores = self._plan_chores(now)
        try:
            metadata_partition = self.table.metadata_partition(now.wall_ms)
            self.metadata = Metadata(metadata_partition, on_change=self.table.metadata_changed)
            self.metadata.load()
            self.table.follow(self.metadata.image, now.wall_ms)
        except BaseException:
            self.table.abandon()
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

    def close(self, now: Now) -> None:
        """A clean stop: everything on disk and marked as such, so that the next start need not scan."""
        for connection in list(self._connections):
            connection.close("the broker stops")
            self.connection_closed(connection)
        self.local_readers.close()
        self.table.close(now.wall_ms)

    def abandon(self) -> None:
        """Let go of the log directory without calling the stop a clean one: the next start scans, as after a crash."""
        self.table.abandon()

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
            (FLUSH_CHECK_INTERVAL_MS, self.table.flush),
            (OFFLINE_CHECK_INTERVAL_MS, lambda _: self.local_readers.close_offline()),
            (CHECKPOINT_INTERVAL_MS, self.table.write_checkpoints),
            (self.configs[config.LOG_RETENTION_CHECK_INTERVAL_MS], self.table.apply_retention),
        ]
        if idle_ms >= 0:
            planned.append((max(idle_ms // 10, 1), self._close_idle))
        planned.append((SHRINK_IDLE_MS, self._shrink_idle))
        return [_Chore(interval_ms, do, now.monotonic_ms + interval_ms) for interval_ms, do in planned]

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

    def take_disk_work(self) -> list[DiskWork]:
        """What the disk should do in its own time, off the loop; each is to be run and then reported as done."""
        return self.table.take_disk_work()

    def partition_changed(self, tp: TopicPartition, grown_bytes: int = 0) -> None:
        """To be called whenever what can be read of a partition has changed: so many bytes more, or (0) otherwise.

        Readers on this node see it on their page, whoever has parked a request is asked again.
        """
        self.local_readers.changed(tp)
        self.delayed.grown(tp, grown_bytes)

    def _partition_gone(self, tp: TopicPartition) -> None:
        self.local_readers.gone(tp)
        self.delayed.grown(tp, 0)

    def _offsets_partitions(self) -> Mapping[int, Partition]:
        topic = self.image.topics.get(OFFSETS_TOPIC)
        count = len(topic.partitions) if topic is not None else 0
        found = {number: self.partitions.get(TopicPartition(OFFSETS_TOPIC, number)) for number in range(count)}
        return {number: partition for number, partition in found.items() if partition is not None}


@dataclass(slots=True)
class _Chore:
    """Something the broker does by itself, now and then."""

    interval_ms: int
    do: Callable[[Now], None]
    due_ms: int
