"""(shell) Adds controllers to a running cluster and removes them, with their votes in the quorum (KIP-853).

A change survives a crash of the process that makes it, as in `broker_set.py`: a new controller is written to
cluster.json before it is started, and one that is removed stays there until it has no vote.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raylog.actors.broker_set import KeptDirectory
from raylog.actors.cluster_actors import (
    current_handles,
    merged_from_hosts,
    share_with_hosts,
    specs_of,
    supervise,
    wait_until_ready,
)
from raylog.actors.names import controller_name, is_controller
from raylog.actors.waiting import wait_until_done
from raylog.client.admin.admin_client import AdminClient, admin_client
from raylog.client.client_config import ClientConfig
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.metadata.features import KRAFT_FEATURE
from raylog.metadata.voters import FIRST_VOTER_ID

if TYPE_CHECKING:
    from raylog.actors.controller import ControllerStatus

CLIENT_ID = "raylog-quorum"
CHANGE_SECONDS = 60.0
"""How long a new controller may take to catch up, and an earlier change of the quorum to be committed."""
STOP_SECONDS = 30.0
LATER = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""The change may be possible later."""


def add_controller(name: str, brokers: ClientConfig) -> ControllerStatus:
    """Add one controller, see `Cluster.add_controllers`. Call it within `changing`."""
    import ray

    from raylog.actors.placement import addresses_in_reach, alive_hosts, spread
    from raylog.actors.supervisor import make_actor

    specs, hosts = specs_of(name), alive_hosts()
    alike = next(spec for node, spec in specs.items() if is_controller(node))
    addresses = addresses_in_reach(hosts, {spec.host: spec.address for spec in specs.values()})
    if not addresses:
        raise ConfigError(f"name={name!r}: no host from which its nodes can be reached is alive")
    with admin_client(brokers, client_id=CLIENT_ID) as client:
        _check_kraft_version(client)
        files = merged_from_hosts(alike.data_dir, name, hosts).with_controller()
        number = files.controller_numbers[-1]
        node = controller_name(number)
        files = replace(files, hosts=spread([*files.hosts, node], list(addresses), files.hosts))
        host = files.hosts[node]
        spec = replace(alike, node_id=FIRST_VOTER_ID + number, host=host, address=addresses[host])
        share_with_hosts(files, hosts)
        handle = make_actor(node, spec, hosts[host])
        supervise(name, {**specs, node: spec}, hosts)
        try:
            wait_until_ready(name, {node: handle})
            voter = ray.get(handle.voter.remote())
            _until_possible(
                partial(client.add_raft_voter, voter.voter_id, voter.directory_id, voter.endpoints),
                f"controller {voter.voter_id} was started",
            )
        except Exception:
            share_with_hosts(files.without_controller(number), hosts, host)
            supervise(name, specs, hosts)
            ray.kill(handle, no_restart=True)
            raise
    added: ControllerStatus = ray.get(handle.status.remote())
    return added


def remove_controller(name: str, controller_id: int, brokers: ClientConfig) -> KeptDirectory:
    """See `Cluster.remove_controller`. Call it within `changing`."""
    import ray

    from raylog.actors.placement import alive_hosts

    number = controller_id - FIRST_VOTER_ID
    node, specs, hosts = controller_name(number), specs_of(name), alive_hosts()
    if node not in specs:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"cluster {name!r} has no controller {controller_id}")
    spec, handle = specs[node], current_handles(name, [node])[node]
    with admin_client(brokers, client_id=CLIENT_ID) as client:
        _check_kraft_version(client)
        _until_possible(partial(_remove_voter, client, controller_id), f"controller {controller_id} has its vote")
    files = merged_from_hosts(spec.data_dir, name, hosts).without_controller(number)
    share_with_hosts(files, hosts, spec.host)
    supervise(name, {other: each for other, each in specs.items() if other != node}, hosts)
    if handle is not None:
        _stop(handle)
        ray.kill(handle, no_restart=True)
    return KeptDirectory(spec.host, str(Path(spec.data_dir) / node))


def _remove_voter(client: AdminClient, controller_id: int) -> None:
    """Nothing to do for one that an earlier attempt has removed."""
    for voter in client.describe_metadata_quorum().voters:
        if voter.replica_id == controller_id:
            client.remove_raft_voter(controller_id, voter.directory_id)


def _check_kraft_version(client: AdminClient) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) while the voters cannot be changed."""
    level = next((each.finalized for each in client.describe_features() if each.feature == KRAFT_FEATURE), 0)
    if not level:
        rule = f"run `raylog features upgrade --feature {KRAFT_FEATURE}=1` first"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{KRAFT_FEATURE} is {level}; {rule}")


def _until_possible(change: Callable[[], None], began: str) -> None:
    """Raises KafkaError: REQUEST_TIMED_OUT that begins with `began`, and any that will not pass."""

    def unfinished() -> str:
        try:
            change()
        except KafkaError as error:
            if error.code in LATER:
                return error.message
            raise
        return ""

    wait_until_done(unfinished, began, time.monotonic() + CHANGE_SECONDS)


def _stop(handle: Any) -> None:
    """Stop it cleanly. One that hangs, or has lost its disk, is killed without."""
    import ray

    try:
        ray.get(handle.stop.remote(), timeout=STOP_SECONDS)
    except ray.exceptions.RayError:
        return
