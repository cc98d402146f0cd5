"""`raylog mirror start` refuses what is wrong with its file before it starts a Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.cli import mirror
from raylog.cli.main import main


def test_a_file_without_an_enabled_flow_is_refused_before_ray_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(address: str | None) -> None:
        pytest.fail("a Ray is started")

    monkeypatch.setattr(mirror, "join_or_start_ray", fail)
    monkeypatch.setattr(mirror, "use_token_file", lambda address: None)
    monkeypatch.setattr(mirror, "log_to_stderr", lambda: None)
    monkeypatch.setattr(mirror, "prepare_environment", lambda: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "mm2.properties"
    path.write_text("clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n")
    assert main(["mirror", "start", "--config", str(path)]) == 1
    assert "clusters: no flow is enabled: set <source>-><target>.enabled=true" in capsys.readouterr().err
