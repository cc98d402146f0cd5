"""Names of the greatest length that the protocol can carry are answered in every version, and harm no node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from raylog.core.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, KafkaError
from raylog.protocol import registry
from raylog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from raylog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.schema import Message
from tests.broker.required_operations import ASKED
from tests.support.direct_broker import DirectBroker

TOPIC_CONFIGS = 2
GROUP, TRANSACTION = 0, 1
NAMES = ("x" * 32767, "\N{SNOWMAN}" * 10922, "\0\n" * 16383)
WAIT_MS = 1000


def change(name: str, operation: int, value: str | None) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=name, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC_CONFIGS, resource_name="t", configs=(config,))
    return IncrementalAlterConfigsRequest(resources=(resource,))


def created(**given: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=(CreatableTopic(name="new", num_partitions=1, replication_factor=1, **given),))


OTHER_TEXTS: dict[int, list[Callable[[str], Message]]] = {
    registry.INCREMENTAL_ALTER_CONFIGS: [
        *(partial(change, operation=operation, value=value) for operation in range(5) for value in ("1", None)),
        *(lambda text, key=key: change(key, 0, text) for key in ("retention.ms", "cleanup.policy", "no.such")),
    ],
    registry.CREATE_TOPICS: [
        lambda text: created(configs=(CreatableTopicConfig(name=text, value="1"),)),
        lambda text: created(configs=(CreatableTopicConfig(name="retention.ms", value=text),)),
    ],
    registry.DESCRIBE_CONFIGS: [
        lambda text: DescribeConfigsRequest(
            resources=(
                DescribeConfigsResource(resource_type=TOPIC_CONFIGS, resource_name="t", configuration_keys=(text,)),
            )
        ),
    ],
    registry.DESCRIBE_USER_SCRAM_CREDENTIALS: [
        lambda text: DescribeUserScramCredentialsRequest(users=(UserName(name=text),)),
        lambda text: DescribeUserScramCredentialsRequest(users=(UserName(name=text), UserName(name=text))),
    ],
    registry.ALTER_USER_SCRAM_CREDENTIALS: [
        lambda text: AlterUserScramCredentialsRequest(deletions=(ScramCredentialDeletion(name=text, mechanism=1),)),
    ],
}
"""Requests with a long text that is no name of a resource."""


@pytest.fixture
def broker() -> DirectBroker:
    """A new one for each request, whose coordinators are loaded: no group with a long name exists before."""
    made = DirectBroker({"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1})
    made.create_topic("t")
    for key_type in (GROUP, TRANSACTION):
        made.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=("g",)))
    made.settle()
    return made


@pytest.mark.parametrize("key", sorted(ASKED), ids=lambda key: str(getattr(registry.api_for(key), "name", key)))
def test_a_request_with_the_longest_name_is_answered(broker: DirectBroker, key: int) -> None:
    """A response that cannot be written would end the node that writes it, the controller included."""
    spec = registry.api_for(key)
    assert spec is not None
    answered = 0
    for make in [*(required.request for required in ASKED[key]), *OTHER_TEXTS.get(key, ())]:
        for version in range(spec.lowest, spec.highest + 1):
            for name in NAMES:
                try:
                    request = make(name)
                    connection = broker.connect()
                    sent = broker.send(request, version=version, connection=connection)
                except (ValueError, KafkaError):
                    continue  # this version has no such field
                broker.settle()
                broker.pass_time(WAIT_MS)
                answered += connection.closing or broker.answer(sent, connection=connection) is not None
    assert answered


def test_a_long_message_is_shortened() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "x" * 40_000)
    assert error.message == "x" * MESSAGE_CHARACTERS_MAX + "... (40000 characters)"
