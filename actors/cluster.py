"""(shell) A raylog cluster as its user holds it: start one, connect to one, stop it."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from raylog.actors.announcement import find_announced
from raylog.actors.broker_restart import RESTART_SECONDS, restart_broker
from raylog.actors.broker_set import KeptDirectory, add_broker, changing, remove_broker
from raylog.actors.cluster_actors import current_handles, make_actors, nodes_of, remove_everywhere, wait_until_ready
from raylog.actors.data_dir import BROKERS_MAX, make_data_dir
from raylog.actors.given_config import GivenConfig
from raylog.actors.local_ray import join_or_start_ray, join_ray, prepare_environment
from raylog.actors.names import SUPERVISOR_NAME, broker_name, is_broker, number_of
from raylog.broker.listeners import plan_listeners
from raylog.config.table import broker_configs, hide_passwords
from raylog.core.errors import ConfigError
from raylog.core.journal import JournalEvent
from raylog.metadata.voters import FIRST_VOTER_ID, VOTER_COUNTS

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus
    from raylog.actors.controller import ControllerStatus

log = logging.getLogger("raylog.actors.cluster")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEFAULT_PORT = 9092
STOP_SECONDS = 30.0
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
        brokers: Sequence[BrokerStatus],
        *,
        owned: bool = False,
        owns_ray: bool = False,
        temporary_dir: str | None = None,
    ) -> None:
        """Not to be called: use `start` or `connect`."""
        self.name = name
        self.bootstrap_servers = _servers(brokers)
        """Every broker, for any Kafka client; as it was when this was made, or when it changed them last."""
        self._stopped = False
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

    @property
    def broker_ids(self) -> list[int]:
        """Of all brokers there are now, whoever has added them; none once the cluster is stopped."""
        return [] if self._stopped else [number_of(node) for node in nodes_of(self.name) if is_broker(node)]

    def broker(self, broker_id: int) -> Any:
        """The Ray actor handle of a broker. Raises KeyError."""
        node = broker_name(broker_id)
        handle = current_handles(self.name, [node])[node]
        if handle is None:
            away = " is away, with its host" if broker_id in self.broker_ids else ""
            raise KeyError(node + away)
        return handle

    def status(self) -> list[BrokerStatus]:
        """One entry for each broker."""
        return _ask_all(current_handles(self.name, [] if self._stopped else nodes_of(self.name))).brokers

    def add_brokers(self, count: int = 1) -> list[BrokerStatus]:
        """So many new brokers, configured as the others, on the hosts that have the fewest; they serve on return.

        They belong to the cluster for good, also when it is started again on its data directory. Their ids are new
        ones, behind all that were ever used. What there is stays where it is until it is moved (`raylog reassign`);
        new topics are spread over all. Raises ConfigError where one cannot start, which then is not added.
        """
        if count < 1:
            raise ConfigError(f"count={count}: must be at least 1")
        added = []
        with changing(self.name):
            for _ in range(count):
                added.append(add_broker(self.name))
                self._find_servers()
        return added

    def remove_broker(self, broker_id: int) -> KeptDirectory:
        """Stop a broker that holds no replica any more, and forget it; `raylog.start` does not start it again.

        Its log directory stays where it was. Raises KafkaError: BROKER_ID_NOT_REGISTERED for one that is not there,
        INVALID_REQUEST for one that holds replicas or is the last.
        """
        with changing(self.name):
            others = [broker for broker in self.status() if broker.id != broker_id]
            kept = remove_broker(self.name, broker_id, _servers(others))
            self._find_servers()
        return kept

    def restart_broker(self, broker_id: int, *, timeout_seconds: float = RESTART_SECONDS) -> None:
        """Stop one broker and start it again on its data and ports, in a new process; clients need not notice.

        It hands over what it leads first. Returns once it serves and is in sync with all that it holds.
        Raises KeyError, and KafkaError(REQUEST_TIMED_OUT).
        """
        actor = self.broker(broker_id)
        restart_broker(actor, broker_id, _servers(self.status()), timeout_seconds=timeout_seconds)

    def rolling_restart(self, *, timeout_seconds: float = RESTART_SECONDS) -> None:
        """`restart_broker` for one broker after another; the time is that of each. Raises KafkaError."""
        for broker_id in self.broker_ids:
            self.restart_broker(broker_id, timeout_seconds=timeout_seconds)

    def stop(self) -> None:
        """Stop every actor cleanly; a local Ray started for this cluster goes too. Stopping twice is allowed."""
        import ray

        if self._stopped or not ray.is_initialized():
            return
        _stop(self.name, nodes_of(self.name))
        self._stopped = True
        if self._temporary_dir is not None:
            remove_everywhere(self._temporary_dir)
        if self._owns_ray:
            ray.shutdown()

    def _find_servers(self) -> None:
        self.bootstrap_servers = _servers(self.status())


def _servers(brokers: Sequence[BrokerStatus]) -> str:
    """Of those that serve."""
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers if broker.port)


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
    given = GivenConfig(hide_passwords(config or {}), port)
    for broker_id in range(brokers or 1):
        plan_listeners(broker_configs(given.of_broker(broker_id)))
    prepare_environment()
    owns_ray = join_or_start_ray(address)
    import ray

    temporary_dir = None
    handles: dict[str, Any] = {}
    try:
        if data_dir is None:
            data_dir = temporary_dir = tempfile.mkdtemp(prefix=f"raylog-{name}-")
        files = make_data_dir(data_dir, name=name, brokers=brokers, controllers=controllers)
        if len(files.broker_ids) > 1:
            given.check_several()
        handles = make_actors(files, given)
        ready = wait_until_ready(name, handles)
    except BaseException:
        for handle in handles.values():
            ray.kill(handle, no_restart=True)
        if temporary_dir is not None:
            remove_everywhere(temporary_dir)
        if owns_ray:
            ray.shutdown()
        raise
    statuses = [status for node, status in ready.items() if is_broker(node)]
    return Cluster(name, statuses, owned=True, owns_ray=owns_ray, temporary_dir=temporary_dir)


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
    with _joined(name, address) as nodes:
        import ray

        handles = current_handles(name, list(filter(is_broker, nodes)))
        brokers: list[BrokerStatus] = ray.get([each.ready.remote() for each in handles.values() if each is not None])
        if not brokers:
            raise ConfigError(f"name={name!r}: the cluster of this name is being stopped")
        return Cluster(name, brokers)


def cluster_status(name: str = "raylog", *, address: str | None = None) -> ClusterStatus:
    """Every broker and controller, also while it cannot serve; looked for as `connect` does. Raises ConfigError."""
    with _joined(name, address) as nodes:
        return _ask_all(current_handles(name, nodes))


def cluster_events(
    name: str = "raylog", *, node: str | None = None, address: str | None = None
) -> dict[str, list[JournalEvent]]:
    """The recent events of each broker and controller that answers, or of one `node` (broker-0, controller-0).

    The cluster is found as `connect` does. Raises ConfigError, also for a node that does not exist or does not answer.
    """
    import ray

    with _joined(name, address) as nodes:
        handles = current_handles(name, nodes)
        if node is not None and node not in handles:
            raise ConfigError(f"--node {node}: the cluster has {', '.join(sorted(handles))}")
        wanted = handles if node is None else {node: handles[node]}
        asked = {each: handle.events.remote() for each, handle in wanted.items() if handle is not None}
        found: dict[str, list[JournalEvent]] = {}
        for each, answer in asked.items():
            with suppress(ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
                found[each] = ray.get(answer, timeout=STATUS_SECONDS)
        if node is not None and node not in found:
            raise ConfigError(f"--node {node}: does not answer")
        return found


@contextmanager
def _joined(name: str, address: str | None) -> Iterator[list[str]]:
    """The names of its brokers and controllers. Where the block fails, a Ray that was joined for it is left again."""
    check_name(name)
    prepare_environment()
    was_connected = _is_connected()
    if not was_connected:
        _join_for(name, address)
    import ray

    try:
        nodes = nodes_of(name)
        if not any(map(is_broker, nodes)):
            raise ConfigError(f"name={name!r}: no cluster of this name runs in this Ray")
        yield nodes
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
