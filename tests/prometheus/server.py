"""A Prometheus of its own that scrapes a cluster once a second, and is asked through its HTTP API."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port

MONITORING = Path(__file__).resolve().parent.parent.parent / "docs" / "monitoring"
SHORT = (
    (r"\bfor: \w+", "for: 2s"),
    (r"\[5m\]", "[10s]"),
    (r"lag_seconds\) > 300", "lag_seconds) > 4"),
    (r"age_seconds\) > 300", "age_seconds) > 4"),
)
"""Prometheus' rules wait for minutes; here the same rules wait for seconds."""


def why_not() -> str:
    """Why there is no Prometheus; empty if there is one."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"{', '.join(missing)} is not installed: script/prometheus" if missing else ""


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series now."""
        found = self._get("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def value(self, expression: str) -> float:
        """Of the only series; -1 if there is none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else -1.0

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self._get("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"{what}; firing: {self.firing()}"
            time.sleep(0.5)

    def _get(self, path: str, **parameters: str) -> Any:
        with urlopen(f"{self._url}/{path}?{urlencode(parameters)}", timeout=HANG_SECONDS) as response:
            return json.load(response)["data"]

    def is_up(self) -> bool:
        try:
            return bool(self.query("vector(1)"))
        except URLError:
            return False


@contextmanager
def prometheus(path: Path, targets: Sequence[str], *, discovery: str = "") -> Iterator[Prometheus]:
    """Runs until the end of the context, with the alert rules of the documentation, made short.

    `discovery` is a URL that lists further targets, for a job that keeps nothing but `raylog_node_info`.
    """
    rules = (MONITORING / "alerts.yml").read_text()
    for long, short in SHORT:
        assert re.search(long, rules), f"no rule has {long}"
        rules = re.sub(long, short, rules)
    (path / "alerts.yml").write_text(rules)
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "raylog", "static_configs": [{"targets": list(targets)}]}],
    }
    if discovery:
        kept = {"action": "keep", "source_labels": ["__name__"], "regex": "raylog_node_info"}
        config["scrape_configs"] += [
            {
                "job_name": "discovered",
                "http_sd_configs": [{"url": discovery}],
                "metric_relabel_configs": [kept],
            }
        ]
    (path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={path / 'prometheus.yml'}",
        f"--storage.tsdb.path={path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (path / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        server = Prometheus(port)
        deadline = time.monotonic() + HANG_SECONDS
        while not server.is_up():
            assert process.poll() is None, (path / "prometheus.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "Prometheus does not start"
            time.sleep(0.2)
        yield server
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)
