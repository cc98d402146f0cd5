"""Every configuration key of a broker, and how a broker's configuration is read.

`BROKER_KEYS` is the table that parsing, DescribeConfigs, refusals and docs/configuration.md follow. Each subject has a
file of its own that declares its keys and makes typed settings from them; settings are what the code receives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from raylog.config.authentication import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    CONNECTIONS_MAX_REAUTH_MS,
    LOCAL_PRINCIPAL_MAPPING,
    PRINCIPAL_BUILDER_CLASS,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
)
from raylog.config.authorization import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
)
from raylog.config.compaction import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_DELETE_RETENTION_MS,
    LOG_CLEANER_ENABLE,
    LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
    LOG_CLEANER_IO_BUFFER_SIZE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    LOG_CLEANER_MIN_CLEANABLE_RATIO,
    LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    LOG_CLEANER_THREADS,
    LOG_CLEANUP_POLICY,
)
from raylog.config.consumer_groups import (
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_COORDINATOR_REBALANCE_PROTOCOLS,
)
from raylog.config.controller import (
    AUTO_LEADER_REBALANCE_ENABLE,
    CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS,
    CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS,
    CONTROLLER_QUORUM_FETCH_TIMEOUT_MS,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
    METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS,
)
from raylog.config.cross_checks import check_together
from raylog.config.delegation_tokens import (
    DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
    DELEGATION_TOKEN_EXPIRY_TIME_MS,
    DELEGATION_TOKEN_MAX_LIFETIME_MS,
    DELEGATION_TOKEN_SECRET_KEY,
)
from raylog.config.groups import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    MAX_GROUPS_PER_BROKER,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
)
from raylog.config.internal_topics import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
    TRANSACTION_LOG_MIN_ISR,
    TRANSACTION_LOG_NUM_PARTITIONS,
    TRANSACTION_LOG_REPLICATION_FACTOR,
    TRANSACTION_LOG_SEGMENT_BYTES,
)
from raylog.config.kerberos import (
    SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES,
    SASL_KERBEROS_SERVICE_NAME,
)
from raylog.config.log import (
    COMPRESSION_GZIP_LEVEL,
    COMPRESSION_LZ4_LEVEL,
    COMPRESSION_TYPE,
    COMPRESSION_ZSTD_LEVEL,
    LOG_DIR,
    LOG_DIR_FAILURE_TIMEOUT_MS,
    LOG_DIRS,
    LOG_FLUSH_INTERVAL_MESSAGES,
    LOG_FLUSH_INTERVAL_MS,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_INDEX_INTERVAL_BYTES,
    LOG_INDEX_SIZE_MAX_BYTES,
    LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    LOG_MESSAGE_TIMESTAMP_TYPE,
    LOG_RETENTION_BYTES,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    LOG_RETENTION_HOURS,
    LOG_RETENTION_MINUTES,
    LOG_RETENTION_MS,
    LOG_ROLL_HOURS,
    LOG_ROLL_JITTER_HOURS,
    LOG_ROLL_JITTER_MS,
    LOG_ROLL_MS,
    LOG_SEGMENT_BYTES,
    LOG_SEGMENT_DELETE_DELAY_MS,
    MESSAGE_MAX_BYTES,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
)
from raylog.config.membership import (
    BROKER_HEARTBEAT_INTERVAL_MS,
    BROKER_RACK,
    BROKER_SESSION_TIMEOUT_MS,
    CONTROLLED_SHUTDOWN_ENABLE,
    NODE_ID,
)
from raylog.config.metrics import RAYLOG_METRICS_ADDRESS
from raylog.config.network import (
    ADVERTISED_LISTENERS,
    CONNECTIONS_MAX_IDLE_MS,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
)
from raylog.config.oauthbearer import (
    CLOCK_SKEW_SECONDS,
    EXPECTED_AUDIENCE,
    EXPECTED_ISSUER,
    JWKS_ENDPOINT_REFRESH_MS,
    JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS,
    JWKS_ENDPOINT_RETRY_BACKOFF_MS,
    JWKS_ENDPOINT_URL,
    SCOPE_CLAIM_NAME,
    SUB_CLAIM_NAME,
)
from raylog.config.quotas import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
)
from raylog.config.replication import (
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
    MIN_INSYNC_REPLICAS,
    REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    REPLICA_LAG_TIME_MAX_MS,
    REPLICA_SELECTOR_CLASS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
)
from raylog.config.requests import (
    FETCH_MAX_BYTES,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    MAX_REQUEST_PARTITION_SIZE_LIMIT,
)
from raylog.config.tls import (
    SSL_CIPHER_SUITES,
    SSL_CLIENT_AUTH,
    SSL_ENABLED_PROTOCOLS,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_KEYSTORE_KEY,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_PASSWORD,
    SSL_KEYSTORE_TYPE,
    SSL_PRINCIPAL_MAPPING_RULES,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_PASSWORD,
    SSL_TRUSTSTORE_TYPE,
)
from raylog.config.topic_lifecycle import (
    AUTO_CREATE_TOPICS_ENABLE,
    DEFAULT_REPLICATION_FACTOR,
    DELETE_TOPIC_ENABLE,
    MAX_PARTITIONS_PER_CLUSTER,
    NUM_PARTITIONS,
)
from raylog.config.transactions import (
    PRODUCER_ID_EXPIRATION_MS,
    TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_PARTITION_VERIFICATION_ENABLE,
    TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from raylog.core.config import (
    ConfigKey,
    Configs,
    ConfigSchema,
    ConfigSource,
    Layer,
)
from raylog.core.errors import ConfigError
from raylog.core.password import Password

BROKER_KEYS: Final[Mapping[str, tuple[ConfigKey[Any], ...]]] = {
    "Membership": (
        NODE_ID,
        BROKER_RACK,
        BROKER_HEARTBEAT_INTERVAL_MS,
        BROKER_SESSION_TIMEOUT_MS,
        CONTROLLED_SHUTDOWN_ENABLE,
    ),
    "Metrics": (RAYLOG_METRICS_ADDRESS,),
    "Network": (
        LISTENERS,
        ADVERTISED_LISTENERS,
        LISTENER_SECURITY_PROTOCOL_MAP,
        INTER_BROKER_LISTENER_NAME,
        SOCKET_SEND_BUFFER_BYTES,
        SOCKET_RECEIVE_BUFFER_BYTES,
        SOCKET_REQUEST_MAX_BYTES,
        SOCKET_LISTEN_BACKLOG_SIZE,
        MAX_CONNECTIONS,
        MAX_CONNECTIONS_PER_IP,
        MAX_CONNECTIONS_PER_IP_OVERRIDES,
        MAX_CONNECTION_CREATION_RATE,
        CONNECTIONS_MAX_IDLE_MS,
    ),
    "TLS": (
        SSL_KEYSTORE_TYPE,
        SSL_KEYSTORE_LOCATION,
        SSL_KEYSTORE_PASSWORD,
        SSL_KEYSTORE_KEY,
        SSL_KEYSTORE_CERTIFICATE_CHAIN,
        SSL_KEY_PASSWORD,
        SSL_TRUSTSTORE_TYPE,
        SSL_TRUSTSTORE_LOCATION,
        SSL_TRUSTSTORE_PASSWORD,
        SSL_TRUSTSTORE_CERTIFICATES,
        SSL_CLIENT_AUTH,
        SSL_ENABLED_PROTOCOLS,
        SSL_CIPHER_SUITES,
        SSL_PRINCIPAL_MAPPING_RULES,
    ),
    "Authentication": (
        SASL_ENABLED_MECHANISMS,
        SASL_JAAS_CONFIG,
        SASL_SERVER_CALLBACK_HANDLER_CLASS,
        PRINCIPAL_BUILDER_CLASS,
        SASL_SERVER_MAX_RECEIVE_SIZE,
        CONNECTIONS_MAX_REAUTH_MS,
        CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
        LOCAL_PRINCIPAL_MAPPING,
    ),
    "OAUTHBEARER": (
        JWKS_ENDPOINT_URL,
        JWKS_ENDPOINT_REFRESH_MS,
        JWKS_ENDPOINT_RETRY_BACKOFF_MS,
        JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS,
        EXPECTED_AUDIENCE,
        EXPECTED_ISSUER,
        CLOCK_SKEW_SECONDS,
        SCOPE_CLAIM_NAME,
        SUB_CLAIM_NAME,
    ),
    "Kerberos": (
        SASL_KERBEROS_SERVICE_NAME,
        SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES,
    ),
    "Delegation tokens": (
        DELEGATION_TOKEN_SECRET_KEY,
        DELEGATION_TOKEN_MAX_LIFETIME_MS,
        DELEGATION_TOKEN_EXPIRY_TIME_MS,
        DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
    ),
    "Authorization": (
        AUTHORIZER_CLASS_NAME,
        SUPER_USERS,
        ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    ),
    "Quotas": (
        QUOTA_WINDOW_NUM,
        QUOTA_WINDOW_SIZE_SECONDS,
        CONTROLLER_QUOTA_WINDOW_NUM,
        CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    ),
    "Controllers": (
        CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS,
        CONTROLLER_QUORUM_FETCH_TIMEOUT_MS,
        CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS,
        METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS,
        AUTO_LEADER_REBALANCE_ENABLE,
        LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
        LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
    ),
    "Requests": (
        FETCH_MAX_BYTES,
        MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
        MAX_REQUEST_PARTITION_SIZE_LIMIT,
    ),
    "Topics": (
        AUTO_CREATE_TOPICS_ENABLE,
        DELETE_TOPIC_ENABLE,
        MAX_PARTITIONS_PER_CLUSTER,
        NUM_PARTITIONS,
        DEFAULT_REPLICATION_FACTOR,
    ),
    "Replication": (
        REPLICA_LAG_TIME_MAX_MS,
        REPLICA_FETCH_WAIT_MAX_MS,
        REPLICA_FETCH_MAX_BYTES,
        REPLICA_FETCH_RESPONSE_MAX_BYTES,
        REPLICA_SELECTOR_CLASS,
        REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
        LEADER_REPLICATION_THROTTLED_RATE,
        FOLLOWER_REPLICATION_THROTTLED_RATE,
        REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
        UNCLEAN_LEADER_ELECTION_ENABLE,
        MIN_INSYNC_REPLICAS,
    ),
    "Groups and offsets": (
        GROUP_MIN_SESSION_TIMEOUT_MS,
        GROUP_MAX_SESSION_TIMEOUT_MS,
        GROUP_INITIAL_REBALANCE_DELAY_MS,
        GROUP_MAX_SIZE,
        MAX_GROUPS_PER_BROKER,
        OFFSET_METADATA_MAX_BYTES,
        OFFSETS_RETENTION_MINUTES,
        OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    ),
    "Groups of the consumer protocol": (
        GROUP_COORDINATOR_REBALANCE_PROTOCOLS,
        GROUP_CONSUMER_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_SIZE,
        GROUP_CONSUMER_ASSIGNORS,
        GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
        GROUP_CONSUMER_MIGRATION_POLICY,
    ),
    "Transactions": (
        TRANSACTION_MAX_TIMEOUT_MS,
        TRANSACTION_PARTITION_VERIFICATION_ENABLE,
        TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS,
        TRANSACTIONAL_ID_EXPIRATION_MS,
        TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS,
        PRODUCER_ID_EXPIRATION_MS,
    ),
    "Internal topics": (
        OFFSETS_TOPIC_NUM_PARTITIONS,
        OFFSETS_TOPIC_REPLICATION_FACTOR,
        OFFSETS_TOPIC_SEGMENT_BYTES,
        TRANSACTION_LOG_NUM_PARTITIONS,
        TRANSACTION_LOG_REPLICATION_FACTOR,
        TRANSACTION_LOG_MIN_ISR,
        TRANSACTION_LOG_SEGMENT_BYTES,
    ),
    "Logs": (
        MESSAGE_MAX_BYTES,
        LOG_SEGMENT_BYTES,
        LOG_ROLL_HOURS,
        LOG_ROLL_MS,
        LOG_ROLL_JITTER_HOURS,
        LOG_ROLL_JITTER_MS,
        LOG_INDEX_INTERVAL_BYTES,
        LOG_INDEX_SIZE_MAX_BYTES,
        LOG_FLUSH_INTERVAL_MESSAGES,
        LOG_FLUSH_SCHEDULER_INTERVAL_MS,
        LOG_FLUSH_INTERVAL_MS,
        LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
        LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS,
        NUM_RECOVERY_THREADS_PER_DATA_DIR,
        LOG_DIRS,
        LOG_DIR,
        LOG_DIR_FAILURE_TIMEOUT_MS,
        LOG_RETENTION_HOURS,
        LOG_RETENTION_MINUTES,
        LOG_RETENTION_MS,
        LOG_RETENTION_BYTES,
        LOG_RETENTION_CHECK_INTERVAL_MS,
        LOG_SEGMENT_DELETE_DELAY_MS,
        LOG_MESSAGE_TIMESTAMP_TYPE,
        LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
        LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
        COMPRESSION_TYPE,
        COMPRESSION_GZIP_LEVEL,
        COMPRESSION_LZ4_LEVEL,
        COMPRESSION_ZSTD_LEVEL,
    ),
    "Compaction": (
        LOG_CLEANUP_POLICY,
        LOG_CLEANER_ENABLE,
        LOG_CLEANER_THREADS,
        LOG_CLEANER_DEDUPE_BUFFER_SIZE,
        LOG_CLEANER_IO_BUFFER_SIZE,
        LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
        LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
        LOG_CLEANER_BACKOFF_MS,
        LOG_CLEANER_MIN_CLEANABLE_RATIO,
        LOG_CLEANER_DELETE_RETENTION_MS,
        LOG_CLEANER_MIN_COMPACTION_LAG_MS,
        LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    ),
}
"""By subject, in the order of docs/configuration.md."""

BROKER_CONFIG: Final = ConfigSchema(key for keys in BROKER_KEYS.values() for key in keys)

SYNONYMS: Final = {"broker.id": NODE_ID.name}
"""Other names of keys."""


def broker_configs(given: Mapping[str, Any]) -> Configs:
    """The validated configuration of a broker. Raises ConfigError for anything that raylog does not support.

    Values are text as in Kafka's server.properties, or Python's own: numbers, booleans, lists, paths, `Password`.
    """
    renamed = {SYNONYMS.get(name, name): value for name, value in given.items()}
    if len(renamed) != len(given):
        raise ConfigError("broker.id and node.id are the same key: set only one of them")
    values = BROKER_CONFIG.parse({name: _text(name, value) for name, value in renamed.items()})
    configs = Configs(BROKER_CONFIG, [Layer(ConfigSource.STATIC_BROKER_CONFIG, values)])
    check_together(configs)
    return configs


def with_dynamic_configs(static: Configs, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Configs:
    """The static configuration below what was set at run time, for all brokers and for this one.

    The texts are those of the metadata log: they were validated when they were stored, and never prevent a start.
    """
    layers = [
        Layer(ConfigSource.DYNAMIC_BROKER_CONFIG, BROKER_CONFIG.restore(broker)),
        Layer(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, BROKER_CONFIG.restore(cluster)),
    ]
    return Configs(BROKER_CONFIG, [*layers, static.layers[-1]])


def hide_passwords(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given`, with each value of a PASSWORD key as a `Password`, which can be printed, logged and pickled safely."""
    return {
        name: Password(value) if isinstance(value, str) and is_sensitive(name) else value
        for name, value in given.items()
    }


def is_sensitive(name: str) -> bool:
    """Whether the value of a key must never be shown; False for unknown keys, whose values no error shows."""
    try:
        return BROKER_CONFIG.key(name).is_sensitive
    except ConfigError:
        return False


def _text(name: str, value: object) -> str:
    """A Python value as Kafka writes it, so that `config={"num.partitions": 3}` works. Raises ConfigError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Password):
        return value.reveal()
    if isinstance(value, (list, tuple)):
        return ",".join(_text(name, item) for item in value)
    if not isinstance(value, (str, int, float, PurePath)):
        kind = type(value).__name__
        raise ConfigError(f"{name}: must be text, a number, a boolean, a list or a path, not {kind}")
    try:
        return str(value)
    except ValueError:  # Python refuses to write numbers of more than 4300 digits
        raise ConfigError(f"{name}: the number is too large") from None
