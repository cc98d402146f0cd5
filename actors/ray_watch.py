"""(shell) Whether the Ray of this process is alive.

Ray reports the death of its GCS or of a raylet after a minute or not at all; brokers serve on meanwhile, or are gone.
Both processes listen on TCP ports, where a connection is refused from the moment of their death.
"""

from __future__ import annotations

import socket

CONNECT_SECONDS = 2.0


class RayWatch:
    """Made while Ray is alive."""

    def __init__(self) -> None:
        import ray

        context = ray.get_runtime_context()
        gcs_host, _, gcs_port = str(context.gcs_address).rpartition(":")
        self._listening = {f"its GCS at {context.gcs_address}": (gcs_host.strip("[]"), int(gcs_port))}
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if node["NodeID"] == context.get_node_id() and node["NodeManagerPort"]:
                raylet = node["NodeManagerAddress"], int(node["NodeManagerPort"])
                self._listening[f"the raylet of this host at {raylet[0]}:{raylet[1]}"] = raylet

    def failure(self) -> str | None:
        """Which process of Ray has died; None if all are alive. A host that is slow or cut off is not a failure."""
        for what, address in self._listening.items():
            try:
                socket.create_connection(address, timeout=CONNECT_SECONDS).close()
            except ConnectionRefusedError:
                return f"{what} has died"
            except OSError:
                continue
        return None
