"""(shell) A cluster's data directory: who the cluster is, its secret, and one Kafka log directory for each broker.

cluster.json      the cluster's id and name
secret            what its members prove to one another; readable by the owner alone
broker-0/         the log directory of broker 0: Kafka's files and nothing else
run/broker-0.json the ports broker 0 listened on last, so that it comes back on the same ones
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from raylog.core.errors import ConfigError

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """What the data directory says about its cluster."""

    path: Path
    cluster_id: str
    secret: bytes

    def log_path(self, broker_id: int) -> str:
        return str(self.path / f"broker-{broker_id}")

    def last_ports(self, broker_id: int) -> dict[str, int]:
        """Ports by listener name; empty where the broker has never run, or the file is damaged: then any will do."""
        try:
            ports = json.loads(self._ports_file(broker_id).read_text())
            return {str(name): int(port) for name, port in ports.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def remember_ports(self, broker_id: int, ports: dict[str, int]) -> None:
        self._ports_file(broker_id).parent.mkdir(exist_ok=True)
        _write_atomically(self._ports_file(broker_id), json.dumps(ports).encode())

    def _ports_file(self, broker_id: int) -> Path:
        return self.path / "run" / f"broker-{broker_id}.json"


def open_data_dir(path: str, *, name: str, must_exist: bool) -> ClusterFiles:
    """The directory's identity, made on first use. Raises ConfigError that names the file and what is wrong with it.

    `must_exist` is for a broker that comes back: an empty directory then means the wrong host or a lost disk, and to
    begin anew there would pass for data loss.
    """
    root = Path(path)
    identity, secret_file = root / "cluster.json", root / "secret"
    try:
        if not identity.exists():
            if must_exist:
                raise ConfigError(f"data_dir={path!r}: {identity} is missing: another host's directory, or a lost disk")
            root.mkdir(parents=True, exist_ok=True)
            if any(root.iterdir()) and {entry.name for entry in root.iterdir()} != {"secret"}:
                raise ConfigError(
                    f"data_dir={path!r}: is not empty and holds no cluster.json; choose another directory"
                )
            _write_atomically(secret_file, secrets.token_bytes(SECRET_BYTES))
            fresh = {"cluster_id": _new_cluster_id(), "name": name}
            _write_atomically(identity, json.dumps(fresh).encode())
        found = json.loads(identity.read_text())
        if found.get("name") != name:
            raise ConfigError(f"data_dir={path!r}: belongs to cluster {found.get('name')!r}, not to {name!r}")
        secret = secret_file.read_bytes()
        if len(secret) != SECRET_BYTES:
            raise ConfigError(f"data_dir={path!r}: {secret_file} does not hold {SECRET_BYTES} bytes")
        return ClusterFiles(root, str(found["cluster_id"]), secret)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"data_dir={path!r}: {error}") from error


def _new_cluster_id() -> str:
    """As Kafka makes them: a random UUID in 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


def _write_atomically(path: Path, data: bytes) -> None:
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
