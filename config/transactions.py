"""Transactions and producer ids: the broker's keys, and the settings that are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.core.config import ConfigKey, Configs, ConfigType, at_least

TRANSACTION_MAX_TIMEOUT_MS: ConfigKey[int] = ConfigKey(
    "transaction.max.timeout.ms",
    ConfigType.INT,
    900_000,
    "Longest transaction.timeout.ms of a producer, in milliseconds. A producer that asks for more is rejected with"
    " INVALID_TRANSACTION_TIMEOUT.",
    at_least(1),
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE: ConfigKey[bool] = ConfigKey(
    "transaction.partition.verification.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether a partition leader verifies with the transaction coordinator that the partition is in the transaction"
    " before it appends the transaction's first batch (KIP-890).",
)
TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    ConfigType.INT,
    10_000,
    "How often the coordinator aborts transactions that have exceeded their timeout, in milliseconds.",
    at_least(1),
)
TRANSACTIONAL_ID_EXPIRATION_MS: ConfigKey[int] = ConfigKey(
    "transactional.id.expiration.ms",
    ConfigType.INT,
    604_800_000,
    "Time, in milliseconds, after which the coordinator deletes a transactional id that is not used. Ids with an open"
    " transaction do not expire.",
    at_least(1),
)
TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS: ConfigKey[int] = ConfigKey(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    ConfigType.INT,
    3_600_000,
    "How often the coordinator deletes expired transactional ids, in milliseconds.",
    at_least(1),
)
PRODUCER_ID_EXPIRATION_MS: ConfigKey[int] = ConfigKey(
    "producer.id.expiration.ms",
    ConfigType.INT,
    86_400_000,
    "Time, in milliseconds, after which a partition leader forgets the sequence numbers of a producer that sends"
    " nothing. Producers with an open transaction do not expire.",
    at_least(1),
    dynamic=True,
)

ADD_PARTITIONS_RETRY_BACKOFF_MS: ConfigKey[int] = ConfigKey(
    "add.partitions.to.txn.retry.backoff.ms",
    ConfigType.INT,
    20,
    "Backoff, in milliseconds, before a partition leader asks a coordinator on another broker again to add a partition"
    " to a transaction, while the producer's transaction before is being completed.",
    at_least(1),
)
ADD_PARTITIONS_RETRY_BACKOFF_MAX_MS: ConfigKey[int] = ConfigKey(
    "add.partitions.to.txn.retry.backoff.max.ms",
    ConfigType.INT,
    100,
    "Longest time, in milliseconds, that a request of a transactional producer waits on the broker for the completion"
    " of the producer's transaction before. Then the producer gets CONCURRENT_TRANSACTIONS, and retries.",
    at_least(0),
)


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    timeout_ms_max: int
    verification: bool
    """Whether leaders verify transactions with their coordinator."""
    abort_check_interval_ms: int
    id_expiration_ms: int
    id_expiration_check_interval_ms: int
    retry_ms: int
    """Backoff before a leader asks another broker's coordinator again, during the completion of a transaction."""
    completion_ms_max: int
    """How long a request waits for the completion of the transaction before."""


def transaction_settings(configs: Configs) -> TransactionSettings:
    return TransactionSettings(
        timeout_ms_max=configs[TRANSACTION_MAX_TIMEOUT_MS],
        verification=configs[TRANSACTION_PARTITION_VERIFICATION_ENABLE],
        abort_check_interval_ms=configs[TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS],
        id_expiration_ms=configs[TRANSACTIONAL_ID_EXPIRATION_MS],
        id_expiration_check_interval_ms=configs[TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS],
        retry_ms=configs[ADD_PARTITIONS_RETRY_BACKOFF_MS],
        completion_ms_max=configs[ADD_PARTITIONS_RETRY_BACKOFF_MAX_MS],
    )
