"""(shell) Restarts one broker or controller of a running cluster, and waits until it is in sync again.

The requests are sent as a node of the cluster, by the handles of brokers: they need no login.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from raylog.actors.cluster_actors import errors_of_ended_actor, merged_from_hosts
from raylog.actors.handle_door import calls_as_node
from raylog.actors.names import by_number, node_id_of, node_name
from raylog.actors.waiting import wait_until_done
from raylog.client.admin.calls import node_ids
from raylog.client.admin.cluster import describe_metadata_quorum
from raylog.client.admin.topics import TopicDescription, describe_topics
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import NO_BROKER_ID, TopicPartition

if TYPE_CHECKING:
    from raylog.actors.node_actor import NodeSpec

log = logging.getLogger("raylog.actors.cluster")
RESTART_SECONDS = 600.0
STOP_SECONDS = 30.0
ANSWER_SECONDS = 5.0


def restart_broker(actor: Any, broker_id: int, nodes: Mapping[str, Any], *, timeout_seconds: float) -> None:
    """See `Cluster.restart_broker`; `actor` is the broker's handle, which remains valid.

    `nodes` are handles of the cluster's nodes by their names: the broker itself may hang.
    """
    from raylog.actors.placement import alive_hosts

    deadline = time.monotonic() + timeout_seconds
    spec, former = _any_spec(nodes), _answer(actor.status)
    secret = merged_from_hosts(spec.data_dir, spec.cluster, alive_hosts()).secret
    restart_now(actor, node_name(broker_id))

    def not_running() -> str:
        status = _answer(actor.status)
        if status is None:
            return "its process is not running"
        if former is not None and status.pid == former.pid:
            return "its process has not ended"
        return "" if status.state == "running" else "it does not accept connections"

    wait_until_done(not_running, f"broker {broker_id} was restarted", deadline)
    wait_until_in_sync(actor, broker_id, secret, deadline)


def restart_controller(actor: Any, node: str, brokers: Mapping[str, Any], *, timeout_seconds: float) -> None:
    """Restart a controller, also one that hangs, and wait until it has caught up.

    `brokers` are handles of running brokers by their names. Raises KafkaError(REQUEST_TIMED_OUT).
    """
    from raylog.actors.placement import alive_hosts

    deadline = time.monotonic() + timeout_seconds
    spec = _any_spec(brokers)
    secret = merged_from_hosts(spec.data_dir, spec.cluster, alive_hosts()).secret
    former = _answer(actor.status)
    restart_now(actor, node)

    def not_ready() -> str:
        status = _answer(actor.ready)
        if status is None:
            return "its process is not running"
        return "its process has not ended" if former is not None and status.pid == former.pid else ""

    wait_until_done(not_ready, f"{node} was restarted", deadline)
    wait_until_caught_up(brokers, node_id_of(node), secret, deadline)


def active_last(controllers: Mapping[str, Any]) -> list[str]:
    """The names of these actors in the order in which they are restarted, so that there is one election."""
    statuses = {node: _answer(actor.status) for node, actor in controllers.items()}
    return sorted(statuses, key=lambda node: (bool(statuses[node] and statuses[node].active), by_number(node)))


def _any_spec(nodes: Mapping[str, Any]) -> NodeSpec:
    """The arguments of a node that answers: all have the same cluster and data directory. Raises KafkaError."""
    for actor in nodes.values():
        spec: NodeSpec | None = _answer(actor.spec)
        if spec is not None:
            return spec
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"none of {', '.join(nodes)} answers")


def _answer(method: Any) -> Any:
    """What a method of an actor returns; None if it does not answer in time."""
    import ray

    with suppress(*errors_of_ended_actor(), ray.exceptions.GetTimeoutError):
        return ray.get(method.remote(), timeout=ANSWER_SECONDS)
    return None


def restart_now(actor: Any, node: str) -> None:
    """Stop a node cleanly, and have Ray start it again."""
    import ray

    stop_node(actor, node)
    ray.kill(actor, no_restart=False)


def cause_of(error: BaseException) -> str:
    """What went wrong in the actor, without the traceback that Ray adds."""
    return str(getattr(error, "cause", None) or error)


def stop_node(actor: Any, node: str) -> None:
    """Stop a broker or a controller cleanly, if it does so in time; its actor remains."""
    import ray

    try:
        ray.get(actor.stop.remote(), timeout=STOP_SECONDS)
    except ray.exceptions.RayError as error:
        log.warning("node did not stop cleanly", extra={"node": node, "reason": cause_of(error)})


def wait_until_in_sync(actor: Any, broker_id: int, secret: bytes, deadline: float) -> None:
    """Wait until all replicas of a broker that runs are in sync. Raises KafkaError(REQUEST_TIMED_OUT)."""
    with calls_as_node({node_name(broker_id): actor}, secret, client_id="raylog-restart") as calls:

        def awaited() -> str:
            try:
                if broker_id not in calls.run(node_ids()):
                    return f"broker {broker_id} is not alive"
                waiting = not_in_sync_on(broker_id, calls.run(describe_topics()).values())
            except KafkaError as error:
                return error.message
            return f"{len(waiting)} partition(s) are not in sync, such as {waiting[0]}" if waiting else ""

        wait_until_done(awaited, f"broker {broker_id} was restarted", deadline)


def not_in_sync_on(broker_id: int, topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    """The partitions of which the broker has a replica that is not in sync, or that have no leader."""
    return [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if broker_id in each.replicas and (broker_id not in each.isr or each.leader is None)
    ]


def wait_until_caught_up(brokers: Mapping[str, Any], voter_id: int, secret: bytes, deadline: float) -> None:
    """Wait until there is an active controller, and this one has what was committed when it was restarted.

    `brokers` are handles by their names. Raises KafkaError(REQUEST_TIMED_OUT).
    """
    committed: int | None = None
    with calls_as_node(brokers, secret, client_id="raylog-restart") as calls:

        def behind() -> str:
            nonlocal committed
            try:
                quorum = calls.run(describe_metadata_quorum())
            except KafkaError as error:
                return error.message
            if quorum.leader_id == NO_BROKER_ID:
                return "no controller is active"
            committed = quorum.high_watermark if committed is None else committed
            ends = {voter.replica_id: voter.log_end_offset for voter in quorum.voters}
            return "" if ends.get(voter_id, -1) >= committed else "it has not caught up with the active controller"

        wait_until_done(behind, f"controller {voter_id} was restarted", deadline)
