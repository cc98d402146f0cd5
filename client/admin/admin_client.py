"""(shell) The blocking admin client.

with raylog.AdminClient(bootstrap_servers="127.0.0.1:9092") as admin:
    admin.create_topics([raylog.NewTopic("flights", num_partitions=6)])
    admin.describe_topics("flights")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from raylog.client.admin import (
    acls,
    all_groups,
    cluster,
    configs,
    groups,
    partitions,
    quotas,
    share_groups,
    streams_groups,
    tokens,
    topics,
    transactions,
    users,
)
from raylog.client.admin.calls import Steps
from raylog.client.blocking_calls import BlockingCalls
from raylog.client.client_config import ClientConfig
from raylog.client.given_config import given_config
from raylog.config.admin import ADMIN_CONFIG
from raylog.config.client import BOOTSTRAP_CONTROLLERS, BOOTSTRAP_SERVERS
from raylog.config.client_network import CLIENT_ID

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(operation: Callable[P, Steps[T]]) -> Callable[Concatenate[AdminClient, P], T]:
    """A method that waits for the operation, at most as long as its argument `timeout` says."""

    @wraps(operation)
    def method(self: AdminClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        timeout: Any = options.get("timeout")
        return self.run(operation(*arguments, **options), timeout)

    return method


class AdminClient(BlockingCalls):
    """Administers a cluster: topics, groups, configurations, users, ACLs, quotas, transactions.

    Open from `__init__` to `close`; a context manager. Any number of threads may use it at the same time.

    Every method takes a `timeout` in seconds in place of default.api.timeout.ms. It raises AdminError if it has failed
    for one of its items or more: `errors` and `results` of the error have what became of each.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, waits_for_brokers: bool = True, **settings: Any
    ) -> None:
        """`config` has Kafka's keys of an admin client; `settings` are the same keys with underscores for dots.

        Without `waits_for_brokers` calls fail at once if none of bootstrap.servers can be reached. Raises ConfigError.
        """
        super().__init__(given_config(ADMIN_CONFIG, config, settings), waits_for_brokers=waits_for_brokers)

    create_topics = _blocking(topics.create_topics)
    delete_topics = _blocking(topics.delete_topics)
    list_topics = _blocking(topics.list_topics)
    describe_topics = _blocking(topics.describe_topics)
    describe_topic_partitions = _blocking(topics.describe_topic_partitions)
    create_partitions = _blocking(topics.create_partitions)

    describe_configs = _blocking(configs.describe_configs)
    incremental_alter_configs = _blocking(configs.incremental_alter_configs)
    alter_configs = _blocking(configs.alter_configs)
    list_config_resources = _blocking(configs.list_config_resources)

    describe_cluster = _blocking(cluster.describe_cluster)
    describe_coordinators = _blocking(cluster.describe_coordinators)
    unregister_broker = _blocking(cluster.unregister_broker)
    describe_api_versions = _blocking(cluster.describe_api_versions)
    describe_features = _blocking(cluster.describe_features)
    update_features = _blocking(cluster.update_features)
    describe_metadata_quorum = _blocking(cluster.describe_metadata_quorum)
    add_raft_voter = _blocking(cluster.add_raft_voter)
    remove_raft_voter = _blocking(cluster.remove_raft_voter)
    describe_log_dirs = _blocking(cluster.describe_log_dirs)
    alter_replica_log_dirs = _blocking(cluster.alter_replica_log_dirs)

    list_offsets = _blocking(partitions.list_offsets)
    delete_records = _blocking(partitions.delete_records)
    describe_producers = _blocking(partitions.describe_producers)
    elect_leaders = _blocking(partitions.elect_leaders)
    alter_partition_reassignments = _blocking(partitions.alter_partition_reassignments)
    list_partition_reassignments = _blocking(partitions.list_partition_reassignments)

    list_groups = _blocking(groups.list_groups)
    describe_groups = _blocking(all_groups.describe_groups)
    list_group_offsets = _blocking(all_groups.list_group_offsets)
    list_consumer_groups = _blocking(groups.list_consumer_groups)
    describe_consumer_groups = _blocking(groups.describe_consumer_groups)
    delete_consumer_groups = _blocking(groups.delete_consumer_groups)
    list_consumer_group_offsets = _blocking(groups.list_consumer_group_offsets)
    alter_consumer_group_offsets = _blocking(groups.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _blocking(groups.delete_consumer_group_offsets)
    remove_members_from_consumer_group = _blocking(groups.remove_members_from_consumer_group)

    describe_streams_groups = _blocking(streams_groups.describe_streams_groups)

    describe_share_groups = _blocking(share_groups.describe_share_groups)
    delete_share_groups = _blocking(share_groups.delete_share_groups)
    list_share_group_offsets = _blocking(share_groups.list_share_group_offsets)
    alter_share_group_offsets = _blocking(share_groups.alter_share_group_offsets)
    delete_share_group_offsets = _blocking(share_groups.delete_share_group_offsets)

    list_transactions = _blocking(transactions.list_transactions)
    describe_transactions = _blocking(transactions.describe_transactions)
    fence_producers = _blocking(transactions.fence_producers)
    abort_transaction = _blocking(transactions.abort_transaction)

    describe_acls = _blocking(acls.describe_acls)
    create_acls = _blocking(acls.create_acls)
    delete_acls = _blocking(acls.delete_acls)

    describe_user_scram_credentials = _blocking(users.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(users.alter_user_scram_credentials)

    describe_client_quotas = _blocking(quotas.describe_client_quotas)
    alter_client_quotas = _blocking(quotas.alter_client_quotas)

    create_delegation_token = _blocking(tokens.create_delegation_token)
    describe_delegation_tokens = _blocking(tokens.describe_delegation_tokens)
    renew_delegation_token = _blocking(tokens.renew_delegation_token)
    expire_delegation_token = _blocking(tokens.expire_delegation_token)


def admin_client(config: ClientConfig, *, client_id: str, controllers: str | None = None) -> AdminClient:
    """For tools: other keys than those of an admin client are ignored, and missing brokers not waited for.

    `controllers`: of these, in place of the brokers. Raises ConfigError.
    """
    given = {CLIENT_ID.name: client_id, **config.keys_of(ADMIN_CONFIG)}
    if controllers is not None:
        given |= {BOOTSTRAP_CONTROLLERS.name: controllers, BOOTSTRAP_SERVERS.name: ""}
    return AdminClient(given, waits_for_brokers=False)
