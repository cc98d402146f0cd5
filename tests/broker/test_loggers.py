"""The levels of a broker's loggers are shown and changed over the wire, as Kafka's are (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from raylog.core.errors import ErrorCode
from raylog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.direct_broker import DirectBroker

TOPIC, BROKER_LOGGER = 2, 8
SET, DELETE, APPEND = 0, 1, 2
NAME = "raylog.broker"
SOURCE = 6
"""DYNAMIC_BROKER_LOGGER_CONFIG"""


@pytest.fixture(scope="module")
def broker() -> DirectBroker:
    broker = DirectBroker()
    broker.create_topic("t")
    return broker


@pytest.fixture(autouse=True)
def levels_are_as_before() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in ("raylog", NAME, "raylog.authorizer")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def described(broker: DirectBroker, *names: str) -> dict[str, str]:
    wanted = DescribeConfigsResource(resource_type=BROKER_LOGGER, resource_name="0", configuration_keys=names or None)
    [result] = broker.call(DescribeConfigsRequest(resources=(wanted,)), version=4).results
    assert result.error_code == ErrorCode.NONE
    assert {each.config_source for each in result.configs} <= {SOURCE}
    assert not any(each.read_only for each in result.configs)
    return {each.name: each.value for each in result.configs}


def altered(
    broker: DirectBroker,
    *changes: tuple[str, int, str | None],
    resource_name: str = "0",
    validate_only: bool = False,
    others: tuple[AlterConfigsResource, ...] = (),
) -> list[ErrorCode]:
    entries = tuple(AlterableConfig(name=name, config_operation=what, value=value) for name, what, value in changes)
    resource = AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name=resource_name, configs=entries)
    request = IncrementalAlterConfigsRequest(resources=(resource, *others), validate_only=validate_only)
    return [each.error_code for each in broker.call(request, version=1).responses]


def test_a_level_that_was_set_is_the_loggers_and_is_shown(broker: DirectBroker) -> None:
    assert altered(broker, (NAME, SET, "DEBUG"), ("raylog.authorizer", SET, "WARN")) == [ErrorCode.NONE]
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("raylog.authorizer").isEnabledFor(logging.INFO)
    found = described(broker)
    assert (found[NAME], found["raylog.authorizer"]) == ("DEBUG", "WARN")
    assert described(broker, NAME) == {NAME: "DEBUG"}


@pytest.mark.parametrize("level", ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"])
def test_every_level_of_kafkas_is_shown_as_it_was_set(broker: DirectBroker, level: str) -> None:
    assert altered(broker, (NAME, SET, level)) == [ErrorCode.NONE]
    assert described(broker, NAME) == {NAME: level}


def test_a_deleted_level_is_that_of_the_root(broker: DirectBroker) -> None:
    altered(broker, ("raylog", SET, "ERROR"), (NAME, SET, "DEBUG"))
    assert altered(broker, (NAME, DELETE, None)) == [ErrorCode.NONE]
    assert described(broker, NAME) == {NAME: "ERROR"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("raylog.unknown", SET, "INFO")], ErrorCode.INVALID_CONFIG),
        ([("ray", SET, "INFO")], ErrorCode.INVALID_CONFIG),
        ([("", SET, "INFO")], ErrorCode.INVALID_CONFIG),
        ([("x" * 30_000, SET, "INFO")], ErrorCode.INVALID_CONFIG),
        ([(NAME, SET, "LOUD")], ErrorCode.INVALID_CONFIG),
        ([(NAME, SET, "debug")], ErrorCode.INVALID_CONFIG),
        ([(NAME, SET, None)], ErrorCode.INVALID_CONFIG),
        ([(NAME, APPEND, "INFO")], ErrorCode.INVALID_REQUEST),
        ([(NAME, 77, "INFO")], ErrorCode.INVALID_REQUEST),
        ([("raylog", DELETE, None)], ErrorCode.INVALID_REQUEST),
        ([(NAME, SET, "DEBUG"), (NAME, SET, "INFO")], ErrorCode.INVALID_REQUEST),
        ([(NAME, SET, "DEBUG"), ("raylog.unknown", SET, "INFO")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_wrong_changes_nothing(
    broker: DirectBroker, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    before = described(broker)
    assert altered(broker, *changes) == [code]
    assert described(broker) == before
    assert "raylog.unknown" not in before, "asking does not make loggers"


def test_a_validation_changes_nothing(broker: DirectBroker) -> None:
    before = described(broker)
    assert altered(broker, (NAME, SET, "DEBUG"), validate_only=True) == [ErrorCode.NONE]
    assert described(broker) == before


@pytest.mark.parametrize("name", ["1", "", "00", "x" * 30_000])
def test_loggers_of_another_broker_must_be_asked_of_that_broker(broker: DirectBroker, name: str) -> None:
    assert altered(broker, (NAME, SET, "DEBUG"), resource_name=name) == [ErrorCode.INVALID_REQUEST]
    wanted = DescribeConfigsResource(resource_type=BROKER_LOGGER, resource_name=name)
    [result] = broker.call(DescribeConfigsRequest(resources=(wanted,)), version=4).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_other_resources_in_the_same_request_are_refused(broker: DirectBroker) -> None:
    entry = AlterableConfig(name="retention.ms", config_operation=SET, value="1000")
    topic = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=(entry,))
    before = described(broker)
    assert altered(broker, (NAME, SET, "DEBUG"), others=(topic,)) == [ErrorCode.INVALID_REQUEST] * 2
    assert described(broker) == before
    assert broker.broker.image.topics["t"].configs == {}
