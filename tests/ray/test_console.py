"""`raylog.start(console=True)`: an actor serves the console, comes back when it dies, and ends with the cluster."""

from __future__ import annotations

import http.client
import time
from pathlib import Path

import pytest
import ray

import raylog
from raylog.actors.client_files import PROPERTIES_FILE
from raylog.actors.names import GATEWAY_NAME, namespace_of
from raylog.config.properties import parse_properties
from raylog.core.errors import ConfigError
from raylog.security.sasl.jaas import parse_jaas
from tests.support.console_thread import Browser
from tests.support.environment import WITHOUT_COORDINATORS
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]


def test_a_secure_cluster_has_a_console_that_outlives_its_process(tmp_path: Path) -> None:
    port = free_port()
    root = tmp_path / "data"
    with raylog.start("seen", data_dir=str(root), secure=True, console=port, **WITHOUT_COORDINATORS) as cluster:
        assert cluster.console_url == f"http://127.0.0.1:{port}"
        browser = Browser(cluster.console_url)
        found = browser.open()
        assert (found["title"], found["login"], found["open"]) == ("seen", True, False)
        assert browser.get("/api/topics").status == 401
        jaas = parse_jaas(parse_properties((root / PROPERTIES_FILE).read_text())["sasl.jaas.config"]).options
        assert browser.log_in(jaas["username"], jaas["password"], "SCRAM-SHA-512").status == 200
        assert browser.post("/api/topics", name="orders").status == 200
        assert [each["id"] for each in browser.get("/api/overview").json["brokers"]] == [0]

        ray.kill(ray.get_actor(GATEWAY_NAME, namespace=namespace_of("seen")), no_restart=False)
        deadline = time.monotonic() + HANG_SECONDS
        while status_of(browser) != 401:  # the sessions end with the process
            assert time.monotonic() < deadline
        assert browser.log_in(jaas["username"], jaas["password"], "SCRAM-SHA-512").status == 200

        with pytest.raises(ConfigError, match=f"console: 127.0.0.1:{port}: Address already in use"):
            raylog.start("unseen", data_dir=str(tmp_path / "other"), console=port)
    assert cluster.console_url is None
    assert status_of(browser) == 0


def test_the_console_follows_a_change_of_the_configuration() -> None:
    with raylog.start("moving", console=True, **WITHOUT_COORDINATORS) as cluster:
        url = cluster.console_url
        assert url is not None
        port = free_port()
        cluster.rolling_restart(config={"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
        assert cluster.console_url == url
        browser = Browser(url)
        assert browser.open()["bootstrap_servers"] == f"127.0.0.1:{port}"
        assert [each["port"] for each in browser.get("/api/overview").json["brokers"]] == [port]

        cluster.rolling_restart(config={"listeners": f"SASL_SSL://127.0.0.1:{port}"}, secure=True)
        assert browser.open()["login"]
        jaas = parse_jaas(cluster.client_config["sasl.jaas.config"]).options
        assert browser.log_in(jaas["username"], jaas["password"], "SCRAM-SHA-512").status == 200
        assert browser.get("/api/overview").status == 200


def status_of(browser: Browser) -> int:
    """Of a request that needs a session; 0 if nothing answers."""
    try:
        return browser.get("/api/topics").status
    except (OSError, http.client.HTTPException):
        return 0


@pytest.mark.parametrize("console", [-1, 65_536])
def test_ports_that_do_not_exist(console: int) -> None:
    with pytest.raises(ConfigError, match=f"console={console}: must be True, False or a port"):
        raylog.start("unseen", console=console)
