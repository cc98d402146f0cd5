"""(shell) Waits for a condition by polling."""

from __future__ import annotations

import time
from collections.abc import Callable

from raylog.core.errors import ErrorCode, KafkaError

POLL_SECONDS = 0.1


def wait_until_not(trouble: Callable[[], str], done: str, deadline: float) -> None:
    """Poll `trouble`, which names what is still missing, until it is empty: neither Ray nor Kafka sends notifications.

    `deadline` is on the monotonic clock, in seconds. Raises KafkaError(REQUEST_TIMED_OUT) that contains `done`.
    """
    while what := trouble():
        if time.monotonic() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{done}, but {what}")
        time.sleep(POLL_SECONDS)
