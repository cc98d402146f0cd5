"""(shell) Gives all nodes of a running cluster another configuration, by restarting them one at a time.

A node keeps its configuration in the arguments of its actor, so that it gets a new actor of the same name. Everything
that can be checked is checked before the first node is restarted; from then on the supervisor starts nodes of lost
hosts with the new configuration. If a node does not start with it, the change ends there: nodes that were not restarted
keep what they have. The next change begins with the nodes that do not run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raylog.actors.broker_restart import stop_node, wait_until_caught_up, wait_until_in_sync
from raylog.actors.client_files import read_password
from raylog.actors.cluster_actors import (
    EndedDuringStart,
    current_handles,
    merged_from_hosts,
    share_with_hosts,
    specs_of,
    supervise,
    wait_until_ready,
)
from raylog.actors.config_check import check_config
from raylog.actors.data_dir import ClusterFiles, find_data_dir
from raylog.actors.given_config import GivenConfig, NewConfig
from raylog.actors.login import AdministratorLogin, create_users, prepare_login
from raylog.actors.names import STOPPED, by_number, is_broker, is_controller, is_coordinator, node_id_of
from raylog.actors.restart_order import restart_order
from raylog.actors.waiting import wait_until_done
from raylog.config.authorization import authorizer_settings
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.transport.listeners import plan_listeners

if TYPE_CHECKING:
    from raylog.actors.node_actor import NodeSpec
    from raylog.security.security_protocol import SecurityProtocol

READY_SECONDS = 30.0
"""A node that is not ready within this time counts as one that does not run. One that has failed to start says so."""


class ConfigChange:
    """One change of the configuration. Make it and use it once, within `changing`."""

    def __init__(self, name: str, new: NewConfig, report: Callable[[str], None]) -> None:
        """Changes nothing. `report` is called with a line about each step. Raises ConfigError."""
        from raylog.actors.node_actor import NodeSpec
        from raylog.actors.placement import addresses_in_reach, alive_hosts

        self._name = name
        self._users = new.users
        self._report = report
        self._hosts = alive_hosts()
        former = specs_of(name)
        alike = next(spec for node, spec in former.items() if is_broker(node))
        self._files = files = merged_from_hosts(alike.data_dir, name, self._hosts)
        self._given = given = new.applied_to(alike.given).with_passwords(files.passwords)
        _check_ids(given, files)
        check_config(given, files.broker_ids)
        lost = sorted({host for host in files.hosts.values() if host not in self._hosts})
        if lost:
            raise ConfigError(
                f"name={name!r}: the configuration can be changed when all hosts are alive: {lost[0]} is not"
            )
        here = find_data_dir(alike.data_dir, name=name)
        if given.secure and not files.secure and here is None:
            rule = "its data directory, in which the administrator's login is written, is not on this host"
            raise ConfigError(
                f"name={name!r}: {rule}; make it secure from {', '.join(sorted(set(files.hosts.values())))}"
            )
        stored, self._passwords = given.without_passwords(files.passwords)
        addresses = addresses_in_reach(self._hosts, {spec.host: spec.address for spec in former.values()})
        self._specs = {
            node: NodeSpec(
                name,
                node_id_of(node),
                alike.data_dir,
                host,
                former[node].address if node in former else addresses[host],
                stored,
            )
            for node, host in sorted(files.hosts.items(), key=lambda placed: by_number(placed[0]))
        }
        self._restarted: list[str] = []
        self._check_nodes_can_connect(former)

    @property
    def secure(self) -> bool:
        """Whether the cluster is a secure one with it."""
        return self._given.secure

    def carry_out(self, *, timeout_seconds: float) -> AdministratorLogin | None:
        """Restart all nodes; the timeout applies to each. Returns the administrator's login, if it is known here.

        Raises KafkaError, which says what has been restarted.
        """
        from raylog.actors.placement import alive_hosts

        running = self._running()
        all_run = running.keys() == self._specs.keys()
        former = self._files
        files = replace(former, passwords={**former.passwords, **self._passwords})  # while both configurations are used
        share_with_hosts(files, self._hosts, replace_passwords=True)
        try:
            self._check_on_hosts(running)
            files, login = self._prepare_login(files)
            if all_run:
                self._create_users(login)
        except BaseException:
            share_with_hosts(former, self._hosts, replace_passwords=True)
            raise
        share_with_hosts(files, self._hosts)
        supervise(self._name, self._specs, self._hosts)
        for group in restart_order(list(self._specs), running, controllers_first=self._has_authorizer()):
            self._restart(group, timeout_seconds)
        if not all_run:
            self._create_users(login)
        share_with_hosts(replace(files, passwords=self._passwords), alive_hosts(), replace_passwords=True)
        return login

    def _running(self) -> dict[str, bool]:
        """The nodes that run, and whether each is the active controller. Coordinators, for which nothing waits, count
        as running."""
        import ray

        waited_for = [node for node in self._specs if not is_coordinator(node)]
        handles = current_handles(self._name, waited_for)
        asked = {handle.ready.remote(): node for node, handle in handles.items() if handle is not None}
        answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=READY_SECONDS)
        running = dict.fromkeys(filter(is_coordinator, self._specs), False)
        for answer in answered:
            with suppress(ray.exceptions.RayError):
                status = ray.get(answer)
                if is_controller(asked[answer]):
                    running[asked[answer]] = bool(status.active)
                elif status.state not in ("starting", STOPPED):
                    running[asked[answer]] = False
        return running

    def _check_on_hosts(self, running: Iterable[str]) -> None:
        """Raises ConfigError."""
        import ray

        handles = current_handles(self._name, list(running))
        checks = {
            node: handle.check.remote(self._specs[node]) for node, handle in handles.items() if handle is not None
        }
        for node, answer in checks.items():
            try:
                ray.get(answer)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, ConfigError):
                    raise ConfigError(f"{_title(node)}: {error.cause.message}") from None
                raise

    def _prepare_login(self, files: ClusterFiles) -> tuple[ClusterFiles, AdministratorLogin | None]:
        """As a start does; but the login of a cluster that is secure already may be on another host, and is kept."""
        if self._given.secure and files.secure and read_password(files.path) is None:
            return files, None
        return prepare_login(files, self._given)

    def _create_users(self, login: AdministratorLogin | None) -> None:
        create_users(self._brokers(), self._files.secret, self._users, login)

    def _brokers(self) -> dict[str, Any]:
        """Their handles by their names."""
        handles = current_handles(self._name, list(filter(is_broker, self._specs)))
        return {node: handle for node, handle in handles.items() if handle is not None}

    def _has_authorizer(self) -> bool:
        """If so, controllers come first: they authorize clients whom brokers let in by the new configuration."""
        spec = next(iter(self._specs.values()))
        return authorizer_settings(spec.configs(self._with_all_passwords())) is not None

    def _with_all_passwords(self) -> ClusterFiles:
        return replace(self._files, passwords={**self._files.passwords, **self._passwords})

    def _restart(self, group: Sequence[str], timeout_seconds: float) -> None:
        """Restart these nodes together. Raises KafkaError."""
        began = time.monotonic()
        for step in (self._replace, self._wait_until_ready, self._wait_until_in_sync):
            for node in group:
                if is_coordinator(node) and step != self._replace:
                    continue  # brokers do its work meanwhile
                try:
                    step(node, began + timeout_seconds)
                except Exception as error:
                    raise self._ended_at(node, error) from error
        for node in itertools.filterfalse(is_coordinator, group):
            self._report(f"{_title(node).capitalize()} is in sync after {time.monotonic() - began:.1f} s.")

    def _ended_at(self, node: str, error: Exception) -> KafkaError:
        reason = error.message if isinstance(error, KafkaError) else f"{type(error).__name__}: {error}"
        others = ", ".join(_title(each) for each in self._restarted if each != node) or "no other node"
        message = (
            f"the change of the configuration ended at {_title(node)}: {reason}. Restarted before: {others}. The"
            " others keep their configuration. Repeat the change, with this or another configuration, to complete it"
        )
        if isinstance(error, ConfigError):
            return ConfigError(message)
        return KafkaError(error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def _replace(self, node: str, deadline: float) -> None:
        """Put an actor with the new configuration in the place of the node's actor."""
        import ray

        former = current_handles(self._name, [node])[node]
        self._restarted.append(node)
        self._report(f"Restarting {_title(node)}, {len(self._restarted)} of {len(self._specs)}.")
        try:
            if former is not None:
                stop_node(former, node)
        finally:  # also if this process is interrupted: a node that was asked to stop does not serve again
            if former is not None:
                ray.kill(former, no_restart=True)
            self._make_actor(node, former, deadline)

    def _make_actor(self, node: str, former: Any, deadline: float) -> None:
        """Create the actor, unless the supervisor has done so, as soon as the name of the former one is free."""
        from raylog.actors.placement import alive_hosts
        from raylog.actors.supervisor import make_actor

        spec = self._specs[node]

        def cannot_start() -> str:
            hosts = alive_hosts()
            if spec.host not in hosts:
                return "its host is not alive"
            try:
                make_actor(node, spec, hosts[spec.host])
            except ValueError:
                present = current_handles(self._name, [node])[node]
                return "its process has not ended" if present in (None, former) else ""
            return ""

        wait_until_done(cannot_start, f"{_title(node)} was stopped", deadline)

    def _wait_until_ready(self, node: str, deadline: float) -> None:
        def check_deadline() -> None:
            if time.monotonic() > deadline:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it was restarted, but does not accept connections")

        def not_ready() -> str:
            """A process that ends while it starts is started again by Ray."""
            handle = current_handles(self._name, [node])[node]
            try:
                if handle is not None:
                    wait_until_ready(self._name, {node: handle}, check_deadline)
                    return ""
            except EndedDuringStart as error:
                return error.message
            return "it has no process"

        wait_until_done(not_ready, f"{_title(node)} was restarted", deadline)

    def _wait_until_in_sync(self, node: str, deadline: float) -> None:
        handle, node_id = current_handles(self._name, [node])[node], node_id_of(node)
        if is_controller(node):
            wait_until_caught_up(self._brokers(), node_id, self._files.secret, deadline)
        elif handle is not None:
            wait_until_in_sync(handle, node_id, self._files.secret, deadline)
        else:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "its process has ended")

    def _check_nodes_can_connect(self, former: Mapping[str, NodeSpec]) -> None:
        """Raises ConfigError if nodes with the former and the new configuration could not connect to each other."""
        files = self._with_all_passwords()
        for node in self._specs.keys() & former.keys():
            before, after = _internal_protocol(former[node], files), _internal_protocol(self._specs[node], files)
            if before is not after:
                raise ConfigError(
                    f"listener.security.protocol.map: INTERNAL has protocol {before.value}, and {after.value} in the"
                    " new configuration. Nodes cannot connect to each other while only some have the new one: stop the"
                    f" cluster and start it again, or add INTERNAL:{before.value}"
                )


def _check_ids(given: GivenConfig, files: ClusterFiles) -> None:
    """Raises ConfigError."""
    given.check_ids(files.broker_ids)
    first_id = given.given_first_id()
    if first_id not in (None, files.first_broker_id):
        raise ConfigError(f"node.id={first_id}: the first broker has id {files.first_broker_id}, which is kept")


def _internal_protocol(spec: NodeSpec, files: ClusterFiles) -> SecurityProtocol:
    return next(listener.security for listener in plan_listeners(spec.configs(files)) if listener.internal)


def _title(node: str) -> str:
    return node.replace("-", " ")
