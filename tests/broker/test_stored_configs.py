"""Configuration that an earlier version stored, under other rules, does not prevent a start or a change."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, BrokerId, TopicPartition
from raylog.core.outcome import Outcome
from raylog.metadata.records import BrokerConfigsChanged
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.support.direct_broker import DirectBroker

TOPIC, BROKER = 2, 4
MIB = 1 << 20


def described(broker: DirectBroker, resource_type: int, name: str) -> dict[str, str | None]:
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    (result,) = broker.call(DescribeConfigsRequest(resources=(resource,))).results
    assert result.error_code == ErrorCode.NONE
    return {config.name: config.value for config in result.configs}


@pytest.mark.parametrize("clean", [True, False])
def test_a_topic_with_segments_of_14_bytes(clean: bool) -> None:
    broker = DirectBroker()
    broker.create_topic("t", segment_bytes="14", cleanup_policy="squeeze", no_such_key="1")
    for _ in range(2):
        assert broker.broker.partitions[TopicPartition("t", 0)].log.settings.segment_bytes == MIB
        assert described(broker, TOPIC, "t")["segment.bytes"] == str(MIB)
        assert described(broker, TOPIC, "t")["cleanup.policy"] == "delete"
        assert broker.produce([b"x"]).error_code == ErrorCode.NONE
        broker.restart(clean=clean)


@pytest.mark.parametrize("broker_id", [BrokerId(0), NO_BROKER_ID])
def test_a_broker_with_segments_of_14_bytes(broker_id: BrokerId) -> None:
    broker = DirectBroker()
    changed = BrokerConfigsChanged(broker_id, (("log.retention.ms", "0"), ("log.segment.bytes", "14")))
    broker.controller.decide(Outcome(None, [changed]), broker.now())
    broker.controller.run(broker.now())
    broker.settle()
    broker.create_topic("t")
    for _ in range(2):
        shown = described(broker, BROKER, "0")
        assert (shown["log.segment.bytes"], shown["log.retention.ms"]) == (str(MIB), "1")
        of_all = {"log.segment.bytes": str(MIB), "log.retention.ms": "1"} if broker_id == NO_BROKER_ID else {}
        assert described(broker, BROKER, "") == of_all
        assert broker.broker.partitions[TopicPartition("t", 0)].log.settings.segment_bytes == MIB
        assert broker.produce([b"x"]).error_code == ErrorCode.NONE
        broker.restart()
