"""(shell) Runs the control of a flow in a thread, beside the copying."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from raylog.core.errors import KafkaError
from raylog.mirror.config import FlowConfig
from raylog.mirror.control import FlowControl
from raylog.mirror.control_clients import ControlClients
from raylog.mirror.flow_status import CheckpointLatency, ControlStatus
from raylog.transport.system_time import now

log = logging.getLogger("raylog.mirror")
RETRY_SECONDS: Final = 5.0


class ControlThread:
    """Runs from `start` to `stop`."""

    def __init__(self, flow: FlowConfig, *, on_topics: Callable[[], object]) -> None:
        """`on_topics` is called in the thread, when topics of the flow were found or created."""
        self._flow = flow
        self._on_topics = on_topics
        self._stopping = threading.Event()
        self._control: FlowControl | None = None
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"mirror-{flow.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It ends after the task that is running."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def status(self) -> tuple[ControlStatus, ...]:
        """Of any thread."""
        if self._control is None:
            return () if self._error is None else (ControlStatus("clients", 0, None, self._error, ()),)
        return tuple(
            ControlStatus(name, each.runs, each.last_success_ms, each.last_error, tuple(map(str, each.problems)))
            for name, each in self._control.status.items()
        )

    def checkpoints(self) -> tuple[CheckpointLatency, ...]:
        """Of any thread."""
        control = self._control
        if control is None:
            return ()
        spreads = [(*key, window.read(_time_ms())) for key, window in list(control.latencies.items())]
        return tuple(
            CheckpointLatency(group, tp.topic, tp.partition, spread)
            for group, tp, spread in spreads
            if spread is not None
        )

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with ControlClients(self._flow) as clients:
                    self._control, self._error = FlowControl(self._flow, clients, _time_ms(), clock=_time_ms), None
                    self._run_tasks(self._control)
            except KafkaError as error:
                self._control, self._error = None, str(error)
                log.warning("mirror control failed", extra={"flow": self._flow.name, "reason": str(error)})
            except Exception as error:
                self._control, self._error = None, repr(error)
                log.exception("mirror control failed", extra={"flow": self._flow.name})
            self._stopping.wait(RETRY_SECONDS)

    def _run_tasks(self, control: FlowControl) -> None:
        known: dict[str, int] = {}
        while not self._stopping.is_set():
            next_ms = control.run_due(_time_ms(), self._stopping.is_set)
            if control.partitions != known and not self._stopping.is_set():
                known = control.partitions
                self._on_topics()
            self._stopping.wait(None if next_ms is None else max(0, next_ms - _time_ms()) / 1000)


def _time_ms() -> int:
    """The wall clock at the start of the process, moved on by the monotonic one: it does not step back."""
    return _STARTED.wall_ms + now().monotonic_ms - _STARTED.monotonic_ms


_STARTED: Final = now()
