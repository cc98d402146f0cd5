"""The view of a customer has every event of each of the three producers."""

from __future__ import annotations

from pathlib import Path

from examples.customer_360 import Customer, run
from tests.support.cluster_thread import cluster_thread


def test_the_view(tmp_path: Path) -> None:
    with cluster_thread({"group.initial.rebalance.delay.ms": 0}, tmp_path) as running:
        customers = run(running.bootstrap_servers)
    assert sorted(customers) == [f"customer-{number}" for number in range(10)]
    assert all(customer.visits == 100 for customer in customers.values())
    assert customers["customer-3"] == Customer(
        visits=100,
        cents=sum(100 * number for number in range(3, 50, 5)),
        articles=[f"article-{number}" for number in range(3, 50, 5)],
        tickets=["where is my parcel?"],
    )
    assert customers["customer-7"].tickets == ["I forgot my password"]
