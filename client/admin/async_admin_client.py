"""(shell) The admin client for asyncio.

async with raylog.AsyncAdminClient(bootstrap_servers="127.0.0.1:9092") as admin:
    await admin.create_topics([raylog.NewTopic("flights", num_partitions=6)])
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

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
from raylog.client.admin.core import AdminCore, Operation
from raylog.client.given_config import given_config
from raylog.client.network_loop import NetworkLoop
from raylog.config.admin import ADMIN_CONFIG, admin_settings
from raylog.transport.system_time import now

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(operation: Callable[P, Steps[T]]) -> Callable[Concatenate[AsyncAdminClient, P], Coroutine[Any, Any, T]]:
    """A coroutine that waits for the operation, at most as long as its argument `timeout` says."""

    @wraps(operation)
    async def method(self: AsyncAdminClient, /, *arguments: P.args, **options: P.kwargs) -> T:
        timeout: Any = options.get("timeout")
        return await self._wait_for(operation(*arguments, **options), timeout)

    return method


class AsyncAdminClient:
    """Belongs to the loop in which it is made. An asynchronous context manager, which ends with `close()`.

    Any number of tasks may use it at the same time. Methods as `AdminClient`.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, waits_for_brokers: bool = True, **settings: Any
    ) -> None:
        """As `AdminClient`. Raises ConfigError, and RuntimeError outside of a running loop."""
        self._asyncio_loop = asyncio.get_running_loop()
        given = given_config(ADMIN_CONFIG, config, settings)
        self._core = AdminCore(
            given.servers, admin_settings(given.configs), random.Random(), waits_for_brokers=waits_for_brokers
        )
        self._loop = NetworkLoop(
            self._core.network, given.dialer, self._asyncio_loop, lock=nullcontext(), after_event=lambda: None
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """As `AdminClient.close`."""
        if self._core.close():
            self._loop.close()

    create_topics = _awaited(topics.create_topics)
    delete_topics = _awaited(topics.delete_topics)
    list_topics = _awaited(topics.list_topics)
    describe_topics = _awaited(topics.describe_topics)
    describe_topic_partitions = _awaited(topics.describe_topic_partitions)
    create_partitions = _awaited(topics.create_partitions)

    describe_configs = _awaited(configs.describe_configs)
    incremental_alter_configs = _awaited(configs.incremental_alter_configs)
    alter_configs = _awaited(configs.alter_configs)
    list_config_resources = _awaited(configs.list_config_resources)

    describe_cluster = _awaited(cluster.describe_cluster)
    describe_coordinators = _awaited(cluster.describe_coordinators)
    unregister_broker = _awaited(cluster.unregister_broker)
    describe_api_versions = _awaited(cluster.describe_api_versions)
    describe_features = _awaited(cluster.describe_features)
    update_features = _awaited(cluster.update_features)
    describe_metadata_quorum = _awaited(cluster.describe_metadata_quorum)
    add_raft_voter = _awaited(cluster.add_raft_voter)
    remove_raft_voter = _awaited(cluster.remove_raft_voter)
    describe_log_dirs = _awaited(cluster.describe_log_dirs)
    alter_replica_log_dirs = _awaited(cluster.alter_replica_log_dirs)

    list_offsets = _awaited(partitions.list_offsets)
    delete_records = _awaited(partitions.delete_records)
    describe_producers = _awaited(partitions.describe_producers)
    elect_leaders = _awaited(partitions.elect_leaders)
    alter_partition_reassignments = _awaited(partitions.alter_partition_reassignments)
    list_partition_reassignments = _awaited(partitions.list_partition_reassignments)

    list_groups = _awaited(groups.list_groups)
    describe_groups = _awaited(all_groups.describe_groups)
    list_group_offsets = _awaited(all_groups.list_group_offsets)
    list_consumer_groups = _awaited(groups.list_consumer_groups)
    describe_consumer_groups = _awaited(groups.describe_consumer_groups)
    delete_consumer_groups = _awaited(groups.delete_consumer_groups)
    list_consumer_group_offsets = _awaited(groups.list_consumer_group_offsets)
    alter_consumer_group_offsets = _awaited(groups.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _awaited(groups.delete_consumer_group_offsets)
    remove_members_from_consumer_group = _awaited(groups.remove_members_from_consumer_group)

    describe_streams_groups = _awaited(streams_groups.describe_streams_groups)

    describe_share_groups = _awaited(share_groups.describe_share_groups)
    delete_share_groups = _awaited(share_groups.delete_share_groups)
    list_share_group_offsets = _awaited(share_groups.list_share_group_offsets)
    alter_share_group_offsets = _awaited(share_groups.alter_share_group_offsets)
    delete_share_group_offsets = _awaited(share_groups.delete_share_group_offsets)

    list_transactions = _awaited(transactions.list_transactions)
    describe_transactions = _awaited(transactions.describe_transactions)
    fence_producers = _awaited(transactions.fence_producers)
    abort_transaction = _awaited(transactions.abort_transaction)

    describe_acls = _awaited(acls.describe_acls)
    create_acls = _awaited(acls.create_acls)
    delete_acls = _awaited(acls.delete_acls)

    describe_user_scram_credentials = _awaited(users.describe_user_scram_credentials)
    alter_user_scram_credentials = _awaited(users.alter_user_scram_credentials)

    describe_client_quotas = _awaited(quotas.describe_client_quotas)
    alter_client_quotas = _awaited(quotas.alter_client_quotas)

    create_delegation_token = _awaited(tokens.create_delegation_token)
    describe_delegation_tokens = _awaited(tokens.describe_delegation_tokens)
    renew_delegation_token = _awaited(tokens.renew_delegation_token)
    expire_delegation_token = _awaited(tokens.expire_delegation_token)

    # --- internals

    async def _wait_for(self, steps: Steps[T], timeout: float | None) -> T:
        done = asyncio.Event()
        operation = Operation(steps, now().monotonic_ms, self._core.timeout_ms(timeout), done.set)
        self._core.start(operation)
        self._loop.poke_soon()
        try:
            await done.wait()
        finally:
            if not operation.done:  # cancelled
                operation.finish(None, None)
        return operation.outcome()
