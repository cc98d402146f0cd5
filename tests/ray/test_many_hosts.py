"""On three hosts, one host is lost with its brokers and controllers and returns; then all of Ray is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.ray.many_hosts import MORE

pytestmark = [pytest.mark.ray]
QUICK_CHECKS = {"RAY_health_check_initial_delay_ms": "300", "RAY_health_check_period_ms": "300"}
"""Ray notices a killed node after five checks that fail; by default that takes it 15 s."""


def test_one_host_is_lost_and_then_all_of_ray(tmp_path: Path) -> None:
    """It has a Ray of three nodes, in a process of its own; another one judges what it has written and read."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    ledger = tmp_path / "ledger"
    program = [sys.executable, "-m", "tests.ray.many_hosts", str(tmp_path / "data"), str(ledger)]
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # short, for the sockets in it
        environment |= {"RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder} | QUICK_CHECKS
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if "|FAIL|" not in line]  # librdkafka's lost connections
    assert done.returncode == 0, "\n".join(told)[-5000:]
    judge = [sys.executable, "-m", "tests.support.record_ledger", str(ledger), "--least", str(4 * MORE)]
    judged = subprocess.run(judge, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stderr
