"""(shell) The coordinators of a cluster: started beside its brokers, which do their work until then; and retired."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from raylog.actors.broker_restart import stop_node
from raylog.actors.cluster_actors import current_handles, merged_from_hosts, share_with_hosts
from raylog.actors.data_dir import ClusterFiles
from raylog.actors.given_config import GivenConfig
from raylog.actors.handle_door import calls_as_node
from raylog.actors.names import is_coordinator, node_id_of
from raylog.actors.waiting import wait_until_done
from raylog.client.admin.cluster import unregister_broker
from raylog.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from raylog.actors.node_actor import NodeSpec
    from raylog.actors.placement import Host

log = logging.getLogger("raylog.actors.cluster")
RETIRE_SECONDS = 60.0


def with_coordinators(
    files: ClusterFiles, given: GivenConfig, group: int | None, transaction: int | None
) -> ClusterFiles:
    """The cluster with these numbers of coordinators. None stands for the number that was chosen before, if any.

    Where clients reach brokers by addresses that are configured they may not reach coordinators, so that there are none
    by default.
    """
    group = files.group_coordinators if group is None else group
    transaction = files.transaction_coordinators if transaction is None else transaction
    if given.advertises:
        group, transaction = group or 0, transaction or 0
    return replace(files, group_coordinators=group, transaction_coordinators=transaction)


def start_coordinators(specs: Mapping[str, NodeSpec], wanted: ClusterFiles) -> dict[str, Any]:
    """Create the actors of the coordinators that are wanted, and return their handles: nothing waits for them.

    Those of hosts that are not alive are left to the supervisor.
    """
    from raylog.actors.placement import alive_hosts

    hosts = alive_hosts()
    ids = wanted.coordinator_ids
    return {
        node: _made(node, spec, hosts[spec.host])
        for node, spec in specs.items()
        if is_coordinator(node) and spec.node_id in ids and spec.host in hosts
    }


def retire_coordinators(specs: Mapping[str, NodeSpec], wanted: ClusterFiles, brokers: Mapping[str, Any]) -> None:
    """Unregister the coordinators that were started once and are not wanted any more.

    One that has crashed may have records that no broker has: it is started once more, and stopped when they have them.
    One that cannot be retired now keeps its place, and the next start tries again.
    """
    from raylog.actors.placement import alive_hosts

    surplus = [node for node in specs if is_coordinator(node) and node_id_of(node) not in wanted.coordinator_ids]
    if not surplus:
        return
    hosts, retired = alive_hosts(), []
    with calls_as_node(brokers, wanted.secret, client_id="raylog-start") as calls:

        def registered(node: str) -> str:
            """Why the coordinator cannot be unregistered; empty once it is."""
            try:
                calls.run(unregister_broker(node_id_of(node)))
            except KafkaError as error:
                return "" if error.code == ErrorCode.BROKER_ID_NOT_REGISTERED else error.message
            return ""

        for node in surplus:
            try:
                if registered(node):
                    _start_and_stop(node, specs[node], hosts)
                    deadline = time.monotonic() + RETIRE_SECONDS
                    wait_until_done(partial(registered, node), f"{node} was stopped", deadline)
                retired.append(node)
            except KafkaError as error:
                log.warning("coordinator not retired", extra={"node": node, "reason": error.message})
    files = merged_from_hosts(str(wanted.path), wanted.name, hosts).without_nodes(retired)
    share_with_hosts(files, hosts)


def _start_and_stop(node: str, spec: NodeSpec, hosts: Mapping[str, Host]) -> None:
    """Raises KafkaError."""
    import ray

    if spec.host not in hosts:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"its host {spec.host} is not alive")
    actor = _made(node, spec, hosts[spec.host])
    try:
        ray.get(actor.ready.remote(), timeout=RETIRE_SECONDS)
        stop_node(actor, node)
    except ray.exceptions.RayError as error:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error
    finally:
        ray.kill(actor, no_restart=True)


def _made(node: str, spec: NodeSpec, host: Host) -> Any:
    """The handle of the actor, which the supervisor may have created already."""
    from raylog.actors.supervisor import make_actor

    try:
        return make_actor(node, spec, host)
    except ValueError:
        return current_handles(spec.cluster, [node])[node]
