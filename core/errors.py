"""Kafka's error codes as one table, and the few families of exceptions that callers tell apart.

Three kinds of failure are never mixed. A refusal that the protocol expects is a *value*: an `ErrorCode` in the
response. A call that cannot go on raises a `KafkaError` that carries such a code. A broken invariant raises
`InvariantViolation`: its object is dropped and rebuilt from the log, and no client ever sees it as a code.

Source: Kafka protocol guide, "Error Codes".
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """One code of the protocol: its wire number, whether a client may simply retry, and a sentence for a person."""

    retriable: bool
    sentence: str

    def __new__(cls, number: int, retriable: int, sentence: str) -> ErrorCode:
        code = int.__new__(cls, number)
        code._value_ = number
        code.retriable = bool(retriable)
        code.sentence = sentence
        return code

    UNKNOWN_SERVER_ERROR = -1, 0, "The broker met an unexpected error while it served the request."
    NONE = 0, 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, 0, "The offset lies outside what the partition holds."
    CORRUPT_MESSAGE = 2, 1, "A record batch fails its checksum or is malformed."
    UNKNOWN_TOPIC_OR_PARTITION = 3, 1, "This broker knows no such topic or partition."
    INVALID_FETCH_SIZE = 4, 0, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, 1, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, 1, "This broker does not lead, or does not hold, the partition."
    REQUEST_TIMED_OUT = 7, 1, "The request was not completed within its time."
    BROKER_NOT_AVAILABLE = 8, 0, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, 1, "The replica is not available for the partition."
    MESSAGE_TOO_LARGE = 10, 0, "The record batch is larger than max.message.bytes of its topic."
    STALE_CONTROLLER_EPOCH = 11, 0, "The controller has been replaced by a newer one."
    OFFSET_METADATA_TOO_LARGE = 12, 0, "The metadata beside the offset is longer than offset.metadata.max.bytes."
    NETWORK_EXCEPTION = 13, 1, "The connection was lost before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, 1, "The coordinator is still reading its log."
    COORDINATOR_NOT_AVAILABLE = 15, 1, "No coordinator is available."
    NOT_COORDINATOR = 16, 1, "This broker is not the coordinator asked for."
    INVALID_TOPIC_EXCEPTION = 17, 0, "The topic name is not valid, or the topic may not be used so."
    RECORD_LIST_TOO_LARGE = 18, 0, "The record batch is larger than a segment may be."
    NOT_ENOUGH_REPLICAS = 19, 1, "Fewer replicas are in sync than min.insync.replicas demands."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, 1, "Written, but to fewer in-sync replicas than min.insync.replicas demands."
    INVALID_REQUIRED_ACKS = 21, 0, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, 0, "The generation of the group member is not the current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, 0, "The member shares no protocol with the members of the group."
    INVALID_GROUP_ID = 24, 0, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, 0, "The coordinator knows no such member."
    INVALID_SESSION_TIMEOUT = 26, 0, "The session timeout lies outside what the broker allows."
    REBALANCE_IN_PROGRESS = 27, 0, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, 0, "The committed offset is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, 0, "Not authorized for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, 0, "Not authorized for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, 0, "Not authorized for the cluster."
    INVALID_TIMESTAMP = 32, 0, "The timestamp of a record lies outside what its topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, 0, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, 0, "The request does not fit the state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, 0, "The broker does not serve this request in this version."
    TOPIC_ALREADY_EXISTS = 36, 0, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, 0, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, 0, "The replication factor is not between 1 and the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, 0, "The assignment of replicas is not valid."
    INVALID_CONFIG = 40, 0, "A configuration is not valid."
    NOT_CONTROLLER = 41, 1, "This is not the active controller."
    INVALID_REQUEST = 42, 0, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, 0, "The record format on disk does not support the request."
    POLICY_VIOLATION = 44, 0, "The request violates a policy of the cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, 0, "The sequence number is not the one that should follow."
    DUPLICATE_SEQUENCE_NUMBER = 46, 0, "The sequence number was written already."
    INVALID_PRODUCER_EPOCH = 47, 0, "A newer producer with the same id has taken over."
    INVALID_TXN_STATE = 48, 0, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, 0, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, 0, "The transaction timeout is longer than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, 1, "The previous transaction of this producer is still being completed."
    TRANSACTION_COORDINATOR_FENCED = 52, 0, "The transaction coordinator has been replaced by a newer one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, 0, "Not authorized for the transactional id."
    SECURITY_DISABLED = 54, 0, "Security features are switched off."
    OPERATION_NOT_ATTEMPTED = 55, 0, "The operation was not tried, because another of the same request failed."
    KAFKA_STORAGE_ERROR = 56, 1, "The disk failed for this partition."
    LOG_DIR_NOT_FOUND = 57, 0, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, 0, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, 0, "The partition knows no such producer."
    REASSIGNMENT_IN_PROGRESS = 60, 0, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, 0, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, 0, "No such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, 0, "The principal neither owns nor may renew the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, 0, "Tokens cannot be asked for over this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, 0, "Not authorized for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, 0, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, 0, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, 0, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, 0, "No such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, 1, "The broker no longer holds this fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, 1, "The fetch session is at another epoch."
    LISTENER_NOT_FOUND = 72, 1, "The leader has no listener of the name asked for."
    TOPIC_DELETION_DISABLED = 73, 0, "delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, 1, "The leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, 1, "The leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, 0, "The client's version cannot read this compression type."
    STALE_BROKER_EPOCH = 77, 0, "The broker epoch has been replaced by a newer one."
    OFFSET_NOT_AVAILABLE = 78, 1, "The high watermark has not caught up with a newly elected leader."
    MEMBER_ID_REQUIRED = 79, 0, "Join again with the member id just given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, 1, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, 0, "The group is full."
    FENCED_INSTANCE_ID = 82, 0, "Another member with the same group.instance.id has taken over."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, 1, "No replica may become leader."
    ELECTION_NOT_NEEDED = 84, 1, "The partition already has the leader asked for."
    NO_REASSIGNMENT_IN_PROGRESS = 85, 0, "No reassignment is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, 0, "The group still reads the topic."
    INVALID_RECORD = 87, 0, "A record breaks a rule of its topic."
    UNSTABLE_OFFSET_COMMIT = 88, 1, "A transaction that commits this offset is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, 1, "A quota is used up: wait and retry."
    PRODUCER_FENCED = 90, 0, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, 0, "No such resource."
    DUPLICATE_RESOURCE = 92, 0, "The resource is named twice."
    UNACCEPTABLE_CREDENTIAL = 93, 0, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, 0, "The voters named are not those of the quorum."
    INVALID_UPDATE_VERSION = 95, 0, "The feature version cannot be set."
    FEATURE_UPDATE_FAILED = 96, 0, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, 0, "The forwarded principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, 0, "No such snapshot."
    POSITION_OUT_OF_RANGE = 99, 0, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, 1, "This broker knows no topic of this id."
    DUPLICATE_BROKER_REGISTRATION = 101, 0, "A broker with this id is registered already."
    BROKER_ID_NOT_REGISTERED = 102, 0, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, 1, "The topic id in the log is not the one in the request."
    INCONSISTENT_CLUSTER_ID = 104, 0, "The cluster id is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, 0, "No such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, 1, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, 0, "The replica may not join the ISR."
    NEW_LEADER_ELECTED = 108, 0, "The change has elected a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, 0, "The offset lies in tiered storage."
    FENCED_MEMBER_EPOCH = 110, 0, "The member epoch has been fenced: join again."
    UNRELEASED_INSTANCE_ID = 111, 0, "The instance id is still in use by another member."
    UNSUPPORTED_ASSIGNOR = 112, 0, "The coordinator does not offer this assignor."
    STALE_MEMBER_EPOCH = 113, 0, "The member epoch is not the current one."
    MISMATCHED_ENDPOINT_TYPE = 114, 0, "The request was sent to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, 0, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, 0, "No such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, 0, "The telemetry subscription is not the current one."
    TELEMETRY_TOO_LARGE = 118, 0, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, 0, "The controller refuses the registration."
    TRANSACTION_ABORTABLE = 120, 0, "The transaction must be aborted."
    INVALID_RECORD_STATE = 121, 0, "The record is not in a state that can be acknowledged."
    SHARE_SESSION_NOT_FOUND = 122, 1, "The broker no longer holds this share session."
    INVALID_SHARE_SESSION_EPOCH = 123, 1, "The share session is at another epoch."
    FENCED_STATE_EPOCH = 124, 0, "The share coordinator holds a newer state epoch."
    INVALID_VOTER_KEY = 125, 0, "The voter's key is not the receiver's."
    DUPLICATE_VOTER = 126, 0, "The voter belongs to the quorum already."
    VOTER_NOT_FOUND = 127, 0, "The quorum has no such voter."
    INVALID_REGULAR_EXPRESSION = 128, 0, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, 0, "The client must start again from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, 0, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, 0, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, 0, "The topology epoch is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, 1, "The broker holds as many share sessions as it may."


class KafkaError(Exception):
    """A call that cannot go on, with the code a client would be shown and a message that names what is wrong."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message or code.sentence

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class ProtocolViolation(Exception):
    """Bytes from the peer break the protocol so that no answer can be framed: the connection is closed."""


class ConfigError(KafkaError):
    """A configuration that breaks a rule; the message names the key, the value and the rule."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str]]:
        return ConfigError, (self.message,)


class InvariantViolation(AssertionError):
    """State that cannot be: a bug of ours or a disk that lies. The object that holds it must be dropped."""
