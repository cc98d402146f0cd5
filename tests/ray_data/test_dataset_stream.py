"""Topics are returned as bounded Datasets; a batch that was not committed is returned again with the same offsets."""

from __future__ import annotations

from typing import Any

import pytest

import raylog
from raylog.client.producer.producer import producer_of
from raylog.raydp_bridge import dataset_stream
from raylog.raydp_bridge.dataset_stream import DatasetBatch, DatasetStream

pytestmark = pytest.mark.ray


def write(servers: str, topic: str, values: range) -> None:
    with raylog.Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=value % 2)


def values_of(batch: DatasetBatch) -> list[int]:
    return sorted(int(row["value"]) for row in batch.dataset.take_all())


def stream(servers: str, topic: str | list[str], **more: object) -> DatasetStream:
    given = {"group_id": f"of-{topic}", "columns": ["value"], "stop_at_latest": True, **more}
    return raylog.stream_datasets(topic, bootstrap_servers=servers, **given)  # type: ignore[arg-type]


def test_batches_follow_one_another_and_end_at_the_latest_offsets(servers: str, topic: str) -> None:
    write(servers, topic, range(10))
    found = []
    with stream(servers, topic, max_offsets_per_batch=4) as batches:
        for batch in batches:
            write(servers, topic, range(10, 12))  # after the end of this stream
            found.append((batch.batch_id, values_of(batch)))
            batch.commit()
    assert [number for number, _ in found] == list(range(len(found)))
    assert all(0 < len(values) <= 4 for _, values in found)
    assert sorted(value for _, values in found for value in values) == list(range(10))


def test_a_batch_that_is_not_committed_comes_again(servers: str, topic: str) -> None:
    write(servers, topic, range(10))
    with stream(servers, topic) as batches:
        next(batches).commit()
    write(servers, topic, range(10, 20))
    with stream(servers, topic) as batches:
        first = next(batches)
        with pytest.raises(raylog.KafkaError, match="batch 1: must be committed before the next"):
            next(batches)
    write(servers, topic, range(20, 30))
    with stream(servers, topic) as batches:
        again = next(batches)
        assert (again.batch_id, again.ranges) == (first.batch_id, first.ranges) == (1, first.ranges)
        assert values_of(again) == list(range(10, 20))
        again.commit()
        assert values_of(next(batches)) == list(range(20, 30))


def test_a_newer_stream_has_the_batch_and_fences_the_older(servers: str, topic: str) -> None:
    write(servers, topic, range(10))
    with stream(servers, topic) as old, stream(servers, topic) as new:
        held = next(old)
        taken = next(new)
        assert taken.ranges == held.ranges
        with pytest.raises(raylog.FencedError):
            held.commit()
        taken.commit()
        with pytest.raises(raylog.KafkaError, match="batch 0: is committed already"):
            taken.commit()
        assert list(new) == []


def test_a_group_that_starts_at_the_latest_offset_misses_nothing_that_follows(servers: str, topic: str) -> None:
    write(servers, topic, range(10))
    assert list(stream(servers, topic, starting_offsets="latest")) == []
    write(servers, topic, range(10, 14))
    with stream(servers, topic, starting_offsets="latest") as batches:
        assert values_of(next(batches)) == list(range(10, 14))


def test_several_topics_and_partitions_that_are_added(servers: str, topic: str) -> None:
    other = f"{topic}-b"
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics(raylog.NewTopic(other, num_partitions=2))
        write(servers, topic, range(10))
        write(servers, other, range(100, 104))
        with stream(servers, [topic, other], group_id=topic) as batches:
            batch = next(batches)
            assert values_of(batch) == [*range(10), *range(100, 104)]
            batch.commit()
        admin.create_partitions({other: 3})
        with raylog.Producer(bootstrap_servers=servers) as producer:
            producer.send(other, b"7", partition=2)
        with stream(servers, [topic, other], group_id=topic) as batches:
            assert values_of(next(batches)) == [7]


def test_deleted_records_are_an_error_or_a_warning(servers: str, topic: str) -> None:
    write(servers, topic, range(10))
    with stream(servers, topic, max_offsets_per_batch=2) as batches:
        next(batches).commit()
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        admin.delete_records({raylog.TopicPartition(topic, 0): 3})
    with (
        stream(servers, topic) as batches,
        pytest.raises(raylog.KafkaError, match=f"{topic}-0: offset 1 no longer exists"),
    ):
        next(batches)
    with stream(servers, topic, fail_on_data_loss=False) as batches:
        assert values_of(next(batches)) == [3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"group_id": ""}, "group_id"),
        ({"group_id": 5}, "group_id=5"),
        ({"max_offsets_per_batch": "5"}, "max_offsets_per_batch='5'"),
        ({"poll_interval_ms": "5"}, "poll_interval_ms='5'"),
        ({"stop_at_latest": "false"}, "stop_at_latest='false'"),
        ({"concurrency": "2"}, "concurrency='2'"),
        ({"max_offsets_per_batch": 0}, "max_offsets_per_batch=0"),
        ({"poll_interval_ms": float("inf")}, "poll_interval_ms=inf"),
        ({"poll_interval_ms": float("nan")}, "poll_interval_ms=nan"),
        ({"starting_offsets": {0: -5}}, "starting_offsets"),
        ({"columns": ["price"]}, "price"),
        ({"min_partitions": 1 << 40}, "1099511627776"),
    ],
)
def test_arguments_that_cannot_be_right_are_refused_at_once(given: dict[str, object], said: str) -> None:
    with pytest.raises(raylog.ConfigError, match=said):
        stream("127.0.0.1:1", "orders", **given)


def test_brokers_that_cannot_be_reached_are_an_error_and_leave_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[raylog.Producer] = []

    def make(*arguments: Any, **settings: Any) -> raylog.Producer:
        made.append(producer_of(*arguments, **settings))
        return made[-1]

    monkeypatch.setattr(dataset_stream, "producer_of", make)
    properties = {"max.block.ms": 200, "socket.connection.setup.timeout.ms": 100}
    with stream("127.0.0.1:1", "orders", client_config=properties) as batches:
        for _ in range(2):
            with pytest.raises(raylog.KafkaError):
                next(batches)
    assert len(made) == 2
    for producer in made:
        with pytest.raises(raylog.KafkaError, match="is closed"):
            producer.begin_transaction()


def test_a_topic_that_does_not_exist_is_an_error(servers: str) -> None:
    with stream(servers, "nowhere") as batches, pytest.raises(raylog.KafkaError, match="nowhere: does not exist"):
        next(batches)
