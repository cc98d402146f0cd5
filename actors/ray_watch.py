"""(shell) Whether the Ray of this process is alive, and what is left of it when it has failed.

Ray itself reports the end of its GCS after a minute, and that of a raylet not at all; brokers serve on meanwhile, or
are gone. Both processes listen on TCP ports, which refuse connections as soon as they have ended. Ray's agents, which
the raylet starts, outlive it by a minute, in which they try to report its end to the GCS.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from raylog.actors.local_ray import refuses


class Process(NamedTuple):
    """One process, which is not mistaken for a later one with the same id."""

    pid: int
    started: int
    """In clock ticks since the machine was started."""


class RayWatch:
    """Made while Ray is alive."""

    def __init__(self) -> None:
        import ray

        context = ray.get_runtime_context()
        self._listening = {"its GCS": str(context.gcs_address)}
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if node["NodeID"] == context.get_node_id() and node["NodeManagerPort"]:
                self._listening["the raylet of this host"] = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        self._descendants = descendants(os.getpid())

    def failure(self) -> str | None:
        """Which process of Ray has ended; None if all are alive. A host that is slow or cut off is not a failure."""
        for process, address in self._listening.items():
            if refuses(address):
                return f"{process} at {address} has ended"
        return None

    def kill_rest(self) -> None:
        """Kill the processes of a local Ray that were running when this object was made and still are."""
        for process in self._descendants:
            with suppress(OSError):
                if _parent_of(process.pid)[1] == process.started:
                    os.kill(process.pid, signal.SIGKILL)


def descendants(pid: int) -> list[Process]:
    """All processes that this one has started, directly or not."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent, started = _parent_of(int(entry.name))
            children.setdefault(parent, []).append(Process(int(entry.name), started))
    found = list(children.get(pid, ()))
    for process in found:
        found += children.get(process.pid, ())
    return found


def _parent_of(pid: int) -> tuple[int, int]:
    """The process's parent, and when it was started. Raises OSError if it has ended. Source: proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[19])
