"""(shell) Restarts one broker of a running cluster, and waits until it is in sync again."""

from __future__ import annotations

import logging
import time
from typing import Any

from raylog.actors.waiting import wait_until_done
from raylog.client import admin
from raylog.client.client_config import ClientConfig
from raylog.client.cluster_client import ClusterClient
from raylog.core.errors import KafkaError

log = logging.getLogger("raylog.actors.cluster")
RESTART_SECONDS = 600.0
STOP_SECONDS = 30.0


def restart_broker(actor: Any, broker_id: int, brokers: ClientConfig, *, timeout_seconds: float) -> None:
    """See `Cluster.restart_broker`; `actor` is the broker's handle, which remains valid."""
    import ray

    deadline = time.monotonic() + timeout_seconds
    pid = ray.get(actor.status.remote()).pid
    try:
        ray.get(actor.stop.remote(), timeout=STOP_SECONDS)
    except ray.exceptions.RayError as error:
        log.warning("broker did not stop cleanly", extra={"broker": broker_id, "reason": str(error)})
    ray.kill(actor, no_restart=False)

    def not_running() -> str:
        try:
            status = ray.get(actor.status.remote(), timeout=STOP_SECONDS)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            return "its process is not running"
        return "" if status.state == "running" and status.pid != pid else "it does not accept connections"

    done = f"broker {broker_id} was restarted"
    wait_until_done(not_running, done, deadline)
    with ClusterClient(brokers, client_id="raylog-restart") as client:

        def not_in_sync() -> str:
            try:
                view = client.view(None)
                view.broker(broker_id)
                admin.check_sees_all_topics(client)
            except KafkaError as error:
                return error.message
            awaited = view.not_in_sync_on(broker_id)
            return f"{len(awaited)} partition(s) are not in sync, such as {awaited[0]}" if awaited else ""

        wait_until_done(not_in_sync, done, deadline)
