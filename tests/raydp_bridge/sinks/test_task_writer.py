"""The rows of a task become records, each at least once, or the task fails with the error of the broker."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.raydp_bridge.datasink import TopicDatasink
from raylog.raydp_bridge.sink import ExactlyOnceSink
from raylog.raydp_bridge.sinks import target as sinks_target
from raylog.raydp_bridge.sinks.target import SinkTarget
from raylog.raydp_bridge.sinks.task_writer import write_at_least_once
from tests.client.served import Served, serve
from tests.support.cluster_thread import cluster_thread


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("served")) as served:
        yield served


def target(served: Served, topic: str | None, **producer_config: Any) -> SinkTarget:
    return SinkTarget.of(
        topic, bootstrap_servers=served.plain, client_config=None, producer_config=producer_config or None
    )


def test_every_column_arrives(served: Served) -> None:
    one, two = served.new_topic(partitions=2), served.new_topic()
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "key": ["a", None, "c"],
            "value": pa.array([b"1", b"2", None], pa.binary()),
            "topic": [one, one, two],
            "partition": pa.array([1, 0, None], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"\x00"}], None, []], headers),
        }
    )
    assert write_at_least_once([batch], target(served, None)) == {one: 2, two: 1}
    (first,) = served.read(one, 1, 1)
    assert (first.key(), first.value(), first.headers()) == (b"a", b"1", [("h", b"\x00")])
    (second,) = served.read(one, 1, 0)
    assert (second.key(), second.value(), second.headers()) == (None, b"2", None)
    (third,) = served.read(two, 1)
    assert (third.key(), third.value()) == (b"c", None)


def test_many_rows_in_small_batches(served: Served) -> None:
    topic = served.new_topic()
    batches = [pa.record_batch({"value": [b"%d/%d" % (number, row) for row in range(100)]}) for number in range(200)]
    sent = write_at_least_once(iter(batches), pickle.loads(pickle.dumps(target(served, topic, compression_type="lz4"))))
    assert sent == {topic: 20_000}
    values = [message.value() for message in served.read(topic, 20_000)]
    assert values == [b"%d/%d" % (number, row) for number in range(200) for row in range(100)]
    assert write_at_least_once([], target(served, topic)) == {}


def test_a_record_that_is_refused_fails_the_task(served: Served) -> None:
    topic = served.new_topic(max_message_bytes="1000")
    with pytest.raises(KafkaError) as raised:
        write_at_least_once([pa.record_batch({"value": [b"x" * 2000]})], target(served, topic))
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError, match="null topic present in the data"):
        write_at_least_once(
            [pa.record_batch({"value": ["x"], "topic": pa.nulls(1, pa.string())})], target(served, None)
        )
    rows = pa.record_batch({"value": [b"x", b"y"], "topic": [topic, "no-such-topic"]})  # the first one connects
    with pytest.raises(KafkaError) as raised:
        write_at_least_once([rows], target(served, None, max_block_ms=2000))
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"acks": "1"}, "enable.idempotence=true: requires acks=all"),
        ({"enable.idempotence": "false"}, "transactional.id: requires enable.idempotence=true"),
    ],
)
def test_keys_that_transactions_do_not_permit_are_refused_where_there_are_transactions(
    served: Served, config: dict[str, Any], message: str
) -> None:
    topic = served.new_topic()
    assert write_at_least_once([pa.record_batch({"value": [b"x"]})], target(served, topic, **config)) == {topic: 1}
    with pytest.raises(ConfigError, match=message):
        SinkTarget.of(
            topic, bootstrap_servers=served.plain, client_config=None, producer_config=config, exactly_once=True
        )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"acks": "0", "enable.idempotence": "true"}, "enable.idempotence=true: requires acks=all"),
        ({"transactional.id": "mine"}, "transactional.id: is chosen by the sink"),
        ({"compression_type": "rar"}, "compression.type='rar'"),
        ({"no.such.key": 1}, "no.such.key"),
        (
            {"bootstrap_servers": "other:9092"},
            "bootstrap.servers='other:9092' in producer_config: names other brokers than",
        ),
        ({"compression.type": ["lz4"]}, "compression.type: a client's properties must be texts"),
    ],
)
def test_wrong_options_are_refused_before_a_task_starts(served: Served, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        target(served, "t", **config)
    assert message in raised.value.message
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        SinkTarget.of("t", bootstrap_servers=None, client_config=None, producer_config=None)


def test_a_write_waits_for_its_topic_once_and_less_than_a_task_would(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    target(served, served.new_topic()).require_topic()
    target(served, None).require_topic()
    monkeypatch.setattr(sinks_target, "TOPIC_WAIT_MS", 100)
    for config, waited_ms in (({}, 100), ({"max.block.ms": 200}, 200)):
        with pytest.raises(KafkaError, match=f"no metadata of topic 'nowhere' within {waited_ms} ms"):
            target(served, "nowhere", **config).require_topic()
    with pytest.raises(KafkaError, match="no metadata of topic 'nowhere' within 100 ms"):
        TopicDatasink("nowhere", bootstrap_servers=served.plain).on_write_start()
    with pytest.raises(KafkaError, match="no metadata of topic 'nowhere' within 100 ms"):
        ExactlyOnceSink("nowhere", bootstrap_servers=served.plain)


def test_a_topic_that_brokers_create_by_themselves_is_created_by_a_write(tmp_path: Path) -> None:
    config = {"listeners": "PLAINTEXT://localhost:0", "advertised.listeners": "PLAINTEXT://localhost:0"}
    with cluster_thread({**config, "auto.create.topics.enable": "true"}, tmp_path) as running:
        servers = f"localhost:{running.broker.endpoints['PLAINTEXT'].port}"
        ExactlyOnceSink("made", bootstrap_servers=servers)
        with AdminClient(bootstrap_servers=servers) as admin:
            assert [each.name for each in admin.list_topics()] == ["made"]


def refused(**arguments: Any) -> str:
    given = {"topic": "t", "bootstrap_servers": "b:9092", "client_config": None, "producer_config": None, **arguments}
    with pytest.raises(ConfigError) as raised:
        SinkTarget.of(given.pop("topic"), **given)
    return raised.value.message


def test_the_transactional_id_is_that_of_the_sink_in_the_properties_of_the_client_too() -> None:
    for exactly_once in (False, True):
        given = {"transactional.id": "mine"}
        assert refused(client_config=given, exactly_once=exactly_once) == "transactional.id: is chosen by the sink"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topic": ""}, "topic='': must be the name of a topic"),
        ({"topic": 5}, "topic=5: must be the name of a topic"),
        ({"bootstrap_servers": 5}, "bootstrap.servers=5: must be text, such as host:port"),
        ({"producer_config": "acks=all"}, "producer_config must be a mapping of Kafka's keys, such as "),
        ({"producer_config": {5: "x"}}, "5: the key of a configuration must be text"),
        ({"client_config": [("acks", "all")]}, "the properties of a client must be a mapping of Kafka's keys"),
    ],
)
def test_arguments_of_a_wrong_type_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    assert refused(**arguments).startswith(message)
