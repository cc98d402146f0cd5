"""Background work of one object without a node: steps and jobs run when the test calls `settle`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from raylog.core.clock import Now
from raylog.transport.node import Job


class DirectWork:
    """Implements `Background` (broker/partition_directories.py)."""

    def __init__(self, now: Now) -> None:
        self.now = now
        self.jobs: deque[Job] = deque()
        self.steps: deque[Callable[[Now], bool]] = deque()

    def add_job(self, job: Job) -> None:
        self.jobs.append(job)

    def add_steps(self, step: Callable[[Now], bool]) -> None:
        self.steps.append(step)

    def run_step(self) -> None:
        """Run the next step."""
        step = self.steps.popleft()
        if step(self.now):
            self.steps.append(step)

    def run_job(self) -> None:
        """Run the next job and report its end."""
        job = self.jobs.popleft()
        failure: OSError | None = None
        try:
            job.run()
        except OSError as error:
            failure = error
        job.done(failure)

    def settle(self) -> None:
        """Run everything until nothing is left."""
        while self.steps or self.jobs:
            if self.steps:
                self.run_step()
            else:
                self.run_job()
