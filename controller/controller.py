"""The controller: the cluster's metadata as a machine over its log. Told of events and of the time, like any node.

A command is decided against the image, appended and replayed in one step. What it answers leaves when its records are
committed: with one voter, when they are on this disk. All commands of one round are made durable by one fsync, so every
answer, also to a mere question, waits for what was decided before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar
from uuid import UUID

from raylog.config import broker as config
from raylog.controller import brokers
from raylog.controller.broker_sessions import BrokerSessions
from raylog.controller.configs import may_be_led_uncleanly
from raylog.controller.elections import TopicRule, balance, uncleanly
from raylog.controller.handlers import (
    allocate_producer_ids,
    alter_partition,
    broker_heartbeat,
    broker_registration,
    create_topics,
    envelope,
    fetch,
)
from raylog.controller.image import MetadataImage
from raylog.controller.metadata_log import (
    METADATA_LOG_SETTINGS,
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    metadata_event_log,
)
from raylog.controller.observers import Observers
from raylog.controller.records import MetadataRecord
from raylog.core.clock import Now
from raylog.core.config import Configs
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import ZERO_TOPIC_ID, BrokerId, LeaderEpoch, Offset
from raylog.core.outcome import Outcome
from raylog.logstore.disk import Disk
from raylog.logstore.log import Log
from raylog.logstore.log_dir import LogDir
from raylog.protocol import registry
from raylog.transport.endpoints import Endpoint
from raylog.transport.handlers import api_versions, sasl_authenticate, sasl_handshake
from raylog.transport.node import ConnectionLimits, Handler, Node, NodeIdentity
from raylog.transport.request import AcceptedConnection

Response = TypeVar("Response")

CHECKPOINT_INTERVAL_MS = 60_000
LEADER_EPOCH = LeaderEpoch(0)
"""Of the metadata log, which has one voter and so one leadership."""

HANDLERS: Final[dict[int, Handler]] = {
    registry.FETCH: fetch.handle,
    registry.SASL_HANDSHAKE: sasl_handshake.handle,
    registry.API_VERSIONS: api_versions.handle,
    registry.CREATE_TOPICS: create_topics.handle,
    registry.SASL_AUTHENTICATE: sasl_authenticate.handle,
    registry.ENVELOPE: envelope.handle,
    registry.BROKER_REGISTRATION: broker_registration.handle,
    registry.BROKER_HEARTBEAT: broker_heartbeat.handle,
    registry.ALLOCATE_PRODUCER_IDS: allocate_producer_ids.handle,
    registry.ALTER_PARTITION: alter_partition.handle,
}


class Controller(Node):
    """One incarnation: made over its log directory, serves until `close`. Its listeners are all internal ones."""

    handlers = HANDLERS

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
    ) -> None:
        """Locks and recovers the directory, replays the log. Raises KafkaError with what is wrong.

        `may_be_new` lets it begin a metadata log where there is none; where the cluster has a past, that is a loss.
        """
        limits = ConnectionLimits(
            frame_bytes_max=configs[config.SOCKET_REQUEST_MAX_BYTES],
            connections_max=configs[config.MAX_CONNECTIONS],
            connections_per_host_max=configs[config.MAX_CONNECTIONS_PER_IP],
            idle_ms=-1,
        )
        super().__init__(identity, limits, new_nonce=new_nonce, now=now)
        self.configs = configs
        self.new_id = new_id
        self.image = MetadataImage()
        self.sessions = BrokerSessions(timeout_ms=configs[config.BROKER_SESSION_TIMEOUT_MS])
        self.observers = Observers()
        self.endpoints: dict[str, Endpoint] = {}
        """Where brokers reach this controller, by listener name; filled by `start`."""
        self._uncommitted: deque[Callable[[], None]] = deque()
        self._log_dir = LogDir.open(
            disk,
            log_path,
            cluster_id=identity.cluster_id,
            broker_id=identity.node_id,
            settings_for=lambda _: METADATA_LOG_SETTINGS,
            now_ms=now.wall_ms,
            new_id=new_id,
        )
        try:
            self.log = self._metadata_log(may_be_new=may_be_new, now_ms=now.wall_ms)
            self.log.flush()  # what a crash has left unsynced must not be told before it is certain to last
            self._events = metadata_event_log(self.log, LEADER_EPOCH, self.image)
            self._events.load()
        except BaseException:
            self._log_dir.abandon()
            raise
        self.high_watermark = self.log.log_end_offset
        self.sessions.begin_all(self.image.alive, now_ms=now.monotonic_ms)
        self.add_chore(CHECKPOINT_INTERVAL_MS, self._write_checkpoints, now)
        self.add_chore(configs[config.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS] * 1000, self._balance_leaders, now)

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Of the metadata log."""
        return LEADER_EPOCH

    @property
    def directory_id(self) -> UUID:
        """Names the directory that the metadata log is in (KIP-858)."""
        return self._log_dir.directory_id

    @property
    def may_be_unclean(self) -> TopicRule:
        """Which topics may be led by who is not in sync, as things stand now."""
        return may_be_led_uncleanly(self.image, self.configs)

    @property
    def next_offset(self) -> Offset:
        """Of the next record to be decided."""
        return self.log.log_end_offset

    def decide(self, outcome: Outcome[Response, MetadataRecord], now: Now) -> Response:
        """Append and replay. The response may be sent by the usual ways, which hold it back until it is committed."""
        return self._events.commit(outcome, now_ms=now.wall_ms)

    # --- answers and commits

    @property
    def all_committed(self) -> bool:
        return self.high_watermark == self.log.log_end_offset

    def send_when_committed(self, send: Callable[[], None]) -> None:
        self._uncommitted.append(send)

    def run(self, now: Now) -> None:
        """Serve, then commit what was decided and let the answers go, until there is nothing left of either."""
        super().run(now)
        while self._uncommitted or not self.all_committed:
            self._commit()
            waiting, self._uncommitted = self._uncommitted, deque()
            for send in waiting:
                send()
            super().run(now)

    def _commit(self) -> None:
        if self.all_committed:
            return
        try:
            self.log.flush()
        except KafkaError as error:
            raise InvariantViolation(f"decisions were replayed that cannot be made durable: {error.message}") from error
        grown = self.log.log_end_offset - self.high_watermark
        self.high_watermark = self.log.log_end_offset
        self.delayed.grown(METADATA_PARTITION, grown)

    # --- brokers that fall silent

    def connection_closed(self, connection: AcceptedConnection, now: Now) -> None:
        super().connection_closed(connection, now)
        self._fence(self.sessions.connection_lost(connection), now)

    def tick(self, now: Now) -> None:
        if self.log.offline_reason is not None:
            raise InvariantViolation(f"nothing can be decided or read any more: {self.log.offline_reason}")
        self._fence(self.sessions.expire(now_ms=now.monotonic_ms), now)
        super().tick(now)

    def next_tick_ms(self) -> int:
        due_ms = super().next_tick_ms()
        expiry_ms = self.sessions.next_expiry_ms()
        return due_ms if expiry_ms is None else min(due_ms, expiry_ms)

    def _fence(self, broker_ids: list[BrokerId], now: Now) -> None:
        for broker_id in broker_ids:
            try:
                self.decide(brokers.fence_broker(self.image, broker_id, self.may_be_unclean), now)
            except KafkaError:  # the disk is full, perhaps: to be tried again when the session would end anyway
                self.sessions.begin_all([broker_id], now_ms=now.monotonic_ms)
        self.run(now)

    # --- leaders that nobody asks for

    def _balance_leaders(self, now: Now) -> None:
        """Unclean ones where a start has allowed them, then preferred ones. What the disk refuses waits for the next
        time."""
        may_be_unclean = self.may_be_unclean
        allowed = [topic for topic in self.image.topics.values() if may_be_unclean(topic)]
        with suppress(KafkaError):
            self.decide(Outcome(None, [record for topic in allowed for record in uncleanly(self.image, topic)]), now)
            if self.configs[config.AUTO_LEADER_REBALANCE_ENABLE]:
                percent = self.configs[config.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE]
                self.decide(balance(self.image, imbalance_percent_max=percent), now)

    # --- life

    def start(self, endpoints: Mapping[str, Endpoint], now: Now) -> None:
        self.endpoints = dict(endpoints)

    def close(self, now: Now) -> None:
        self.sessions = BrokerSessions(
            timeout_ms=0
        )  # the brokers have not gone: their connections are closed from here
        super().close(now)
        self._log_dir.close(now.wall_ms)

    def abandon(self) -> None:
        self._log_dir.abandon()

    def _metadata_log(self, *, may_be_new: bool, now_ms: int) -> Log:
        log = self._log_dir.logs.get(METADATA_PARTITION)
        if log is not None and log.topic_id == ZERO_TOPIC_ID and log.log_end_offset == 0:
            self._log_dir.delete_log(METADATA_PARTITION, now_ms)  # a crash in its making: nothing says it would last
            log = None
        if log is None:
            if not may_be_new:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{self._log_dir.path} holds no {METADATA_PARTITION}, but its brokers have data: nothing else"
                    " says what it is; restore the metadata log, or use an empty directory",
                )
            log = self._log_dir.create_log(METADATA_PARTITION, METADATA_TOPIC_ID, now_ms)
        return log

    def _write_checkpoints(self, now: Now) -> None:
        try:
            self._log_dir.write_checkpoints()
        except KafkaError:
            pass  # only the next start is longer for it
