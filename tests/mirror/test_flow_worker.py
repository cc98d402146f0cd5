"""A flow copies what readers of the source see, in order, and goes on after every disturbance."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from tests.client.served import Target
from tests.mirror.flows import create, ends, flow_between, running, seen

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MODES = pytest.mark.parametrize("mode", ["disabled", "enabled"], ids=["at-least-once", "exactly-once"])


def produce(target: Target, topic: str, values: list[Any], partition: int = 0, codec: str = "none") -> None:
    """By librdkafka, in one batch."""
    producer = Producer({"bootstrap.servers": target.plain, "linger.ms": 5, "compression.type": codec})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"k%d" % number, partition=partition, timestamp=1_000 + number)
    assert producer.flush(20) == 0


@MODES
def test_every_kind_of_record_arrives_as_it_was(east: Target, west: Target, mode: str) -> None:
    topic = east.new_topic(2)
    create(west, f"A.{topic}", 2)
    for codec in CODECS:
        produce(east, topic, [f"{codec}-{number}" * 20 for number in range(30)], codec=codec)
    producer = Producer({"bootstrap.servers": east.plain, "transactional.id": f"t-{topic}"})
    producer.init_transactions(20)
    for name, ends_by in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, f"{name}-{number}", partition=1)
        producer.flush(20)
        ends_by(20)
    produce(east, topic, [None, b"", b"x"], partition=1)
    producer = Producer({"bootstrap.servers": east.plain})
    producer.produce(topic, b"v", None, 1, headers=[("h", b"1"), ("h", None), ("\u00e9", b"")], timestamp=7)
    assert producer.flush(20) == 0
    with running(flow_between(east, west, topics=topic, exactly_once_source_support=mode)) as flow:
        flow.wait_for_end(topic, ends(east, topic, 2))
        assert [each.lag for each in flow.status().partitions] == [0, 0]
    for partition, count in ((0, 150), (1, 9 if mode == "enabled" else 14)):
        level = "read_committed" if mode == "enabled" else "read_uncommitted"
        source = seen(east, topic, partition, isolation=level)
        assert len(source) == count
        assert seen(west, f"A.{topic}", partition) == source


def test_a_worker_that_takes_over_copies_each_record_once_also_if_the_former_one_goes_on(
    east: Target, west: Target
) -> None:
    topic = east.new_topic()
    create(west, f"A.{topic}")
    flow = flow_between(east, west, topics=topic, exactly_once_source_support="enabled")
    produce(east, topic, [b"%d" % number for number in range(50)])
    with running(flow, commit_interval_ms=2_000) as former:
        former.wait(lambda status: len(seen(west, f"A.{topic}", isolation="read_uncommitted")) == 50)
        former.freeze()  # in a transaction
        produce(east, topic, [b"later %d" % number for number in range(50)])
        with running(flow) as latter:
            latter.wait_for_end(topic, ends(east, topic))
            former.thaw()
            former.wait(lambda status: status.errors)
    assert seen(west, f"A.{topic}") == seen(east, topic)
