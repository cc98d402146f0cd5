"""How long the tests of whole processes wait for what must happen.

It ends a hang and says nothing about speed: on a busy machine the start of a Ray alone may take a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_SECONDS = 300.0


def wait_until(is_so: Callable[[], object], what: Callable[[], object] = lambda: "", *, pause: float = 0.05) -> None:
    """Raises AssertionError with the result of `what` if `is_so` is not true within HANG_SECONDS."""
    deadline = time.monotonic() + HANG_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, str(what())  # pytest shortens all but strings
        time.sleep(pause)
