"""Administrative requests of tests that have a RawClient, because of the way in which it connects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raylog.client.admin import acls, cluster, groups, quotas, tokens, topics, users
from raylog.core.ids import TopicPartition
from raylog.core.password import Password
from raylog.quotas.client_quotas import entity
from raylog.security.acl import AclBinding, AclFilter
from raylog.security.sasl.scram import ScramMechanism
from tests.support.raw_client import RawClient


def create_topic(
    client: RawClient,
    name: str,
    *,
    num_partitions: int = topics.BROKER_DEFAULT,
    replication_factor: int = topics.BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> None:
    client.run(topics.create_topics(topics.NewTopic(name, num_partitions, replication_factor, configs=configs)))


def delete_topic(client: RawClient, name: str) -> None:
    client.run(topics.delete_topics(name))


def create_acls(client: RawClient, bindings: Iterable[AclBinding]) -> None:
    client.run(acls.create_acls(bindings))


def delete_acls(client: RawClient, filters: Iterable[AclFilter]) -> None:
    client.run(acls.delete_acls(filters))


def alter_quotas(client: RawClient, named: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
    client.run(quotas.alter_client_quotas({entity(named): changes}))


def commit_offsets(client: RawClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    client.run(groups.alter_consumer_group_offsets(group, offsets))


def list_users(client: RawClient) -> set[str]:
    return set(client.run(users.describe_user_scram_credentials()))


def set_password(client: RawClient, user: str, password: Password) -> None:
    wanted = [users.UserScramCredentialUpsertion(user, password, mechanism) for mechanism in ScramMechanism]
    client.run(users.alter_user_scram_credentials(wanted))


def remove_user(client: RawClient, user: str) -> None:
    wanted = [users.UserScramCredentialDeletion(user, mechanism) for mechanism in ScramMechanism]
    client.run(users.alter_user_scram_credentials(wanted))


def create_token(client: RawClient) -> tokens.DelegationToken:
    return client.run(tokens.create_delegation_token())


def quorum(client: RawClient) -> cluster.QuorumDescription:
    return client.run(cluster.describe_metadata_quorum())
