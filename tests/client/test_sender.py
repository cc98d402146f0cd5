"""What a producer's sender waits for: never for a time that has passed, which would keep its loop busy."""

from __future__ import annotations

import random

import pytest

from raylog.client.producer.core import ProducerCore
from raylog.client.producer.delivery import ProducerRecord
from raylog.config.producer import PRODUCER_CONFIG, producer_settings
from raylog.core.clock import Now
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from tests.client.test_network_client import shown

NOW = Now(1000, 0)


def made(**texts: str) -> ProducerCore:
    given = PRODUCER_CONFIG.parse({name.replace("_", "."): text for name, text in texts.items()})
    configs = Configs(PRODUCER_CONFIG, [Layer(ConfigSource.STATIC_BROKER_CONFIG, given)])
    core = ProducerCore("h:1", producer_settings(configs), random.Random(1))
    core.network.metadata.want(["t"])
    return core


def append(core: ProducerCore, now: Now = NOW) -> None:
    assert core.try_append(ProducerRecord("t", None, b"v", (), 0, 0), now) is not None


@pytest.mark.parametrize("idempotent", ["true", "false"])
@pytest.mark.parametrize("leader", [-1, 1])
def test_it_never_waits_for_a_time_that_has_passed(leader: int, idempotent: str) -> None:
    """Records are due, but there is no leader, no producer id, or no connection yet."""
    core = made(enable_idempotence=idempotent, linger_ms="0")
    core.network.metadata.answered(shown([1], leader=leader), NOW)
    append(core)
    core.network.run(NOW)
    due_ms = core.sender.next_deadline_ms()
    assert due_ms is not None
    assert due_ms > NOW.monotonic_ms


def test_records_linger_and_expire() -> None:
    core = made(linger_ms="20", request_timeout_ms="100", delivery_timeout_ms="500")
    core.network.metadata.answered(shown([1]), NOW)
    append(core)
    core.network.run(NOW)
    assert core.sender.next_deadline_ms() == NOW.monotonic_ms + 20
    append(core, Now(1010, 0))
    core.network.run(Now(1020, 0))
    assert core.sender.next_deadline_ms() == NOW.monotonic_ms + 500
    core.network.run(Now(1499, 0))
    assert core.sender.completed == []
    core.network.run(Now(1500, 0))
    (batch,) = core.sender.completed
    assert (batch.builder.count, core.accumulator.used_bytes) == (2, 0)
    with pytest.raises(KafkaError) as raised:
        batch.metadata(0, 0)
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert "t-0: not acknowledged within delivery.timeout.ms (500 ms) after 0 attempts" in raised.value.message
    assert core.sender.next_deadline_ms() is None
