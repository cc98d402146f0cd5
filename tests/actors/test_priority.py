"""A node that Ray has started at niceness 15 raises itself where it may, with all its threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, threading
from raylog.actors.priority import raise_priority

os.nice(15)
ended = threading.Event()
thread = threading.Thread(target=ended.wait)
thread.start()
os.setpriority = {setpriority}
found = raise_priority()
print(found, *[os.getpriority(os.PRIO_PROCESS, int(name)) for name in os.listdir("/proc/self/task")])
ended.set()
"""


def niceness(*, setpriority: str = "os.setpriority") -> str:
    program = PROGRAM.format(setpriority=setpriority)
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower the niceness of a process")
def test_every_thread_is_raised() -> None:
    assert niceness() == "0 0 0"


def test_without_permission_it_stays() -> None:
    refused = "lambda *_: (_ for _ in ()).throw(PermissionError())"
    assert niceness(setpriority=refused) == "15 15 15"
