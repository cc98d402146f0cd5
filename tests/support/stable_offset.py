"""Waits for the markers of transactions: a producer's commit or abort ends when the coordinator has decided it."""

from __future__ import annotations

import time

from raylog.client.admin.partitions import OffsetSpec
from raylog.core.ids import TopicPartition
from tests.support.hang import HANG_SECONDS
from tests.support.raw_client import RawClient


def wait_until_stable(bootstrap_servers: str, topic: str) -> None:
    """Until no transaction is open in partition 0 of the topic."""
    tp = TopicPartition(topic, 0)
    deadline = time.monotonic() + HANG_SECONDS
    with RawClient(bootstrap_servers, client_id="test") as client:
        while client.offset_for(tp, OffsetSpec.LATEST, committed=True) < client.offset_for(tp, OffsetSpec.LATEST):
            assert time.monotonic() < deadline, f"a transaction in {tp} does not end"
            time.sleep(0.01)
