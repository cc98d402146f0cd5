"""kafka-python's own integration tests of admin, consumer and producer pass (docs/kafka-python-suite.md)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.environment import without_ray

pytestmark = pytest.mark.compat

SUITE = Path(__file__).parents[2] / "script" / "kafka-python-suite"
PASSED_MIN = 54
"""As many as pass on Apache Kafka."""


def test_all_tests_pass() -> None:
    environment = without_ray()
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # short, for the sockets in it
        environment["RAY_TMPDIR"] = folder
        ran = subprocess.run([SUITE], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert sum(map(int, re.findall(r"(\d+) passed", ran.stdout))) >= PASSED_MIN
