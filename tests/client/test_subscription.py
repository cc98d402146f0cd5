"""What a consumer reads, as a pure state."""

from __future__ import annotations

import pytest

from raylog.client.consumer.subscription import PartitionState, Subscription
from raylog.config.consumer import duration_ms
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition

TP = TopicPartition("t", 0)


def test_a_response_to_an_earlier_assignment_is_recognized() -> None:
    """Else records between two positions would be passed over: both have moved as often."""
    subscription = Subscription()
    asked = []
    for offset in (100, 50):
        subscription.assign([TP])
        state = subscription.state(TP)
        state.seek(offset)
        asked.append(state.moves)
        subscription.assign([])
    assert len(set(asked)) == 2


def test_what_stays_assigned_keeps_its_position() -> None:
    subscription = Subscription()
    subscription.assign([TP])
    subscription.state(TP).seek(7)
    subscription.assign([TopicPartition("a", 1), TP])
    assert subscription.state(TP).position == 7
    assert list(subscription.partitions) == [TopicPartition("a", 1), TP]
    with pytest.raises(KafkaError, match="b-0 is not assigned"):
        subscription.state(TopicPartition("b", 0))


def test_a_seek_ends_what_was_before() -> None:
    state = PartitionState(TP, stuck=True, asked=True, replica_id=3)
    state.seek(5)
    assert (state.position, state.stuck, state.asked, state.replica_id, state.fetchable) == (
        5,
        False,
        False,
        None,
        True,
    )
    state.seek_by("latest")
    assert not state.fetchable


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0S", 0),
        ("by_duration:P", None),
        ("by_duration:PT", None),
        ("by_duration:P1DT", None),
        ("by_duration:1h", None),
        ("by_duration:PT-1H", None),
        ("latest", None),
    ],
)
def test_durations(text: str, milliseconds: int | None) -> None:
    assert duration_ms(text) == milliseconds
