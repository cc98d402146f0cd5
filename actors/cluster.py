"""(shell) A raylog cluster as its user holds it: start one, connect to one, stop it."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from raylog.actors.announcement import find_announced
from raylog.actors.broker_restart import RESTART_SECONDS, restart_broker
from raylog.actors.cluster_actors import current_handles, make_actors, remove_everywhere
from raylog.actors.data_dir import make_data_dir
from raylog.actors.local_ray import join_or_start_ray, join_ray, prepare_environment
from raylog.actors.names import SUPERVISOR_NAME, broker_name, is_broker, namespace_of, number_of
from raylog.broker.listeners import plan_listeners
from raylog.config.broker import broker_configs
from raylog.controller.voters import FIRST_VOTER_ID, VOTER_COUNTS
from raylog.core.errors import ConfigError

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus
    from raylog.actors.controller import ControllerStatus

log = logging.getLogger("raylog.actors.cluster")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEFAULT_PORT = 9092
LOOPBACK = "127.0.0.1"
BROKERS_MAX = 1000
STOP_SECONDS = 30.0
MISPLACED_SECONDS = 60.0
MISPLACED_POLL_SECONDS = 0.1
STATUS_SECONDS = 5.0
"""A broker that has not answered by then is on its way back: a running one answers in milliseconds."""


class ClusterStatus(NamedTuple):
    """What there is of a cluster, also of actors that cannot serve at the moment."""

    brokers: list[BrokerStatus]
    controllers: list[ControllerStatus]


class Cluster:
    """A running cluster. As a context manager it stops what it has started, and only that."""

    def __init__(
        self,
        name: str,
        handles: Mapping[str, Any],
        brokers: Sequence[BrokerStatus],
        *,
        owned: bool = False,
        owns_ray: bool = False,
        temporary_dir: str | None = None,
    ) -> None:
        """Not to be called: use `start` or `connect`."""
        self.name = name
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        """Every broker, for any Kafka client."""
        self._nodes = tuple(handles)
        """The names of all actors but the supervisor. One that is made anew has another handle."""
        self._owned = owned
        self._owns_ray = owns_ray
        self._temporary_dir = temporary_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            self.stop()

    @property
    def ray_address(self) -> str:
        """Where other processes join the Ray of this cluster, as `ray.init` takes it."""
        import ray

        return str(ray.get_runtime_context().gcs_address)

    def broker(self, broker_id: int) -> Any:
        """The Ray actor handle of a broker. Raises KeyError."""
        node = broker_name(broker_id)
        if node not in self._nodes:
            raise KeyError(node)
        handle = current_handles(self.name, [node])[node]
        if handle is None:
            raise KeyError(f"{node} is away, with its host")
        return handle

    def status(self) -> list[BrokerStatus]:
        """One entry for each broker."""
        return _ask_all(current_handles(self.name, self._nodes)).brokers

    def restart_broker(self, broker_id: int, *, timeout_seconds: float = RESTART_SECONDS) -> None:
        """Stop one broker and start it again on its data and ports, in a new process; clients need not notice.

        It hands over what it leads first. Returns once it serves and is in sync with all that it holds.
        Raises KeyError, and KafkaError(REQUEST_TIMED_OUT).
        """
        restart_broker(self.broker(broker_id), broker_id, self.bootstrap_servers, timeout_seconds=timeout_seconds)

    def rolling_restart(self, *, timeout_seconds: float = RESTART_SECONDS) -> None:
        """`restart_broker` for one broker after another; the time is that of each. Raises KafkaError."""
        for broker_id in sorted(number_of(node) for node in self._nodes if is_broker(node)):
            self.restart_broker(broker_id, timeout_seconds=timeout_seconds)

    def stop(self) -> None:
        """Stop every actor cleanly; a local Ray started for this cluster goes too. Stopping twice is allowed."""
        import ray

        if not self._nodes or not ray.is_initialized():
            return
        _stop(self.name, self._nodes)
        self._nodes = ()
        if self._temporary_dir is not None:
            remove_everywhere(self._temporary_dir)
        if self._owns_ray:
            ray.shutdown()


def start(
    name: str = "raylog",
    *,
    data_dir: str | None = None,
    config: Mapping[str, Any] | None = None,
    brokers: int | None = None,
    controllers: int | None = None,
    port: int | None = None,
    address: str | None = None,
) -> Cluster:
    """A new cluster, ready for clients when this returns.

    `data_dir` keeps the data and may hold that of an earlier cluster of the same name, which then goes on; without it
    the data lives in a temporary directory and is gone after `stop`. `config` is Kafka's broker configuration.
    `brokers` is how many there are: by default as many as `data_dir` holds, or one. `controllers` is how many vote on
    the metadata: 1 (the default), 3 or 5, of which a minority may be away; it stays what it was at first.

    Brokers and controllers are spread over the hosts of the Ray. Each stays for ever where it was placed first, since
    its data is there, under the same path on every host; one whose host is not there is started when it comes.

    `port` is short for `listeners=PLAINTEXT://127.0.0.1:<port + i>` of broker i, or of its host's address where there
    are several machines; without either free ports are taken. `address` is Ray's, as for `ray.init`; without it the Ray
    this process is connected to is used, then RAY_ADDRESS, then a new local one.

    Raises ConfigError for a configuration that is not served and where a cluster of this name runs already.
    """
    check_name(name)
    if brokers is not None and not 1 <= brokers <= BROKERS_MAX:
        raise ConfigError(f"brokers={brokers}: must be between 1 and {BROKERS_MAX}")
    if controllers is not None and controllers not in VOTER_COUNTS:
        raise ConfigError(f"controllers={controllers}: must be one of {', '.join(map(str, VOTER_COUNTS))}")
    for broker_id in range(brokers or 1):
        plan_listeners(broker_configs(_texts(config, port, broker_id)))
    prepare_environment()
    owns_ray = join_or_start_ray(address)
    import ray

    temporary_dir = None
    handles: dict[str, Any] = {}
    try:
        if data_dir is None:
            data_dir = temporary_dir = tempfile.mkdtemp(prefix=f"raylog-{name}-")
        files = make_data_dir(data_dir, name=name, brokers=brokers, controllers=controllers)
        if files.brokers > 1:
            _check_ports_differ(config)
        handles = make_actors(files, partial(_texts, config, port))
        ready = _wait_until_ready(name, handles)
    except BaseException as error:
        for handle in handles.values():
            ray.kill(handle, no_restart=True)
        if temporary_dir is not None:
            remove_everywhere(temporary_dir)
        if owns_ray:
            ray.shutdown()
        if isinstance(error, ray.exceptions.RayTaskError):
            raise error.cause from None
        raise
    statuses = [status for node, status in ready.items() if is_broker(node)]
    handles.pop(SUPERVISOR_NAME, None)
    return Cluster(name, handles, statuses, owned=True, owns_ray=owns_ray, temporary_dir=temporary_dir)


def _wait_until_ready(name: str, handles: Mapping[str, Any]) -> dict[str, Any]:
    """The status of each. Raises what the first of them to fail raises: the others may wait for that one for ever.

    Ray may place an actor elsewhere than it was asked to: the actor ends itself then, and the supervisor makes it anew.
    """
    import ray

    asked = {handle.ready.remote(): node for node, handle in handles.items()}
    deadline = time.monotonic() + MISPLACED_SECONDS
    ready: dict[str, Any] = {}
    while asked:
        [done], _ = ray.wait(list(asked), num_returns=1)
        node = asked.pop(done)
        try:
            ready[node] = ray.get(done)
        except ray.exceptions.RayActorError:
            if SUPERVISOR_NAME not in handles or time.monotonic() > deadline:
                raise
            while (handle := current_handles(name, [node])[node]) is None:
                time.sleep(MISPLACED_POLL_SECONDS)
            asked[handle.ready.remote()] = node
            time.sleep(MISPLACED_POLL_SECONDS)
    return ready


def _stop(name: str, nodes: Sequence[str]) -> None:
    """The supervisor first, then the brokers: what they still ask of the controllers is answered."""
    import ray

    groups = [[SUPERVISOR_NAME], list(filter(is_broker, nodes)), [node for node in nodes if not is_broker(node)]]
    for group in groups:
        handles = [handle for handle in current_handles(name, group).values() if handle is not None]
        if group != [SUPERVISOR_NAME]:
            for stopping in [handle.stop.remote() for handle in handles]:
                try:
                    ray.get(stopping, timeout=STOP_SECONDS)
                except ray.exceptions.RayError as error:
                    log.warning("actor did not stop cleanly", extra={"cluster": name, "reason": str(error)})
        for handle in handles:
            ray.kill(handle, no_restart=True)


def connect(name: str = "raylog", *, address: str | None = None) -> Cluster:
    """The running cluster of this name, once it serves.

    It is looked for in the Ray this process is connected to, else at `address`, at RAY_ADDRESS, where `raylog start`
    of this user has announced it, or in the Ray that `ray.init("auto")` finds. A local Ray that another program started
    by `raylog.start` is open to processes that have its RAY_AUTH_TOKEN. Raises ConfigError where there is none.
    """
    with _joined(name, address) as handles:
        import ray

        brokers: list[BrokerStatus] = ray.get(
            [handle.ready.remote() for node, handle in handles.items() if is_broker(node)]
        )
        return Cluster(name, handles, brokers)


def cluster_status(name: str = "raylog", *, address: str | None = None) -> ClusterStatus:
    """Every broker and controller, also while it cannot serve; looked for as `connect` does. Raises ConfigError."""
    with _joined(name, address) as handles:
        return _ask_all(handles)


@contextmanager
def _joined(name: str, address: str | None) -> Iterator[dict[str, Any]]:
    """The handles of all actors by name. Where the block fails, a Ray that was joined for it is left again."""
    check_name(name)
    prepare_environment()
    was_connected = _is_connected()
    if not was_connected:
        _join_for(name, address)
    import ray

    namespace = namespace_of(name)
    try:
        named = ray.util.list_named_actors(all_namespaces=True)
        found = {entry["name"] for entry in named if entry["namespace"] == namespace}
        nodes = sorted(found - {SUPERVISOR_NAME}, key=_by_number)
        if not any(map(is_broker, nodes)):
            raise ConfigError(f"name={name!r}: no cluster of this name runs in this Ray")
        try:
            handles = {node: ray.get_actor(node, namespace=namespace) for node in nodes}
        except ValueError as error:
            raise ConfigError(f"name={name!r}: the cluster of this name is being stopped") from error
        yield handles
    except BaseException:
        if not was_connected:
            ray.shutdown()
        raise


def _join_for(name: str, address: str | None) -> None:
    if address is not None or "RAY_ADDRESS" in os.environ:
        join_ray(address or os.environ["RAY_ADDRESS"])
    elif (announced := find_announced(name)) is not None:
        join_ray(announced.ray_address, auth_mode=announced.ray_auth_mode)
    else:
        try:
            join_ray("auto")
        except ConfigError as error:
            message = f"name={name!r}: no `raylog start` of this user runs such a cluster, and no other Ray was found"
            raise ConfigError(message) from error


def _is_connected() -> bool:
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized())


def _ask_all(handles: Mapping[str, Any]) -> ClusterStatus:
    import ray

    from raylog.actors.broker import BrokerStatus
    from raylog.actors.controller import ControllerStatus

    asked = {node: None if handle is None else handle.status.remote() for node, handle in handles.items()}
    statuses = ClusterStatus([], [])
    for node, answer in asked.items():
        number, state = number_of(node), "away" if answer is None else "restarting"
        away = BrokerStatus(number, "", 0, 0, "", state, "", {})
        status: Any = away if is_broker(node) else ControllerStatus(FIRST_VOTER_ID + number, 0, active=False)
        with suppress(ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            status = status if answer is None else ray.get(answer, timeout=STATUS_SECONDS)
        (statuses.brokers if is_broker(node) else statuses.controllers).append(status)
    return statuses


def check_name(name: str) -> None:
    """Raises ConfigError for what cannot be a cluster's name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"name={name!r}: must be up to 100 letters, digits, '.', '_' and '-', a letter or digit first"
        )


def _by_number(node: str) -> tuple[bool, int]:
    """Brokers behind controllers, each kind in the order of their numbers."""
    return is_broker(node), number_of(node)


def _texts(
    config: Mapping[str, Any] | None, port: int | None, broker_id: int, address: str = LOOPBACK
) -> dict[str, Any]:
    texts = dict(config or {})
    for key in ("node.id", "broker.id"):
        if key in texts:
            raise ConfigError(f"{key}={texts[key]!r}: raylog numbers its brokers itself, from 0; leave the key out")
    if port is not None:
        if "listeners" in texts:
            raise ConfigError("port and config['listeners'] say the same thing: give one of them")
        if not 0 <= port <= 65535 - broker_id:
            highest = f"{65535 - broker_id}, since broker {broker_id} listens on port + {broker_id}"
            raise ConfigError(f"port={port}: must be between 0 and {highest if broker_id else 65535}")
        texts["listeners"] = f"PLAINTEXT://{address}:{port + broker_id if port else 0}"
    return {"listeners": f"PLAINTEXT://{address}:0", **texts}


def _check_ports_differ(config: Mapping[str, Any] | None) -> None:
    """Several brokers cannot have one port."""
    for key in ("listeners", "advertised.listeners"):
        text = str((config or {}).get(key, ""))
        if re.search(r":0*[1-9]\d*\s*(,|$)", text):
            raise ConfigError(f"{key}={text!r}: several brokers cannot share a port; write port 0, or use `port`")
