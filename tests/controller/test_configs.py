"""A configuration change is applied completely or not at all, and invalid values are never recorded."""

from __future__ import annotations

from uuid import UUID

import pytest

from raylog.config.table import broker_configs
from raylog.controller.brokers import fence_broker
from raylog.controller.configs import (
    ConfigChange,
    ConfigOperation,
    alter_broker_configs,
    alter_topic_configs,
    unclean_election_rule,
)
from raylog.controller.features import check_writable
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch
from raylog.core.password import Password
from raylog.metadata.effective_configs import ALL_BROKERS, effective_configs
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import (
    BrokerConfigsChanged,
    BrokerRegistered,
    LeaderChanged,
    PartitionCreated,
    TopicConfigsChanged,
    TopicCreated,
    encode,
)
from raylog.metadata.snapshot import decode_snapshot
from raylog.security.password_cipher import PasswordCipher
from tests.controller.metadata import image_of, replay
from tests.metadata.snapshots import encode_snapshot

STATIC = broker_configs({"log.retention.ms": "5000"})
CIPHER = PasswordCipher(b"secret", lambda size: b"\1" * size)
TOPIC_ID = UUID(int=7)
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
ZERO = BrokerId(0)


def image() -> MetadataImage:
    made = MetadataImage()
    made.replay(TopicCreated("t", TOPIC_ID, (("retention.ms", "1"), ("segment.bytes", "1000"))))
    made.replay(BrokerRegistered(ZERO, UUID(int=1), 3, ()))
    return made


def change(name: str, operation: ConfigOperation = SET, value: str | None = None) -> ConfigChange:
    return ConfigChange(name, operation, value)


def test_single_values_are_set_and_deleted() -> None:
    made = image()
    changes = [change("retention.ms", value="2"), change("segment.bytes", DELETE), change("flush.ms", value="9")]
    outcome = alter_topic_configs(made, "t", changes, static=STATIC, replace=False)
    assert outcome.records == [TopicConfigsChanged(TOPIC_ID, (("flush.ms", "9"), ("retention.ms", "2")))]
    made.replay(outcome.records[0])
    assert made.topics["t"].configs == {"flush.ms": "9", "retention.ms": "2"}


def test_a_key_that_is_unknown_can_be_deleted_and_not_set() -> None:
    """As in Kafka: MirrorMaker deletes what has its default value in the source, of another version perhaps."""
    made = image()
    changes = [change("retention.ms", value="2"), change("no.such.key", DELETE)]
    outcome = alter_topic_configs(made, "t", changes, static=STATIC, replace=False)
    assert outcome.records == [TopicConfigsChanged(TOPIC_ID, (("retention.ms", "2"), ("segment.bytes", "1000")))]
    with pytest.raises(KafkaError, match=r"no\.such\.key: unknown"):
        alter_topic_configs(made, "t", [change("no.such.key", value="1")], static=STATIC, replace=False)


def test_replacing_a_configuration_removes_keys_that_are_not_listed() -> None:
    outcome = alter_topic_configs(image(), "t", [change("flush.ms", value="9")], static=STATIC, replace=True)
    assert outcome.records == [TopicConfigsChanged(TOPIC_ID, (("flush.ms", "9"),))]


def test_append_and_subtract_apply_to_the_value_in_force() -> None:
    added = alter_topic_configs(
        image(), "t", [change("cleanup.policy", APPEND, "compact")], static=STATIC, replace=False
    )
    assert ("cleanup.policy", "delete,compact") in added.records[0].configs  # type: ignore[union-attr]
    removed = alter_topic_configs(
        image(), "t", [change("cleanup.policy", SUBTRACT, "delete")], static=STATIC, replace=False
    )
    assert ("cleanup.policy", "") in removed.records[0].configs  # type: ignore[union-attr]
    with pytest.raises(KafkaError, match="must be compact, delete, compact,delete or empty"):
        alter_topic_configs(image(), "t", [change("cleanup.policy", APPEND, "keep")], static=STATIC, replace=False)


def test_a_value_that_older_describe_configs_cannot_carry_is_refused() -> None:
    """As in Kafka: before v4 the length of a text has 16 bits."""
    made, name = image(), "leader.replication.throttled.replicas"

    def alter(operation: ConfigOperation, value: str) -> None:
        changes = [change(name, operation, value)]
        replay(made, alter_topic_configs(made, "t", changes, static=STATIC, replace=False).records)

    long = ",".join(f"{partition}:1000" for partition in range(1000, 4276))
    for operation, before in ((SET, f"{long},"), (APPEND, "")):
        alter(SET, long)
        with pytest.raises(KafkaError, match="exceeds the maximum value size of 32767 bytes") as refused:
            alter(operation, f"{before}1:123456")
        assert refused.value.code == ErrorCode.INVALID_CONFIG
        alter(operation, f"{before}1:12345")
        assert len(made.topics["t"].configs[name]) == 32767


@pytest.mark.parametrize(
    ("topic", "changes", "code"),
    [
        ("absent", [change("flush.ms", value="1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name", [change("flush.ms", value="1")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", [change("no.such.key", value="1")], ErrorCode.INVALID_CONFIG),
        ("t", [change("flush.ms", value="soon")], ErrorCode.INVALID_CONFIG),
        ("t", [change("flush.ms", value=None)], ErrorCode.INVALID_REQUEST),
        ("t", [change("flush.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ("t", [change("flush.ms", value="1"), change("flush.ms", value="2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_changes_of_a_topic(topic: str, changes: list[ConfigChange], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        alter_topic_configs(image(), topic, changes, static=STATIC, replace=False)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("name", "value"),
    [("segment.bytes", "14"), ("segment.index.bytes", "12"), ("retention.ms", "-2"), ("cleanup.policy", "squeeze")],
)
@pytest.mark.parametrize("replace", [False, True])
def test_values_out_of_bounds_are_refused_for_a_topic(name: str, value: str, replace: bool) -> None:
    with pytest.raises(KafkaError, match=f"^INVALID_CONFIG: {name}='{value}': must be "):
        alter_topic_configs(image(), "t", [change(name, value=value)], static=STATIC, replace=replace)


@pytest.mark.parametrize(
    ("name", "value"), [("log.segment.bytes", "14"), ("message.max.bytes", "0"), ("log.retention.ms", "0")]
)
@pytest.mark.parametrize("broker_id", [ZERO, ALL_BROKERS])
def test_values_out_of_bounds_are_refused_for_brokers(name: str, value: str, broker_id: BrokerId) -> None:
    with pytest.raises(KafkaError, match=f"^INVALID_CONFIG: {name}='{value}': must be "):
        alter_broker_configs(
            image(), broker_id, [change(name, value=value)], static=STATIC, replace=False, cipher=CIPHER
        )


def test_a_stored_value_out_of_bounds_does_not_prevent_a_change_of_another_key() -> None:
    made = image()
    made.replay(TopicConfigsChanged(TOPIC_ID, (("segment.bytes", "14"), ("no.such.key", "1"))))
    made.replay(BrokerConfigsChanged(ZERO, (("log.segment.bytes", "14"),)))
    of_topic = alter_topic_configs(made, "t", [change("flush.ms", value="9")], static=STATIC, replace=False)
    stored = (("flush.ms", "9"), ("no.such.key", "1"), ("segment.bytes", "14"))
    assert of_topic.records == [TopicConfigsChanged(TOPIC_ID, stored)]
    of_broker = alter_broker_configs(
        made, ZERO, [change("log.flush.interval.ms", value="9")], static=STATIC, replace=False, cipher=CIPHER
    )
    assert of_broker.records == [
        BrokerConfigsChanged(ZERO, (("log.flush.interval.ms", "9"), ("log.segment.bytes", "14")))
    ]


def test_a_broker_overrides_all_brokers_which_override_the_static_configuration() -> None:
    made = image()
    key = STATIC.schema.keys["log.retention.ms"]
    assert effective_configs(made, STATIC, ZERO)[key] == 5000
    for broker_id, value in ((ALL_BROKERS, "6000"), (ZERO, "7000")):
        outcome = alter_broker_configs(
            made, broker_id, [change("log.retention.ms", value=value)], static=STATIC, replace=False, cipher=CIPHER
        )
        assert outcome.records == [BrokerConfigsChanged(broker_id, (("log.retention.ms", value),))]
        made.replay(outcome.records[0])
    assert effective_configs(made, STATIC, ZERO)[key] == 7000
    assert effective_configs(made, STATIC, BrokerId(1))[key] == 6000


@pytest.mark.parametrize(
    ("broker_id", "name", "code"),
    [
        (ZERO, "listeners", ErrorCode.INVALID_REQUEST),
        (ZERO, "no.such.key", ErrorCode.INVALID_CONFIG),
        (BrokerId(5), "log.retention.ms", ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_changes_of_a_broker(broker_id: BrokerId, name: str, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        alter_broker_configs(image(), broker_id, [change(name, value="1")], static=STATIC, replace=False, cipher=CIPHER)
    assert refused.value.code == code


def test_hours_and_minutes_apply_if_milliseconds_are_not_set() -> None:
    def in_force(**texts: str) -> int:
        configs = broker_configs({name.replace("_", "."): text for name, text in texts.items()})
        return int(configs[configs.schema.keys["log.retention.ms"]])

    assert in_force() == 168 * 3_600_000
    assert in_force(log_retention_hours="2") == 7_200_000
    assert in_force(log_retention_hours="2", log_retention_minutes="3") == 180_000
    assert in_force(log_retention_hours="2", log_retention_minutes="3", log_retention_ms="4") == 4
    assert in_force(log_retention_hours="-1") == -1


class TestUncleanElections:
    """Where they are allowed from now on they are held in the same commit."""

    KEY = "unclean.leader.election.enable"
    ELECTED = LeaderChanged(TOPIC_ID, 0, BrokerId(1), LeaderEpoch(2), (BrokerId(1),))

    def image(self, *, topic: str | None = None) -> MetadataImage:
        """t-0 has no leader: broker 0, the only in-sync replica, is fenced, and broker 1 is alive."""
        made = image_of(0, 1)
        configs = () if topic is None else ((self.KEY, topic),)
        made.replay(TopicCreated("t", TOPIC_ID, configs))
        made.replay(PartitionCreated(TOPIC_ID, 0, (ZERO, BrokerId(1)), ZERO, LeaderEpoch(0), (ZERO,)))
        for record in fence_broker(made, ZERO).records:
            made.replay(record)
        return made

    def test_by_topic(self) -> None:
        changed = alter_topic_configs(self.image(), "t", [change(self.KEY, value="true")], static=STATIC, replace=False)
        assert changed.records == [TopicConfigsChanged(TOPIC_ID, ((self.KEY, "true"),)), self.ELECTED]
        other = alter_topic_configs(self.image(), "t", [change("flush.ms", value="1")], static=STATIC, replace=False)
        assert len(other.records) == 1

    @pytest.mark.parametrize(("topic", "is_held"), [(None, True), ("false", False), ("true", True)])
    def test_by_all_brokers(self, topic: str | None, is_held: bool) -> None:
        changes = [change(self.KEY, value="true")]
        changed = alter_broker_configs(
            self.image(topic=topic), ALL_BROKERS, changes, static=STATIC, replace=False, cipher=CIPHER
        )
        assert list(changed.records[1:]) == ([self.ELECTED] if is_held else [])

    @pytest.mark.parametrize("replace", [False, True])
    def test_a_single_broker_cannot_allow_them(self, replace: bool) -> None:
        with pytest.raises(KafkaError, match=f"Can only be changed for all brokers, .*: {self.KEY}.$") as refused:
            alter_broker_configs(
                self.image(), ZERO, [change(self.KEY, value="true")], static=STATIC, replace=replace, cipher=CIPHER
            )
        assert refused.value.code == ErrorCode.INVALID_REQUEST

    def test_what_an_earlier_version_has_stored_for_a_single_broker_can_be_deleted(self) -> None:
        made = self.image()
        made.replay(BrokerConfigsChanged(ZERO, ((self.KEY, "true"),)))
        deleted = alter_broker_configs(
            made, ZERO, [change(self.KEY, DELETE)], static=STATIC, replace=False, cipher=CIPHER
        )
        assert deleted.records == [BrokerConfigsChanged(ZERO, ())]

    def test_the_rule_is_that_of_the_topic_or_else_of_the_brokers(self) -> None:
        for topic, static, cluster, expected in (
            (None, "false", None, False),
            (None, "true", None, True),
            (None, "false", "true", True),
            (None, "true", "false", False),
            ("false", "true", "true", False),
            ("true", "false", None, True),
        ):
            made = self.image(topic=topic)
            if cluster is not None:
                made.replay(BrokerConfigsChanged(ALL_BROKERS, ((self.KEY, cluster),)))
            rule = unclean_election_rule(made, broker_configs({self.KEY: static}))
            assert rule(made.topics["t"]) is expected


class TestListenerKeys:
    """Keys of one listener of one broker, passwords among them."""

    LOCATION = "listener.name.ssl.ssl.keystore.location"
    PASSWORD = "listener.name.ssl.ssl.keystore.password"
    JAAS = "listener.name.ssl.plain.sasl.jaas.config"

    def image(self) -> MetadataImage:
        made = MetadataImage()
        made.replay(BrokerRegistered(ZERO, UUID(int=1), 3, (("SSL", "h", 9093),)))
        return made

    def alter(
        self, made: MetadataImage, *changes: ConfigChange, broker_id: BrokerId = ZERO, replace: bool = False
    ) -> BrokerConfigsChanged:
        outcome = alter_broker_configs(made, broker_id, changes, static=STATIC, replace=replace, cipher=CIPHER)
        (record,) = outcome.records
        assert isinstance(record, BrokerConfigsChanged)
        made.replay(record)
        return record

    def opened(self, made: MetadataImage, name: str) -> object:
        configs = effective_configs(made, STATIC, ZERO, cipher=CIPHER)
        return configs[configs.schema.key(name)]

    def test_a_password_is_recorded_encrypted(self) -> None:
        made = self.image()
        record = self.alter(made, change(self.LOCATION, value="/k.p12"), change(self.PASSWORD, value="hunter2"))
        assert record.configs == ((self.LOCATION, "/k.p12"),)
        ((name, encrypted),) = record.passwords
        assert name == self.PASSWORD
        assert b"hunter2" not in encode(record)
        assert CIPHER.decrypt(encrypted, broker_id=ZERO, key=name) == Password("hunter2")
        assert self.opened(made, self.PASSWORD) == Password("hunter2")

    def test_a_snapshot_contains_it_encrypted(self) -> None:
        made = self.image()
        self.alter(made, change(self.PASSWORD, value="hunter2"))
        written = encode_snapshot(made, now_ms=5)
        assert b"hunter2" not in written
        restored = decode_snapshot(written)
        assert self.opened(restored, self.PASSWORD) == Password("hunter2")

    def test_other_keys_keep_it(self) -> None:
        made = self.image()
        self.alter(made, change(self.PASSWORD, value="hunter2"))
        self.alter(made, change("log.retention.ms", value="1"), change(self.JAAS, value="a b;"))
        assert self.opened(made, self.PASSWORD) == Password("hunter2")
        self.alter(made, change(self.JAAS, DELETE))
        assert set(made.broker_passwords[ZERO]) == {self.PASSWORD}

    @pytest.mark.parametrize("replace", [False, True])
    def test_it_is_deleted(self, replace: bool) -> None:
        made = self.image()
        self.alter(made, change(self.PASSWORD, value="hunter2"))
        changes = [] if replace else [change(self.PASSWORD, DELETE)]
        assert self.alter(made, *changes, replace=replace).passwords == ()
        assert self.opened(made, self.PASSWORD) is None
        assert made.broker_passwords == {}

    def test_with_another_secret_the_static_value_applies(self, caplog: pytest.LogCaptureFixture) -> None:
        made = self.image()
        self.alter(made, change(self.LOCATION, value="/k.p12"), change(self.PASSWORD, value="hunter2"))
        static = broker_configs({"listeners": "SSL://h:9093", self.PASSWORD: "static"})
        configs = effective_configs(made, static, ZERO, cipher=PasswordCipher(b"other", bytes))
        assert configs[configs.schema.key(self.PASSWORD)] == Password("static")
        assert configs[configs.schema.key(self.LOCATION)] == "/k.p12"
        [reported] = [record for record in caplog.records if record.msg == "stored password unreadable"]
        assert vars(reported)["key"] == self.PASSWORD
        assert "hunter2" not in caplog.text

    @pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
    def test_nothing_can_be_appended_to_it(self, operation: ConfigOperation) -> None:
        with pytest.raises(KafkaError, match=f"^INVALID_CONFIG: {self.PASSWORD} is not a list") as refused:
            self.alter(self.image(), change(self.PASSWORD, operation, "hunter2"))
        assert "hunter2" not in refused.value.message

    @pytest.mark.parametrize(
        ("broker_id", "name", "message"),
        [
            (ZERO, "ssl.keystore.password", "INVALID_REQUEST: Can only be changed for a listener"),
            (ZERO, "sasl.jaas.config", "INVALID_REQUEST: Can only be changed for a listener"),
            (ALL_BROKERS, "ssl.keystore.location", "INVALID_REQUEST: Can only be changed for a listener"),
            (ALL_BROKERS, LOCATION, "INVALID_REQUEST: Can only be changed for single brokers"),
            (ALL_BROKERS, PASSWORD, "INVALID_REQUEST: Can only be changed for single brokers"),
            (ZERO, "listener.name.ssl.ssl.client.auth", "INVALID_REQUEST: Cannot be changed while a broker runs"),
            (ZERO, "listener.name.other.ssl.keystore.type", "INVALID_CONFIG: .*: broker 0 has no listener OTHER"),
            (ZERO, "listener.name.ssl.plain.ssl.keystore.key", "INVALID_CONFIG: .*for a single SASL mechanism"),
            (ZERO, "listener.name.ssl.sasl.jaas.config", "INVALID_CONFIG: .*=.hidden.: must be set as"),
        ],
    )
    def test_what_kafka_refuses(self, broker_id: BrokerId, name: str, message: str) -> None:
        with pytest.raises(KafkaError, match=f"^{message}") as refused:
            self.alter(self.image(), change(name, value="hunter2"), broker_id=broker_id)
        assert "hunter2" not in refused.value.message

    def test_a_key_of_a_former_listener_can_be_deleted(self) -> None:
        made = self.image()
        self.alter(made, change(self.PASSWORD, value="hunter2"))
        made.replay(BrokerRegistered(ZERO, UUID(int=2), 4, (("PLAINTEXT", "h", 9092),)))
        self.alter(made, change(self.PASSWORD, DELETE))
        assert made.broker_passwords == {}

    def test_a_cluster_of_an_earlier_level_refuses_it(self) -> None:
        record = self.alter(self.image(), change(self.PASSWORD, value="hunter2"))
        with pytest.raises(
            KafkaError, match=r"^UNSUPPORTED_VERSION: BrokerConfigsChanged needs raylog\.metadata level 4"
        ):
            check_writable([record], 3)
