"""`raylog console` serves until it is interrupted, and says in one line why it cannot."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from raylog.cli.main import main
from raylog.client.client_config import ClientConfig
from raylog.console.application import ConsoleOptions
from tests.console.conftest import Served
from tests.support.certificates import Certificates
from tests.support.console_thread import Browser, console_thread
from tests.support.hang import HANG_SECONDS

READY = "raylog console is ready: "


def test_it_serves_until_a_signal(served: Served) -> None:
    options = ["--port", "0", "--title", "shop", "--read-only", "-b", served.bootstrap_servers]
    command = [sys.executable, "-m", "raylog.cli.main", "console", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(READY)
            found = Browser(line.removeprefix(READY).strip()).open()
            assert (found["title"], found["read_only"], found["open"]) == ("shop", True, True)
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANG_SECONDS) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "203.0.113.7"], "203.0.113.7:8080: Cannot assign requested address"),
        (["--port", "70000"], "70000"),
        (["--command-config", "none.properties"], "none.properties: No such file or directory"),
    ],
)
def test_why_it_cannot(served: Served, options: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["console", *options, "-b", served.bootstrap_servers]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_a_key_needs_its_certificate(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["console", "--tls-key", "key.pem"])
    assert ended.value.code == 2
    assert "--tls-certificate and --tls-key: must be given together" in capfd.readouterr().err


def test_it_serves_over_tls_only_with_its_files(
    served: Served, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = ["--tls-certificate", str(tmp_path / "none.crt"), "--tls-key", str(tmp_path / "none.key")]
    assert main(["console", "--port", "0", *files, "-b", served.bootstrap_servers]) == 1
    assert "none.crt" in capfd.readouterr().err
    Certificates.new(tmp_path).issue("page", "localhost")
    certificate, key = (str(tmp_path / f"page.{end}") for end in ("crt", "key"))
    config = ClientConfig(served.bootstrap_servers)
    with console_thread(ConsoleOptions(config, certificate=certificate, key=key)) as url:
        assert url.startswith("https://")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with urlopen(f"{url}/api/session", context=context) as response:
            assert "; Secure" in response.headers["set-cookie"]
