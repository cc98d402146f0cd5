"""A peer that sends valid, nearly valid and absurd requests affects no other client, and the cluster starts again."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from raylog.config.authorization import STANDARD_AUTHORIZER
from raylog.core.errors import ErrorCode, KafkaError
from raylog.metadata.topic_names import INTERNAL_TOPICS
from tests.hostile import victim
from tests.hostile.requests import TARGET, Requests
from tests.hostile.responses import Learned
from tests.hostile.socket_peer import SocketPeer
from tests.hostile.victim import Victim
from tests.support.administration import create_topic, delete_topic
from tests.support.cluster_process import ClusterProcess
from tests.support.forms import by_form
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.slow

STEPS = by_form(300, long=1000)
FIRST_SEED = int(os.environ.get("RAYLOG_HOSTILE_SEED", "1"))
MINUTES = int(os.environ.get("RAYLOG_HOSTILE_MINUTES", by_form(0, long=60)))
"""Seeds are tried one after another, on the same data, until this time has passed; at least one."""
CONFIG = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}
MEMORY_BYTES_MAX = 100 << 20
FILES_MAX = 100
FAULT = re.compile("Traceback| ERROR | CRITICAL ")


def test_a_hostile_peer_affects_no_other_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    until = time.monotonic() + 60 * MINUTES
    topics: list[str] = []
    for seed in count(FIRST_SEED):
        log = WatchedLog(tmp_path / f"{seed}.log")
        broker = ClusterProcess(CONFIG, tmp_path / "data", log=log.path)
        try:
            assert topics_of(broker) == topics
            if seed > FIRST_SEED and time.monotonic() >= until:
                break
            report = attack(broker, seed, log)
            topics = topics_of(broker)
            broker.stop()
        finally:
            broker.kill()
        log.check()
        with capsys.disabled():
            os.write(1, f"\n  {report}\n".encode())


class WatchedLog:
    """The log of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked_bytes = 0

    def check(self) -> None:
        """Raises AssertionError if an error has been logged since the last call."""
        with self.path.open() as log:
            log.seek(self._checked_bytes)
            text = log.read()
            self._checked_bytes = log.tell()
        fault = FAULT.search(text)
        assert fault is None, text[max(fault.start() - 500, 0) :]


def attack(broker: ClusterProcess, seed: int, log: WatchedLog) -> str:
    """The steps of one seed. A failure names the step and shows what was sent."""
    learned = Learned()
    requests = Requests(seed, learned, lambda: int(time.time() * 1000))
    steps: Counter[str] = Counter()
    with RawClient(broker.bootstrap_servers, client_id="tests") as client:
        for topic in {victim.TOPIC, TARGET} - set(topics_of(broker)):
            create_topic(client, topic, num_partitions=2, replication_factor=1, configs={})
        memory = before = broker.anonymous_bytes()
        files = broker.open_files()
        witness = Victim(broker.port)
        learned.spared = witness.topic_id
        try:
            with SocketPeer(broker.port, learned) as peer:
                for number in range(STEPS):
                    step = requests.step(number)
                    steps[step.name] += 1
                    written: list[bytes] = []
                    try:
                        peer.carry_out(step, written)
                        memory = max(memory, broker.anonymous_bytes())
                        assert memory - before < MEMORY_BYTES_MAX, f"the broker uses {memory} bytes, {before} at first"
                        log.check()
                    except Exception as error:
                        frames = "\n".join(data[:2000].hex() for data in written)
                        raise AssertionError(f"seed {seed}, step {number} ({step.name}): {error}\n{frames}") from error
        finally:
            witness.stop()
        for topic in set(topics_of(broker)) - {victim.TOPIC, *INTERNAL_TOPICS}:
            _delete(client, topic)
    assert broker.open_files() <= files + FILES_MAX
    return (
        f"seed {seed}: {dict(steps)}, {peer.answered} answered; others {witness.latency()}; "
        f"memory +{(memory - before) / 1e6:.0f} MB, files {broker.open_files() - files:+}"
    )


def topics_of(broker: ClusterProcess) -> list[str]:
    with RawClient(broker.bootstrap_servers, client_id="tests") as client:
        return sorted(str(topic.name) for topic in client.metadata(None).topics)


def _delete(client: RawClient, topic: str) -> None:
    try:
        delete_topic(client, topic)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # an earlier request deletes it just now
            raise
