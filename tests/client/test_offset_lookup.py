"""A look-up of offsets that is too late says why: of a partition without a leader, too."""

from __future__ import annotations

import pytest

from raylog.client.consumer.offset_lookup import OffsetLookup
from raylog.client.network_client import NetworkClient
from raylog.core.clock import Now
from raylog.core.errors import ErrorCode
from raylog.core.ids import NO_BROKER_ID, TopicPartition
from tests.client.test_network_client import SETTINGS, NoChance, shown

LATEST, DEADLINE_MS = -1, 60_000


@pytest.mark.parametrize(
    ("error_code", "reported"),
    [
        (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_it_reports_why_there_is_no_leader(error_code: ErrorCode, reported: ErrorCode) -> None:
    network = NetworkClient([("h", 1)], SETTINGS, NoChance())
    network.metadata.want(["t"])
    network.metadata.answered(shown([1], leader=NO_BROKER_ID, error=error_code), Now(0, 0))
    lookup = OffsetLookup(network, {TopicPartition("t", 0): LATEST}, DEADLINE_MS, committed=False)
    for at_ms in (0, DEADLINE_MS):
        lookup.run(Now(at_ms, 0))
    assert lookup.error is not None
    assert lookup.error.code is reported
    assert lookup.error.message == f"t-0: {reported.sentence}"
