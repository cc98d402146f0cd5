"""Kafka's error codes as one table, and the exceptions that callers distinguish.

Three kinds of failure are kept apart. An expected error is a *value*: an `ErrorCode` in the response. A call that
cannot continue raises a `KafkaError` with such a code. A broken invariant raises `InvariantViolation`: the object is
discarded and rebuilt from the log, and clients never receive it as an error code.

Source: Kafka protocol guide, "Error Codes".
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

MESSAGE_CHARACTERS_MAX: Final = 4000


class ErrorCode(IntEnum):
    """One error code of the protocol: its number, whether clients can retry, and a sentence that describes it."""

    retriable: bool
    sentence: str

    def __new__(cls, number: int, retriable: int, sentence: str) -> ErrorCode:
        code = int.__new__(cls, number)
        code._value_ = number
        code.retriable = bool(retriable)
        code.sentence = sentence
        return code

    UNKNOWN_SERVER_ERROR = -1, 0, "The broker failed unexpectedly while processing the request."
    NONE = 0, 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, 0, "The offset is outside the range of the partition's log."
    CORRUPT_MESSAGE = 2, 1, "A record batch fails its checksum or is malformed."
    UNKNOWN_TOPIC_OR_PARTITION = 3, 1, "The topic or partition does not exist on this broker."
    INVALID_FETCH_SIZE = 4, 0, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, 1, "The partition currently has no leader."
    NOT_LEADER_OR_FOLLOWER = 6, 1, "This broker is not the leader, or not a replica, of the partition."
    REQUEST_TIMED_OUT = 7, 1, "The request timed out."
    BROKER_NOT_AVAILABLE = 8, 0, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, 1, "The replica is not available for the partition."
    MESSAGE_TOO_LARGE = 10, 0, "The record batch is larger than max.message.bytes of its topic."
    STALE_CONTROLLER_EPOCH = 11, 0, "The controller epoch is older than the current one."
    OFFSET_METADATA_TOO_LARGE = 12, 0, "The metadata of the committed offset is longer than offset.metadata.max.bytes."
    NETWORK_EXCEPTION = 13, 1, "The connection was lost before a response was received."
    COORDINATOR_LOAD_IN_PROGRESS = 14, 1, "The coordinator is loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, 1, "No coordinator is available."
    NOT_COORDINATOR = 16, 1, "This broker is not the coordinator of the group or transactional id."
    INVALID_TOPIC_EXCEPTION = 17, 0, "The topic name is not valid, or the operation is not allowed on this topic."
    RECORD_LIST_TOO_LARGE = 18, 0, "The record batch is larger than the segment size of its topic."
    NOT_ENOUGH_REPLICAS = 19, 1, "Fewer replicas are in sync than min.insync.replicas requires."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, 1, "Appended, but fewer replicas are in sync than min.insync.replicas."
    INVALID_REQUIRED_ACKS = 21, 0, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, 0, "The generation id is not the group's current generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, 0, "The member supports no protocol that all members of the group support."
    INVALID_GROUP_ID = 24, 0, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, 0, "The member id is not a member of the group."
    INVALID_SESSION_TIMEOUT = 26, 0, "The session timeout is outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, 0, "The group is rebalancing; the member must rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, 0, "The committed offset is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, 0, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, 0, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, 0, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, 0, "The timestamp of a record is outside the range that the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, 0, "The broker does not support this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, 0, "The request is not valid in the current state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, 0, "The broker does not support this version of the request."
    TOPIC_ALREADY_EXISTS = 36, 0, "A topic with this name already exists."
    INVALID_PARTITIONS = 37, 0, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, 0, "The replication factor is not between 1 and the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, 0, "The replica assignment is not valid."
    INVALID_CONFIG = 40, 0, "The configuration is not valid."
    NOT_CONTROLLER = 41, 1, "This is not the active controller."
    INVALID_REQUEST = 42, 0, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, 0, "The record format on disk does not support the request."
    POLICY_VIOLATION = 44, 0, "The request violates a policy of the cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, 0, "The sequence number does not follow the producer's last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, 0, "The broker has already appended a batch with this sequence number."
    INVALID_PRODUCER_EPOCH = 47, 0, "A producer with the same id and a newer epoch exists."
    INVALID_TXN_STATE = 48, 0, "The operation is not valid in the current state of the transaction."
    INVALID_PRODUCER_ID_MAPPING = 49, 0, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, 0, "The transaction timeout is longer than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, 1, "The producer's previous transaction is still being completed."
    TRANSACTION_COORDINATOR_FENCED = 52, 0, "The coordinator epoch is older than the current one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, 0, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, 0, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = 55, 0, "The operation was not attempted, because another one in the same request failed."
    KAFKA_STORAGE_ERROR = 56, 1, "A disk error occurred on the log of the partition."
    LOG_DIR_NOT_FOUND = 57, 0, "The broker does not have this log directory."
    SASL_AUTHENTICATION_FAILED = 58, 0, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, 0, "The partition has no state for this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, 0, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, 0, "Delegation tokens are disabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, 0, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, 0, "The principal is neither the owner nor a renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, 0, "Delegation token requests are not allowed on this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, 0, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, 0, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, 0, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, 0, "The group is not empty."
    GROUP_ID_NOT_FOUND = 69, 0, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, 1, "The fetch session does not exist, or has been evicted."
    INVALID_FETCH_SESSION_EPOCH = 71, 1, "The epoch of the fetch session is not the expected one."
    LISTENER_NOT_FOUND = 72, 1, "The leader has no listener with the name of this one."
    TOPIC_DELETION_DISABLED = 73, 0, "delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, 1, "The leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, 1, "The leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, 0, "The requested version does not support this compression type."
    STALE_BROKER_EPOCH = 77, 0, "The broker epoch is older than the current one."
    OFFSET_NOT_AVAILABLE = 78, 1, "The high watermark of the newly elected leader is not known yet."
    MEMBER_ID_REQUIRED = 79, 0, "The member must rejoin with the member id in the response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, 1, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, 0, "The group has reached its maximum size."
    FENCED_INSTANCE_ID = 82, 0, "Another member with the same group.instance.id has joined."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, 1, "No eligible leader is available."
    ELECTION_NOT_NEEDED = 84, 1, "The partition does not need an election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, 0, "No reassignment is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, 0, "The group is subscribed to the topic."
    INVALID_RECORD = 87, 0, "A record is not valid for its topic."
    UNSTABLE_OFFSET_COMMIT = 88, 1, "A transaction that commits offsets of this partition is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, 1, "A quota is exceeded; retry after the throttle time."
    PRODUCER_FENCED = 90, 0, "A newer producer with the same transactional id has fenced this one."
    RESOURCE_NOT_FOUND = 91, 0, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, 0, "The request contains the resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, 0, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, 0, "The voters in the request are not those of the quorum."
    INVALID_UPDATE_VERSION = 95, 0, "The feature version is not valid."
    FEATURE_UPDATE_FAILED = 96, 0, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, 0, "The forwarded principal cannot be decoded."
    SNAPSHOT_NOT_FOUND = 98, 0, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, 0, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, 1, "The topic id does not exist on this broker."
    DUPLICATE_BROKER_REGISTRATION = 101, 0, "A broker with this id is already registered."
    BROKER_ID_NOT_REGISTERED = 102, 0, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, 1, "The topic id in the log differs from the one in the request."
    INCONSISTENT_CLUSTER_ID = 104, 0, "The cluster id differs from this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, 0, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, 1, "The fetch session uses both topic names and topic ids."
    INELIGIBLE_REPLICA = 107, 0, "The replica is not eligible to join the ISR."
    NEW_LEADER_ELECTED = 108, 0, "A new leader was elected while the ISR was changed."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, 0, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, 0, "The member epoch is fenced; the member must rejoin."
    UNRELEASED_INSTANCE_ID = 111, 0, "The instance id is still in use by another member."
    UNSUPPORTED_ASSIGNOR = 112, 0, "The coordinator does not support this assignor."
    STALE_MEMBER_EPOCH = 113, 0, "The member epoch is not the current one."
    MISMATCHED_ENDPOINT_TYPE = 114, 0, "The request was sent to the wrong type of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, 0, "The type of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, 0, "The controller id is unknown."
    UNKNOWN_SUBSCRIPTION_ID = 117, 0, "The telemetry subscription id is out of date."
    TELEMETRY_TOO_LARGE = 118, 0, "The telemetry is larger than the broker allows."
    INVALID_REGISTRATION = 119, 0, "The registration is not valid."
    TRANSACTION_ABORTABLE = 120, 0, "The transaction must be aborted."
    INVALID_RECORD_STATE = 121, 0, "The record cannot be acknowledged in its current state."
    SHARE_SESSION_NOT_FOUND = 122, 1, "The share session does not exist, or has been evicted."
    INVALID_SHARE_SESSION_EPOCH = 123, 1, "The epoch of the share session is not the expected one."
    FENCED_STATE_EPOCH = 124, 0, "The state epoch is older than the share coordinator's."
    INVALID_VOTER_KEY = 125, 0, "The voter key differs from the receiver's."
    DUPLICATE_VOTER = 126, 0, "The voter is already in the quorum."
    VOTER_NOT_FOUND = 127, 0, "The voter is not in the quorum."
    INVALID_REGULAR_EXPRESSION = 128, 0, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, 0, "The client must rebootstrap from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, 0, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, 0, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, 0, "The topology epoch is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, 1, "The broker has reached its limit of share sessions."


class KafkaError(Exception):
    """A call that cannot continue: the error code for the client, and a message that says what is wrong.

    Without a message it is the sentence of the code; None is what a response without one has. A longer message than
    MESSAGE_CHARACTERS_MAX is shortened: it may contain names whose length the client has chosen, and no response can
    carry one of more than 32,767 bytes.
    """

    def __init__(self, code: ErrorCode, message: str | None = "") -> None:
        message = message or ""
        if len(message) > MESSAGE_CHARACTERS_MAX:
            message = f"{message[:MESSAGE_CHARACTERS_MAX]}... ({len(message)} characters)"
        super().__init__(code, message)
        self.code = code
        self.message = message or code.sentence

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class ProtocolViolation(Exception):
    """The peer violates the protocol in a way that allows no response: the connection is closed."""


class ConfigError(KafkaError):
    """An invalid configuration; the message names the key, the value and the rule."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str]]:
        return ConfigError, (self.message,)


class InvariantViolation(AssertionError):
    """Impossible state, because of a bug or a corrupted disk. The object that holds it must be discarded."""
