"""(shell) The user's view of a raylog cluster: start, connect and stop."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from raylog.actors.announcement import find_announced
from raylog.actors.bootstrap import ready_brokers, servers_of
from raylog.actors.broker_restart import (
    RESTART_SECONDS,
    active_last,
    cause_of,
    restart_broker,
    restart_controller,
    restart_now,
)
from raylog.actors.broker_set import KeptDirectory, add_broker, changing, remove_broker
from raylog.actors.client_files import PROPERTIES_FILE
from raylog.actors.cluster_actors import (
    current_handles,
    discard_remains,
    errors_of_ended_actor,
    make_actors,
    nodes_of,
    remove_on_all_hosts,
    wait_until_ready,
)
from raylog.actors.config_change import ConfigChange
from raylog.actors.config_check import check_config
from raylog.actors.controller_set import add_controller, remove_controller
from raylog.actors.coordinator_set import retire_coordinators, start_coordinators, with_coordinators
from raylog.actors.data_dir import (
    BROKERS_MAX,
    ClusterFiles,
    delete_data_dir,
    make_data_dir,
    plan_data_dir,
    with_further_dirs,
)
from raylog.actors.given_config import PORT_MAX, GivenConfig, NewConfig
from raylog.actors.local_ray import OtherTokenError, join_or_start_ray, join_ray, prepare_environment
from raylog.actors.log_file import LogTail
from raylog.actors.login import create_users, prepare_login
from raylog.actors.names import (
    GATEWAY_NAME,
    SUPERVISOR_NAME,
    check_name,
    is_broker,
    is_controller,
    is_coordinator,
    node_id_of,
    node_name,
    number_of,
)
from raylog.client.client_config import ClientConfig, checked_properties
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.journal import JournalEvent
from raylog.metadata.node_roles import IDS_PER_ROLE
from raylog.metadata.voters import VOTER_COUNTS

if TYPE_CHECKING:
    from raylog.actors.broker import BrokerStatus
    from raylog.actors.controller import ControllerStatus

log = logging.getLogger("raylog.actors.cluster")
DEFAULT_PORT = 9092
STOP_SECONDS = 30.0
ABANDON_SECONDS = 10.0
"""How long a node may take to stop when Ray has failed."""
STATUS_SECONDS = 5.0
"""A broker that does not respond within this time is restarting; a running one responds in milliseconds."""


CONNECT_SECONDS = 600.0
"""How long `connect` waits for a broker: after a crash they may have large logs to look through."""
CHANGE_SECONDS = 5.0
"""How long one who changes the cluster waits for each of its brokers."""


class Interruption:
    """Ends a start that runs in another thread."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        """Ends the start when it is set. A Ray that is being started is started and stopped again."""
        self.must_clean_up = False
        """Whether the start may have left processes or files; until then this process can end without it."""
        self.connected = threading.Event()
        """Set when this process is connected to Ray, which has then replaced signal handlers of this process."""

    def check(self) -> None:
        """Raises KeyboardInterrupt if it is requested."""
        if self.requested.is_set():
            raise KeyboardInterrupt

    def begin(self) -> None:
        """Call before the first process is started. The order excludes that a request is missed."""
        self.must_clean_up = True
        self.check()


class ClusterStatus(NamedTuple):
    """All nodes of a cluster, including those that are not running."""

    brokers: list[BrokerStatus]
    controllers: list[ControllerStatus]
    coordinators: list[BrokerStatus]


class Cluster:
    """A running cluster. As a context manager it stops the cluster if `start` returned it, not if `connect` did."""

    def __init__(
        self,
        name: str,
        brokers: Sequence[BrokerStatus],
        *,
        owned: bool = False,
        owns_ray: bool = False,
        temporary_dir: str | None = None,
        handles: Mapping[str, Any] | None = None,
        data_dir: str = "",
        client_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Use `start` or `connect` instead."""
        self.name = name
        self.bootstrap_servers = servers_of(brokers)
        """Addresses of all brokers for Kafka clients, as of the creation of this object or its last change of them."""
        self._stopped = False
        self._owned = owned
        self._owns_ray = owns_ray
        self._temporary_dir = temporary_dir
        self.data_dir = data_dir
        """The data directory; empty if this object did not start the cluster."""
        self.client_config = dict(client_config or {})
        """Properties of Kafka's Java client with which to log in; empty if none are needed or known."""
        self._client_properties = checked_properties(self.client_config)
        self._handles = handles or {}
        """Those of the nodes that were started with it: other handles cannot be found once Ray's GCS has ended."""

    def __enter__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Cluster], tuple[Any, ...]]:
        """For tasks and actors of the same Ray: there it is as if `connect` had returned it, with its login."""
        return _copied, (self.name, self.bootstrap_servers, self.client_config)

    def __exit__(self, *_: object) -> None:
        if self._owned:
            self.stop()

    @property
    def ray_address(self) -> str:
        """Address of the Ray of this cluster, as for `ray.init`."""
        import ray

        return str(ray.get_runtime_context().gcs_address)

    @property
    def bootstrap_controllers(self) -> str:
        """host:port of the controllers that run and have a listener for clients, for tools with --bootstrap-controller.

        Empty if there are none, see `raylog.start`.
        """
        if self._stopped:
            return ""
        controllers = _query_all(current_handles(self.name, nodes_of(self.name))).controllers
        return ",".join(each.address for each in controllers if each.address)

    @property
    def console_url(self) -> str | None:
        """The address of the web console; None if the cluster was started without, or it does not answer."""
        handle = None if self._stopped else current_handles(self.name, [GATEWAY_NAME])[GATEWAY_NAME]
        if handle is None:
            return None
        from raylog.actors.gateway import gateway_url

        return gateway_url(handle)

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all current brokers; none after the cluster is stopped."""
        return [] if self._stopped else [number_of(node) for node in nodes_of(self.name) if is_broker(node)]

    def broker(self, broker_id: int) -> Any:
        """The Ray actor handle of a broker or a coordinator, by its id. Raises KeyError."""
        node = node_name(broker_id)
        handle = current_handles(self.name, [node])[node]
        if handle is None:
            away = " is on a host that is not alive" if broker_id in self.broker_ids else ""
            raise KeyError(node + away)
        return handle

    def status(self) -> list[BrokerStatus]:
        """The status of each broker."""
        return _query_all(current_handles(self.name, [] if self._stopped else nodes_of(self.name))).brokers

    def add_brokers(self, count: int = 1) -> list[BrokerStatus]:
        """Add brokers with the same configuration, on the hosts that have the fewest. They are running on return.

        They are part of the cluster from now on, also when it is started again from its data directory. They get new
        ids above all that were ever used. Existing partitions are not moved (see `raylog reassign`); new topics are
        spread over all brokers. Raises ConfigError if a broker cannot start; it is then not added.
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
        """Stop and unregister a broker that has no replicas; `raylog.start` does not start it again.

        Its log directory is kept. Raises KafkaError: BROKER_ID_NOT_REGISTERED if it does not exist, INVALID_REQUEST if
        it has replicas or is the last broker.
        """
        with changing(self.name):
            others = [broker for broker in self.status() if broker.id != broker_id]
            kept = remove_broker(self.name, broker_id, self._reached_by(others))
            self._find_servers()
            self._replace_console(None, log.warning)
        return kept

    def add_controllers(self, count: int = 1) -> list[ControllerStatus]:
        """Start further controllers and make them voters of the quorum, one after the other.

        They are part of the cluster from now on, also when it is started again, and get ids above all that were ever
        used. Raises KafkaError: UNSUPPORTED_VERSION while `kraft.version` is 0, REQUEST_TIMED_OUT if one does not catch
        up; it is then not added.
        """
        if count < 1:
            raise ConfigError(f"count={count}: must be at least 1")
        with changing(self.name):
            return [add_controller(self.name, self._reached_by(self.status())) for _ in range(count)]

    def remove_controller(self, controller_id: int) -> KeptDirectory:
        """Take the vote of a controller, also of one that does not run any more, and stop it for good.

        Its directory is kept. Raises KafkaError: UNSUPPORTED_VERSION while `kraft.version` is 0, VOTER_NOT_FOUND if it
        does not exist, INVALID_REQUEST for the last one, REQUEST_TIMED_OUT without a majority of the others.
        """
        with changing(self.name):
            return remove_controller(self.name, controller_id, self._reached_by(self.status()))

    def restart_broker(self, broker_id: int, *, timeout_seconds: float = RESTART_SECONDS) -> None:
        """Restart one broker in a new process, with the same data and ports.

        The broker hands over its leaderships first, unless it hangs. Returns when it is running and all its replicas
        are in sync.
        Raises KeyError, KafkaError(REQUEST_TIMED_OUT), and ConfigError if brokers are being restarted already.
        """
        with changing(self.name):
            nodes = self._running(nodes_of(self.name))
            restart_broker(self.broker(broker_id), broker_id, nodes, timeout_seconds=timeout_seconds)

    def rolling_restart(
        self,
        *,
        config: Mapping[str, Any] | None = None,
        broker_config: Mapping[int, Mapping[str, Any]] | None = None,
        secure: bool | None = None,
        users: Mapping[str, str] | None = None,
        timeout_seconds: float = RESTART_SECONDS,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Restart all nodes, one at a time, with the same configuration or another one.

        `config` and `broker_config` replace the whole configuration, as if the cluster were stopped and started with
        them; without both it is kept. Ports remain where no others are configured. `secure` and `users` are those of
        `raylog.start`. With any of these arguments nodes get new actors: handles that `broker` has returned before are
        invalid. Passwords of both configurations are kept in the data directory until all nodes are restarted.

        Each broker is waited for until it is in sync, each controller until it has caught up. Coordinators are
        restarted last, and nothing waits for them: brokers do their work meanwhile. New processes run the version of
        raylog that is installed by then.

        The timeout applies to each node. `report` is called with a line about each step. Raises ConfigError for an
        invalid configuration, before anything is restarted, and if brokers are being restarted already. Raises
        KafkaError if a node does not start or get in sync: then those that follow are not restarted, and run with their
        former configuration. The same call, or one with another configuration, continues.
        """
        new = NewConfig.of(config, broker_config, secure, users)
        with changing(self.name):
            if new != NewConfig():
                self._change_config(new, timeout_seconds, report)
                return
            nodes = nodes_of(self.name)
            brokers, controllers = (self._running(filter(kind, nodes)) for kind in (is_broker, is_controller))
            steps: dict[str, Callable[..., None]] = {}
            for each in self.broker_ids:
                steps[f"broker {each}"] = partial(restart_broker, self.broker(each), each, self._running(nodes))
            for node in active_last(controllers):
                steps[f"controller {number_of(node)}"] = partial(restart_controller, controllers[node], node, brokers)
            for number, (title, restart) in enumerate(steps.items(), 1):
                report(f"Restarting {title}, {number} of {len(steps)}.")
                began = time.monotonic()
                restart(timeout_seconds=timeout_seconds)
                report(f"{title.capitalize()} is in sync after {time.monotonic() - began:.1f} s.")
            for node, handle in self._running(filter(is_coordinator, nodes)).items():
                report(f"Restarting {node}.")
                restart_now(handle, node)

    def _running(self, nodes: Iterable[str]) -> dict[str, Any]:
        """The handles of those that have an actor, by name."""
        return {node: handle for node, handle in current_handles(self.name, list(nodes)).items() if handle is not None}

    def _change_config(self, new: NewConfig, timeout_seconds: float, report: Callable[[str], None]) -> None:
        change = ConfigChange(self.name, new, report)
        try:
            login = change.carry_out(timeout_seconds=timeout_seconds)
        finally:
            self._find_servers()
            handles = current_handles(self.name, list(self._handles))
            self._handles = {node: handle for node, handle in handles.items() if handle is not None}
        if login is not None:
            self.client_config = login.write(self.bootstrap_servers)
            report(f"The administrator's login is in {login.root / PROPERTIES_FILE}.")
        elif self._owned:
            self.client_config = {}
        self._client_properties = checked_properties(self.client_config)
        self._replace_console({} if login is None and not change.secure else self.client_config or None, report)

    def _replace_console(self, client_config: Mapping[str, Any] | None, report: Callable[[str], None]) -> None:
        """Where brokers, or the way to them, have changed, the console if there is one begins with the new ones. None
        stands for the properties that it has."""
        from raylog.actors.gateway import replace_gateway

        properties = None if client_config is None else checked_properties(client_config)
        try:
            replace_gateway(self.name, self.bootstrap_servers, properties)
        except KafkaError as error:
            report(f"The console is not served any more: {error.message}.")

    def stop(self) -> None:
        """Stop all actors cleanly, and the local Ray if it was started for this cluster. Can be called twice."""
        import ray

        if self._stopped or not ray.is_initialized():
            return
        _stop(self.name, nodes_of(self.name))
        self._stopped = True
        if self._temporary_dir is not None:
            remove_on_all_hosts(self._temporary_dir)
        if self._owns_ray:
            ray.shutdown()

    def abandon(self) -> None:
        """Stop a cluster whose Ray has failed: cleanly the nodes that still run, then what is left of a local Ray."""
        import ray

        self._stopped = True
        for group in _stop_order(self._handles):
            _stop_nodes([self._handles[node] for node in group], self.name, ABANDON_SECONDS)
        if self._temporary_dir is not None:
            delete_data_dir(self._temporary_dir)
        if self._owns_ray:
            ray.shutdown()

    def _reached_by(self, brokers: Sequence[BrokerStatus]) -> ClientConfig:
        return ClientConfig(servers_of(brokers), self._client_properties)

    def _find_servers(self) -> None:
        self.bootstrap_servers = servers_of(self.status())


def _copied(name: str, bootstrap_servers: str, client_config: Mapping[str, Any]) -> Cluster:
    cluster = Cluster(name, [], client_config=client_config)
    cluster.bootstrap_servers = bootstrap_servers
    return cluster


def start(
    name: str = "raylog",
    *,
    data_dir: str | Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    broker_config: Mapping[int, Mapping[str, Any]] | None = None,
    brokers: int | None = None,
    controllers: int | None = None,
    group_coordinators: int | None = None,
    transaction_coordinators: int | None = None,
    port: int | None = None,
    controller_port: int | None = None,
    secure: bool | None = None,
    users: Mapping[str, str] | None = None,
    console: bool | int = False,
    address: str | None = None,
    interruption: Interruption | None = None,
) -> Cluster:
    """Start a cluster. It is ready for clients on return.

    `data_dir` keeps the data. Several directories, on several disks, give each broker a log directory in each of them:
    new replicas go to the one with the fewest partitions, and a disk that fails takes only its replicas offline. The
    first one has the files of the cluster, which remember the others. If it contains a cluster of the same name, that
    cluster is started again. Without it the data is in a temporary directory, which `stop` deletes. `config` is Kafka's
    broker configuration. In it `node.id` is the id of the first broker, 0 by default, from which the others are
    numbered. `broker_config` overrides keys for single brokers, by their ids: `{1: {"advertised.listeners":
    "PLAINTEXT://proxy:9093"}}`.
    `brokers` is their number: by default as many as `data_dir` contains, or one. `controllers` is the number of
    controllers: 1 (the default), 3 or 5, a minority of which may fail. `add_controllers` changes it later.

    `group_coordinators` and `transaction_coordinators` are the numbers of actors that lead the partitions of
    __consumer_offsets and __transaction_state, apart from the work of brokers; several share the partitions. With 0
    brokers do so. By default they are as `data_dir` says, else 1 from two brokers on, or 0 if clients reach brokers by
    advertised.listeners. Coordinators use free ports, unless `broker_config` has listeners for their ids, which begin
    at 2000 and 3000. Nothing waits for their start. The work moves to a coordinator when it has been in sync for 10 s,
    and to a broker at once if it fails.

    Brokers and controllers are spread over the hosts of the Ray cluster. Each stays on its host, which has its data,
    under the same path on every host. If its host is not alive, it is started when the host is back.

    With `secure` clients must log in by SCRAM over TLS, and the authorizer is on. The cluster makes a certificate
    authority, certificates for its brokers, and an administrator, `User:admin`. `client.properties` and
    `librdkafka.conf` in the data directory, which only the owner can read, say how to log in, as does
    `Cluster.client_config`. A cluster that was started so is started so again, unless `secure` is False.

    `users` are passwords of users who can log in by SCRAM, by their names. Those that exist already are left as they
    are; use `raylog users` to change them.

    With `console` an actor serves the web console of the cluster on 127.0.0.1 of this host, at `Cluster.console_url`:
    on this port, or on a free one (True).

    `port` is short for `listeners=PLAINTEXT://127.0.0.1:<port>` of the first broker and the following ports of the
    others, with the addresses of their hosts if there are several machines. Without `port` and `listeners`, free ports
    are used. `address` is the Ray cluster, as for `ray.init`; by default the Ray to which this process is connected,
    then RAY_ADDRESS, then a new local Ray.

    `controller_port` gives controllers a listener for Kafka's tools with --bootstrap-controller: the first one on this
    port, the others on those that follow, or all on free ports (0). So do listeners in `config` that
    controller.listener.names contains. `Cluster.bootstrap_controllers` is where they are. Without both, clients cannot
    reach controllers.

    Raises ConfigError for an invalid configuration, and if a cluster of this name is already running. If the start is
    interrupted, by Ctrl-C or through `interruption`, it raises KeyboardInterrupt, and nothing is left running.
    """
    interruption = interruption or Interruption()
    check_name(name)
    data_dir, further_dirs = (data_dir, ()) if data_dir is None or isinstance(data_dir, str) else _split(data_dir)
    if console is not False and console is not True and not 0 <= console <= PORT_MAX:
        raise ConfigError(f"console={console}: must be True, False or a port")
    if brokers is not None and not 1 <= brokers <= BROKERS_MAX:
        raise ConfigError(f"brokers={brokers}: must be between 1 and {BROKERS_MAX}")
    if controllers is not None and controllers not in VOTER_COUNTS:
        raise ConfigError(f"controllers={controllers}: must be one of {', '.join(map(str, VOTER_COUNTS))}")
    coordinators = {"group_coordinators": group_coordinators, "transaction_coordinators": transaction_coordinators}
    for argument, count in coordinators.items():
        if count is not None and not 0 <= count <= IDS_PER_ROLE:
            raise ConfigError(f"{argument}={count}: must be between 0 and {IDS_PER_ROLE}")
    new = NewConfig.of(config, broker_config, secure, users)
    given = GivenConfig(new.config or {}, port, of_single=new.broker_config or {})
    first_id = given.given_first_id()
    planned = plan_data_dir(data_dir, name=name, brokers=brokers, controllers=controllers, first_broker_id=first_id)
    given = replace(
        given,
        first_broker_id=planned.first_broker_id,
        secure=planned.secure if secure is None else secure,
        controller_port=controller_port,
    )
    if not planned.cluster_id:  # a cluster that exists may have brokers that were added while this host was away
        given.check_ids(planned.broker_ids)
    check_config(given, planned.broker_ids)
    prepare_environment()
    owns_ray = join_or_start_ray(address, interruption.begin)
    import ray

    temporary_dir = None
    handles: dict[str, Any] = {}
    try:
        interruption.connected.set()
        interruption.begin()
        _check_not_running(planned)
        if data_dir is None:
            data_dir = temporary_dir = tempfile.mkdtemp(prefix=f"raylog-{name}-")
        files = make_data_dir(data_dir, name=name, brokers=brokers, controllers=controllers, first_broker_id=first_id)
        if further_dirs:
            files = with_further_dirs(files, further_dirs)
        files = with_coordinators(files, given, group_coordinators, transaction_coordinators)
        files, login = prepare_login(files, given)
        handles, specs = make_actors(files, given)
        ready = wait_until_ready(name, handles, interruption.check)
        statuses = [status for node, status in ready.items() if is_broker(node)]
        running = {node: handles[node] for node in ready if is_broker(node)}
        create_users(running, files.secret, new.users, login)
        client_config = {} if login is None else login.write(servers_of(statuses))
        retire_coordinators(specs, files, running)
        handles |= start_coordinators(specs, files)
        if console is not False:
            from raylog.actors.gateway import start_gateway

            login_properties, console_port = checked_properties(client_config), 0 if console is True else console
            handles[GATEWAY_NAME], _ = start_gateway(name, servers_of(statuses), login_properties, port=console_port)
    except BaseException:
        for handle in handles.values():
            ray.kill(handle, no_restart=True)
        if temporary_dir is not None:
            remove_on_all_hosts(temporary_dir)
        if owns_ray:
            ray.shutdown()
        raise
    return Cluster(
        name,
        statuses,
        owned=True,
        owns_ray=owns_ray,
        temporary_dir=temporary_dir,
        handles=handles,
        data_dir=data_dir,
        client_config=client_config,
    )


def _check_not_running(planned: ClusterFiles) -> None:
    """Before anything is written: a cluster that runs is not to be changed. What is left of one is removed. Raises
    ConfigError."""
    from raylog.actors.former_process import check_unused
    from raylog.logstore.disk import RealDisk

    discard_remains(planned.name)
    if planned.cluster_id:
        node_ids = (*planned.broker_ids, *planned.coordinator_ids)
        directories = [path for node_id in node_ids for path in planned.log_paths(node_id)]
        check_unused(RealDisk(), [*map(planned.controller_path, planned.controller_numbers), *directories])


def _split(data_dirs: Sequence[str]) -> tuple[str, Sequence[str]]:
    if not data_dirs:
        raise ConfigError("data_dir=[]: must name a directory")
    return data_dirs[0], data_dirs[1:]


def _stop(name: str, nodes: Sequence[str]) -> None:
    """Stop the supervisor and the gateway, then the coordinators, so that brokers have all of their records, then the
    brokers, then the controllers, which the others need for a clean shutdown."""
    import ray

    for group in [[SUPERVISOR_NAME], [GATEWAY_NAME], *_stop_order(nodes)]:
        handles = [handle for handle in current_handles(name, group).values() if handle is not None]
        if group != [SUPERVISOR_NAME]:
            _stop_nodes(handles, name, STOP_SECONDS)
        for handle in handles:
            ray.kill(handle, no_restart=True)


def _stop_order(nodes: Iterable[str]) -> list[list[str]]:
    return [[node for node in nodes if is_of_kind(node)] for is_of_kind in (is_coordinator, is_broker, is_controller)]


def _stop_nodes(handles: Sequence[Any], name: str, seconds: float) -> None:
    """Ask the nodes to stop, and wait for each of them up to so long."""
    import ray

    for stopping in [handle.stop.remote() for handle in handles]:
        try:
            ray.get(stopping, timeout=seconds)
        except ray.exceptions.RayError as error:
            log.warning("actor did not stop cleanly", extra={"cluster": name, "reason": cause_of(error)})


def connect(
    name: str = "raylog", *, address: str | None = None, client_config: Mapping[str, Any] | None = None
) -> Cluster:
    """Connect to the running cluster of this name. Returns when a broker is ready for clients.

    `client_config` contains properties of Kafka's Java client. They are needed to remove brokers whose first listener
    has TLS or a login.

    The cluster is searched in the Ray to which this process is connected, else at `address`, at RAY_ADDRESS, where
    `raylog start` of this user has announced it, or in the Ray that `ray.init("auto")` finds. To connect to a local Ray
    that another program has started with `raylog.start`, a process needs its RAY_AUTH_TOKEN. Raises ConfigError if the
    cluster is not found, KafkaError(BROKER_NOT_AVAILABLE) if none of its brokers runs.
    """
    cluster = _connected(name, address, client_config, first_seconds=CONNECT_SECONDS)
    if not cluster.bootstrap_servers:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"name={name!r}: no broker is running")
    return cluster


def connect_to_change(
    name: str, *, address: str | None = None, client_config: Mapping[str, Any] | None = None
) -> Cluster:
    """As `connect`, for one who mends the cluster: also if none of its brokers runs."""
    return _connected(name, address, client_config, first_seconds=CHANGE_SECONDS)


def _connected(
    name: str, address: str | None, client_config: Mapping[str, Any] | None, *, first_seconds: float
) -> Cluster:
    """With the brokers that run. Raises ConfigError."""
    properties = checked_properties(client_config or {})
    with _joined(name, address) as nodes:
        handles = current_handles(name, list(filter(is_broker, nodes)))
        present = [handle for handle in handles.values() if handle is not None]
        if not present:
            raise ConfigError(f"name={name!r}: the cluster is being stopped")
        brokers = ready_brokers(present, first_seconds=first_seconds, others_seconds=CHANGE_SECONDS)
        return Cluster(name, brokers, client_config=properties)


def cluster_status(name: str = "raylog", *, address: str | None = None) -> ClusterStatus:
    """All nodes, running or not, of the cluster that `connect` finds. Raises ConfigError."""
    with _joined(name, address) as nodes:
        return _query_all(current_handles(name, nodes))


def cluster_events(
    name: str = "raylog", *, node: str | None = None, address: str | None = None
) -> dict[str, list[JournalEvent]]:
    """The recent events of each node that answers, or of one `node` (broker-0, controller-0, group-coordinator-0).

    The cluster is found as `connect` does. Raises ConfigError, also for a node that does not exist or does not answer.
    """
    return _answers(name, node, address, lambda handle: handle.events.remote())


def cluster_logs(
    name: str = "raylog", *, lines: int, node: str | None = None, address: str | None = None
) -> dict[str, LogTail]:
    """Where each node's log is on its host, and the last `lines` of it. Nodes and errors as for `cluster_events`."""
    return _answers(name, node, address, lambda handle: handle.log_tail.remote(lines))


def _answers(name: str, node: str | None, address: str | None, ask: Callable[[Any], Any]) -> dict[str, Any]:
    """What each node that answers has said, or one of them. Raises ConfigError."""
    import ray

    with _joined(name, address) as nodes:
        handles = current_handles(name, nodes)
        if node is not None and node not in handles:
            raise ConfigError(f"--node {node}: the cluster has {', '.join(sorted(handles))}")
        wanted = handles if node is None else {node: handles[node]}
        asked = {each: ask(handle) for each, handle in wanted.items() if handle is not None}
        found = {}
        for each, answer in asked.items():
            with suppress(*errors_of_ended_actor(), ray.exceptions.GetTimeoutError):
                found[each] = ray.get(answer, timeout=STATUS_SECONDS)
        if node is not None and node not in found:
            raise ConfigError(f"--node {node}: does not respond")
        return found


@contextmanager
def _joined(name: str, address: str | None) -> Iterator[list[str]]:
    """The names of the brokers and controllers. If the block fails, it disconnects a Ray that it has connected to."""
    check_name(name)
    prepare_environment()
    was_connected = _is_connected()
    if not was_connected:
        _join_for(name, address)
    import ray

    try:
        nodes = nodes_of(name)
        if not any(map(is_broker, nodes)):
            raise ConfigError(f"name={name!r}: no cluster with this name is running in this Ray")
        yield nodes
    except BaseException:
        if not was_connected:
            ray.shutdown()
        raise


def _join_for(name: str, address: str | None) -> None:
    if address is not None or "RAY_ADDRESS" in os.environ:
        join_ray(address or os.environ["RAY_ADDRESS"])
    elif (announced := find_announced(name)) is not None:
        try:
            join_ray(announced.ray_address, auth_mode=announced.ray_auth_mode)
        except ConfigError as error:
            message = f"name={name!r}: `raylog start` of this user runs this cluster, but {error.message}"
            raise ConfigError(message) from error
    else:
        try:
            join_ray("auto")
        except OtherTokenError as error:
            message = f"name={name!r}: no `raylog start` of this user runs this cluster, and {error.message}"
            raise ConfigError(message) from error
        except ConfigError as error:
            message = f"name={name!r}: no `raylog start` of this user runs this cluster, and no other Ray was found"
            raise ConfigError(message) from error


def _is_connected() -> bool:
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized())


def _query_all(handles: Mapping[str, Any]) -> ClusterStatus:
    import ray

    from raylog.actors.broker import BrokerStatus
    from raylog.actors.controller import ControllerStatus

    asked = {node: None if handle is None else handle.status.remote() for node, handle in handles.items()}
    statuses = ClusterStatus([], [], [])
    for node, answer in asked.items():
        node_id, state = node_id_of(node), "away" if answer is None else "restarting"
        away = BrokerStatus(node_id, "", 0, 0, "", state, "", {})
        status: Any = ControllerStatus(node_id, 0, active=False) if is_controller(node) else away
        with suppress(*errors_of_ended_actor(), ray.exceptions.GetTimeoutError):
            status = status if answer is None else ray.get(answer, timeout=STATUS_SECONDS)
        of_kind: list[Any] = statuses.controllers if is_controller(node) else statuses.brokers
        (statuses.coordinators if is_coordinator(node) else of_kind).append(status)
    return statuses
