"""A client that a child made by fork has inherited says so; it does not wait for a thread that is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.client.served import Served

PROGRAM = Path(__file__).with_name("forked_clients.py")
ERROR = "each process needs clients of its own"


def test_inherited_clients_refuse_and_new_ones_work(served: Served) -> None:
    servers = str(served.settings("tcp")["bootstrap_servers"])
    command = [sys.executable, str(PROGRAM), servers, served.new_topic()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    calls = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    refused = ("result", "exception", "flush", "send", "close", "poll", "admin", "a table")
    assert {name: ERROR in calls[name] for name in refused} == dict.fromkeys(refused, True), calls
    assert calls["acknowledged before"] == calls["a producer of its own"] == "acknowledged"
    assert calls["parent"] == "acknowledged"
