"""raylog's consumer behaves the same where it reaches the brokers by their actors: its suite, run over that door."""

from __future__ import annotations

import pytest

from tests.client import test_consumer as suite
from tests.ray.closed_cluster import ClosedCluster, portable_tests

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]

USUAL = (
    "test_poll_returns_at_most_what_was_asked_for",
    "test_a_paused_partition_is_not_returned",
    "test_isolation_levels",
    "test_offsets_are_committed_and_used",
    "test_a_group_with_librdkafka",
)

make = suite.make
globals().update(portable_tests(suite, USUAL))


@pytest.fixture
def target(closed_cluster: ClosedCluster) -> ClosedCluster:
    return closed_cluster
