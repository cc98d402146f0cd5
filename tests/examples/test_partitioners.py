"""Each partitioner of the example puts records where it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from examples.partitioners import PARTITIONS, RECORDS, WAYS, partitions_of, priorities
from tests.support.cluster_thread import cluster_thread

HASH, STICKY, ROUND_ROBIN, FUNCTION, PRIORITY = WAYS


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_thread({}, tmp_path_factory.mktemp("partitioners")) as running:
        yield running.bootstrap_servers


def found(servers: str, way: str) -> dict[bytes, Counter[int]]:
    by_key = partitions_of(servers, f"topic-{list(WAYS).index(way)}", WAYS[way])
    assert sum(sum(counter.values()) for counter in by_key.values()) == RECORDS
    return by_key


def total(by_key: dict[bytes, Counter[int]]) -> Counter[int]:
    return sum(by_key.values(), Counter[int]())


def test_by_hash_each_key_has_one_partition(servers: str) -> None:
    assert all(len(counter) == 1 for counter in found(servers, HASH).values())


def test_by_open_batch_the_key_has_no_say(servers: str) -> None:
    assert any(len(counter) > 1 for counter in found(servers, STICKY).values())


def test_in_turn_all_partitions_get_as_much(servers: str) -> None:
    assert set(total(found(servers, ROUND_ROBIN)).values()) == {RECORDS // PARTITIONS}


def test_by_function(servers: str) -> None:
    for key, counter in found(servers, FUNCTION).items():
        assert list(counter) == [int(key.split(b"-")[1]) % PARTITIONS]


def test_by_priority_urgent_records_have_their_own_partitions(servers: str) -> None:
    urgent = set(priorities.partitions("urgent", PARTITIONS))
    counts = total(found(servers, PRIORITY))
    assert sum(counts[partition] for partition in urgent) == RECORDS // 10
