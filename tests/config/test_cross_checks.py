"""A configuration whose values contradict each other is refused with one line that names both keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from raylog.config.cross_checks import check_together
from raylog.config.table import broker_configs
from raylog.controller.configs import ConfigChange, ConfigOperation, alter_broker_configs
from raylog.core.config import INT_MAX
from raylog.core.errors import ConfigError
from raylog.core.ids import BrokerId
from raylog.metadata.effective_configs import ALL_BROKERS
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import BrokerConfigsChanged, BrokerRegistered
from raylog.security.password_cipher import PasswordCipher


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"broker.heartbeat.interval.ms": 9000},
            "broker.heartbeat.interval.ms='9000': must be at most half of broker.session.timeout.ms, which is 9000",
        ),
        (
            {"broker.session.timeout.ms": 3999},
            "broker.session.timeout.ms='3999': must be at least twice broker.heartbeat.interval.ms, which is 2000",
        ),
        (
            {"replica.fetch.wait.max.ms": 30_001},
            "replica.fetch.wait.max.ms='30001': must be at most replica.lag.time.max.ms, which is 30000",
        ),
        (
            {"replica.lag.time.max.ms": 499},
            "replica.lag.time.max.ms='499': must be at least replica.fetch.wait.max.ms, which is 500",
        ),
        (
            {"group.min.session.timeout.ms": 100, "group.max.session.timeout.ms": 50},
            "group.min.session.timeout.ms='100': must be at most group.max.session.timeout.ms, which is 50",
        ),
        (
            {"group.consumer.session.timeout.ms": 44_999},
            (
                "group.consumer.session.timeout.ms='44999': must be at least group.consumer.min.session.timeout.ms,"
                " which is 45000"
            ),
        ),
        (
            {"group.consumer.session.timeout.ms": 60_001},
            (
                "group.consumer.session.timeout.ms='60001': must be at most group.consumer.max.session.timeout.ms,"
                " which is 60000"
            ),
        ),
        (
            {"group.consumer.heartbeat.interval.ms": 4999},
            (
                "group.consumer.heartbeat.interval.ms='4999': must be at least"
                " group.consumer.min.heartbeat.interval.ms, which is 5000"
            ),
        ),
        (
            {"group.consumer.max.heartbeat.interval.ms": 70_000, "group.consumer.heartbeat.interval.ms": 50_000},
            (
                "group.consumer.heartbeat.interval.ms='50000': must be at most group.consumer.session.timeout.ms,"
                " which is 45000"
            ),
        ),
        (
            {"connections.max.idle.ms": 100},
            (
                "connections.max.idle.ms='100': must be greater than connection.failed.authentication.delay.ms,"
                " which is 100"
            ),
        ),
        (
            {"connection.failed.authentication.delay.ms": 700, "connections.max.idle.ms": 700},
            "connection.failed.authentication.delay.ms='700': must be less than connections.max.idle.ms, which is 700",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": 6, "log.cleaner.max.compaction.lag.ms": 5},
            ("log.cleaner.min.compaction.lag.ms='6': must be at most log.cleaner.max.compaction.lag.ms, which is 5"),
        ),
    ],
)
def test_the_key_that_is_set_is_named_with_the_other(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        broker_configs(given)
    assert refused.value.message == message


def test_equal_values_are_permitted() -> None:
    broker_configs({"broker.heartbeat.interval.ms": 500, "broker.session.timeout.ms": 1000})
    broker_configs({"replica.fetch.wait.max.ms": 500, "replica.lag.time.max.ms": 500})
    broker_configs({"group.min.session.timeout.ms": 50, "group.max.session.timeout.ms": 50})


def test_connections_without_a_limit_of_idle_time_may_wait_for_any_time_after_a_failed_authentication() -> None:
    broker_configs({"connection.failed.authentication.delay.ms": INT_MAX, "connections.max.idle.ms": -1})
    broker_configs({"connection.failed.authentication.delay.ms": 0, "connections.max.idle.ms": 1})


def test_the_defaults_are_permitted() -> None:
    check_together(broker_configs({}))


MIN_LAG, MAX_LAG = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
ZERO = BrokerId(0)


class TestDynamicChanges:
    def image(self, stored: Mapping[BrokerId, Mapping[str, str]]) -> MetadataImage:
        made = MetadataImage()
        made.replay(BrokerRegistered(ZERO, UUID(int=1), 3, (("PLAINTEXT", "h", 9092),)))
        for broker_id, texts in stored.items():
            made.replay(BrokerConfigsChanged(broker_id, tuple(texts.items())))
        return made

    def alter(
        self,
        made: MetadataImage,
        broker_id: BrokerId,
        texts: Mapping[str, str],
        static: Mapping[str, Any] | None = None,
    ) -> None:
        changes = [ConfigChange(name, ConfigOperation.SET, text) for name, text in texts.items()]
        given, cipher = broker_configs(static or {}), PasswordCipher(b"secret", bytes)
        alter_broker_configs(made, broker_id, changes, static=given, replace=False, cipher=cipher)

    @pytest.mark.parametrize(
        ("stored", "static", "broker_id"),
        [
            ({}, {MIN_LAG: 8}, ALL_BROKERS),
            ({}, {MIN_LAG: 8}, ZERO),
            ({ALL_BROKERS: {MIN_LAG: "8"}}, {}, ZERO),
            ({ZERO: {MIN_LAG: "8"}}, {}, ALL_BROKERS),
        ],
    )
    def test_they_are_checked_with_what_is_set_elsewhere(
        self, stored: Mapping[BrokerId, Mapping[str, str]], static: Mapping[str, Any], broker_id: BrokerId
    ) -> None:
        made = self.image(stored)
        with pytest.raises(ConfigError) as refused:
            self.alter(made, broker_id, {MAX_LAG: "7"}, static)
        of_broker = "broker 0: " if ZERO in stored else ""
        assert refused.value.message == f"{of_broker}{MIN_LAG}='8': must be at most {MAX_LAG}, which is 7"
        self.alter(made, broker_id, {MAX_LAG: "8"}, static)

    def test_a_change_that_a_broker_overrides_does_not_concern_it(self) -> None:
        """What an earlier version has stored contradicts itself, and still does."""
        stored = {ZERO: {MIN_LAG: "8"}, ALL_BROKERS: {MAX_LAG: "7"}}
        self.alter(self.image(stored), ALL_BROKERS, {MIN_LAG: "2", MAX_LAG: "7"})

    def test_a_broker_may_override_what_would_contradict_its_value(self) -> None:
        self.alter(self.image({ALL_BROKERS: {MIN_LAG: "8"}}), ZERO, {MIN_LAG: "6", MAX_LAG: "7"})

    def test_stored_values_that_contradict_each_other_do_not_prevent_a_change_of_another_key(self) -> None:
        made = self.image({ALL_BROKERS: {MIN_LAG: "8", MAX_LAG: "7"}})
        for broker_id in (ZERO, ALL_BROKERS):
            self.alter(made, broker_id, {"log.flush.interval.ms": "9"})
        with pytest.raises(ConfigError):
            self.alter(made, ALL_BROKERS, {MIN_LAG: "9"})
