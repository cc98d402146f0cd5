"""A cluster that refuses the mirror's login is named by its alias: in the status, the log and what commands print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.cli.main import main
from raylog.cli.mirror import table
from raylog.mirror.config import parse_mirror_config
from raylog.mirror.flow_status import FlowStatus
from tests.mirror.flows import running
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import wait_until

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} user_mirror="right";',
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
REFUSED = "SASL_AUTHENTICATION_FAILED"


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningCluster]]:
    folder = tmp_path_factory.mktemp("logins")
    with cluster_thread(CONFIG, folder / "east") as east, cluster_thread(CONFIG, folder / "west") as west:
        both = {"east": east, "west": west}
        with running(parse_mirror_config(file_with_wrong_password(both, None)).flows[0]) as run:
            wait_until(lambda: run.worker.shard_count is not None)  # failover asks for what is copied first
        yield both


def file_with_wrong_password(clusters: dict[str, RunningCluster], refusing: str | None, *more: str) -> str:
    lines = ["clusters = east, west", "east->west.enabled = true", "emit.heartbeats.interval.seconds = 1", *more]
    for alias, cluster in clusters.items():
        password = "wrong" if alias == refusing else "right"
        lines += [
            f"{alias}.bootstrap.servers = {cluster.bootstrap_servers}",
            f"{alias}.security.protocol = SASL_PLAINTEXT",
            f"{alias}.sasl.mechanism = PLAIN",
            f'{alias}.sasl.jaas.config = {MODULE} username="mirror" password="{password}";',
        ]
    return "\n".join([*lines, "replication.factor = 1"])


def refusals(status: FlowStatus) -> list[str]:
    """The lines of `raylog mirror status` about refused logins."""
    actor = SimpleNamespace(number=0, state="running", metrics="", flows=[status])
    return [line for line in table([cast("Any", actor)]).splitlines() if REFUSED in line]


@pytest.mark.parametrize("refusing", ["east", "west"])
def test_the_status_and_the_log_of_a_flow_name_the_cluster(
    clusters: dict[str, RunningCluster], refusing: str, caplog: pytest.LogCaptureFixture
) -> None:
    (flow,) = parse_mirror_config(file_with_wrong_password(clusters, refusing)).flows
    with running(flow) as run:
        run.wait(lambda status: status.errors and any(each.task == "topics" and each.error for each in status.control))
        shown = refusals(run.status())
    assert len(shown) >= 2
    assert all(f"{REFUSED}: cluster {refusing}: Authentication failed" in line for line in shown), shown
    logged = [str(vars(each).get("reason", "")) for each in caplog.records if each.name == "raylog.mirror"]
    refused = [reason for reason in logged if reason.startswith(REFUSED)]
    assert refused
    assert all(reason.startswith(f"{REFUSED}: cluster {refusing}: ") for reason in refused), refused


@pytest.mark.parametrize(("command", "refusing"), [("failover", "east"), ("failover", "west"), ("failback", "east")])
def test_commands_name_the_cluster(
    clusters: dict[str, RunningCluster],
    command: str,
    refusing: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(file_with_wrong_password(clusters, refusing, "admin.timeout.ms = 5000"))
    main(["mirror", command, "--config", str(file)])
    printed = capsys.readouterr()
    assert f"{REFUSED}: cluster {refusing}: Authentication failed" in printed.out + printed.err
