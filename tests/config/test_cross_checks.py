"""A configuration whose values contradict each other is refused with one line that names both keys."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.config import cross_checks
from raylog.config.cross_checks import AtMost, check_together
from raylog.config.log import LOG_ROLL_MS, LOG_SEGMENT_DELETE_DELAY_MS
from raylog.config.table import broker_configs
from raylog.controller.configs import ConfigChange, ConfigOperation, alter_broker_configs
from raylog.core.errors import ConfigError
from raylog.metadata.effective_configs import ALL_BROKERS
from raylog.metadata.image import MetadataImage
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


def test_the_defaults_are_permitted() -> None:
    check_together(broker_configs({}))


def test_a_dynamic_change_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys of today's rules are read-only while brokers run."""
    monkeypatch.setattr(cross_checks, "RULES", (AtMost(LOG_SEGMENT_DELETE_DELAY_MS, LOG_ROLL_MS),))
    change = ConfigChange("log.roll.ms", ConfigOperation.SET, "7")
    with pytest.raises(
        ConfigError, match=r"^INVALID_CONFIG: log.segment.delete.delay.ms='60000': must be at most"
    ) as e:
        alter_broker_configs(
            MetadataImage(),
            ALL_BROKERS,
            [change],
            static=broker_configs({"log.segment.delete.delay.ms": 60_000}),
            replace=False,
            cipher=PasswordCipher(b"secret", bytes),
        )
    assert "which is 7" in e.value.message
