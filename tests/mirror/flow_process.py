"""A worker of each flow of a file in a process, which a test kills: `python -m tests.mirror.flow_process JSON`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from raylog.core.logs import log_to_stderr
from raylog.mirror.config import mirror_config
from raylog.mirror.flow_worker import FlowWorker
from raylog.mirror.shard import ShardSettings

ROOT = Path(__file__).resolve().parent.parent.parent


class FlowProcess:
    """From its creation to `kill`."""

    def __init__(
        self, entries: Mapping[str, str], log: Path, *, share: tuple[int, int] = (0, 1), commit_interval_ms: int = 1_000
    ) -> None:
        """`entries` are those of mm2.properties."""
        given = json.dumps([dict(entries), share, commit_interval_ms])
        with log.open("ab") as stderr:
            command = [sys.executable, "-m", "tests.mirror.flow_process", given]
            self._process = subprocess.Popen(command, cwd=ROOT, stderr=stderr)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


async def _run(entries: Mapping[str, str], share: tuple[int, int], commit_interval_ms: int) -> None:
    workers = []
    for flow in mirror_config(entries).flows:
        settings = ShardSettings(exactly_once=flow.exactly_once, commit_interval_ms=commit_interval_ms)
        workers.append(FlowWorker(flow, settings=settings, share=share, has_control=share[0] == 0))
    await asyncio.gather(*(worker.run() for worker in workers))


if __name__ == "__main__":
    log_to_stderr()
    asyncio.run(_run(*json.loads(sys.argv[1])))
