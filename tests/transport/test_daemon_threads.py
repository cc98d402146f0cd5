"""Work that never ends delays neither other work nor the end."""

from __future__ import annotations

import threading
from functools import partial

from raylog.transport.daemon_threads import DaemonThreads
from tests.support.hang import HANG_SECONDS


def test_work_is_begun_in_order_by_so_many_threads() -> None:
    threads = DaemonThreads(2, name="test")
    release, ended = threading.Event(), threading.Event()
    begun: list[int] = []

    def hang() -> None:
        release.wait()
        ended.set()

    threads.submit(hang)
    for number in range(5):
        threads.submit(partial(begun.append, number))
    last = threading.Event()
    threads.submit(last.set)
    assert last.wait(HANG_SECONDS)
    assert begun == [0, 1, 2, 3, 4]
    assert not ended.is_set()
    release.set()
    assert ended.wait(HANG_SECONDS)


def test_a_shutdown_waits_for_nothing_and_begins_nothing_more() -> None:
    threads = DaemonThreads(1, name="test of a shutdown")
    release, hanging, after = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        release.wait()

    threads.submit(hang)
    assert hanging.wait(HANG_SECONDS)
    threads.submit(after.set)
    threads.shutdown()
    [thread] = [each for each in threading.enumerate() if each.name == "test of a shutdown"]
    assert thread.daemon
    release.set()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
    assert not after.is_set()
