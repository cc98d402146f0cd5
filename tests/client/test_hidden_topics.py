"""Tools that need the complete list of topics fail if some topics are hidden from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.topics import NewTopic
from raylog.client.reassignments import check_holds_nothing
from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.support.cluster_thread import cluster_thread


def entry(kind: ResourceType, name: str, operation: Operation, principal: str = "User:nobody") -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, principal, "*", operation, Permission.ALLOW)


def refused(client: AdminClient, broker_id: int) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        check_holds_nothing(client, broker_id)
    return error.value.code


def test_a_broker_with_hidden_topics_is_not_considered_empty(tmp_path: Path) -> None:
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with (
        cluster_thread(config, tmp_path, brokers=2) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap_servers) as client,
    ):
        client.create_topics(NewTopic(name, 4) for name in ("a", "b"))
        assert refused(client, 0) == ErrorCode.INVALID_REQUEST
        client.create_acls([entry(ResourceType.TOPIC, name, Operation.READ) for name in ("a", "b")])
        assert refused(client, 0) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        client.delete_acls([AclFilter(resource_name="a"), AclFilter(resource_name="b")])
        assert refused(client, 0) == ErrorCode.INVALID_REQUEST
        client.create_acls([entry(ResourceType.CLUSTER, "kafka-cluster", Operation.ALTER)])
        assert refused(client, 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
