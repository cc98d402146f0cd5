"""(shell) One of Kafka's Java applications in a process of its own, which a test kills and starts again."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.hang import HANG_SECONDS
from tests.support.kafka_peer import JAVA_OPTIONS, KAFKA_VERSION, java_command

_LOGGING = {
    "showDateTime": "true",
    "dateTimeFormat": "HH:mm:ss.SSS",
    "showThreadName": "false",
    "log.org.apache.kafka.common.config": "warn",  # every configuration, twice
}


class JavaProcess:
    """Not yet started. Its output, of all its incarnations, is in a file of the folder `path`, in which it runs."""

    def __init__(
        self,
        path: Path,
        main_class: str,
        *arguments: str,
        class_paths: Sequence[str] = (),
        version: str = KAFKA_VERSION,
    ) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        logging = (f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in _LOGGING.items())
        options = (*JAVA_OPTIONS, *logging)
        self._command = java_command(main_class, *arguments, class_paths=class_paths, options=options, version=version)
        self._log_path = path / "output.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert not self.running
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self.path, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill it with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(HANG_SECONDS)

    def stop(self) -> None:
        """Stop it cleanly."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(HANG_SECONDS)
        assert code == 128 + signal.SIGTERM, f"{self.path.name} ended with {code}:\n{self.log()[-4000:]}"

    def log(self) -> str:
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""


def write_properties(path: Path, properties: Mapping[str, object]) -> str:
    """The name of a file with these properties."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


@contextmanager
def killed_at_the_end(processes: Sequence[JavaProcess]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
