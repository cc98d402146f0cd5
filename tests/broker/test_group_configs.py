"""Single groups have a configuration, within the limits of brokers, that their members get at the next heartbeat."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.core.errors import ErrorCode
from raylog.metadata.config_resources import GROUP
from raylog.metadata.levels import GROUP_CONFIGS_LEVEL
from raylog.protocol.messages.alter_configs import AlterableConfig as Replaced
from raylog.protocol.messages.alter_configs import AlterConfigsRequest
from raylog.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from raylog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.direct_broker import DirectBroker

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
STATIC, DEFAULT, OF_GROUP = 4, 5, 8
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture
def broker() -> DirectBroker:
    return DirectBroker({"group.consumer.session.timeout.ms": 46_000})


def alter(broker: DirectBroker, group: str = "g", *, operation: int = SET, only: bool = False, **values: str) -> Any:
    """Change these keys; `session` and `heartbeat` are short for the two that exist."""
    names = {"session": SESSION, "heartbeat": HEARTBEAT}
    configs = tuple(
        AlterableConfig(name=names.get(name, name), config_operation=operation, value=value)
        for name, value in values.items()
    )
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=only)
    (response,) = broker.call(request).responses
    assert (response.resource_type, response.resource_name) == (GROUP, group)
    return response


def described(broker: DirectBroker, group: str = "g") -> Any:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=None)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    return broker.call(request).results[0]


def values(broker: DirectBroker, group: str = "g") -> dict[str, tuple[str, int]]:
    """Of the keys of the consumer protocol."""
    configs = described(broker, group).configs
    return {each.name: (each.value, each.config_source) for each in configs if each.name in (SESSION, HEARTBEAT)}


def listed(broker: DirectBroker) -> set[str]:
    response = broker.call(ListConfigResourcesRequest(resource_types=(GROUP,)))
    return {each.resource_name for each in response.config_resources}


def test_a_group_has_the_values_of_its_broker(broker: DirectBroker) -> None:
    assert values(broker) == {HEARTBEAT: ("5000", DEFAULT), SESSION: ("46000", STATIC)}
    assert all(not each.read_only and each.documentation for each in described(broker).configs)
    assert listed(broker) == set()


def test_a_value_is_set_kept_and_deleted(broker: DirectBroker) -> None:
    assert alter(broker, session="50000").error_code == ErrorCode.NONE
    for _ in range(2):
        assert values(broker) == {HEARTBEAT: ("5000", DEFAULT), SESSION: ("50000", OF_GROUP)}
        assert values(broker, "other")[SESSION] == ("46000", STATIC)
        assert listed(broker) == {"g"}
        broker.restart()
    (session,) = (each for each in described(broker).configs if each.name == SESSION)
    assert [(each.name, each.source) for each in session.synonyms] == [
        (SESSION, OF_GROUP),
        ("group.consumer.session.timeout.ms", STATIC),
        ("group.consumer.session.timeout.ms", DEFAULT),
    ]
    assert alter(broker, operation=DELETE, session="").error_code == ErrorCode.NONE
    assert values(broker)[SESSION] == ("46000", STATIC)
    assert listed(broker) == set()


def test_alter_configs_replaces_all(broker: DirectBroker) -> None:
    alter(broker, session="50000")
    replaced = ReplacedResource(
        resource_type=GROUP, resource_name="g", configs=(Replaced(name=HEARTBEAT, value="6000"),)
    )
    (response,) = broker.call(AlterConfigsRequest(resources=(replaced,))).responses
    assert response.error_code == ErrorCode.NONE
    assert values(broker) == {HEARTBEAT: ("6000", OF_GROUP), SESSION: ("46000", STATIC)}


def test_only_validated(broker: DirectBroker) -> None:
    assert alter(broker, only=True, session="50000").error_code == ErrorCode.NONE
    assert values(broker)[SESSION] == ("46000", STATIC)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"session": "44999"}, f"{SESSION}='44999': must be at least group.consumer.min.session.timeout.ms"),
        ({"session": "60001"}, f"{SESSION}='60001': must be at most group.consumer.max.session.timeout.ms"),
        ({"heartbeat": "4999"}, f"{HEARTBEAT}='4999': must be at least group.consumer.min.heartbeat.interval.ms"),
        ({"heartbeat": "15001"}, f"{HEARTBEAT}='15001': must be at most group.consumer.max.heartbeat.interval.ms"),
        ({"session": "soon"}, "soon"),
        ({"session": "9" * 5000}, SESSION),
        ({"share.session.timeout.ms": "60001"}, "must be at most group.share.max.session.timeout.ms"),
        ({"share.record.lock.duration.ms": "14999"}, "must be at least group.share.min.record.lock.duration.ms"),
        ({"share.auto.offset.reset": "by_duration:-PT1H"}, "share.auto.offset.reset"),
        ({"share.auto.offset.reset": "none"}, "share.auto.offset.reset"),
        ({"share.isolation.level": "serializable"}, "share.isolation.level"),
        ({"streams.session.timeout.ms": "60001"}, "must be at most group.streams.max.session.timeout.ms"),
        ({"streams.heartbeat.interval.ms": "4999"}, "must be at least group.streams.min.heartbeat.interval.ms"),
        ({"streams.num.standby.replicas": "3"}, "must be at most group.streams.max.standby.replicas"),
        ({"streams.num.standby.replicas": "-1"}, "streams.num.standby.replicas"),
        ({"retention.ms": "1"}, "retention.ms"),
    ],
)
def test_values_that_brokers_do_not_allow(broker: DirectBroker, changes: dict[str, Any], text: str) -> None:
    response = alter(broker, **changes)
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert text in response.error_message
    assert len(response.error_message) < 400
    assert listed(broker) == set()


def test_a_session_is_longer_than_the_interval_of_heartbeats() -> None:
    broker = DirectBroker({"group.consumer.max.heartbeat.interval.ms": 50_000})
    response = alter(broker, session="45000", heartbeat="45000")
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert f"must be greater than {HEARTBEAT}, which is 45000" in response.error_message
    assert alter(broker, session="45001", heartbeat="45000").error_code == ErrorCode.NONE


def test_a_group_without_a_name(broker: DirectBroker) -> None:
    assert alter(broker, "", session="50000").error_code == ErrorCode.INVALID_REQUEST
    assert described(broker, "").error_code == ErrorCode.INVALID_REQUEST


def test_a_list_operation_does_not_apply(broker: DirectBroker) -> None:
    assert alter(broker, operation=APPEND, session="50000").error_code == ErrorCode.INVALID_CONFIG


def test_a_thousand_groups_and_a_long_name(broker: DirectBroker) -> None:
    names = {f"g{number}" for number in range(1000)} | {"g" * 30_000}
    configs = (AlterableConfig(name=SESSION, config_operation=SET, value="50000"),)
    resources = tuple(
        AlterConfigsResource(resource_type=GROUP, resource_name=name, configs=configs) for name in sorted(names)
    )
    responses = broker.call(IncrementalAlterConfigsRequest(resources=resources)).responses
    assert {each.error_code for each in responses} == {ErrorCode.NONE}
    assert listed(broker) == names


def test_it_is_refused_below_its_level(broker: DirectBroker) -> None:
    broker.controller.image.metadata_level = GROUP_CONFIGS_LEVEL - 1
    response = alter(broker, session="50000")
    broker.controller.image.metadata_level = GROUP_CONFIGS_LEVEL
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert listed(broker) == set()


def test_it_holds_from_the_next_heartbeat_on(broker: DirectBroker) -> None:
    def heartbeat(epoch: int) -> Any:
        first = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ("t",), "topic_partitions": ()}
        more: dict[str, Any] = first if epoch == 0 else {}
        response = broker.call(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, **more))
        assert response.error_code == ErrorCode.NONE
        return response

    def members() -> int:
        (group,) = broker.call(ConsumerGroupDescribeRequest(group_ids=("g",))).groups
        return len(group.members)

    broker.call(FindCoordinatorRequest(coordinator_keys=("g",)))
    broker.settle()
    broker.create_topic("t")
    assert heartbeat(0).heartbeat_interval_ms == 500  # after a new assignment
    broker.pass_time(4_999)
    assert heartbeat(1).heartbeat_interval_ms == 500
    broker.pass_time(1)
    assert heartbeat(1).heartbeat_interval_ms == 5000
    alter(broker, session="50000", heartbeat="7000")
    broker.pass_time(2_000)
    assert heartbeat(1).heartbeat_interval_ms == 7000
    broker.pass_time(49_000)
    assert members() == 1
    broker.pass_time(2000)
    assert members() == 0
