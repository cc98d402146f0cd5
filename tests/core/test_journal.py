"""A journal keeps the last events, in order, and formats each as one line."""

from __future__ import annotations

from raylog.core.clock import Now
from raylog.core.journal import Journal


def test_the_oldest_event_is_dropped_for_the_newest() -> None:
    journal = Journal(events_max=3)
    for number in range(5):
        journal.note(Now(number, number), "happened", number=number)
    assert [event.fields["number"] for event in journal.events()] == ["2", "3", "4"]


def test_frequent_events_do_not_displace_rare_ones() -> None:
    journal = Journal(events_max=3)
    journal.note(Now(0, 0), "rare")
    for number in range(5):
        journal.note(Now(number, number), "frequent", number=number)
    journal.note(Now(9, 9), "rare")
    assert [event.event for event in journal.events()] == ["rare", "frequent", "frequent", "frequent", "rare"]


def test_the_story_has_one_line_per_event() -> None:
    journal = Journal()
    journal.note(Now(0, 1_700_000_000_250), "partition led", tp="t-0", leader_epoch=4)
    journal.note(Now(0, 1_700_000_001_000), "link lost", peer="broker-1")
    assert journal.story() == (
        "2023-11-14T22:13:20.250Z partition led tp=t-0 leader_epoch=4\n2023-11-14T22:13:21.000Z link lost peer=broker-1"
    )
