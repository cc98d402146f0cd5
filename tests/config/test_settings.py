"""Each typed setting has the value of its key, in the unit of its name."""

from __future__ import annotations

from operator import attrgetter

import pytest

from raylog.config.authorization import STANDARD_AUTHORIZER, authorizer_settings
from raylog.config.controller import QuorumTimeouts, controller_settings, quorum_timeouts
from raylog.config.network import SocketOptions, socket_options
from raylog.config.replication import RACK_AWARE_REPLICA_SELECTOR
from raylog.config.settings import broker_settings
from raylog.config.table import broker_configs
from raylog.config.topic import topic_configs, topic_replication


@pytest.mark.parametrize(
    ("key", "text", "setting", "value"),
    [
        ("broker.rack", "r", "membership.rack", "r"),
        ("broker.heartbeat.interval.ms", "17", "membership.heartbeat_interval_ms", 17),
        ("controlled.shutdown.enable", "false", "membership.controlled_shutdown", False),
        ("listeners", "A://h:1", "listeners.listeners", ("A://h:1",)),
        ("advertised.listeners", "PLAINTEXT://h:1", "listeners.advertised", ("PLAINTEXT://h:1",)),
        ("listener.security.protocol.map", "A:SSL", "listeners.security_protocols", ("A:SSL",)),
        ("socket.request.max.bytes", "2000000", "connections.frame_bytes_max", 2_000_000),
        ("max.connections", "7", "connections.connections_max", 7),
        ("max.connections.per.ip", "7", "connections.connections_per_host_max", 7),
        ("connections.max.idle.ms", "107", "connections.idle_ms", 107),
        ("listener.name.plaintext.max.connections", "7", "connections.listener_connections_max", {"PLAINTEXT": 7}),
        ("fetch.max.bytes", "1025", "requests.fetch_bytes_max", 1025),
        ("max.incremental.fetch.session.cache.slots", "7", "requests.fetch_sessions_max", 7),
        ("max.request.partition.size.limit", "7", "requests.described_partitions_max", 7),
        ("auto.create.topics.enable", "false", "topics.auto_create", False),
        ("delete.topic.enable", "false", "topics.deletable", False),
        ("num.partitions", "7", "topics.num_partitions", 7),
        ("default.replication.factor", "7", "topics.replication_factor", 7),
        ("replica.lag.time.max.ms", "507", "replication.lag_ms_max", 507),
        (
            "replica.high.watermark.checkpoint.interval.ms",
            "7",
            "replication.high_watermark_checkpoint_interval_ms",
            7,
        ),
        ("leader.replication.throttled.rate", "7", "replication.leader_rate_bytes_per_sec", 7),
        ("follower.replication.throttled.rate", "7", "replication.follower_rate_bytes_per_sec", 7),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "7", "replication.move_rate_bytes_per_sec", 7),
        ("replica.selector.class", RACK_AWARE_REPLICA_SELECTOR, "replication.rack_aware", True),
        ("replica.selector.class", RACK_AWARE_REPLICA_SELECTOR, "replica_fetch.send_high_watermark", True),
        ("replica.fetch.wait.max.ms", "7", "replica_fetch.wait_ms_max", 7),
        ("replica.fetch.max.bytes", "7", "replica_fetch.partition_bytes_max", 7),
        ("replica.fetch.response.max.bytes", "7", "replica_fetch.response_bytes_max", 7),
        ("group.min.session.timeout.ms", "7", "groups.session_timeout_min_ms", 7),
        ("group.max.session.timeout.ms", "6007", "groups.session_timeout_max_ms", 6007),
        ("group.initial.rebalance.delay.ms", "7", "groups.initial_rebalance_delay_ms", 7),
        ("group.max.size", "7", "groups.members_max", 7),
        ("group.coordinator.rebalance.protocols", "classic,streams", "consumer_groups.enabled", False),
        ("group.coordinator.rebalance.protocols", "classic,consumer,share", "streams_groups.enabled", False),
        ("offset.metadata.max.bytes", "7", "offsets.metadata_bytes_max", 7),
        ("offsets.retention.minutes", "7", "offsets.retention_ms", 420_000),
        ("offsets.retention.check.interval.ms", "7", "offsets.retention_check_interval_ms", 7),
        ("transaction.max.timeout.ms", "7", "transactions.timeout_ms_max", 7),
        ("transaction.partition.verification.enable", "false", "transactions.verification", False),
        (
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "7",
            "transactions.abort_check_interval_ms",
            7,
        ),
        ("transactional.id.expiration.ms", "7", "transactions.id_expiration_ms", 7),
        (
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            "7",
            "transactions.id_expiration_check_interval_ms",
            7,
        ),
        ("offsets.topic.num.partitions", "7", "offsets_topic.num_partitions", 7),
        ("offsets.topic.replication.factor", "7", "offsets_topic.replication_factor", 7),
        ("min.insync.replicas", "7", "offsets_topic.min_insync_replicas", 7),
        ("offsets.topic.segment.bytes", "2000000", "offsets_topic.segment_bytes", 2_000_000),
        ("transaction.state.log.num.partitions", "7", "transaction_topic.num_partitions", 7),
        ("transaction.state.log.replication.factor", "7", "transaction_topic.replication_factor", 7),
        ("transaction.state.log.min.isr", "7", "transaction_topic.min_insync_replicas", 7),
        ("transaction.state.log.segment.bytes", "2000000", "transaction_topic.segment_bytes", 2_000_000),
        ("log.flush.scheduler.interval.ms", "7", "log_dir.flush_check_interval_ms", 7),
        ("log.flush.offset.checkpoint.interval.ms", "7", "log_dir.recovery_point_interval_ms", 7),
        ("log.flush.start.offset.checkpoint.interval.ms", "7", "log_dir.log_start_offset_interval_ms", 7),
        ("log.retention.check.interval.ms", "7", "log_dir.retention_check_interval_ms", 7),
        ("num.recovery.threads.per.data.dir", "7", "log_dir.recovery_threads", 7),
        ("log.dir.failure.timeout.ms", "7", "log_dir.failure_timeout_ms", 7),
        ("log.dirs", "/a,/b", "log_dir.paths", ("/a", "/b")),
        ("log.dir", "/a", "log_dir.paths", ("/a",)),
    ],
)
def test_broker(key: str, text: str, setting: str, value: object) -> None:
    found = attrgetter(setting)
    assert found(broker_settings(broker_configs({key: text}))) == value
    assert found(broker_settings(broker_configs({}))) != value


@pytest.mark.parametrize(
    ("key", "text", "setting", "value"),
    [
        ("broker.session.timeout.ms", "4007", "broker_session_timeout_ms", 4007),
        ("metadata.log.max.record.bytes.between.snapshots", "7", "snapshot_interval_bytes", 7),
        ("auto.leader.rebalance.enable", "false", "leader_rebalance", False),
        ("leader.imbalance.check.interval.seconds", "7", "imbalance_check_interval_ms", 7000),
        ("leader.imbalance.per.broker.percentage", "7", "imbalance_percent_max", 7),
    ],
)
def test_controller(key: str, text: str, setting: str, value: object) -> None:
    assert getattr(controller_settings(broker_configs({key: text})), setting) == value
    assert getattr(controller_settings(broker_configs({})), setting) != value


def test_quorum() -> None:
    assert quorum_timeouts(broker_configs({})) == QuorumTimeouts()
    changed = {
        "controller.quorum.election.timeout.ms": 51,
        "controller.quorum.fetch.timeout.ms": 52,
        "controller.quorum.election.backoff.max.ms": 3,
    }
    assert quorum_timeouts(broker_configs(changed)) == QuorumTimeouts(51, 52, 3)


def test_sockets() -> None:
    assert socket_options(broker_configs({})) == SocketOptions()
    changed = {"socket.listen.backlog.size": 1, "socket.send.buffer.bytes": 2, "socket.receive.buffer.bytes": 3}
    assert socket_options(broker_configs(changed)) == SocketOptions(1, 2, 3)


def test_authorizer() -> None:
    users = {"super.users": "User:a; User:b ;", "allow.everyone.if.no.acl.found": True}
    assert authorizer_settings(broker_configs(users)) is None
    settings = authorizer_settings(broker_configs({**users, "authorizer.class.name": STANDARD_AUTHORIZER}))
    assert settings is not None
    assert settings.super_users == ("User:a", "User:b")
    assert settings.allow_if_no_acl


def test_topic() -> None:
    broker = broker_configs({"min.insync.replicas": 2, "unclean.leader.election.enable": True})
    own = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "0:1,1:2"}
    settings = topic_replication(topic_configs(own, broker))
    assert (settings.min_insync_replicas, settings.unclean_leader_election) == (2, True)
    assert settings.throttled_on_leader == ("*",)
    assert settings.throttled_on_follower == ("0:1", "1:2")
    assert topic_replication(topic_configs({"min.insync.replicas": "3"}, broker)).min_insync_replicas == 3
