"""A broker's configuration keys, and the typed settings that the code receives. Names and defaults are Kafka's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from raylog.core.config import (
    ConfigKey,
    Configs,
    ConfigSchema,
    ConfigSource,
    ConfigType,
    Layer,
    at_least,
    between,
    one_of,
)
from raylog.core.errors import ConfigError

_INT, _LONG, _SHORT = ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
_STRING, _BOOLEAN, _LIST = ConfigType.STRING, ConfigType.BOOLEAN, ConfigType.LIST
LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
PRODUCER_COMPRESSION = "producer"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_REPLICA_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PRINCIPAL = re.compile(r"[^:]+:.+")


def principals(text: str) -> list[str]:
    """Of super.users, each `Type:name`."""
    return [each.strip() for each in text.split(";") if each.strip()]


# --- who and where
NODE_ID = ConfigKey("node.id", _INT, 0, "The broker's id, unique in its cluster.", at_least(0))
BROKER_RACK: ConfigKey[str | None] = ConfigKey("broker.rack", _STRING, None, "The host or rack that holds the broker.")
LISTENERS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "listeners",
    _LIST,
    ("PLAINTEXT://127.0.0.1:9092",),
    "Comma-separated NAME://host:port to listen on. An empty host means every interface, port 0 any free port.",
)
ADVERTISED_LISTENERS: ConfigKey[tuple[str, ...]] = ConfigKey(
    "advertised.listeners",
    _LIST,
    (),
    "NAME://host:port under which clients reach each listener, where that differs from what is listened on.",
)
LISTENER_SECURITY_PROTOCOL_MAP: ConfigKey[tuple[str, ...]] = ConfigKey(
    "listener.security.protocol.map",
    _LIST,
    ("PLAINTEXT:PLAINTEXT", "INTERNAL:PLAINTEXT"),
    "NAME:PROTOCOL for every listener name. PLAINTEXT is served; SSL and SASL are refused so far.",
)
INTER_BROKER_LISTENER_NAME = ConfigKey(
    "inter.broker.listener.name",
    _STRING,
    "INTERNAL",
    "The listener for traffic inside the cluster. Peers on it must prove the cluster's secret; where no listener"
    " of this name is configured, one is opened on the loopback address.",
)

# --- who may do what
AUTHORIZER_CLASS_NAME = ConfigKey(
    "authorizer.class.name",
    _STRING,
    "",
    f"{STANDARD_AUTHORIZER}, whose access control lists the cluster keeps; or nothing: everybody may do everything.",
    lambda name: None if name in ("", STANDARD_AUTHORIZER) else f"must be empty, or {STANDARD_AUTHORIZER}",
)
SUPER_USERS = ConfigKey(
    "super.users",
    _STRING,
    "",
    "Principals that may do everything, as User:alice;User:bob. As long as clients prove nothing each of them is"
    " User:ANONYMOUS.",
    lambda text: None if all(map(_PRINCIPAL.fullmatch, principals(text))) else "must be Type:name;Type:name",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND = ConfigKey(
    "allow.everyone.if.no.acl.found",
    _BOOLEAN,
    False,
    "Whether everybody may do everything with what no access control list speaks of.",
)

# --- the cluster
BROKER_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "broker.heartbeat.interval.ms", _INT, 2000, "How often a broker tells the controller that it is alive.", at_least(1)
)
BROKER_SESSION_TIMEOUT_MS = ConfigKey(
    "broker.session.timeout.ms",
    _INT,
    9000,
    "A broker not heard of for so long leads nothing any more. One whose process ends is noticed at once.",
    at_least(1),
)
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = ConfigKey(
    "controller.quorum.election.timeout.ms",
    _INT,
    1000,
    "How long a controller waits for the votes of the others before it asks again.",
    at_least(1),
)
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = ConfigKey(
    "controller.quorum.fetch.timeout.ms",
    _INT,
    2000,
    "A controller that has not heard the active one for so long asks for votes; an active one that has not heard a"
    " majority for half as long again steps down. One whose process ends is noticed at once.",
    at_least(1),
)
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = ConfigKey(
    "controller.quorum.election.backoff.max.ms",
    _INT,
    1000,
    "The longest pause after an election that nobody has won.",
    at_least(1),
)
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = ConfigKey(
    "metadata.log.max.record.bytes.between.snapshots",
    _LONG,
    20 << 20,
    "A controller writes a snapshot of the metadata after so many bytes of its log. The log is kept from the snapshot"
    " before the last one on.",
    at_least(1),
)

CONTROLLED_SHUTDOWN_ENABLE = ConfigKey(
    "controlled.shutdown.enable",
    _BOOLEAN,
    True,
    "Whether a broker that is stopped first lets others lead what it leads. It waits up to 20 s for"
    " the controller's leave, and 3 s where no controller answers.",
)

# --- replication
REPLICA_LAG_TIME_MAX_MS = ConfigKey(
    "replica.lag.time.max.ms",
    _LONG,
    30_000,
    "A follower that has not had all of its leader's records for so long is no longer in sync.",
    at_least(1),
)
REPLICA_FETCH_WAIT_MAX_MS = ConfigKey(
    "replica.fetch.wait.max.ms", _INT, 500, "How long a follower's fetch waits for new records.", at_least(1)
)
REPLICA_FETCH_MAX_BYTES = ConfigKey(
    "replica.fetch.max.bytes",
    _INT,
    1 << 20,
    "About how many bytes of one partition a follower fetches at once; a larger batch comes whole.",
    at_least(0),
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = ConfigKey(
    "replica.fetch.response.max.bytes", _INT, 10 << 20, "The same of all partitions together.", at_least(0)
)
REPLICA_SELECTOR_CLASS: ConfigKey[str | None] = ConfigKey(
    "replica.selector.class",
    _STRING,
    None,
    "Where consumers are sent to read: to the leader, as without a value, or to a replica in sync on their own rack"
    " (client.rack). With RackAwareReplicaSelector a broker also hears sooner what is committed in what it follows.",
    one_of(LEADER_SELECTOR, RACK_AWARE_REPLICA_SELECTOR),
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = ConfigKey(
    "replica.high.watermark.checkpoint.interval.ms",
    _LONG,
    5000,
    "How often it is written down how far each partition is committed.",
    at_least(1),
)

LEADER_REPLICATION_THROTTLED_RATE = ConfigKey(
    "leader.replication.throttled.rate",
    _LONG,
    LONG_MAX,
    "Bytes per second that the broker sends to throttled replicas that are not in sync.",
    at_least(0),
    dynamic=True,
)
FOLLOWER_REPLICATION_THROTTLED_RATE = ConfigKey(
    "follower.replication.throttled.rate",
    _LONG,
    LONG_MAX,
    "Bytes per second that the broker fetches for throttled replicas of its own that are not in sync.",
    at_least(0),
    dynamic=True,
)
UNCLEAN_LEADER_ELECTION_ENABLE = ConfigKey(
    "unclean.leader.election.enable",
    _BOOLEAN,
    False,
    "Whether a replica that is not in sync is elected where none is alive that is: what only the others had is lost.",
    dynamic=True,
)
AUTO_LEADER_REBALANCE_ENABLE = ConfigKey(
    "auto.leader.rebalance.enable",
    _BOOLEAN,
    True,
    "Whether preferred replicas, which are the first ones, get their leaderships back by themselves.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = ConfigKey(
    "leader.imbalance.check.interval.seconds", _LONG, 300, "How often that is looked at.", at_least(1)
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = ConfigKey(
    "leader.imbalance.per.broker.percentage",
    _INT,
    10,
    "A broker gets its leaderships back once it lacks more than so much of them, in percent.",
    at_least(0),
)

# --- connections
SOCKET_SEND_BUFFER_BYTES = ConfigKey(
    "socket.send.buffer.bytes",
    _INT,
    -1,
    "SO_SNDBUF of client connections; -1 lets the system tune it.",
    at_least(-1),
)
SOCKET_RECEIVE_BUFFER_BYTES = ConfigKey(
    "socket.receive.buffer.bytes",
    _INT,
    -1,
    "SO_RCVBUF of client connections; -1 lets the system tune it, which halves the cost of receiving"
    " large batches against Kafka's default of 102400.",
    at_least(-1),
)
SOCKET_REQUEST_MAX_BYTES = ConfigKey(
    "socket.request.max.bytes", _INT, 104_857_600, "A larger request closes its connection.", at_least(1)
)
SOCKET_LISTEN_BACKLOG_SIZE = ConfigKey(
    "socket.listen.backlog.size", _INT, 50, "How many connections may wait to be accepted.", at_least(1)
)
MAX_CONNECTIONS = ConfigKey(
    "max.connections",
    _INT,
    INT_MAX,
    "Connections the broker holds at once, over all listeners; further ones are closed."
    " The number of files the process may open bounds it as well.",
    at_least(0),
)
MAX_CONNECTIONS_PER_IP = ConfigKey(
    "max.connections.per.ip",
    _INT,
    INT_MAX,
    "Connections from one address at once; further ones are closed.",
    at_least(0),
)
CONNECTIONS_MAX_IDLE_MS = ConfigKey(
    "connections.max.idle.ms", _LONG, 600_000, "A connection silent for longer is closed; negative: never."
)

# --- requests
AUTO_CREATE_TOPICS_ENABLE = ConfigKey(
    "auto.create.topics.enable", _BOOLEAN, True, "Whether naming an unknown topic in Metadata creates it."
)
DELETE_TOPIC_ENABLE = ConfigKey("delete.topic.enable", _BOOLEAN, True, "Whether topics may be deleted.")
NUM_PARTITIONS = ConfigKey("num.partitions", _INT, 1, "Partitions of a topic that asks for no number.", at_least(1))
DEFAULT_REPLICATION_FACTOR = ConfigKey(
    "default.replication.factor", _INT, 1, "Replicas of a topic that asks for no number.", at_least(1)
)
FETCH_MAX_BYTES = ConfigKey(
    "fetch.max.bytes",
    _INT,
    57_671_680,
    "The most record bytes in one answer to Fetch, whatever is asked.",
    at_least(1024),
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = ConfigKey(
    "max.incremental.fetch.session.cache.slots", _INT, 1000, "Fetch sessions the broker remembers.", at_least(0)
)
MAX_REQUEST_PARTITION_SIZE_LIMIT = ConfigKey(
    "max.request.partition.size.limit",
    _INT,
    2000,
    "Partitions that one answer to DescribeTopicPartitions holds at most; the client asks for the rest.",
    at_least(1),
)
GROUP_MIN_SESSION_TIMEOUT_MS = ConfigKey(
    "group.min.session.timeout.ms", _INT, 6000, "The shortest session a group's member may ask for.", at_least(0)
)
GROUP_MAX_SESSION_TIMEOUT_MS = ConfigKey(
    "group.max.session.timeout.ms", _INT, 1_800_000, "The longest session a group's member may ask for.", at_least(0)
)
GROUP_INITIAL_REBALANCE_DELAY_MS = ConfigKey(
    "group.initial.rebalance.delay.ms",
    _INT,
    3000,
    "How long the first rebalance of an empty group waits for more members.",
    at_least(0),
)
GROUP_MAX_SIZE = ConfigKey("group.max.size", _INT, INT_MAX, "The most members one group may have.", at_least(1))
OFFSET_METADATA_MAX_BYTES = ConfigKey(
    "offset.metadata.max.bytes", _INT, 4096, "The longest metadata beside a committed offset.", at_least(0)
)
OFFSETS_RETENTION_MINUTES = ConfigKey(
    "offsets.retention.minutes",
    _INT,
    10_080,
    "How long committed offsets outlive their group's last member; of consumers without a group, their last commit.",
    at_least(1),
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = ConfigKey(
    "offsets.retention.check.interval.ms",
    _LONG,
    600_000,
    "How often offsets.retention.minutes is looked at.",
    at_least(1),
)
OFFSETS_TOPIC_NUM_PARTITIONS = ConfigKey(
    "offsets.topic.num.partitions", _INT, 50, "Partitions of __consumer_offsets, fixed when it is created.", at_least(1)
)
OFFSETS_TOPIC_REPLICATION_FACTOR = ConfigKey(
    "offsets.topic.replication.factor",
    _SHORT,
    3,
    "Replicas of __consumer_offsets; fewer where fewer brokers are alive when it is created.",
    at_least(1),
)
OFFSETS_TOPIC_SEGMENT_BYTES = ConfigKey(
    "offsets.topic.segment.bytes", _INT, 104_857_600, "Segment size of __consumer_offsets.", at_least(1)
)

# --- transactions
TRANSACTION_MAX_TIMEOUT_MS = ConfigKey(
    "transaction.max.timeout.ms", _INT, 900_000, "The longest transaction.timeout.ms of a producer.", at_least(1)
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE = ConfigKey(
    "transaction.partition.verification.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether a leader asks the coordinator before it takes a transaction's first batch.",
)
TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS = ConfigKey(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    _INT,
    10_000,
    "How often it is looked for transactions that are open for longer than their producer has asked for.",
    at_least(1),
)
TRANSACTIONAL_ID_EXPIRATION_MS = ConfigKey(
    "transactional.id.expiration.ms",
    _INT,
    604_800_000,
    "A transactional id that is not used for so long is forgotten.",
    at_least(1),
)
TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS = ConfigKey(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    _INT,
    3_600_000,
    "How often transactional.id.expiration.ms is looked at.",
    at_least(1),
)
TRANSACTION_LOG_NUM_PARTITIONS = ConfigKey(
    "transaction.state.log.num.partitions",
    _INT,
    50,
    "Partitions of __transaction_state, fixed when it is created.",
    at_least(1),
)
TRANSACTION_LOG_REPLICATION_FACTOR = ConfigKey(
    "transaction.state.log.replication.factor",
    _SHORT,
    3,
    "Replicas of __transaction_state; fewer where fewer brokers are alive when it is created.",
    at_least(1),
)
TRANSACTION_LOG_MIN_ISR = ConfigKey(
    "transaction.state.log.min.isr", _INT, 2, "min.insync.replicas of __transaction_state.", at_least(1)
)
TRANSACTION_LOG_SEGMENT_BYTES = ConfigKey(
    "transaction.state.log.segment.bytes", _INT, 104_857_600, "Segment size of __transaction_state.", at_least(1)
)

# --- logs
MESSAGE_MAX_BYTES = ConfigKey(
    "message.max.bytes",
    _INT,
    1_048_588,
    "The largest record batch a topic accepts, after compression.",
    at_least(0),
    dynamic=True,
)
LOG_SEGMENT_BYTES = ConfigKey(
    "log.segment.bytes",
    _INT,
    1 << 30,
    "A batch that would make a segment larger than this opens a new one.",
    at_least(14),
    dynamic=True,
)
LOG_ROLL_HOURS = ConfigKey("log.roll.hours", _INT, 168, "The same as log.roll.ms, which comes first.", at_least(1))
LOG_ROLL_MS = ConfigKey(
    "log.roll.ms",
    _LONG,
    604_800_000,
    "A segment older than this is closed.",
    at_least(1),
    coarser=((LOG_ROLL_HOURS, HOUR_MS),),
    dynamic=True,
)
LOG_ROLL_JITTER_HOURS = ConfigKey(
    "log.roll.jitter.hours", _INT, 0, "The same as log.roll.jitter.ms, which comes first.", at_least(0)
)
LOG_ROLL_JITTER_MS = ConfigKey(
    "log.roll.jitter.ms",
    _LONG,
    0,
    "A segment is closed by up to so much before log.roll.ms, so that logs that began together do not roll together.",
    at_least(0),
    coarser=((LOG_ROLL_JITTER_HOURS, HOUR_MS),),
    dynamic=True,
)
LOG_INDEX_INTERVAL_BYTES = ConfigKey(
    "log.index.interval.bytes",
    _INT,
    4096,
    "About how many bytes lie between two entries of an index.",
    at_least(0),
    dynamic=True,
)
LOG_INDEX_SIZE_MAX_BYTES = ConfigKey(
    "log.index.size.max.bytes", _INT, 10 << 20, "A full index closes its segment.", at_least(12), dynamic=True
)
LOG_FLUSH_INTERVAL_MESSAGES = ConfigKey(
    "log.flush.interval.messages",
    _LONG,
    LONG_MAX,
    "Records after which a log is forced to disk.",
    at_least(1),
    dynamic=True,
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = ConfigKey(
    "log.flush.scheduler.interval.ms",
    _LONG,
    LONG_MAX,
    "How often flush.ms is looked at, once a second at least; and log.flush.interval.ms where that is not set.",
    at_least(1),
)
LOG_FLUSH_INTERVAL_MS = ConfigKey(
    "log.flush.interval.ms",
    _LONG,
    LONG_MAX,
    "Time after which a log is forced to disk.",
    at_least(0),
    coarser=((LOG_FLUSH_SCHEDULER_INTERVAL_MS, 1),),
    dynamic=True,
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = ConfigKey(
    "log.flush.offset.checkpoint.interval.ms",
    _INT,
    60_000,
    "How often it is written down up to where each log is on disk: a start after a crash need not check it again.",
    at_least(1),
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = ConfigKey(
    "log.flush.start.offset.checkpoint.interval.ms",
    _INT,
    60_000,
    "How often it is written down where each log begins: a crash may bring back what was deleted since.",
    at_least(1),
)
NUM_RECOVERY_THREADS_PER_DATA_DIR = ConfigKey(
    "num.recovery.threads.per.data.dir",
    _INT,
    2,
    "How many logs are checked at once after an unclean stop. More help a disk that is slow to read, not the CPU.",
    at_least(1),
)
LOG_RETENTION_HOURS = ConfigKey(
    "log.retention.hours", _INT, 168, "The same as log.retention.ms, which comes first.", at_least(-1)
)
LOG_RETENTION_MINUTES: ConfigKey[int | None] = ConfigKey(
    "log.retention.minutes", _INT, None, "The same as log.retention.ms, which comes first.", at_least(-1)
)
LOG_RETENTION_MS = ConfigKey(
    "log.retention.ms",
    _LONG,
    604_800_000,
    "Segments whose newest record is older are deleted; -1: never.",
    at_least(-1),
    coarser=((LOG_RETENTION_MINUTES, MINUTE_MS), (LOG_RETENTION_HOURS, HOUR_MS)),
    dynamic=True,
)
LOG_RETENTION_BYTES = ConfigKey(
    "log.retention.bytes",
    _LONG,
    -1,
    "Oldest segments of a larger partition are deleted; -1: never.",
    at_least(-1),
    dynamic=True,
)
LOG_RETENTION_CHECK_INTERVAL_MS = ConfigKey(
    "log.retention.check.interval.ms", _LONG, 300_000, "How often retention is looked at.", at_least(1)
)
LOG_SEGMENT_DELETE_DELAY_MS = ConfigKey(
    "log.segment.delete.delay.ms",
    _LONG,
    60_000,
    "How long the files of a deleted segment or partition stay on disk, under names that say so.",
    at_least(0),
    dynamic=True,
)
LOG_MESSAGE_TIMESTAMP_TYPE = ConfigKey(
    "log.message.timestamp.type",
    _STRING,
    "CreateTime",
    "Whether a record keeps its producer's timestamp or gets the broker's.",
    one_of("CreateTime", "LogAppendTime"),
    dynamic=True,
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = ConfigKey(
    "log.message.timestamp.before.max.ms",
    _LONG,
    LONG_MAX,
    "How far a timestamp may lie in the past.",
    at_least(0),
    dynamic=True,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = ConfigKey(
    "log.message.timestamp.after.max.ms",
    _LONG,
    3_600_000,
    "How far a timestamp may lie in the future.",
    at_least(0),
    dynamic=True,
)
LOG_CLEANUP_POLICY: ConfigKey[tuple[str, ...]] = ConfigKey(
    "log.cleanup.policy",
    _LIST,
    ("delete",),
    "What is done with old segments; only delete is served.",
    lambda value: None if value == ("delete",) else "only 'delete' is served so far",
    dynamic=True,
)
COMPRESSION_TYPE = ConfigKey(
    "compression.type",
    _STRING,
    PRODUCER_COMPRESSION,
    "The codec batches are stored in. A batch that comes in another one is recompressed; with 'producer' it stays.",
    one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", PRODUCER_COMPRESSION),
    dynamic=True,
)
COMPRESSION_GZIP_LEVEL = ConfigKey(
    "compression.gzip.level",
    _INT,
    -1,
    "Level of batches that the broker compresses with gzip, 1 to 9; -1 is zlib's own choice.",
    lambda value: None if value == -1 or 1 <= value <= 9 else "must be 1 to 9, or -1",
    dynamic=True,
)
COMPRESSION_LZ4_LEVEL = ConfigKey(
    "compression.lz4.level",
    _INT,
    9,
    "Level of batches that the broker compresses with lz4, 1 to 17. 9 is the fast compressor, as in Kafka.",
    between(1, 17),
    dynamic=True,
)
COMPRESSION_ZSTD_LEVEL = ConfigKey(
    "compression.zstd.level",
    _INT,
    3,
    "Level of batches that the broker compresses with zstd, -131072 to 22.",
    between(-131_072, 22),
    dynamic=True,
)
MIN_INSYNC_REPLICAS = ConfigKey(
    "min.insync.replicas",
    _INT,
    1,
    "Replicas that must hold a record before acks=all is answered; all of them, where a partition has fewer.",
    at_least(1),
    dynamic=True,
)
PRODUCER_ID_EXPIRATION_MS = ConfigKey(
    "producer.id.expiration.ms",
    _INT,
    86_400_000,
    "How long an idle producer's sequence numbers are remembered.",
    at_least(1),
    dynamic=True,
)

BROKER_CONFIG = ConfigSchema(key for key in list(globals().values()) if isinstance(key, ConfigKey))


def broker_configs(texts: Mapping[str, Any]) -> Configs:
    """Validated configuration of a broker. Raises ConfigError for anything raylog does not serve."""
    renamed = {_SYNONYMS.get(name, name): value for name, value in texts.items()}
    if len(renamed) != len(texts):
        raise ConfigError("broker.id and node.id are the same key: give one of them")
    values = BROKER_CONFIG.parse({name: _text(value) for name, value in renamed.items()})
    return Configs(BROKER_CONFIG, [Layer(ConfigSource.STATIC_BROKER_CONFIG, values)])


def with_dynamic_configs(static: Configs, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Configs:
    """What was set at start, under what has been set since: for all brokers, and for this one. Raises ConfigError."""
    layers = [
        Layer(ConfigSource.DYNAMIC_BROKER_CONFIG, BROKER_CONFIG.parse(broker)),
        Layer(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, BROKER_CONFIG.parse(cluster)),
    ]
    return Configs(BROKER_CONFIG, [*layers, static.layers[-1]])


_SYNONYMS = {"broker.id": "node.id"}


def _text(value: object) -> str:
    """Python's values as Kafka would write them, so that `config={"num.partitions": 3}` works."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)
