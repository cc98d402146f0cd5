"""(shell) Waits for a condition by polling."""

from __future__ import annotations

import time
from collections.abc import Callable

from raylog.core.errors import ErrorCode, KafkaError

POLL_SECONDS = 0.1


def wait_until_done(unfinished: Callable[[], str], done: str, deadline: float) -> None:
    """Poll `unfinished` until it returns an empty string: neither Ray nor Kafka sends notifications.

    It returns what is still missing, for the error message.

    `deadline` is on the monotonic clock, in seconds. Raises KafkaError(REQUEST_TIMED_OUT) that contains `done`.
    """
    while what := unfinished():
        if time.monotonic() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{done}, but {what}")
        time.sleep(POLL_SECONDS)
