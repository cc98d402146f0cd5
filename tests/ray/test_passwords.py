"""Passwords in the configuration reach brokers, and are found nowhere but in the file that only the owner can read."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import ray
from confluent_kafka.admin import AdminClient

import raylog

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_runtime")]
SECRET = "hunter2-of-this-test"


def test_a_password_is_neither_an_argument_nor_logged(tmp_path: Path) -> None:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
        ),
    }
    with raylog.start("secretive", config=config, data_dir=str(tmp_path / "data")) as cluster:
        login = {"sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": SECRET}
        admin = AdminClient(
            {"bootstrap.servers": cluster.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT", **login}
        )
        assert len(admin.list_topics(timeout=30).brokers) == 1
        assert SECRET.encode() not in pickle.dumps(ray.get(cluster.broker(0).spec.remote()))
        assert SECRET not in repr(cluster.status())
        assert not _contains(Path("/proc"), "cmdline")
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holders == [tmp_path / "data" / "passwords.json"]
    session = Path(ray._private.worker._global_node.get_session_dir_path())  # type: ignore[attr-defined]
    assert not [
        path for path in (session / "logs").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def _contains(processes: Path, name: str) -> bool:
    """Whether a file of this name of any process contains the password."""
    for path in processes.glob(f"[0-9]*/{name}"):
        try:
            if SECRET.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False
