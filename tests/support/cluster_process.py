"""A production broker and its controller in a process of their own, so that its memory can be told from the test's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster_thread import cluster_thread

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class ClusterProcess:
    bootstrap_servers: str
    pid: int

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])

    def anonymous_bytes(self) -> int:
        """Memory of its own (RssAnon): what it has allocated, without files it has mapped."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon in /proc")


@contextmanager
def cluster_process(config: Mapping[str, str], path: Path) -> Iterator[ClusterProcess]:
    """Runs until the block ends; it then stops cleanly, and must have survived until then."""
    command = [sys.executable, "-m", "tests.support.cluster_process", json.dumps(dict(config)), str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            bootstrap_servers = process.stdout.readline().strip()
            assert bootstrap_servers, "the broker did not start"
            yield ClusterProcess(bootstrap_servers, process.pid)
        finally:
            process.stdin.close()
            code = process.wait(timeout=30)
    assert code == 0, f"the broker ended with {code}"


def _main() -> None:
    with cluster_thread(json.loads(sys.argv[1]), Path(sys.argv[2])) as running:
        sys.stdout.write(running.bootstrap_servers + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    _main()
