"""raylog's producer behaves the same where it reaches the brokers by their actors: its suite, run over that door."""

from __future__ import annotations

import pytest

from tests.client import conftest
from tests.client import test_producer as suite
from tests.ray.closed_cluster import ClosedCluster, portable_tests

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

USUAL = ("test_acks", "test_many_records_in_one_call", "test_a_batch_that_the_broker_refuses")

make = conftest.make
globals().update(portable_tests(suite, USUAL))


@pytest.fixture
def target(closed_cluster: ClosedCluster) -> ClosedCluster:
    return closed_cluster
