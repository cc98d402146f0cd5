"""`raylog events` prints the same events as text and as JSON."""

from __future__ import annotations

import json

from raylog.cli.events import as_json, as_text
from raylog.core.journal import JournalEvent

EVENTS = {
    "broker-0": [JournalEvent(1_700_000_000_250, "partition led", {"tp": "t-0", "leader_epoch": "4"})],
    "controller-0": [],
}


def test_text() -> None:
    assert (
        as_text(EVENTS) == "broker-0:\n  2023-11-14T22:13:20.250Z partition led tp=t-0 leader_epoch=4\n\ncontroller-0:"
    )


def test_json() -> None:
    assert json.loads(as_json(EVENTS)) == {
        "broker-0": [
            {"time_ms": 1_700_000_000_250, "event": "partition led", "fields": {"tp": "t-0", "leader_epoch": "4"}}
        ],
        "controller-0": [],
    }
