"""Each order has one price, although an actor has died between its work and its commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import raylog
from examples.pricing import CLUSTER, DIES_AT, ORDERS, PARTITIONS, PRICES, price_all, read_prices, write_orders
from tests.compat.topics import create_topic

RECORDS = 400


@pytest.fixture
def cluster(ray_runtime: None) -> Iterator[raylog.Cluster]:
    with raylog.start(CLUSTER, config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        for topic in (ORDERS, PRICES):
            create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
        yield cluster


@pytest.mark.ray
def test_each_order_has_one_price(cluster: raylog.Cluster, tmp_path: Path) -> None:
    write_orders(RECORDS)
    progress = price_all(str(tmp_path / "died"), RECORDS)
    prices = read_prices()
    assert len(prices) == prices.total() == RECORDS
    assert prices[b"%d" % DIES_AT] == 1
    assert progress.restarts == 1
