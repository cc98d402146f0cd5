"""Three brokers and three controllers, each in a process of its own, without Ray."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from raylog.actors.data_dir import make_data_dir
from raylog.core.errors import KafkaError
from raylog.metadata.voters import FIRST_VOTER_ID
from tests.support import administration as admin
from tests.support.hang import HANG_SECONDS
from tests.support.node_process import NodeProcess, NodeSpec
from tests.support.ports import free_ports
from tests.support.raw_client import RawClient

NAME = "operators"
COUNT = 3
"""Brokers, and controllers."""
NODES = tuple(f"{kind}-{number}" for kind in ("broker", "controller") for number in range(COUNT))
CONFIG = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "100",
    "log.retention.check.interval.ms": "1000",
}
LOCALHOST = tuple("127.0.0.1" for _ in range(COUNT))


class NodeCluster:
    """Started on creation. `stop` stops what runs; `kill` ends everything at once."""

    def __init__(
        self,
        path: Path,
        *,
        config: Mapping[str, str] | None = None,
        broker_hosts: Sequence[str] = LOCALHOST,
        controller_hosts: Sequence[str] = LOCALHOST,
        prefixes: Mapping[str, Sequence[str]] | None = None,
        environments: Mapping[str, Mapping[str, str]] | None = None,
        log_dirs: int = 1,
    ) -> None:
        """With several `log_dirs` those of broker 0 are `disk-0/broker-0`, `disk-1/broker-0` and so on. `prefixes` and
        `environments` are those of single nodes, by their names."""
        path.mkdir(exist_ok=True)
        self.path = path
        self.data_dir = path / "data"
        make_data_dir(str(self.data_dir), name=NAME, brokers=COUNT, controllers=COUNT)
        ports = iter(free_ports(3 * COUNT))
        controllers = {FIRST_VOTER_ID + number: (host, next(ports)) for number, host in enumerate(controller_hosts)}

        def node(node_id: int, host: str, port: int, internal_port: int) -> NodeProcess:
            several = [str(path / f"disk-{number}" / f"broker-{node_id}") for number in range(log_dirs)]
            own = {"log.dirs": ",".join(several)} if log_dirs > 1 else {}
            spec = NodeSpec(
                NAME,
                node_id,
                str(self.data_dir),
                host,
                port,
                internal_port,
                controllers,
                {**CONFIG, **own, **(config or {})},
            )
            return NodeProcess(
                spec,
                path / f"{spec.name}.log",
                prefix=(prefixes or {}).get(spec.name, ()),
                environment=(environments or {}).get(spec.name, {}),
            )

        self.controllers = [node(number, host, 0, port) for number, (host, port) in controllers.items()]
        self.brokers = [node(number, host, next(ports), next(ports)) for number, host in enumerate(broker_hosts)]
        self.bootstrap_servers = ",".join(f"{each.spec.host}:{each.spec.port}" for each in self.brokers)
        self.start(self.nodes)

    @property
    def nodes(self) -> list[NodeProcess]:
        return [*self.controllers, *self.brokers]

    def start(self, nodes: Sequence[NodeProcess]) -> None:
        """Start these nodes together."""
        try:
            for node in nodes:
                node.start()
            for node in nodes:
                node.wait_until_started()
        except BaseException:
            self.kill()
            raise

    def restart_ended(self) -> list[str]:
        """Start those again that have ended, as Ray would, and return their names."""
        ended = [node for node in self.nodes if not node.running]
        for node in ended:
            node.kill()
        self.start(ended)
        return [node.spec.name for node in ended]

    def stop(self) -> None:
        """Stop all cleanly, brokers first."""
        for nodes in (self.brokers, self.controllers):
            with ThreadPoolExecutor(COUNT) as threads:
                list(threads.map(NodeProcess.stop, nodes))

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    # --- what the cluster says, through the listeners of clients

    def client(self) -> RawClient:
        return RawClient(self.bootstrap_servers, client_id="tests", timeout_seconds=HANG_SECONDS)

    def active_controller(self) -> NodeProcess:
        """As a broker knows it."""
        with self.client() as client:
            leader = admin.quorum(client).leader_id
        return next(node for node in self.controllers if node.spec.node_id == leader)

    def partitions(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """Leader and ISR of each partition, as a broker knows them. Empty if none answers."""
        with suppress(KafkaException):
            found = AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(topic, timeout=5)
            partitions = found.topics[topic].partitions
            return {number: (partition.leader, sorted(partition.isrs)) for number, partition in partitions.items()}
        return {}

    def leader(self, topic: str, partition: int = 0) -> NodeProcess:
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            leader, _ = self.partitions(topic).get(partition, (-1, []))
            if leader >= 0:
                return self.brokers[leader]
            assert time.monotonic() < deadline, f"{topic}-{partition} has no leader"
            time.sleep(0.1)

    def followers(self, topic: str, partition: int = 0) -> list[NodeProcess]:
        leader = self.leader(topic, partition)
        return [node for node in self.brokers if node is not leader]

    def problem(self, topic: str) -> str:
        """What is not as it should be; empty if all replicas are in sync and the controllers agree."""
        ended = [node.spec.name for node in self.nodes if not node.running]
        if ended:
            return f"not running: {', '.join(ended)}"
        partitions = self.partitions(topic)
        if not partitions or any(isr != list(range(COUNT)) for _, isr in partitions.values()):
            return f"not in sync: {partitions}"
        try:
            with RawClient(self.bootstrap_servers, client_id="tests", timeout_seconds=5) as client:
                quorum = admin.quorum(client)
        except (OSError, KafkaError) as error:
            return f"no active controller: {error}"
        behind = [one.replica_id for one in quorum.voters if one.log_end_offset < quorum.high_watermark]
        return f"behind: {behind}" if behind else ""

    def wait_until_healthy(self, topic: str) -> float:
        """Returns how many seconds it took."""
        began = time.monotonic()
        while problem := self.problem(topic):
            assert time.monotonic() < began + HANG_SECONDS, problem
            time.sleep(0.1)
        return time.monotonic() - began
