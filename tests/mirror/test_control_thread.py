"""The control of a flow goes on after whatever fails, and shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from raylog.mirror import control_thread
from raylog.mirror.config import mirror_config
from raylog.mirror.control import FlowControl
from raylog.mirror.control_thread import ControlThread
from tests.support.hang import wait_until


def test_an_unexpected_error_is_shown_and_the_control_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    repaired = threading.Event()

    def run_due(control: FlowControl, now_ms: int, stopping: Callable[[], bool]) -> int:
        if not repaired.is_set():
            raise ZeroDivisionError
        return now_ms + 10

    monkeypatch.setattr(control_thread, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(FlowControl, "run_due", run_due)
    servers = {"A.bootstrap.servers": "localhost:1", "B.bootstrap.servers": "localhost:1"}
    thread = ControlThread(mirror_config({"clusters": "A, B", **servers}).pairs[0], on_topics=lambda: None)
    thread.start()
    try:
        wait_until(lambda: [each.error for each in thread.status()] == ["ZeroDivisionError()"], thread.status)
        repaired.set()
        wait_until(lambda: [each.error for each in thread.status()] == [None, None], thread.status)
    finally:
        thread.stop()
        thread.join(10)
