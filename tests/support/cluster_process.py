"""Production brokers and their controller in a separate process, so that its memory can be measured separately."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from raylog.core.logs import log_to_stderr
from tests.support.cluster_thread import cluster_id_of, cluster_thread

ROOT = Path(__file__).resolve().parent.parent.parent
STOP_SECONDS = 60.0


class ClusterProcess:
    """Serves from construction until `stop` or `kill`. Another one with the same path is its next incarnation."""

    def __init__(self, config: Mapping[str, str], path: Path, *, log: Path | None = None) -> None:
        """`log` is the file to which its log is appended, if it is not to go to stderr."""
        command = [sys.executable, "-m", "tests.support.cluster_process", json.dumps(dict(config)), str(path)]
        with nullcontext() if log is None else log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.bootstrap_servers = self._stdout.readline().strip()
        self.cluster_id = cluster_id_of(path)
        self.pid = self._process.pid
        if not self.bootstrap_servers:
            self.kill()
            raise AssertionError("the broker did not start")

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])

    def anonymous_bytes(self) -> int:
        """Its anonymous memory (RssAnon): allocated memory without mapped files."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon in /proc")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def stop(self) -> None:
        """Stop the process cleanly. It must be running."""
        self._stdin.close()
        code = self._process.wait(timeout=STOP_SECONDS)
        self._stdout.close()
        assert code == 0, f"the broker ended with {code}"

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()


@contextmanager
def cluster_process(config: Mapping[str, str], path: Path) -> Iterator[ClusterProcess]:
    """Runs until the block ends, and then stops cleanly. It must still be running then."""
    process = ClusterProcess(config, path)
    try:
        yield process
    except BaseException:
        process.kill()
        raise
    process.stop()


def _main() -> None:
    log_to_stderr()
    with cluster_thread(json.loads(sys.argv[1]), Path(sys.argv[2])) as running:
        sys.stdout.write(running.bootstrap_servers + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    _main()
