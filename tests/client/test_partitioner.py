"""Keys go to the partitions of Kafka's default partitioner, or to those of their priority."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from raylog.client.partitioner import partition_for_key
from raylog.client.producer.partitioners import PriorityPartitioner
from raylog.core.errors import ConfigError, KafkaError
from raylog.protocol.records.record_encoding import murmur2


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # Kafka's own UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafka(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_the_hash_is_that_of_other_clients(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_key_has_one_partition(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_for_key(key, partition_count) < partition_count


class TestPriorities:
    def made(self, **shares: int) -> PriorityPartitioner:
        return PriorityPartitioner(shares, lambda topic, key, value: (value or b"").decode())

    @given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(0, 60))
    def test_every_partition_belongs_to_one_of_them(self, weights: list[int], spare: int) -> None:
        shares = {f"p{number}": weight for number, weight in enumerate(weights)}
        count = len(weights) + spare
        found = [self.made(**shares).partitions(name, count) for name in shares]
        assert [partition for each in found for partition in each] == list(range(count))
        for weight, each in zip(weights, found, strict=True):
            assert abs(len(each) - 1 - spare * weight / sum(weights)) <= 1

    def test_a_record_goes_to_the_range_of_its_priority(self) -> None:
        partitioner = self.made(high=1, low=3)
        assert (partitioner.partitions("high", 8), partitioner.partitions("low", 8)) == (range(2), range(2, 8))
        assert partitioner("t", None, b"high", 8) in range(2)
        assert partitioner("t", None, b"low", 8) in range(2, 8)
        key = b"key"
        assert partitioner("t", key, b"low", 8) == 2 + partition_for_key(key, 6)

    def test_what_cannot_be_divided(self) -> None:
        with pytest.raises(ConfigError):
            self.made()
        with pytest.raises(ConfigError):
            self.made(high=0)
        with pytest.raises(KafkaError, match="must be one of high, low"):
            self.made(high=1, low=1)("t", None, b"middle", 8)
        with pytest.raises(KafkaError, match="1 partitions cannot be divided among 2"):
            self.made(high=1, low=1)("t", None, b"high", 1)
