"""A configuration value is typed, checked and traceable to where it was set; what is not served is an error."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from raylog.config import broker as config
from raylog.config import topic as topic_config
from raylog.config.broker import BROKER_CONFIG, broker_configs
from raylog.config.topic import RETENTION_MS, TOPIC_CONFIG, topic_configs
from raylog.core.config import ConfigKey, ConfigSource
from raylog.core.errors import ConfigError
from raylog.logstore.settings import LogSettings, log_settings

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"log.segment.bytes": "10"}, "log.segment.bytes='10': must be at least 14"),
        ({"num.partitions": "many"}, "num.partitions='many': must be a whole number"),
        ({"num.partitions": str(1 << 31)}, "num.partitions='2147483648': must fit into 32 bits"),
        ({"auto.create.topics.enable": "yes"}, "auto.create.topics.enable='yes': must be true or false"),
        ({"log.message.timestamp.type": "Now"}, "must be one of CreateTime, LogAppendTime"),
        ({"compression.type": "none"}, "must be one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"compression.gzip.level": "0"}, "compression.gzip.level='0': must be 1 to 9, or -1"),
        ({"compression.lz4.level": "18"}, "compression.lz4.level='18': must be 1 to 17"),
        ({"compression.zstd.level": "23"}, "compression.zstd.level='23': must be -131072 to 22"),
        ({"log.cleanup.policy": "compact"}, "only 'delete' is served so far"),
        ({"no.such.key": "1"}, "no.such.key: unknown, or not served by raylog"),
        ({"broker.id": "1", "node.id": "1"}, "the same key"),
    ],
)
def test_a_bad_value_is_named_with_its_rule(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.").replace("(", r"\(")):
        broker_configs(texts)


def test_python_values_are_taken_as_well() -> None:
    configs = broker_configs(
        {"num.partitions": 3, "auto.create.topics.enable": False, "listeners": ["A://h:1", "B://h:2"]}
    )
    assert configs[config.NUM_PARTITIONS] == 3
    assert configs[config.AUTO_CREATE_TOPICS_ENABLE] is False
    assert configs[config.LISTENERS] == ("A://h:1", "B://h:2")


def test_a_topic_overrides_its_broker_which_overrides_the_default() -> None:
    plain, set_on_broker = broker_configs({}), broker_configs({"log.retention.ms": "5"})
    assert topic_configs({}, plain).lookup(RETENTION_MS) == (604_800_000, ConfigSource.DEFAULT_CONFIG)
    assert topic_configs({}, set_on_broker).lookup(RETENTION_MS) == (5, ConfigSource.STATIC_BROKER_CONFIG)
    set_on_topic = topic_configs({"retention.ms": "7"}, set_on_broker)
    assert set_on_topic.lookup(RETENTION_MS) == (7, ConfigSource.DYNAMIC_TOPIC_CONFIG)


def test_keys_in_larger_units_or_of_a_wider_meaning_count_where_the_exact_one_is_not_set() -> None:
    def of(**texts: str) -> LogSettings:
        return log_settings(topic_configs({}, broker_configs({name.replace("_", "."): v for name, v in texts.items()})))

    assert of(log_roll_jitter_hours="2").segment_jitter_ms == 7_200_000
    assert of(log_roll_jitter_hours="2", log_roll_jitter_ms="5").segment_jitter_ms == 5
    assert of(log_flush_scheduler_interval_ms="300").flush_ms == 300
    assert of(log_flush_scheduler_interval_ms="300", log_flush_interval_ms="7").flush_ms == 7


def test_the_defaults_of_a_log_are_those_of_its_keys() -> None:
    assert log_settings(topic_configs({}, broker_configs({}))) == LogSettings()


@pytest.mark.parametrize("schema", [BROKER_CONFIG, TOPIC_CONFIG])
def test_every_default_passes_its_own_check(schema: object) -> None:
    for key in schema.keys.values():  # type: ignore[attr-defined]
        text = key.format(key.default)
        assert text is None or key.parse(text) == key.default, key.name
        assert key.doc.endswith("."), key.name


NOT_READ = {
    "NODE_ID",  # the shell that numbers the brokers gives it to the broker beside its configuration
    "LOG_CLEANUP_POLICY",  # accepts one value only, which is what is done
    "CLEANUP_POLICY",
    "LOG_ROLL_HOURS",  # these are read as the milliseconds they stand for
    "LOG_ROLL_JITTER_HOURS",
    "LOG_RETENTION_HOURS",
    "LOG_RETENTION_MINUTES",
}
READERS = ("actors", "broker", "config", "controller", "logstore", "replication", "security", "transport")
"""The folders whose code is steered by keys."""


@pytest.mark.parametrize("module", [config, topic_config])
def test_no_key_is_accepted_and_then_ignored(module: ModuleType) -> None:
    """Each declared key is read somewhere; one that steers nothing should be unknown, and so refused."""
    code = [path.read_text() for folder in READERS for path in sorted((ROOT / folder).rglob("*.py"))]
    for name, key in vars(module).items():
        if isinstance(key, ConfigKey) and name not in NOT_READ:
            uses = sum(len(re.findall(rf"\b{name}\b", text)) for text in code)
            assert uses > 1, f"{key.name} is declared and never read"
