"""`raylog start` reports when it is ready, is found from other shells, and cleans up when it ends."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from confluent_kafka.admin import AdminClient

from raylog.actors.cluster import Interruption
from raylog.cli.configuration import users
from raylog.cli.main import INTERRUPTED
from raylog.cli.start import data_directories, stop_on_signal
from raylog.core.errors import ConfigError
from tests.support.environment import without_ray
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port

COMMAND = [sys.executable, "-m", "raylog.cli.main"]
KAFKA_FILES = Path(__file__).parent.parent / "config" / "kafka_files"


def ray_processes_of(home: Path) -> list[str]:
    """Living processes that inherited our HOME: Ray's are its grandchildren, and lose their parent when it dies."""
    mark = f"HOME={home}".encode()
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def run(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """That of a user with an empty home and a temporary folder of his own, who has set nothing else for Ray."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # short, for the sockets in it
        yield without_ray() | {"HOME": str(tmp_path), "TMPDIR": str(temporary), "RAY_TMPDIR": folder}


@pytest.mark.ray
def test_a_cluster_ends_with_its_process_and_is_found_by_name(environment: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path
    command = [*COMMAND, "start", "--name", "shop", "--port", "0", "--config", "num.partitions=2"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = re.fullmatch(r"raylog shop is ready: (127\.0\.0\.1:\d+)\n", process.stdout.readline())
            assert ready is not None, process.stderr and process.stderr.read()
            server = ready[1]
            assert run("topics", "create", "orders", "-b", server, environment=environment).returncode == 0

            status = json.loads(run("status", "--name", "shop", "--json", environment=environment).stdout)
            assert status["bootstrap_servers"] == server
            assert status["topics"] == {"orders": {"partitions": 2}}
            assert status["brokers"][0]["state"] == "running"
            # Without an address it would search all of this machine, where other tests start and stop their own Ray.
            address = json.loads((home / ".raylog" / "run" / "shop.json").read_text())["ray_address"]
            token = environment | {"RAY_AUTH_MODE": "token"}
            other = run("status", "--name", "other", "--address", address, environment=token)
            assert (other.returncode, other.stdout) == (1, "")
            assert "name='other': no cluster with this name is running in this Ray" in other.stderr

            second = run("start", "--name", "shop", "--port", "0", environment=environment)
            assert (second.returncode, second.stdout, second.stderr.count("\n")) == (1, "", 1)
            assert "another `raylog start`" in second.stderr
        finally:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0
    assert err == "raylog: the data is temporary and is deleted when the cluster stops; --data-dir keeps it\n"
    deadline = time.monotonic() + HANG_SECONDS
    while (left := ray_processes_of(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    assert not list((home / ".raylog" / "run").iterdir())
    assert not list((tmp_path / "temporary").glob("raylog-*"))


@pytest.mark.ray
def test_three_controllers(environment: dict[str, str], tmp_path: Path) -> None:
    start = ["start", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    with subprocess.Popen(
        [*COMMAND, *start, "--controllers", "3"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            server = process.stdout.readline().split()[-1]
            controllers = run("status", environment=environment).stdout.split("\n\n")[2].splitlines()[1:]
            assert sorted(line.split()[1] for line in controllers) == ["active", "standby", "standby"]
            described = run("quorum", "describe", "--json", "-b", server, environment=environment)
            quorum = json.loads(described.stdout)
            voters = {one["id"]: one["status"] for one in quorum["replicas"] if one["status"] != "observer"}
            assert voters == {1000 + n: "leader" if 1000 + n == quorum["leader_id"] else "follower" for n in range(3)}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(HANG_SECONDS)
    assert process.returncode == 0
    refused = run(*start, "--controllers", "1", environment=environment)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "contains 3; change the number with `raylog quorum add` and `remove`" in refused.stderr


@pytest.mark.ray
def test_a_server_properties_of_kafkas_distribution_starts_a_broker(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Only the port and the directory are replaced, since other tests run on this machine."""
    port, data = free_port(), tmp_path / "kraft-combined-logs"
    text = (KAFKA_FILES / "server.properties").read_text()
    file = tmp_path / "server.properties"
    file.write_text(text.replace("9092", str(port)).replace("/tmp/kraft-combined-logs", str(data)))
    with subprocess.Popen(
        [*COMMAND, "start", "--config-file", str(file)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"raylog raylog is ready: localhost:{port}\n"
            found = AdminClient({"bootstrap.servers": f"localhost:{port}"}).list_topics(timeout=HANG_SECONDS)
            assert list(found.brokers) == [1]
        finally:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0
    ignored = [line.split()[2] for line in err.splitlines()]
    assert {"process.roles", "num.io.threads", "inter.broker.listener.name"} < set(ignored), err
    assert len(ignored) == len(set(ignored)), err
    assert (data / "broker-1").is_dir()

    (data / "meta.properties").touch()
    refused = run("start", "--config-file", str(file), environment=environment)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"log.dirs={data}: is a log directory of a broker" in refused.stderr.splitlines()[-1]


@pytest.mark.ray
def test_the_first_ctrl_c_ends_a_start(environment: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "start", "--port", "0"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + HANG_SECONDS
        while not any("raylet" in command for command in ray_processes_of(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out, err) == (INTERRUPTED, "", "")
    deadline = time.monotonic() + HANG_SECONDS
    while (left := ray_processes_of(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    assert not list((tmp_path / "temporary").glob("raylog-*"))


class TestSignals:
    @pytest.fixture
    def interruption(self) -> Iterator[Interruption]:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        interruption = Interruption()
        stop_on_signal(interruption)
        yield interruption
        for number, handler in before.items():
            signal.signal(number, handler)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_before_there_is_anything_to_clean_up_the_process_ends(
        self, interruption: Interruption, number: signal.Signals
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            interruption.begin()  # the thread that starts the cluster

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_afterwards_the_first_one_asks_for_it_and_the_second_one_does_not_wait(
        self, interruption: Interruption, number: signal.Signals
    ) -> None:
        interruption.begin()
        interruption.check()
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            interruption.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


@pytest.mark.ray
def test_a_port_in_use_is_a_one_line_error(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = run("start", "--port", port, environment=environment)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert f"cannot listen on PLAINTEXT://127.0.0.1:{port}" in refused.stderr


def test_single_keys_override_the_configuration_file(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    file = tmp_path / "server.properties"
    file.write_text("# Kafka's\nnum.partitions = many\nlog.segment.bytes=1\n")
    refused = run("start", "--config-file", str(file), "--config", "num.partitions=1", environment=environment)
    assert refused.stderr == "raylog: INVALID_CONFIG: log.segment.bytes='1': must be at least 1048576\n"
    file.write_text("num.partitions=1\nnum.partitions=2\n")
    refused = run("start", "--config-file", str(file), environment=environment)
    assert refused.stderr == f"raylog: INVALID_CONFIG: {file}: line 2: num.partitions is set twice\n"
    refused = run("start", "--config-file", str(tmp_path / "none"), environment=environment)
    assert refused.stderr == f"raylog: {tmp_path}/none: No such file or directory\n"


def test_a_file_for_a_single_broker_is_read(tmp_path: Path) -> None:
    file = tmp_path / "one.properties"
    file.write_text("broker.rack=r\nmax.connections=0\n")
    both = ["--broker-config-file", f"0:{file}", "--broker-config", "0:broker.rack=s"]
    refused = run("start", *both, environment={**os.environ, "HOME": str(tmp_path)})
    assert refused.stderr == "raylog: INVALID_CONFIG: broker 0: max.connections='0': must be at least 1\n"
    usage = run("start", "--broker-config", "broker.rack=s", environment=os.environ)
    assert usage.returncode == 2
    assert "--broker-config: 'broker.rack=s': must begin with the id of a broker and a colon (see" in usage.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--controllers", "2"], "controllers=2: must be one of 1, 3, 5"),
        (["--brokers", "2000"], "brokers=2000: must be between 1 and 1000"),
        (["--name", "../up"], "name='../up': must be up to 100 letters"),
        (["--config", "log.segment.bytes=1"], "log.segment.bytes='1': must be at least 1048576"),
        (
            ["--config", "broker.heartbeat.interval.ms=9000"],
            "broker.heartbeat.interval.ms='9000': must be at most half",
        ),
        (["--config", "offsets.topic.num.partitions=1000000"], "offsets.topic.num.partitions='1000000': must be"),
        (["--config", "no.such.key=1"], "no.such.key: unknown, or not supported by raylog"),
        (["--config", "listeners=PLAINTEXT://:1", "--port", "2"], "port and config['listeners'] exclude each other"),
        (["--config", "node.id=1000"], "node.id='1000': must be below 1000, the id of the first controller"),
        (["--config", "node.id=999", "--brokers", "2"], "cannot add 2 brokers: 1 ids are left below 1000"),
        (["--broker-config", "1:broker.rack=r"], "broker_config: there is no broker 1; the cluster has 0"),
        (["--broker-config", "0:max.connections=0"], "broker 0: max.connections='0': must be at least 1"),
        (["--broker-config", "0:node.id=5"], "broker 0: node.id cannot be set for a single broker"),
        (["--broker-config", "0:num.partitions=5"], "broker 0: num.partitions cannot be set for a single broker"),
        (["--broker-config", "0:log.dirs=/a,/a"], "broker 0: log.dirs='/a,/a': must not name a directory twice"),
        (["--port", "70000"], "port=70000: must be between 0 and 65535"),
    ],
)
def test_an_invalid_configuration_is_refused_before_the_start(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    refused = run("start", *arguments, environment={**os.environ, "HOME": str(tmp_path)})
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert refused.stderr.startswith(f"raylog: INVALID_CONFIG: {message}")


def test_passwords_in_a_file_of_users_are_literal(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_bytes(b"\xef\xbb\xbf# users\n\n  # of \n alice =a\\b\\\r\nbob== #\\u0041\n \t\nCN=x=\xc2\x85y\n")
    passwords = {"alice": "a\\b\\", "bob": "= #\\u0041", "CN": "x=\x85y"}
    assert users(argparse.Namespace(users_file=str(file))) == passwords
    assert users(argparse.Namespace(users_file=None)) == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hunter2", "must be name=password"),
        (" =hunter2", "the name is empty"),
        ("bob=", "the password of bob is empty"),
        ("bob= hunter2", "the password of bob begins or ends with a space: write name=password"),
        ("bob=hunter2\t", "the password of bob begins or ends with a space: write name=password"),
        ("alice=hunter2", "alice is contained twice"),
    ],
)
def test_an_error_in_a_file_of_users_names_the_line_but_not_the_password(
    tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "users"
    file.write_text(f"alice=secret\n\n{line}\n")
    with pytest.raises(ConfigError) as refused:
        users(argparse.Namespace(users_file=str(file)))
    assert refused.value.message == f"{file}: line 3: {message}"


def test_directories_that_are_given_are_used_in_place_of_log_dirs(tmp_path: Path) -> None:
    """A server.properties of Kafka names the directories of its brokers."""
    (tmp_path / "meta.properties").touch()
    config = {"log.dirs": f"{tmp_path}, other", "log.dir": "one", "num.partitions": "3"}
    with pytest.raises(ConfigError, match="is a log directory of a broker"):
        data_directories(None, dict(config))
    assert data_directories(["given"], config) == ["given"]
    assert config == {"num.partitions": "3"}
    assert data_directories(None, {"log.dir": "one"}) == ["one"]
    assert data_directories(None, {}) is None
