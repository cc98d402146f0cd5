"""Every key of brokers and topics is in a table, has a valid default, and is used."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import pytest

from raylog.cli.arguments import refuse_passwords
from raylog.config import table
from raylog.config.admin import ADMIN_CONFIG
from raylog.config.client import CLIENT_CONFIG
from raylog.config.client_metrics import CLIENT_METRICS_CONFIG
from raylog.config.consumer import CONSUMER_CONFIG
from raylog.config.group_resource import GROUP_CONFIG
from raylog.config.log import LOG_RETENTION_BYTES
from raylog.config.membership import BROKER_RACK
from raylog.config.network import LISTENERS, MAX_CONNECTIONS, connection_limits
from raylog.config.producer import PRODUCER_CONFIG
from raylog.config.share_consumer import SHARE_CONSUMER_CONFIG
from raylog.config.table import BROKER_CONFIG, BROKER_KEYS, broker_configs, hide_passwords, with_dynamic_configs
from raylog.config.topic import RETENTION_MS, TOPIC_CONFIG, topic_configs
from raylog.config.topic_lifecycle import AUTO_CREATE_TOPICS_ENABLE, NUM_PARTITIONS
from raylog.core.config import ConfigKey, ConfigSchema, ConfigSource, ConfigType
from raylog.core.errors import ConfigError
from raylog.core.password import Password
from raylog.logstore.settings import LogSettings, log_settings

OF_OTHERS = ("topic", "client", "client_network", "producer", "consumer", "share_consumer")
"""Subjects whose keys may have the names of brokers' keys."""
ROOT = Path(__file__).resolve().parent.parent.parent
SUBJECTS = sorted(path.stem for path in (ROOT / "config").glob("*.py") if path.stem not in ("__init__", "table"))
SCHEMAS = (
    ADMIN_CONFIG,
    BROKER_CONFIG,
    TOPIC_CONFIG,
    GROUP_CONFIG,
    CLIENT_METRICS_CONFIG,
    CLIENT_CONFIG,
    PRODUCER_CONFIG,
    CONSUMER_CONFIG,
    SHARE_CONSUMER_CONFIG,
)


def error(given: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        broker_configs(given)
    return refused.value.message


class TestTable:
    def test_it_contains_every_declared_key(self) -> None:
        listed = [key for schema in SCHEMAS for key in schema.keys.values()]
        for subject in SUBJECTS:
            for name, key in vars(importlib.import_module(f"raylog.config.{subject}")).items():
                if isinstance(key, ConfigKey):
                    assert any(key is one for one in listed), f"{name} of config/{subject}.py is in no table"

    def test_each_subject_is_one_file(self) -> None:
        code = {name: (ROOT / f"config/{name}.py").read_text() for name in SUBJECTS if name not in OF_OTHERS}
        for subject, keys in BROKER_KEYS.items():
            declaring = [name for name, text in code.items() if any(f'"{key.name}",' in text for key in keys)]
            assert len(declaring) == 1, subject

    @pytest.mark.parametrize("schema", SCHEMAS)
    def test_every_default_passes_its_own_check(self, schema: ConfigSchema) -> None:
        for key in schema.keys.values():
            text = key.format(key.default)
            assert text is None or key.parse(text) == key.default, key.name

    @pytest.mark.parametrize("schema", SCHEMAS)
    def test_every_documentation_names_its_unit(self, schema: ConfigSchema) -> None:
        units = {"ms": "millisecond", "seconds": "second", "minutes": "minute", "hours": "hour", "bytes": "byte"}
        for key in schema.keys.values():
            assert key.doc.endswith("."), key.name
            assert len(re.findall(r"\.( |$)", key.doc)) <= 4, f"{key.name}: shorter"
            unit = units.get(key.name.rpartition(".")[2])
            assert unit is None or unit in key.doc.lower(), f"{key.name}: in which unit?"


class TestBrokerConfigs:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"log.segment.bytes": "10"}, "log.segment.bytes='10': must be at least 1048576"),
            ({"offsets.topic.segment.bytes": 14}, "offsets.topic.segment.bytes='14': must be at least 1048576"),
            ({"log.index.size.max.bytes": 12}, "log.index.size.max.bytes='12': must be at least 1024"),
            ({"message.max.bytes": "0"}, "message.max.bytes='0': must be at least 1024"),
            ({"socket.request.max.bytes": "1"}, "socket.request.max.bytes='1': must be at least 1048576"),
            ({"max.connections": "0"}, "max.connections='0': must be at least 1"),
            ({"listener.name.internal.max.connections": "0"}, "internal.max.connections='0': must be at least 1"),
            ({"max.connections.per.ip": "0"}, "max.connections.per.ip='0': must be at least 1"),
            ({"num.partitions": 10_001}, "num.partitions='10001': must be between 1 and 10000"),
            ({"offsets.topic.num.partitions": 10**6}, "partitions='1000000': must be between 1 and 10000"),
            ({"transaction.state.log.num.partitions": 10**6}, "partitions='1000000': must be between 1 and 10000"),
            ({"default.replication.factor": 32_768}, "default.replication.factor='32768': must be between 1 and 32767"),
            ({"num.recovery.threads.per.data.dir": 1001}, "data.dir='1001': must be between 1 and 1000"),
            ({"log.retention.ms": "0"}, "log.retention.ms='0': must be at least 1, or -1"),
            ({"log.retention.hours": "-2"}, "log.retention.hours='-2': must be at least 1, or -1"),
            ({"log.retention.minutes": "0"}, "log.retention.minutes='0': must be at least 1, or -1"),
            ({"controller.quorum.fetch.timeout.ms": "1"}, "fetch.timeout.ms='1': must be at least 50"),
            ({"controller.quorum.election.timeout.ms": "0"}, "election.timeout.ms='0': must be at least 50"),
            ({"broker.heartbeat.interval.ms": "1"}, "broker.heartbeat.interval.ms='1': must be at least 10"),
            ({"broker.session.timeout.ms": "1"}, "broker.session.timeout.ms='1': must be at least 100"),
            ({"replica.lag.time.max.ms": "1"}, "replica.lag.time.max.ms='1': must be at least 100"),
            ({"log.message.timestamp.type": "Now"}, "must be one of CreateTime, LogAppendTime"),
            ({"compression.type": "none"}, "must be one of uncompressed, zstd, lz4, snappy, gzip, producer"),
            ({"compression.gzip.level": "0"}, "compression.gzip.level='0': must be between 1 and 9, or -1"),
            ({"compression.lz4.level": "18"}, "compression.lz4.level='18': must be between 1 and 17"),
            ({"compression.zstd.level": "23"}, "compression.zstd.level='23': must be between -131072 and 22"),
            ({"log.cleanup.policy": "compact,x"}, "policy='compact,x': must be compact, delete, compact,delete or"),
            ({"log.cleaner.min.cleanable.ratio": "1.1"}, "ratio='1.1': must be between 0 and 1"),
            ({"log.cleaner.threads": "-1"}, "log.cleaner.threads='-1': must be between 0 and 64"),
            ({"log.cleaner.dedupe.buffer.size": "1"}, "buffer.size='1': must be at least 1048576"),
            ({"group.coordinator.rebalance.protocols": "consumer"}, "must contain classic"),
            ({"group.coordinator.rebalance.protocols": "classic,x"}, "a list of classic, consumer, streams, share,"),
            ({"super.users": "alice"}, "super.users='alice': must be Type:name;Type:name"),
            ({"no.such.key": "1"}, "no.such.key: unknown, or not supported by raylog"),
            ({"broker.id": "1", "node.id": "1"}, "broker.id and node.id are the same key: set only one of them"),
            ({"broker.rack": None}, "broker.rack: must be text, a number, a boolean, a list or a path, not NoneType"),
            ({"broker.rack": b"r"}, "broker.rack: must be text, a number, a boolean, a list or a path, not bytes"),
            ({"num.partitions": 1.5}, "num.partitions='1.5': must be a whole number"),
            ({"num.partitions": True}, "num.partitions='true': must be a whole number"),
            ({"num.partitions": float("nan")}, "num.partitions='nan': must be a whole number"),
            ({"num.partitions": 10**5000}, "num.partitions: the number is too large"),
        ],
    )  # fmt: skip
    def test_an_invalid_value_is_named_with_its_rule(self, given: dict[str, Any], message: str) -> None:
        assert message in error(given)

    def test_python_values(self) -> None:
        configs = broker_configs(
            {
                "num.partitions": 3,
                "auto.create.topics.enable": False,
                "listeners": ["A://h:1", "B://h:2"],
                "broker.rack": PurePath("/rack"),
            }
        )
        assert configs[NUM_PARTITIONS] == 3
        assert configs[AUTO_CREATE_TOPICS_ENABLE] is False
        assert configs[LISTENERS] == ("A://h:1", "B://h:2")
        assert configs[BROKER_RACK] == "/rack"

    def test_a_topic_overrides_its_broker_which_overrides_the_default(self) -> None:
        plain, set_on_broker = broker_configs({}), broker_configs({"log.retention.ms": "5"})
        assert topic_configs({}, plain).lookup(RETENTION_MS) == (604_800_000, ConfigSource.DEFAULT_CONFIG)
        assert topic_configs({}, set_on_broker).lookup(RETENTION_MS) == (5, ConfigSource.STATIC_BROKER_CONFIG)
        set_on_topic = topic_configs({"retention.ms": "7"}, set_on_broker)
        assert set_on_topic.lookup(RETENTION_MS) == (7, ConfigSource.DYNAMIC_TOPIC_CONFIG)

    def test_dynamic_values_of_a_broker_override_those_of_all_brokers(self) -> None:
        static = broker_configs({"log.retention.bytes": "100"})
        of_all = with_dynamic_configs(static, cluster={"log.retention.bytes": "200"}, broker={})
        of_one = with_dynamic_configs(
            static, cluster={"log.retention.bytes": "200"}, broker={"log.retention.bytes": "300"}
        )
        assert (of_all[LOG_RETENTION_BYTES], of_one[LOG_RETENTION_BYTES]) == (200, 300)

    def test_a_topic_may_have_what_its_brokers_may_not(self) -> None:
        """retention.ms=0 deletes all records of one topic, and Kafka permits it there only."""
        assert TOPIC_CONFIG.parse({"retention.ms": "0", "max.message.bytes": "0"}) == {
            "retention.ms": 0,
            "max.message.bytes": 0,
        }

    def test_coarser_keys_apply_if_the_exact_one_is_not_set(self) -> None:
        def of(**texts: str) -> LogSettings:
            configs = broker_configs({name.replace("_", "."): value for name, value in texts.items()})
            return log_settings(topic_configs({}, configs))

        assert of(log_roll_jitter_hours="2").segment_jitter_ms == 7_200_000
        assert of(log_roll_jitter_hours="2", log_roll_jitter_ms="5").segment_jitter_ms == 5
        assert of(log_flush_scheduler_interval_ms="300").flush_ms == 300
        assert of(log_flush_scheduler_interval_ms="300", log_flush_interval_ms="7").flush_ms == 7

    def test_the_defaults_of_a_log_are_those_of_its_keys(self) -> None:
        assert log_settings(topic_configs({}, broker_configs({}))) == LogSettings()

    def test_a_list_of_100_000_entries(self) -> None:
        many = ",".join(f"{number}:0" for number in range(100_000))
        made = topic_configs({"leader.replication.throttled.replicas": many}, broker_configs({}))
        assert len(made[TOPIC_CONFIG.keys["leader.replication.throttled.replicas"]]) == 100_000
        with pytest.raises(ConfigError, match="must be \\* or a list of partition:broker") as refused:
            TOPIC_CONFIG.parse({"leader.replication.throttled.replicas": many + ",٣:0"})
        assert len(refused.value.message) < 300


class TestListenerOverrides:
    def test_an_override_applies_to_its_listener(self) -> None:
        limits = connection_limits(
            broker_configs(
                {
                    "listeners": "CLIENTS://h:1,PLAINTEXT://h:2",
                    "max.connections": "10",
                    "listener.name.clients.max.connections": "3",
                    "listener.name.internal.max.connections": "4",
                }
            )
        )
        assert limits.connections_max == 10
        assert limits.limits_of("CLIENTS") == 3
        assert limits.limits_of("INTERNAL") == 4  # opened without being configured
        assert limits.limits_of("PLAINTEXT") is None

    def test_an_unknown_listener_is_refused(self) -> None:
        assert error({"listener.name.other.max.connections": "3"}) == (
            "listener.name.other.max.connections='3': listeners has no OTHER, only INTERNAL, PLAINTEXT"
        )

    def test_a_key_that_is_not_per_listener_is_refused(self) -> None:
        assert error({"listener.name.plaintext.num.partitions": "3"}) == (
            "listener.name.plaintext.num.partitions='3': num.partitions cannot be set for a single listener"
        )

    def test_overrides_are_returned_with_the_configured_values(self) -> None:
        configs = broker_configs({"listener.name.plaintext.max.connections": 3})
        assert configs.overrides(MAX_CONNECTIONS) == {"plaintext": 3}
        later = with_dynamic_configs(configs, cluster={}, broker={})
        assert later.overrides(MAX_CONNECTIONS) == {"plaintext": 3}

    def test_a_topic_has_none(self) -> None:
        with pytest.raises(ConfigError, match=r"retention\.ms cannot be set for a single listener"):
            TOPIC_CONFIG.parse({"listener.name.plaintext.retention.ms": "1"})


class TestPasswords:
    @pytest.fixture(autouse=True)
    def _a_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        key: ConfigKey[Password | None] = ConfigKey("the.password", ConfigType.PASSWORD, None, "P.", per_listener=True)
        monkeypatch.setattr(table, "BROKER_CONFIG", ConfigSchema((*BROKER_CONFIG.keys.values(), key)))

    def test_values_are_hidden_before_they_are_passed_on(self) -> None:
        given = {"the.password": "hunter2", "listener.name.plaintext.the.password": "hunter3", "num.partitions": "1"}
        hidden = hide_passwords({**given, "no.such": "x", "listener.name..x": "y"})
        assert "hunter" not in repr(hidden)
        assert hidden["num.partitions"] == "1"
        assert hidden["no.such"] == "x"
        again = pickle.loads(pickle.dumps(hide_passwords(hide_passwords(given))))
        key = table.BROKER_CONFIG.keys["the.password"]
        configs = broker_configs(again)
        assert configs[key].reveal() == "hunter2"
        assert configs.for_listener("PLAINTEXT")[key].reveal() == "hunter3"

    def test_a_password_on_the_command_line_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"^INVALID_CONFIG: the\.password=\[hidden\]: is visible in the list of"):
            refuse_passwords(["num.partitions", "the.password"])
        refuse_passwords(["num.partitions", "no.such.key"])

    def test_an_error_of_a_listener_override_hides_the_value(self) -> None:
        assert "=[hidden]: listeners has no X" in error({"listener.name.x.the.password": "hunter2"})


READ_AS_ANOTHER_KEY = {"log.roll.hours", "log.roll.jitter.hours", "log.retention.hours", "log.retention.minutes"}
BY_OTHER_MEANS = {
    "node.id",  # the actor hands it to the broker beside its configuration
    "authorizer.class.name",  # there are settings of an authorizer, or none
    "sasl.enabled.mechanisms",  # there are settings of a mechanism, or none
    "security.protocol",  # there are settings of TLS and of a mechanism, or none
}
CHECKED_ONLY = {
    "group.consumer.min.session.timeout.ms",  # these bound other keys
    "group.consumer.max.session.timeout.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
    "group.share.min.session.timeout.ms",
    "group.share.max.session.timeout.ms",
    "group.share.min.heartbeat.interval.ms",
    "group.share.max.heartbeat.interval.ms",
    "group.share.min.record.lock.duration.ms",
    "group.share.max.record.lock.duration.ms",
    "group.streams.min.session.timeout.ms",
    "group.streams.max.session.timeout.ms",
    "group.streams.min.heartbeat.interval.ms",
    "group.streams.max.heartbeat.interval.ms",
    "group.streams.max.standby.replicas",
    "group.consumer.migration.policy",  # there is one policy
}
NOT_READ = READ_AS_ANOTHER_KEY | BY_OTHER_MEANS | CHECKED_ONLY
READERS = ("actors", "broker", "client", "controller", "groupcoord", "logstore", "replication", "security", "transport")
"""The folders whose code is steered by keys."""


def fields_by_key() -> dict[str, set[str]]:
    """The fields of settings that are made from each key, by the key's name in the code."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "config").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg is not None:
                for key in re.findall(r"\b[A-Z][A-Z0-9_]{4,}\b", ast.unparse(node.value)):
                    found.setdefault(key, set()).add(node.arg)
    return found


def test_every_accepted_key_is_used() -> None:
    """Code reads each key, a field of settings that is made from it, or the topic's key that overrides it."""
    code = "\n".join(path.read_text() for folder in READERS for path in sorted((ROOT / folder).rglob("*.py")))
    fields = fields_by_key()
    read: set[ConfigKey[Any]] = set()
    declared: set[ConfigKey[Any]] = set()
    for subject in SUBJECTS:
        for name, key in vars(importlib.import_module(f"raylog.config.{subject}")).items():
            if isinstance(key, ConfigKey):
                declared.add(key)
                words = [name, *(f"[.]{field}" for field in fields.get(name, ()))]
                if any(re.search(rf"{word}\b", code) for word in words):
                    read |= {key, key.broker_key or key}
    assert sorted(key.name for key in declared - read if key.name not in NOT_READ) == []
