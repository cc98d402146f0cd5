"""`raylog metrics --serve` shows the metrics of all nodes at one address, until a signal ends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest

from raylog.cli.main import main
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port

READY = "raylog metrics are ready: "


def test_it_shows_a_node_and_one_that_is_down(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("metrics")
    address = f"127.0.0.1:{free_port()}"
    with cluster_thread({"raylog.metrics.address": address}, folder):
        options = ["--serve", "127.0.0.1:0", "--target", f"broker-0={address}"]
        options += ["--target", f"broker-1=127.0.0.1:{free_port()}"]
        command = [sys.executable, "-m", "raylog.cli.main", "metrics", "--name", "shop", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line.startswith(READY)
                url = line.removeprefix(READY).strip()
                with urlopen(url, timeout=HANG_SECONDS) as response:
                    text = response.read().decode()
                with urlopen(url.replace("/metrics", "/targets"), timeout=HANG_SECONDS) as response:
                    shown = json.load(response)
                process.send_signal(signal.SIGTERM)
                assert process.wait(HANG_SECONDS) == 0
            finally:
                process.kill()
    assert 'raylog_node_up{node="broker-0"} 1.0\nraylog_node_up{node="broker-1"} 0.0\n' in text
    assert 'raylog_node_info{node="broker-0",cluster_id="' in text
    assert shown[0] == {"targets": [address], "labels": {"cluster": "shop", "node": "broker-0"}}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--target", "a=127.0.0.1:1"], 2, "--target: needs --serve, --otlp or --to-ray"),
        (["--serve", "127.0.0.1:1-2"], 2, "must be host:port"),
        (["--serve", "here"], 2, "must be host:port"),
        (["--serve", "127.0.0.1:0", "--target", "127.0.0.1:1"], 2, "must be key=value"),
        (["--serve", "127.0.0.1:0", "--target", "a=:1"], 2, "must be node=host:port"),
        (["--serve", "127.0.0.1:0", "--target", "a=127.0.0.1:99999"], 2, "must be host:port"),
        (["--serve", "203.0.113.7:1", "--target", "a=127.0.0.1:1"], 1, "--serve 203.0.113.7:1: cannot be used"),
    ],
)
def test_why_it_cannot(options: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        found = main(["metrics", *options])
    except SystemExit as error:
        found = int(str(error.code))
    assert found == code
    assert message in capsys.readouterr().err
