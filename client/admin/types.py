"""The types of arguments and results of admin clients, in one place."""

from raylog.client.admin.cluster import (
    ApiVersionRange,
    ClusterDescription,
    ClusterNode,
    Feature,
    FeatureUpdate,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
    RaftVoterEndpoint,
    ReplicaInfo,
    TopicPartitionReplica,
    UpgradeType,
)
from raylog.client.admin.configs import (
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSynonym,
    Subtract,
)
from raylog.client.admin.groups import GroupDescription, GroupListing, MemberDescription, MemberToRemove
from raylog.client.admin.partitions import ElectionType, OffsetSpec, PartitionReassignment, ProducerState
from raylog.client.admin.quotas import ANY_NAME
from raylog.client.admin.tokens import DelegationToken
from raylog.client.admin.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from raylog.client.admin.transactions import TransactionDescription, TransactionListing
from raylog.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from raylog.client.consumer.offset_lookup import OffsetAndTimestamp
from raylog.client.group_offsets import OffsetAndMetadata
from raylog.core.config import ConfigSource
from raylog.core.ids import ProducerIdentity, TopicPartition
from raylog.core.password import Password
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from raylog.security.principal import Principal
from raylog.security.sasl.scram import ScramMechanism

__all__ = [
    "ANY_NAME",
    "AclBinding",
    "AclFilter",
    "ApiVersionRange",
    "Append",
    "ClusterDescription",
    "ClusterNode",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "Feature",
    "FeatureUpdate",
    "GroupDescription",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Operation",
    "PartitionDescription",
    "PartitionReassignment",
    "Password",
    "PatternType",
    "Permission",
    "Principal",
    "ProducerIdentity",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplica",
    "RaftVoterEndpoint",
    "ReplicaInfo",
    "ResourceType",
    "ScramMechanism",
    "Subtract",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
