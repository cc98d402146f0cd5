"""The visible list of what a broker serves. The versions stand in `raylog.protocol.registry`."""

from __future__ import annotations

from typing import Final

from raylog.broker.handlers import (
    delete_groups,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    forwarded,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from raylog.broker.handlers.committed import when_committed
from raylog.protocol import registry
from raylog.transport.handlers import api_versions, sasl_authenticate, sasl_handshake
from raylog.transport.node import Handler

HANDLERS: Final[dict[int, Handler]] = {
    registry.PRODUCE: produce.handle,
    registry.FETCH: fetch.handle,
    registry.LIST_OFFSETS: list_offsets.handle,
    registry.METADATA: metadata.handle,
    registry.OFFSET_COMMIT: when_committed(offset_commit.handle),
    registry.OFFSET_FETCH: when_committed(offset_fetch.handle),
    registry.FIND_COORDINATOR: find_coordinator.handle,
    registry.JOIN_GROUP: when_committed(join_group.handle),
    registry.HEARTBEAT: when_committed(heartbeat.handle),
    registry.LEAVE_GROUP: when_committed(leave_group.handle),
    registry.SYNC_GROUP: when_committed(sync_group.handle),
    registry.DESCRIBE_GROUPS: when_committed(describe_groups.handle),
    registry.LIST_GROUPS: when_committed(list_groups.handle),
    registry.SASL_HANDSHAKE: sasl_handshake.handle,
    registry.API_VERSIONS: api_versions.handle,
    registry.CREATE_TOPICS: forwarded.handle,
    registry.DELETE_TOPICS: forwarded.handle,
    registry.DELETE_RECORDS: delete_records.handle,
    registry.INIT_PRODUCER_ID: init_producer_id.handle,
    registry.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    registry.DESCRIBE_CONFIGS: describe_configs.handle,
    registry.ALTER_CONFIGS: forwarded.handle,
    registry.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    registry.SASL_AUTHENTICATE: sasl_authenticate.handle,
    registry.CREATE_PARTITIONS: forwarded.handle,
    registry.DELETE_GROUPS: when_committed(delete_groups.handle),
    registry.ELECT_LEADERS: forwarded.handle,
    registry.INCREMENTAL_ALTER_CONFIGS: forwarded.handle,
    registry.ALTER_PARTITION_REASSIGNMENTS: forwarded.handle,
    registry.LIST_PARTITION_REASSIGNMENTS: forwarded.handle,
    registry.OFFSET_DELETE: when_committed(offset_delete.handle),
    registry.DESCRIBE_QUORUM: forwarded.handle,
    registry.DESCRIBE_CLUSTER: describe_cluster.handle,
    registry.DESCRIBE_PRODUCERS: describe_producers.handle,
    registry.UNREGISTER_BROKER: forwarded.handle,
    registry.LIST_CONFIG_RESOURCES: list_config_resources.handle,
    registry.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
}
