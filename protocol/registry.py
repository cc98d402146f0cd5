"""The served APIs: one table of API keys and versions, and Kafka's complete list for comparison.

Produce is advertised from v0 but served from v3: if the old versions are missing, librdkafka assumes that the broker
does not support compression, and sends everything uncompressed.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from raylog.protocol import codec, fetch, produce
from raylog.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    envelope,
    expire_delegation_token,
    fetch_snapshot,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    push_telemetry,
    read_share_group_state,
    read_share_group_state_summary,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    update_raft_voter,
    vote,
    write_share_group_state,
    write_txn_markers,
)
from raylog.protocol.wire import Buffer


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One API that is served, in the versions [lowest, highest], both included.

    `advertised_from` is the lowest version in ApiVersions responses. `request` and `response` are message classes.
    """

    key: int
    name: str
    lowest: int
    highest: int
    advertised_from: int
    flexible_from: int | None
    request: type[Any]
    response: type[Any]
    internal: bool = False
    """Served on internal listeners only, between the nodes of a cluster."""

    def serves(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields, in body and headers (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from

    def decode_request(self, version: int, buffer: Buffer, position: int = 0) -> Any:
        """The request body, an instance of `request`. Raises ProtocolViolation."""
        if self.key == PRODUCE:
            return produce.decode_produce_request(version, buffer, position)
        if self.key == FETCH:
            return fetch.decode_fetch_request(version, buffer, position)
        return codec.decode(self.request, version, buffer, position)

    def encode_response(self, version: int, response: Any) -> list[Buffer]:
        """The body of an instance of `response`, as buffers to be sent in order. Raises ValueError."""
        return codec.encode_buffers(response, version)


PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
CREATE_DELEGATION_TOKEN: Final = 38
RENEW_DELEGATION_TOKEN: Final = 39
EXPIRE_DELEGATION_TOKEN: Final = 40
DESCRIBE_DELEGATION_TOKEN: Final = 41
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
DESCRIBE_QUORUM: Final = 55
VOTE: Final = 52
BEGIN_QUORUM_EPOCH: Final = 53
ENVELOPE: Final = 58
FETCH_SNAPSHOT: Final = 59
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
BROKER_REGISTRATION: Final = 62
BROKER_HEARTBEAT: Final = 63
ALLOCATE_PRODUCER_IDS: Final = 67
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
ALTER_PARTITION: Final = 56
ASSIGN_REPLICAS_TO_DIRS: Final = 73
UNREGISTER_BROKER: Final = 64
UPDATE_FEATURES: Final = 57
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
PUSH_TELEMETRY: Final = 72
LIST_CONFIG_RESOURCES: Final = 74
DESCRIBE_TOPIC_PARTITIONS: Final = 75
SHARE_GROUP_HEARTBEAT: Final = 76
SHARE_GROUP_DESCRIBE: Final = 77
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
ADD_RAFT_VOTER: Final = 80
REMOVE_RAFT_VOTER: Final = 81
UPDATE_RAFT_VOTER: Final = 82
INITIALIZE_SHARE_GROUP_STATE: Final = 83
READ_SHARE_GROUP_STATE: Final = 84
WRITE_SHARE_GROUP_STATE: Final = 85
DELETE_SHARE_GROUP_STATE: Final = 86
READ_SHARE_GROUP_STATE_SUMMARY: Final = 87
STREAMS_GROUP_HEARTBEAT: Final = 88
STREAMS_GROUP_DESCRIBE: Final = 89
DESCRIBE_SHARE_GROUP_OFFSETS: Final = 90
ALTER_SHARE_GROUP_OFFSETS: Final = 91
DELETE_SHARE_GROUP_OFFSETS: Final = 92


def served(
    key: int,
    name: str,
    lowest: int,
    highest: int,
    advertised_from: int,
    flexible_from: int | None,
    messages: ModuleType,
    *,
    internal: bool = False,
) -> ApiSpec:
    """One row. The message classes are found in their module by the API's name."""
    request, response = getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")
    return ApiSpec(key, name, lowest, highest, advertised_from, flexible_from, request, response, internal)


# fmt: off
APIS: Final = (
    # key, name                                    lowest, highest, advertised from, flexible from, messages
    served(PRODUCE,                 "Produce",              3, 13, 0,    9, produce),
    served(FETCH,                   "Fetch",                4, 18, 4,   12, fetch),
    served(LIST_OFFSETS,            "ListOffsets",          1, 11, 1,    6, list_offsets),
    served(METADATA,                "Metadata",             0, 13, 0,    9, metadata),
    served(OFFSET_COMMIT,           "OffsetCommit",         2, 10, 2,    8, offset_commit),
    served(OFFSET_FETCH,            "OffsetFetch",          1, 10, 1,    6, offset_fetch),
    served(FIND_COORDINATOR,        "FindCoordinator",      0,  6, 0,    3, find_coordinator),
    served(JOIN_GROUP,              "JoinGroup",            0,  9, 0,    6, join_group),
    served(HEARTBEAT,               "Heartbeat",            0,  4, 0,    4, heartbeat),
    served(LEAVE_GROUP,             "LeaveGroup",           0,  5, 0,    4, leave_group),
    served(SYNC_GROUP,              "SyncGroup",            0,  5, 0,    4, sync_group),
    served(DESCRIBE_GROUPS,         "DescribeGroups",       0,  6, 0,    5, describe_groups),
    served(LIST_GROUPS,             "ListGroups",           0,  5, 0,    3, list_groups),
    served(SASL_HANDSHAKE,          "SaslHandshake",        0,  1, 0, None, sasl_handshake),
    served(API_VERSIONS,            "ApiVersions",          0,  4, 0,    3, api_versions),
    served(CREATE_TOPICS,           "CreateTopics",         2,  7, 2,    5, create_topics),
    served(DELETE_TOPICS,           "DeleteTopics",         1,  6, 1,    4, delete_topics),
    served(DELETE_RECORDS,          "DeleteRecords",        0,  2, 0,    2, delete_records),
    served(INIT_PRODUCER_ID,        "InitProducerId",       0,  5, 0,    2, init_producer_id),
    served(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2,  4, 2,    4, offset_for_leader_epoch),
    served(ADD_PARTITIONS_TO_TXN,   "AddPartitionsToTxn",   0,  5, 0,    3, add_partitions_to_txn),
    served(ADD_OFFSETS_TO_TXN,      "AddOffsetsToTxn",      0,  4, 0,    3, add_offsets_to_txn),
    served(END_TXN,                 "EndTxn",               0,  5, 0,    3, end_txn),
    served(WRITE_TXN_MARKERS,       "WriteTxnMarkers",      1,  2, 1,    1, write_txn_markers),
    served(TXN_OFFSET_COMMIT,       "TxnOffsetCommit",      0,  5, 0,    3, txn_offset_commit),
    served(DESCRIBE_ACLS,           "DescribeAcls",         1,  3, 1,    2, describe_acls),
    served(CREATE_ACLS,             "CreateAcls",           1,  3, 1,    2, create_acls),
    served(DELETE_ACLS,             "DeleteAcls",           1,  3, 1,    2, delete_acls),
    served(DESCRIBE_CONFIGS,        "DescribeConfigs",      1,  4, 1,    4, describe_configs),
    served(ALTER_CONFIGS,           "AlterConfigs",         0,  2, 0,    2, alter_configs),
    served(ALTER_REPLICA_LOG_DIRS,  "AlterReplicaLogDirs",  1,  2, 1,    2, alter_replica_log_dirs),
    served(DESCRIBE_LOG_DIRS,       "DescribeLogDirs",      1,  5, 1,    2, describe_log_dirs),
    served(SASL_AUTHENTICATE,       "SaslAuthenticate",     0,  2, 0,    2, sasl_authenticate),
    served(CREATE_PARTITIONS,       "CreatePartitions",     0,  3, 0,    2, create_partitions),
    served(CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 1, 3, 1,    2, create_delegation_token),
    served(RENEW_DELEGATION_TOKEN,  "RenewDelegationToken", 1,  2, 1,    2, renew_delegation_token),
    served(EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 1, 2, 1,    2, expire_delegation_token),
    served(DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 1, 3, 1, 2, describe_delegation_token),
    served(DELETE_GROUPS,           "DeleteGroups",         0,  2, 0,    2, delete_groups),
    served(ELECT_LEADERS,           "ElectLeaders",         0,  2, 0,    2, elect_leaders),
    served(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 0, 1, incremental_alter_configs),
    served(ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0, 0, alter_partition_reassignments),
    served(LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0, 0, list_partition_reassignments),
    served(OFFSET_DELETE,           "OffsetDelete",         0,  0, 0, None, offset_delete),
    served(DESCRIBE_CLIENT_QUOTAS,  "DescribeClientQuotas", 0,  1, 0,    1, describe_client_quotas),
    served(ALTER_CLIENT_QUOTAS,     "AlterClientQuotas",    0,  1, 0,    1, alter_client_quotas),
    served(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0, 0,
           describe_user_scram_credentials),
    served(ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0, 0, alter_user_scram_credentials),
    served(DESCRIBE_QUORUM,         "DescribeQuorum",       0,  2, 0,    0, describe_quorum),
    served(UPDATE_FEATURES,         "UpdateFeatures",       0,  2, 0,    0, update_features),
    served(ADD_RAFT_VOTER,          "AddRaftVoter",         0,  1, 0,    0, add_raft_voter),
    served(REMOVE_RAFT_VOTER,       "RemoveRaftVoter",      0,  0, 0,    0, remove_raft_voter),
    served(DESCRIBE_CLUSTER,        "DescribeCluster",      0,  2, 0,    0, describe_cluster),
    served(DESCRIBE_PRODUCERS,      "DescribeProducers",    0,  0, 0,    0, describe_producers),
    served(UNREGISTER_BROKER,       "UnregisterBroker",     0,  0, 0,    0, unregister_broker),
    served(DESCRIBE_TRANSACTIONS,   "DescribeTransactions", 0,  0, 0,    0, describe_transactions),
    served(LIST_TRANSACTIONS,       "ListTransactions",     0,  2, 0,    0, list_transactions),
    served(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0, 0, consumer_group_heartbeat),
    served(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0, 0, consumer_group_describe),
    served(GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", 0, 0, 0, 0, get_telemetry_subscriptions),
    served(PUSH_TELEMETRY,          "PushTelemetry",        0,  0, 0,    0, push_telemetry),
    served(LIST_CONFIG_RESOURCES,   "ListConfigResources",  0,  1, 0,    0, list_config_resources),
    served(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0, 0, describe_topic_partitions),
    served(SHARE_GROUP_HEARTBEAT,   "ShareGroupHeartbeat",  1,  1, 1,    1, share_group_heartbeat),
    served(SHARE_GROUP_DESCRIBE,    "ShareGroupDescribe",   1,  1, 1,    1, share_group_describe),
    served(SHARE_FETCH,             "ShareFetch",           1,  2, 1,    1, share_fetch),
    served(SHARE_ACKNOWLEDGE,       "ShareAcknowledge",     1,  2, 1,    1, share_acknowledge),
    served(INITIALIZE_SHARE_GROUP_STATE, "InitializeShareGroupState", 0, 0, 0, 0, initialize_share_group_state),
    served(READ_SHARE_GROUP_STATE,  "ReadShareGroupState",  0,  0, 0,    0, read_share_group_state),
    served(WRITE_SHARE_GROUP_STATE, "WriteShareGroupState", 0,  1, 0,    0, write_share_group_state),
    served(DELETE_SHARE_GROUP_STATE, "DeleteShareGroupState", 0, 0, 0,   0, delete_share_group_state),
    served(READ_SHARE_GROUP_STATE_SUMMARY, "ReadShareGroupStateSummary", 0, 1, 0, 0, read_share_group_state_summary),
    served(STREAMS_GROUP_HEARTBEAT, "StreamsGroupHeartbeat", 0, 0, 0,    0, streams_group_heartbeat),
    served(STREAMS_GROUP_DESCRIBE,  "StreamsGroupDescribe", 0,  0, 0,    0, streams_group_describe),
    served(DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", 0, 1, 0, 0, describe_share_group_offsets),
    served(ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", 0, 0, 0, 0, alter_share_group_offsets),
    served(DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", 0, 0, 0, 0, delete_share_group_offsets),
)

INTERNAL_APIS: Final = (
    served(VOTE,                    "Vote",                 0,  2, 0,    0, vote, internal=True),
    served(BEGIN_QUORUM_EPOCH,      "BeginQuorumEpoch",     0,  1, 0,    1, begin_quorum_epoch, internal=True),
    served(ENVELOPE,                "Envelope",             0,  0, 0,    0, envelope, internal=True),
    served(FETCH_SNAPSHOT,          "FetchSnapshot",        0,  1, 0,    0, fetch_snapshot, internal=True),
    served(BROKER_REGISTRATION,     "BrokerRegistration",   0,  4, 0,    0, broker_registration, internal=True),
    served(BROKER_HEARTBEAT,        "BrokerHeartbeat",      0,  2, 0,    0, broker_heartbeat, internal=True),
    served(ALLOCATE_PRODUCER_IDS,   "AllocateProducerIds",  0,  0, 0,    0, allocate_producer_ids, internal=True),
    served(ALTER_PARTITION,         "AlterPartition",       2,  3, 2,    2, alter_partition, internal=True),
    served(ASSIGN_REPLICAS_TO_DIRS, "AssignReplicasToDirs", 0,  0, 0,    0, assign_replicas_to_dirs, internal=True),
    served(UPDATE_RAFT_VOTER,       "UpdateRaftVoter",      0,  0, 0,    0, update_raft_voter, internal=True),
)
"""The requests between the nodes of a cluster, on the internal listener."""
# fmt: on

_BY_KEY: Final = {spec.key: spec for spec in (*APIS, *INTERNAL_APIS)}


def api_for(key: int) -> ApiSpec | None:
    """The API of this key, or None if raylog does not serve it."""
    return _BY_KEY.get(key)


KAFKA_APIS: Final[dict[int, str]] = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    55: "DescribeQuorum",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    59: "FetchSnapshot",
    60: "DescribeCluster",
    61: "DescribeProducers",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    70: "ControllerRegistration",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    73: "AssignReplicasToDirs",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}
"""Every key of Apache Kafka 4.3, with those that 4.0 removed (4-7). Source: Kafka protocol guide, "Api Keys"."""
