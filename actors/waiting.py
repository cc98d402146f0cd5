"""(shell) Waits until nothing is in the way any more."""

from __future__ import annotations

import time
from collections.abc import Callable

from raylog.core.errors import ErrorCode, KafkaError

POLL_SECONDS = 0.1


def wait_until_not(trouble: Callable[[], str], done: str, deadline: float) -> None:
    """Asks again and again what is in the way, until there is nothing: neither Ray nor the protocol tells by itself.

    `deadline` is of the monotonic clock, in seconds. Raises KafkaError(REQUEST_TIMED_OUT), which says what was `done`.
    """
    while what := trouble():
        if time.monotonic() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{done}, but {what}")
        time.sleep(POLL_SECONDS)
