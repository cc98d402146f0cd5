"""The operations that requests require in Kafka, and the errors without them: the table of test_authorization.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode
from raylog.protocol import registry
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raylog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from raylog.protocol.messages.add_raft_voter import AddRaftVoterRequest
from raylog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from raylog.protocol.messages.alter_configs import AlterableConfig as AlteredConfig
from raylog.protocol.messages.alter_configs import AlterConfigsRequest
from raylog.protocol.messages.alter_configs import AlterConfigsResource as AlteredResource
from raylog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raylog.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from raylog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from raylog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from raylog.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from raylog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raylog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raylog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from raylog.protocol.messages.delete_groups import DeleteGroupsRequest
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raylog.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from raylog.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteStateData
from raylog.protocol.messages.delete_share_group_state import PartitionData as DeletedPartition
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.describe_acls import DescribeAclsRequest
from raylog.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.describe_groups import DescribeGroupsRequest
from raylog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from raylog.protocol.messages.describe_producers import DescribeProducersRequest
from raylog.protocol.messages.describe_producers import TopicRequest as ProducersOf
from raylog.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from raylog.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from raylog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from raylog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from raylog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from raylog.protocol.messages.elect_leaders import ElectLeadersRequest
from raylog.protocol.messages.end_txn import EndTxnRequest
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.heartbeat import HeartbeatRequest
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from raylog.protocol.messages.initialize_share_group_state import PartitionData as InitializedPartition
from raylog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from raylog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raylog.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raylog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raylog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from raylog.protocol.messages.read_share_group_state import PartitionData as ReadPartition
from raylog.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from raylog.protocol.messages.read_share_group_state_summary import PartitionData as SummarizedPartition
from raylog.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from raylog.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from raylog.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from raylog.protocol.messages.share_fetch import ShareFetchRequest
from raylog.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from raylog.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from raylog.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from raylog.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from raylog.protocol.messages.sync_group import SyncGroupRequest
from raylog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raylog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from raylog.protocol.messages.update_features import UpdateFeaturesRequest
from raylog.protocol.messages.write_share_group_state import PartitionData as WrittenPartition
from raylog.protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteStateData
from raylog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.schema import Message
from raylog.security.acl import (
    CLUSTER,
    Operation,
    Permission,
    Resource,
)
from tests.logstore.batches import batch

READ, WRITE, DESCRIBE, ALTER, DELETE = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.ALTER,
    Operation.DELETE,
)
CREATE, DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.CREATE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
TOPIC, GROUP, TRANSACTIONAL_ID = Resource.topic, Resource.group, Resource.transactional_id


def commit(topic: str, group: str = "g") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
    )


def produce(topic: str) -> ProduceRequest:
    sent = ProducePartition(index=0, records=memoryview(batch(b"x")))
    return ProduceRequest(acks=1, timeout_ms=0, topics=[ProduceTopic(name=topic, partitions=[sent])])


def fetch(topic: str) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(max_bytes=1000, session_epoch=-1, topics=[FetchTopic(name=topic, partitions=[wanted])])


def offsets_of(topic: str, group: str = "g") -> OffsetFetchRequest:
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=(0,))
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=(wanted,)),))


def delete_offsets(topic: str) -> OffsetDeleteRequest:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name=topic, partitions=(partition,)),))


def join(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )


def add_to_transaction(transactional_id: str, topic: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
    )


def add_offsets_to_transaction(transactional_id: str, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(transactional_id=transactional_id, producer_id=1, producer_epoch=0, group_id=group)


def commit_in_transaction(transactional_id: str, group: str, topic: str) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=1,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
    )


def of_cluster(request: Message) -> Callable[[str], Message]:
    return lambda name: request


def consumer_heartbeat(group: str, topic: str) -> ConsumerGroupHeartbeatRequest:
    """The first one of a member."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=(topic,), topic_partitions=()
    )


def streams_heartbeat(group: str, topic: str) -> StreamsGroupHeartbeatRequest:
    """The first one of a member."""
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=1000,
        topology=Topology(subtopologies=(Subtopology(subtopology_id="0", source_topics=(topic,)),)),
    )


@dataclass(frozen=True)
class Required:
    """One right that a request asks for. `request` is given a topic, group or transactional id."""

    request: Callable[[str], Message]
    operation: Operation
    of: Callable[[str], Resource]
    code: ErrorCode
    version: int | None = None
    beside: tuple[tuple[Operation, Resource], ...] = ()
    """What else it asks for."""
    other_ways: tuple[tuple[Operation, Resource], ...] = ()
    """What would do as well."""

    def operations_on(self, resource: Resource) -> list[Operation]:
        """Those of which each would do."""
        return [self.operation, *(operation for operation, of in self.other_ways if of == resource)]


def share_heartbeat(group: str, topic: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=(topic,))


def topic_right(operation: Operation, request: Callable[[str], Message], **more: Any) -> Required:
    return Required(request, operation, TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED, **more)


def group_right(operation: Operation, request: Callable[[str], Message], **more: Any) -> Required:
    return Required(request, operation, GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, **more)


def transactional_right(operation: Operation, request: Callable[[str], Message], **more: Any) -> Required:
    return Required(request, operation, TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, **more)


def user_right(operation: Operation, request: Callable[[str], Message], **more: Any) -> Required:
    def user(name: str) -> Resource:
        return Resource.user(f"User:{name}")

    return Required(request, operation, user, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, **more)


def cluster_right(operation: Operation, request: Message, **more: Any) -> Required:
    return Required(of_cluster(request), operation, lambda _: CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, **more)


def share_state_right(request: type[Any], topic: type[Any], partition: type[Any]) -> Required:
    """Of a request to the share coordinator, which nodes of the cluster send."""
    topics = (topic(topic_id=UUID(int=9), partitions=(partition(),)),)
    return cluster_right(Operation.CLUSTER_ACTION, request(group_id="g", topics=topics))


ACL = AclCreation(
    resource_type=2, resource_name="x", principal="User:x", host="*", operation=READ, permission_type=Permission.ALLOW
)
ANY_ACL: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
TOPIC_CONFIGS, BROKER_CONFIGS, LOGGER_CONFIGS, GROUP_CONFIGS = 2, 4, 8, 32
ASKED: dict[int, list[Required]] = {
    registry.PRODUCE: [topic_right(WRITE, produce, version=12)],
    registry.FETCH: [topic_right(READ, fetch, version=12)],
    registry.LIST_OFFSETS: [
        topic_right(
            DESCRIBE,
            lambda name: ListOffsetsRequest(
                topics=(
                    ListOffsetsTopic(name=name, partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),)),
                )
            ),
        )
    ],
    registry.METADATA: [topic_right(DESCRIBE, lambda name: MetadataRequest(topics=(MetadataRequestTopic(name=name),)))],
    registry.OFFSET_COMMIT: [
        topic_right(READ, commit, version=9, beside=((READ, GROUP("g")),)),
        group_right(READ, lambda name: commit("t", name), version=9, beside=((READ, TOPIC("t")),)),
    ],
    registry.OFFSET_FETCH: [
        topic_right(DESCRIBE, offsets_of, version=9, beside=((DESCRIBE, GROUP("g")),)),
        group_right(DESCRIBE, lambda name: offsets_of("t", name), version=9, beside=((DESCRIBE, TOPIC("t")),)),
    ],
    registry.FIND_COORDINATOR: [
        group_right(DESCRIBE, lambda name: FindCoordinatorRequest(coordinator_keys=(name,))),
    ],
    registry.JOIN_GROUP: [group_right(READ, join)],
    registry.HEARTBEAT: [
        group_right(READ, lambda name: HeartbeatRequest(group_id=name, generation_id=1, member_id="m"))
    ],
    registry.LEAVE_GROUP: [
        group_right(READ, lambda name: LeaveGroupRequest(group_id=name, members=(MemberIdentity(member_id="m"),)))
    ],
    registry.SYNC_GROUP: [
        group_right(
            READ,
            lambda name: SyncGroupRequest(
                group_id=name, generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
            ),
        )
    ],
    registry.DESCRIBE_GROUPS: [group_right(DESCRIBE, lambda name: DescribeGroupsRequest(groups=(name,)))],
    registry.CONSUMER_GROUP_HEARTBEAT: [
        topic_right(DESCRIBE, lambda name: consumer_heartbeat("g", name), beside=((READ, GROUP("g")),)),
        group_right(READ, lambda name: consumer_heartbeat(name, "t"), beside=((DESCRIBE, TOPIC("t")),)),
    ],
    registry.CONSUMER_GROUP_DESCRIBE: [
        group_right(
            DESCRIBE,
            lambda name: ConsumerGroupDescribeRequest(group_ids=(name,)),
            beside=((DESCRIBE, TOPIC("t")),),  # that of its members
        )
    ],
    registry.STREAMS_GROUP_HEARTBEAT: [
        topic_right(DESCRIBE, lambda name: streams_heartbeat("g", name), beside=((READ, GROUP("g")),)),
        group_right(READ, lambda name: streams_heartbeat(name, "t"), beside=((DESCRIBE, TOPIC("t")),)),
    ],
    registry.STREAMS_GROUP_DESCRIBE: [
        # it requires DESCRIBE on the topics too, if the group has any
        group_right(
            DESCRIBE, lambda name: StreamsGroupDescribeRequest(group_ids=(name,)), beside=((DESCRIBE, TOPIC("t")),)
        )
    ],
    registry.SHARE_GROUP_HEARTBEAT: [
        topic_right(DESCRIBE, lambda name: share_heartbeat("g", name), version=1, beside=((READ, GROUP("g")),)),
        group_right(READ, lambda name: share_heartbeat(name, "t"), version=1, beside=((DESCRIBE, TOPIC("t")),)),
    ],
    registry.SHARE_GROUP_DESCRIBE: [
        group_right(DESCRIBE, lambda name: ShareGroupDescribeRequest(group_ids=(name,)), version=1)
    ],
    registry.DESCRIBE_SHARE_GROUP_OFFSETS: [
        group_right(
            DESCRIBE,
            lambda name: DescribeShareGroupOffsetsRequest(
                groups=(DescribeShareGroupOffsetsRequestGroup(group_id=name),)
            ),
            version=0,
        )
    ],
    registry.ALTER_SHARE_GROUP_OFFSETS: [group_right(READ, lambda name: AlterShareGroupOffsetsRequest(group_id=name))],
    registry.DELETE_SHARE_GROUP_OFFSETS: [
        group_right(DELETE, lambda name: DeleteShareGroupOffsetsRequest(group_id=name))
    ],
    registry.SHARE_FETCH: [group_right(READ, lambda name: ShareFetchRequest(group_id=name, member_id="m"), version=1)],
    registry.SHARE_ACKNOWLEDGE: [
        group_right(READ, lambda name: ShareAcknowledgeRequest(group_id=name, member_id="m"), version=1)
    ],
    registry.INITIALIZE_SHARE_GROUP_STATE: [
        share_state_right(InitializeShareGroupStateRequest, InitializeStateData, InitializedPartition)
    ],
    registry.READ_SHARE_GROUP_STATE: [share_state_right(ReadShareGroupStateRequest, ReadStateData, ReadPartition)],
    registry.WRITE_SHARE_GROUP_STATE: [
        share_state_right(WriteShareGroupStateRequest, WriteStateData, WrittenPartition)
    ],
    registry.DELETE_SHARE_GROUP_STATE: [
        share_state_right(DeleteShareGroupStateRequest, DeleteStateData, DeletedPartition)
    ],
    registry.READ_SHARE_GROUP_STATE_SUMMARY: [
        share_state_right(ReadShareGroupStateSummaryRequest, ReadStateSummaryData, SummarizedPartition)
    ],
    registry.CREATE_TOPICS: [
        topic_right(
            CREATE,
            lambda name: CreateTopicsRequest(
                topics=(CreatableTopic(name=name, num_partitions=1, replication_factor=1),), validate_only=True
            ),
            beside=((DESCRIBE_CONFIGS, TOPIC("t")), (DESCRIBE_CONFIGS, TOPIC("missing"))),
            other_ways=((CREATE, CLUSTER),),
        )
    ],
    registry.DELETE_TOPICS: [
        topic_right(DELETE, lambda name: DeleteTopicsRequest(topics=(DeleteTopicState(name=name),)))
    ],
    registry.DELETE_RECORDS: [
        topic_right(
            DELETE,
            lambda name: DeleteRecordsRequest(
                topics=(DeleteRecordsTopic(name=name, partitions=(DeleteRecordsPartition(partition_index=0),)),)
            ),
        )
    ],
    registry.INIT_PRODUCER_ID: [
        cluster_right(
            Operation.IDEMPOTENT_WRITE,
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
            other_ways=((WRITE, TOPIC("anything")), (WRITE, TOPIC("*"))),
        )
    ],
    registry.OFFSET_FOR_LEADER_EPOCH: [
        topic_right(
            DESCRIBE,
            lambda name: OffsetForLeaderEpochRequest(
                topics=(
                    OffsetForLeaderTopic(
                        topic=name, partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=0),)
                    ),
                )
            ),
            other_ways=((Operation.CLUSTER_ACTION, CLUSTER),),
        )
    ],
    registry.DESCRIBE_ACLS: [cluster_right(DESCRIBE, DescribeAclsRequest(**ANY_ACL))],
    registry.DESCRIBE_USER_SCRAM_CREDENTIALS: [cluster_right(DESCRIBE, DescribeUserScramCredentialsRequest())],
    registry.ALTER_USER_SCRAM_CREDENTIALS: [
        cluster_right(
            ALTER, AlterUserScramCredentialsRequest(deletions=(ScramCredentialDeletion(name="u", mechanism=1),))
        )
    ],
    registry.DESCRIBE_CLIENT_QUOTAS: [cluster_right(DESCRIBE_CONFIGS, DescribeClientQuotasRequest())],
    registry.ALTER_CLIENT_QUOTAS: [
        cluster_right(
            ALTER_CONFIGS,
            AlterClientQuotasRequest(
                entries=(
                    RequestEntryData(
                        entity=(EntityData(entity_type="user", entity_name="u"),),
                        ops=(OpData(key="producer_byte_rate", value=1.0),),
                    ),
                ),
                validate_only=True,
            ),
        )
    ],
    registry.CREATE_ACLS: [cluster_right(ALTER, CreateAclsRequest(creations=(ACL, ACL)))],
    registry.DELETE_ACLS: [
        cluster_right(ALTER, DeleteAclsRequest(filters=(DeleteAclsFilter(**ANY_ACL, host_filter="nobody's"),)))
    ],
    registry.DESCRIBE_CONFIGS: [
        topic_right(
            DESCRIBE_CONFIGS,
            lambda name: DescribeConfigsRequest(
                resources=(DescribeConfigsResource(resource_type=TOPIC_CONFIGS, resource_name=name),)
            ),
        ),
        group_right(
            DESCRIBE_CONFIGS,
            lambda name: DescribeConfigsRequest(
                resources=(DescribeConfigsResource(resource_type=GROUP_CONFIGS, resource_name=name),)
            ),
        ),
        cluster_right(
            DESCRIBE_CONFIGS,
            DescribeConfigsRequest(
                resources=(DescribeConfigsResource(resource_type=BROKER_CONFIGS, resource_name="0"),)
            ),
        ),
        cluster_right(
            DESCRIBE_CONFIGS,
            DescribeConfigsRequest(
                resources=(DescribeConfigsResource(resource_type=LOGGER_CONFIGS, resource_name="0"),)
            ),
        ),
    ],
    registry.ALTER_CONFIGS: [
        topic_right(
            ALTER_CONFIGS,
            lambda name: AlterConfigsRequest(
                resources=(
                    AlteredResource(
                        resource_type=TOPIC_CONFIGS,
                        resource_name=name,
                        configs=(AlteredConfig(name="flush.ms", value="5"),),
                    ),
                )
            ),
        ),
        group_right(
            ALTER_CONFIGS,
            lambda name: AlterConfigsRequest(
                resources=(AlteredResource(resource_type=GROUP_CONFIGS, resource_name=name, configs=()),)
            ),
        ),
        cluster_right(
            ALTER_CONFIGS,
            AlterConfigsRequest(
                resources=(AlteredResource(resource_type=BROKER_CONFIGS, resource_name="0", configs=()),)
            ),
        ),
    ],
    registry.INCREMENTAL_ALTER_CONFIGS: [
        topic_right(
            ALTER_CONFIGS,
            lambda name: IncrementalAlterConfigsRequest(
                resources=(
                    AlterConfigsResource(
                        resource_type=TOPIC_CONFIGS,
                        resource_name=name,
                        configs=(AlterableConfig(name="flush.ms", config_operation=0, value="5"),),
                    ),
                )
            ),
        ),
        group_right(
            ALTER_CONFIGS,
            lambda name: IncrementalAlterConfigsRequest(
                resources=(AlterConfigsResource(resource_type=GROUP_CONFIGS, resource_name=name, configs=()),)
            ),
        ),
        cluster_right(
            ALTER_CONFIGS,
            IncrementalAlterConfigsRequest(
                resources=(AlterConfigsResource(resource_type=BROKER_CONFIGS, resource_name="", configs=()),)
            ),
        ),
        cluster_right(
            ALTER_CONFIGS,
            IncrementalAlterConfigsRequest(
                resources=(AlterConfigsResource(resource_type=LOGGER_CONFIGS, resource_name="0", configs=()),)
            ),
        ),
    ],
    registry.ADD_PARTITIONS_TO_TXN: [
        transactional_right(
            WRITE, lambda name: add_to_transaction(name, "t"), version=3, beside=((WRITE, TOPIC("t")),)
        ),
        topic_right(
            WRITE, lambda name: add_to_transaction("x", name), version=3, beside=((WRITE, TRANSACTIONAL_ID("x")),)
        ),
        cluster_right(Operation.CLUSTER_ACTION, AddPartitionsToTxnRequest()),
    ],
    registry.ADD_OFFSETS_TO_TXN: [
        transactional_right(WRITE, lambda name: add_offsets_to_transaction(name, "g"), beside=((READ, GROUP("g")),)),
        group_right(READ, lambda name: add_offsets_to_transaction("x", name), beside=((WRITE, TRANSACTIONAL_ID("x")),)),
    ],
    registry.END_TXN: [
        transactional_right(
            WRITE,
            lambda name: EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, committed=True),
        )
    ],
    registry.WRITE_TXN_MARKERS: [
        cluster_right(
            Operation.CLUSTER_ACTION,
            WriteTxnMarkersRequest(
                markers=(
                    WritableTxnMarker(
                        producer_id=1,
                        producer_epoch=0,
                        transaction_result=True,
                        topics=(WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),),
                        coordinator_epoch=0,
                    ),
                )
            ),
            other_ways=((ALTER, CLUSTER),),
        )
    ],
    registry.TXN_OFFSET_COMMIT: [
        transactional_right(
            WRITE,
            lambda name: commit_in_transaction(name, "g", "t"),
            beside=((READ, GROUP("g")), (READ, TOPIC("t"))),
        ),
        group_right(
            READ,
            lambda name: commit_in_transaction("x", name, "t"),
            beside=((WRITE, TRANSACTIONAL_ID("x")), (READ, TOPIC("t"))),
        ),
        topic_right(
            READ,
            lambda name: commit_in_transaction("x", "g", name),
            beside=((WRITE, TRANSACTIONAL_ID("x")), (READ, GROUP("g"))),
        ),
    ],
    registry.DESCRIBE_TRANSACTIONS: [
        transactional_right(DESCRIBE, lambda name: DescribeTransactionsRequest(transactional_ids=(name,)))
    ],
    registry.ALTER_REPLICA_LOG_DIRS: [
        cluster_right(
            ALTER,
            AlterReplicaLogDirsRequest(
                dirs=(AlterReplicaLogDir(path="/", topics=(AlterReplicaLogDirTopic(name="t", partitions=(0,)),)),)
            ),
        )
    ],
    registry.DESCRIBE_LOG_DIRS: [cluster_right(DESCRIBE, DescribeLogDirsRequest(topics=None))],
    registry.CREATE_PARTITIONS: [
        topic_right(
            ALTER,
            lambda name: CreatePartitionsRequest(
                topics=(CreatePartitionsTopic(name=name, count=2, assignments=None),), validate_only=True
            ),
        )
    ],
    registry.CREATE_DELEGATION_TOKEN: [
        user_right(
            Operation.CREATE_TOKENS,
            lambda name: CreateDelegationTokenRequest(
                owner_principal_type="User", owner_principal_name=name.removeprefix("User:"), max_lifetime_ms=1
            ),
        )
    ],
    registry.DELETE_GROUPS: [group_right(DELETE, lambda name: DeleteGroupsRequest(groups_names=(name,)))],
    registry.ELECT_LEADERS: [cluster_right(ALTER, ElectLeadersRequest(election_type=0, topic_partitions=None))],
    registry.ALTER_PARTITION_REASSIGNMENTS: [
        cluster_right(
            ALTER,
            AlterPartitionReassignmentsRequest(
                topics=(
                    ReassignableTopic(name="t", partitions=(ReassignablePartition(partition_index=0, replicas=(0,)),)),
                )
            ),
        )
    ],
    registry.LIST_PARTITION_REASSIGNMENTS: [cluster_right(DESCRIBE, ListPartitionReassignmentsRequest(topics=None))],
    registry.OFFSET_DELETE: [
        topic_right(READ, delete_offsets, beside=((DELETE, GROUP("g")),)),
        group_right(DELETE, lambda name: OffsetDeleteRequest(group_id=name, topics=())),
    ],
    registry.DESCRIBE_QUORUM: [
        cluster_right(
            DESCRIBE,
            DescribeQuorumRequest(
                topics=(
                    RequestTopicData(
                        topic_name="__cluster_metadata", partitions=(RequestPartitionData(partition_index=0),)
                    ),
                )
            ),
        )
    ],
    registry.DESCRIBE_PRODUCERS: [
        topic_right(
            READ, lambda name: DescribeProducersRequest(topics=(ProducersOf(name=name, partition_indexes=(0,)),))
        )
    ],
    registry.UNREGISTER_BROKER: [cluster_right(ALTER, UnregisterBrokerRequest(broker_id=7))],
    registry.UPDATE_FEATURES: [cluster_right(ALTER, UpdateFeaturesRequest())],
    registry.ADD_RAFT_VOTER: [cluster_right(ALTER, AddRaftVoterRequest())],
    registry.REMOVE_RAFT_VOTER: [cluster_right(ALTER, RemoveRaftVoterRequest())],
    registry.LIST_CONFIG_RESOURCES: [cluster_right(DESCRIBE_CONFIGS, ListConfigResourcesRequest())],
    registry.DESCRIBE_TOPIC_PARTITIONS: [
        topic_right(
            DESCRIBE,
            lambda name: DescribeTopicPartitionsRequest(topics=(TopicRequest(name=name),), response_partition_limit=10),
        )
    ],
}
"""What each request is refused without."""
