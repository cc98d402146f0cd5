"""(shell) A cluster's data directory: its identity, its secret, and a Kafka log directory for each broker.

cluster.json      the cluster's id and name, its brokers and controllers, and the host of each
passwords.json    the passwords in the configuration; only the owner can read it
secret            the secret with which nodes authenticate; only the owner can read it
broker-0/         the log directory of broker 0: Kafka's files only; group-coordinator-0/ that of a coordinator
broker-0.log-dirs the paths of all its log directories, if it has several
controller-0/     the directory of the first controller: the metadata log and the state of the voter
controller-0.began  exists after the first start of that controller: an empty directory then means a lost disk
run/broker-0.json the last ports of broker 0, which it uses again after a restart
security/         certificates and keys of a secure cluster (certificates.py)
client.properties and librdkafka.conf: how clients log in to a secure cluster (client_files.py)

A cluster may have further data directories, usually on other disks. Each contains one more log directory for every
broker.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from raylog.actors.names import broker_name, controller_name, node_name
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import BrokerId, id_text
from raylog.metadata.node_roles import COORDINATOR_ROLES, IDS_PER_ROLE
from raylog.metadata.voters import FIRST_VOTER_ID, voter_ids

FRESH_SUFFIX = ".new"
"""Of a file that is being written, before the id of the process."""
FILE_MODE = 0o600
IDENTITY_FILE = "cluster.json"
SECRET_FILE = "secret"
PASSWORDS_FILE = "passwords.json"
SECRET_BYTES = 32
DELETED_SUFFIX = ".deleted"
DELETE_ATTEMPTS = 5
BROKERS_MAX = 1000
"""Controller ids begin at this number."""


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The contents of a data directory."""

    path: Path
    cluster_id: str
    name: str
    secret: bytes = field(repr=False)
    brokers: int
    """The number of brokers ever added, whose ids follow each other. Ids are not reused: data may exist."""
    controllers: int
    hosts: dict[str, str] = field(default_factory=dict)
    """The host of each broker and controller, by the name of its actor; empty before they are placed."""
    removed: frozenset[int] = frozenset()
    """Ids of removed brokers."""
    first_broker_id: int = 0
    passwords: dict[str, str] = field(default_factory=dict, repr=False)
    """Those in the configuration of the last start, by their places in it."""
    secure: bool = False
    """Whether the cluster was last started as a secure one."""
    authority_host: str = ""
    """The host that has the key of the certificate authority; empty if there is none."""
    further_dirs: tuple[str, ...] = ()
    """The further data directories, which have the same paths on every host."""
    group_coordinators: int | None = None
    """Their number if it was chosen; None for one, from two brokers on."""
    transaction_coordinators: int | None = None
    """The same of transaction coordinators."""
    added_controllers: int = 0
    """How many controllers were added to those that the cluster began with; their numbers follow."""
    removed_controllers: frozenset[int] = frozenset()
    """Numbers of removed controllers, which are not used again."""

    @property
    def broker_ids(self) -> list[int]:
        return [
            broker_id for broker_id in range(self.first_broker_id, self.next_broker_id) if broker_id not in self.removed
        ]

    @property
    def controller_numbers(self) -> list[int]:
        known = range(self.controllers + self.added_controllers)
        return [number for number in known if number not in self.removed_controllers]

    @property
    def controller_ids(self) -> list[BrokerId]:
        return [BrokerId(FIRST_VOTER_ID + number) for number in self.controller_numbers]

    def voters_at_first(self, number: int) -> tuple[BrokerId, ...]:
        """The voters until the log of this controller contains others: none for one that was added."""
        return voter_ids(self.controllers) if number < self.controllers else ()

    @property
    def coordinator_ids(self) -> list[int]:
        """The ids of group coordinators, then of transaction coordinators."""
        chosen = (self.group_coordinators, self.transaction_coordinators)
        default = 1 if len(self.broker_ids) > 1 else 0
        counts = zip(COORDINATOR_ROLES, (default if count is None else count for count in chosen), strict=True)
        return [role.first_id + number for role, count in counts for number in range(count)]

    @property
    def next_broker_id(self) -> int:
        """The id of the next broker that is added."""
        return self.first_broker_id + self.brokers

    def with_brokers(self, count: int) -> ClusterFiles:
        """With `count` more brokers. Raises ConfigError if there are not enough ids."""
        if self.next_broker_id + count > BROKERS_MAX:
            left = BROKERS_MAX - self.next_broker_id
            message = f"cannot add {count} brokers: {left} ids are left below {BROKERS_MAX}, and ids are not reused"
            raise ConfigError(message)
        return replace(self, brokers=self.brokers + count)

    def without_broker(self, broker_id: int) -> ClusterFiles:
        """Without a broker, whose id stays reserved."""
        return replace(self.without_nodes([broker_name(broker_id)]), removed=self.removed | {broker_id})

    def with_controller(self) -> ClusterFiles:
        """With one more controller, whose number is above all others."""
        return replace(self, added_controllers=self.added_controllers + 1)

    def without_controller(self, number: int) -> ClusterFiles:
        """Without a controller, whose number stays reserved."""
        left = self.without_nodes([controller_name(number)])
        return replace(left, removed_controllers=self.removed_controllers | {number})

    def without_nodes(self, nodes: Collection[str]) -> ClusterFiles:
        """Without the places of these nodes."""
        return replace(self, hosts={node: host for node, host in self.hosts.items() if node not in nodes})

    def merged(self, other: ClusterFiles) -> ClusterFiles:
        """Merged with the files of another host; either may have missed a change."""
        removed = self.removed | other.removed
        removed_controllers = self.removed_controllers | other.removed_controllers
        gone = {*map(broker_name, removed), *map(controller_name, removed_controllers)}
        return replace(
            self,
            brokers=max(self.brokers, other.brokers),
            hosts={node: host for node, host in {**other.hosts, **self.hosts}.items() if node not in gone},
            removed=removed,
            added_controllers=max(self.added_controllers, other.added_controllers),
            removed_controllers=removed_controllers,
        )

    def log_paths(self, broker_id: int) -> list[str]:
        """The log directories of a broker or a coordinator: one in each data directory."""
        return [str(Path(data_dir) / node_name(broker_id)) for data_dir in (str(self.path), *self.further_dirs)]

    def controller_path(self, number: int) -> str:
        return str(self.path / f"controller-{number}")

    def is_controller_started(self, number: int) -> bool:
        """Whether the controller has ever run here."""
        return self._started_file(number).exists()

    def mark_controller_started(self, number: int) -> None:
        """Record that the controller has a metadata log: from now on a missing log means data loss."""
        if not self.is_controller_started(number):
            write_atomically(self._started_file(number), b"")

    def last_ports(self, node: str) -> dict[str, int]:
        """Ports by listener name; empty if the node has never run or the file is damaged, so that any port is used."""
        try:
            ports = json.loads(self._ports_file(node).read_bytes())
            return {str(name): int(port) for name, port in ports.items()}
        except (OSError, ValueError, AttributeError, TypeError, OverflowError, RecursionError):
            return {}

    def save_ports(self, node: str, ports: dict[str, int]) -> None:
        self._ports_file(node).parent.mkdir(exist_ok=True)
        write_atomically(self._ports_file(node), json.dumps(ports).encode())

    def known_log_dirs(self, node: str) -> list[str]:
        """The log directories that the broker has had; empty if it has never had several. Raises OSError."""
        try:
            return [str(path) for path in json.loads(self._log_dirs_file(node).read_bytes())]
        except (FileNotFoundError, ValueError, TypeError, RecursionError):
            return []

    def save_log_dirs(self, node: str, paths: Iterable[str]) -> None:
        write_atomically(self._log_dirs_file(node), json.dumps(list(paths)).encode())

    def _log_dirs_file(self, node: str) -> Path:
        return self.path / f"{node}.log-dirs"

    def _started_file(self, number: int) -> Path:
        return self.path / f"controller-{number}.began"

    def _ports_file(self, node: str) -> Path:
        return self.path / "run" / f"{node}.json"


def plan_data_dir(
    path: str | None,
    *,
    name: str,
    brokers: int | None,
    controllers: int | None = None,
    first_broker_id: int | None = None,
) -> ClusterFiles:
    """What `make_data_dir` returns, without writing anything; a new cluster has no id yet. Raises ConfigError.

    `brokers` None means the existing number, or one. It can be increased but not decreased, which would lose data.
    The number of controllers cannot be changed here: new ones could outvote those that have the metadata log. Nor can
    the first id: directories and the metadata contain the ids.
    """
    try:
        found = None if path is None else find_data_dir(path, name=name)
    except OSError as error:
        raise ConfigError(f"data_dir={path!r}: {error}") from error
    if found is None:
        new = ClusterFiles(Path(path or ""), "", name, b"", 0, controllers or 1, first_broker_id=first_broker_id or 0)
        return new.with_brokers(brokers or 1)
    there_are = len(found.broker_ids)
    if brokers is not None and brokers < there_are:
        raise ConfigError(
            f"brokers={brokers}: {path!r} contains {there_are} brokers; remove brokers with `raylog brokers remove`"
        )
    if controllers not in (None, len(found.controller_numbers)):
        raise ConfigError(
            f"controllers={controllers}: {path!r} contains {len(found.controller_numbers)}; change the number with"
            " `raylog quorum add` and `remove` while the cluster runs"
        )
    if first_broker_id not in (None, found.first_broker_id):
        raise ConfigError(
            f"node.id={first_broker_id}: the first broker of {path!r} has id {found.first_broker_id}, which is kept"
        )
    return found.with_brokers(max(0, (brokers or 0) - there_are))


def make_data_dir(
    path: str,
    *,
    name: str,
    brokers: int | None,
    controllers: int | None = None,
    first_broker_id: int | None = None,
) -> ClusterFiles:
    """Open the directory, or create it on first use; see `plan_data_dir`.

    Raises ConfigError that names the file and the error.
    """
    planned = plan_data_dir(path, name=name, brokers=brokers, controllers=controllers, first_broker_id=first_broker_id)
    root = Path(path)
    try:
        if not planned.cluster_id:
            root.mkdir(parents=True, exist_ok=True)
            if not all(_is_incomplete(entry) for entry in root.iterdir()):
                raise ConfigError(
                    f"data_dir={path!r}: is not empty and contains no {IDENTITY_FILE}; choose another directory"
                )
            write_atomically(root / SECRET_FILE, secrets.token_bytes(SECRET_BYTES))
            planned = replace(planned, cluster_id=id_text(uuid4()))
            _write_identity(root, planned)
        elif planned.brokers > open_data_dir(path, name=name).brokers:
            _write_identity(root, planned)
        return open_data_dir(path, name=name)
    except OSError as error:
        raise ConfigError(f"data_dir={path!r}: {error}") from error


def share_data_dir(files: ClusterFiles, *, replace_passwords: bool = False) -> None:
    """Write the identity files to the directory on this host. Raises ConfigError.

    Passwords that are there already may be newer than those of `files`, and are kept unless `replace_passwords`.
    """
    root = files.path
    try:
        found = find_data_dir(str(root), name=files.name)
        if found is not None:
            check_same_cluster(files, found)
        else:
            root.mkdir(parents=True, exist_ok=True)
            write_atomically(root / SECRET_FILE, files.secret)
        if replace_passwords or not (root / PASSWORDS_FILE).exists():
            write_atomically(root / PASSWORDS_FILE, json.dumps(files.passwords).encode())
        _write_identity(root, files)
    except OSError as error:
        raise ConfigError(f"data_dir={str(root)!r}: {error}") from error


def delete_data_dir(path: str) -> None:
    """Delete the directory, also while processes that are being killed still create files in it by their paths.

    Under its new name they no longer find it. A file that is being created while it gets that name can still appear
    behind the deletion, so that it is repeated.
    """
    doomed = f"{path}{DELETED_SUFFIX}"
    with suppress(OSError):
        os.rename(path, doomed)
    for _ in range(DELETE_ATTEMPTS):
        shutil.rmtree(doomed, ignore_errors=True)
        if not os.path.lexists(doomed):
            break


def check_same_cluster(one: ClusterFiles, other: ClusterFiles) -> None:
    """Raises ConfigError if the directories belong to different clusters."""
    if (one.cluster_id, one.secret) != (other.cluster_id, other.secret):
        raise ConfigError(f"data_dir={str(other.path)!r}: belongs to another cluster called {other.name!r}")


def with_further_dirs(files: ClusterFiles, further_dirs: Sequence[str]) -> ClusterFiles:
    """The cluster with these further data directories instead of those that it had, also on disk. Raises
    ConfigError."""
    resolved = [os.path.realpath(path) for path in (str(files.path), *further_dirs)]
    if len(set(resolved)) < len(resolved):
        raise ConfigError(f"data_dir={[str(files.path), *further_dirs]}: names a directory twice")
    changed = replace(files, further_dirs=tuple(map(os.path.abspath, further_dirs)))
    try:
        _write_identity(files.path, changed)
    except OSError as error:
        raise ConfigError(f"data_dir={str(files.path)!r}: {error}") from error
    return changed


def create_log_dirs(files: ClusterFiles, node: str, paths: Sequence[str]) -> None:
    """Create the log directories that the broker has never had, if it has several.

    One that it had and that is missing is left missing: its disk has failed or is not mounted. Who replaces a disk
    creates the empty directory. Raises KafkaError if a new one cannot be created.
    """
    if len(paths) == 1:
        return
    try:
        known = files.known_log_dirs(node)
        for path in paths:
            if path not in known:
                os.makedirs(path, exist_ok=True)
        files.save_log_dirs(node, dict.fromkeys([*known, *paths]))
    except OSError as error:
        what = f"log.dirs={','.join(paths)}: a log directory cannot be created: {error}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what) from error


def find_data_dir(path: str, *, name: str) -> ClusterFiles | None:
    """Like `open_data_dir`, but None if the directory does not exist on this host."""
    return open_data_dir(path, name=name) if (Path(path) / IDENTITY_FILE).exists() else None


def open_data_dir(path: str, *, name: str) -> ClusterFiles:
    """Open an existing directory. Raises ConfigError that names the file and the error.

    An empty directory is an error: it means the wrong host or a lost disk, and starting from it would hide data loss.
    """
    root = Path(path)
    try:
        if not (root / IDENTITY_FILE).exists():
            message = f"{root / IDENTITY_FILE} is missing; this is another host's directory, or the disk was lost"
            raise ConfigError(f"data_dir={path!r}: {message}")
        found = _read_identity(root / IDENTITY_FILE)
        if found["name"] != name:
            raise ConfigError(f"data_dir={path!r}: belongs to cluster {found['name']!r}, not to {name!r}")
        secret = (root / SECRET_FILE).read_bytes()
        passwords = _read_passwords(root / PASSWORDS_FILE)
    except OSError as error:
        raise ConfigError(f"data_dir={path!r}: {error}") from error
    if len(secret) != SECRET_BYTES:
        raise ConfigError(f"data_dir={path!r}: {root / SECRET_FILE} must contain {SECRET_BYTES} bytes")
    return ClusterFiles(
        root,
        found["cluster_id"],
        name,
        secret,
        found["brokers"],
        found["controllers"],
        found["hosts"],
        frozenset(found["removed"]),
        found["first_broker_id"],
        passwords,
        found["secure"],
        found["authority_host"],
        tuple(found["further_dirs"]),
        found["group_coordinators"],
        found["transaction_coordinators"],
        found["added_controllers"],
        frozenset(found["removed_controllers"]),
    )


def find_log_dirs(path: str) -> list[str]:
    """The log directories of all brokers in a cluster's data directory, or `path` itself if it is not one.

    Raises ConfigError if a broker's directory is missing.
    """
    root = Path(path)
    if not (root / IDENTITY_FILE).exists():
        return [path]
    try:
        name = _read_identity(root / IDENTITY_FILE)["name"]
    except OSError as error:
        raise ConfigError(f"data_dir={path!r}: {error}") from error
    files = open_data_dir(path, name=name)
    found = [Path(log_path) for broker_id in files.broker_ids for log_path in files.log_paths(broker_id)]
    for log_dir in found:
        if not log_dir.is_dir():
            raise ConfigError(
                f"data_dir={path!r}: {log_dir} is missing; this is another host's directory, or the disk was lost"
            )
    return [str(log_dir) for log_dir in found]


def _read_identity(path: Path) -> dict[str, Any]:
    """The content of the identity file, whose values are valid. Raises ConfigError that names the file, and OSError."""
    where = f"data_dir={str(path.parent)!r}: {path}"
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: must contain a JSON object")
    identity = {**_IN_EARLIER_FILES, **found}
    for name, is_valid in _IS_VALID.items():
        if not is_valid(identity.get(name)):
            raise ConfigError(f"{where}: {name}={str(identity.get(name))[:80]!r} is not valid")
    if identity["first_broker_id"] + identity["brokers"] > BROKERS_MAX:
        raise ConfigError(f"{where}: broker ids must be below {BROKERS_MAX}")
    return identity


def _read_passwords(path: Path) -> dict[str, str]:
    """Raises ConfigError that shows nothing of the file, and OSError."""
    if not path.exists():  # a directory of an earlier version
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigError(f"data_dir={str(path.parent)!r}: {path} must contain a JSON object of texts")
    return found


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < BROKERS_MAX


def _is_coordinator_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= IDS_PER_ROLE


_IS_VALID: Final[Mapping[str, Callable[[Any], bool]]] = {
    "cluster_id": _is_text,
    "name": _is_text,
    "brokers": lambda value: type(value) is int and 0 < value <= BROKERS_MAX,
    "controllers": lambda value: type(value) is int and value > 0,
    "hosts": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "removed": lambda value: isinstance(value, list) and all(map(_is_id, value)),
    "first_broker_id": _is_id,
    "secure": lambda value: isinstance(value, bool),
    "authority_host": lambda value: isinstance(value, str),
    "further_dirs": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "group_coordinators": lambda value: value is None or _is_coordinator_count(value),
    "transaction_coordinators": lambda value: value is None or _is_coordinator_count(value),
    "added_controllers": lambda value: type(value) is int and 0 <= value < IDS_PER_ROLE,
    "removed_controllers": lambda value: isinstance(value, list) and all(map(_is_id, value)),
}


_IN_EARLIER_FILES: Final = {
    "controllers": 1,
    "hosts": {},
    "removed": [],
    "first_broker_id": 0,
    "secure": False,
    "authority_host": "",
    "further_dirs": [],
    "group_coordinators": None,
    "transaction_coordinators": None,
    "added_controllers": 0,
    "removed_controllers": [],
}
"""What files that earlier versions have written lack."""


def _write_identity(root: Path, files: ClusterFiles) -> None:
    identity = {name: getattr(files, name) for name in _IS_VALID}
    identity["removed"] = sorted(files.removed)
    identity["removed_controllers"] = sorted(files.removed_controllers)
    write_atomically(root / IDENTITY_FILE, json.dumps(identity).encode())


def _is_incomplete(path: Path) -> bool:
    """Whether the file is what a start that was killed may leave."""
    if path.suffix.startswith(FRESH_SUFFIX):
        return path.stem in {Path(name).stem for name in (SECRET_FILE, PASSWORDS_FILE, IDENTITY_FILE)}
    return path.name in (SECRET_FILE, PASSWORDS_FILE)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file, which only its owner can read. Several processes may do so at once. Raises OSError.

    A file with this content is left alone, so that a full disk is no obstacle to a start.
    """
    with suppress(OSError):
        if path.read_bytes() == data and path.stat().st_mode & 0o777 == FILE_MODE:
            return
    fresh = path.with_suffix(f"{FRESH_SUFFIX}-{os.getpid()}")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise OSError(error.errno, f"{error.strerror}: {path.name} cannot be written") from error
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
