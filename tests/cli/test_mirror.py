"""`raylog mirror` refuses what is wrong with its file and its options, before it starts a Ray or asks a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.cli import mirror
from raylog.cli.main import main
from raylog.core.errors import ConfigError

FILE = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
ONE_FLOW, TWO_FLOWS = f"{FILE}A->B.enabled = true\n", f"{FILE}A->B.enabled = true\nB->A.enabled = true\n"


@pytest.mark.parametrize(
    ("text", "options", "refusal"),
    [
        (FILE, (), "clusters: no flow is enabled: set <source>-><target>.enabled=true"),
        (f"{ONE_FLOW}tasks.max = 1001\n", (), "tasks.max='1001': must be between 1 and 1000"),
        (ONE_FLOW, ("--metrics", "nowhere"), "metrics_address='nowhere': must be host:port"),
    ],
    ids=["no flow", "tasks", "metrics"],
)
def test_a_start_is_refused_before_ray_is_started(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    options: tuple[str, ...],
    refusal: str,
) -> None:
    def fail(address: str | None) -> None:
        pytest.fail("a Ray is started")

    monkeypatch.setattr(mirror, "join_or_start_ray", fail)
    monkeypatch.setattr(mirror, "use_token_file", lambda address: None)
    monkeypatch.setattr(mirror, "log_to_stderr", lambda: None)
    monkeypatch.setattr(mirror, "prepare_environment", lambda: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "mm2.properties"
    path.write_text(text)
    assert main(["mirror", "start", "--config", str(path), *options]) == 1
    assert refusal in capsys.readouterr().err


@pytest.mark.parametrize("command", ["failover", "failback"])
@pytest.mark.parametrize(
    ("text", "options", "refusal"),
    [
        (TWO_FLOWS, (), "--flow: must be given, since the file has several flows: A->B, B->A"),
        (TWO_FLOWS, ("--flow", "A->C"), "--flow=A->C: must be one of the flows A->B, B->A"),
        (ONE_FLOW, ("--flow", "B->A"), "--flow=B->A: must be one of the flows A->B"),
        (FILE, (), "clusters: no flow is enabled"),
    ],
    ids=["several flows", "no such flow", "not enabled", "no flow"],
)
def test_groups_are_moved_along_one_flow(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    text: str,
    options: tuple[str, ...],
    refusal: str,
) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(text)
    assert main(["mirror", command, "--config", str(path), *options]) == 1
    assert refusal in capsys.readouterr().err


def test_the_status_of_a_mirror_that_is_not_running_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(address: str | None) -> None:
        raise ConfigError("address='auto': cannot join this Ray")

    monkeypatch.setattr(mirror, "join_ray", refuse)
    monkeypatch.setattr(mirror, "prepare_environment", lambda: None)
    monkeypatch.setattr(mirror, "find_announced", lambda _: None)
    assert main(["mirror", "status", "--name", "mine"]) == 1
    assert "name='mine': no mirror of this user has this name; address='auto'" in capsys.readouterr().err
