"""Exactly-once consume, transform, produce: orders become prices, while the actors that price them are killed.

    python -m examples.pricing

Each order must have one price in the end, whatever was killed and whenever.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections import Counter
from typing import Any

import raylog

CLUSTER = "totals"
SERVERS = f"ray://{CLUSTER}"
ORDERS, PRICES = "orders", "prices"
PARTITIONS, WORKERS = 4, 2
PRICE = {"coffee": 3, "cake": 4}
DIES_AT = 20
"""The number of the order at which an actor kills itself, when it sees it for the first time."""


class Pricer:
    """Returns what is to be produced. It kills its process once, after other orders were priced and before a commit."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def __call__(self, order: raylog.ConsumerRecord) -> Any:
        if order.key == b"%d" % DIES_AT and not os.path.exists(self._mark):
            open(self._mark, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        count, what = order.value.decode().split()
        return raylog.OutputRecord(str(int(count) * PRICE[what]), order.key)


def write_orders(count: int) -> None:
    with raylog.Producer(bootstrap_servers=SERVERS) as producer:
        for number in range(count):
            producer.send(ORDERS, f"{1 + number % 5} {'cake' if number % 2 else 'coffee'}", str(number))


def price_all(mark: str, count: int) -> raylog.Progress:
    """Run the pool until it has priced `count` orders."""
    with raylog.process(
        ORDERS,
        Pricer,
        arguments={"mark": mark},
        bootstrap_servers=SERVERS,
        group_id="pricing",
        concurrency=WORKERS,
        output=PRICES,
        delivery="exactly_once",
    ) as pool:
        while read_prices().total() < count:
            pool.wait(0.2)  # raises if the pool has failed
        return pool.stop()


def read_prices() -> Counter[bytes]:
    """How many prices each order has, of those that are committed."""
    with raylog.Consumer(bootstrap_servers=SERVERS, auto_offset_reset="earliest") as consumer:
        partitions = [(PRICES, number) for number in consumer.partitions_for_topic(PRICES)]
        consumer.assign(partitions)
        found: Counter[bytes] = Counter()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found.update(record.key for record in consumer.poll())
        return found


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(prog="python -m examples.pricing")
    parser.add_argument("--orders", type=int, default=10_000)
    count = parser.parse_args().orders
    config = {"num.partitions": PARTITIONS, "group.initial.rebalance.delay.ms": 0}
    with raylog.start(CLUSTER, config=config), tempfile.TemporaryDirectory() as folder:
        write_orders(count)
        with raylog.Producer(bootstrap_servers=SERVERS) as producer:
            producer.partitions_for(PRICES)  # creates the topic
        progress = price_all(os.path.join(folder, "died"), count)
        prices = read_prices()
    print(f"{count:,} orders, {len(prices):,} with a price, {prices.total() - len(prices)} priced twice")
    print(f"actors restarted: {progress.restarts}")


if __name__ == "__main__":
    main()
