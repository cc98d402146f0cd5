"""Each alert fires under the fault that it describes, no other does, and figures are those that clients count.

Three brokers and three controllers, each in a process of its own, under load all the time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from raylog.core.ids import TopicPartition as PartitionOf
from tests.compat.topics import create_topic
from tests.prometheus.server import MONITORING, Prometheus, prometheus, why_not
from tests.support import administration as admin
from tests.support.hang import HANG_SECONDS
from tests.support.node_cluster import COUNT, NodeCluster
from tests.support.ports import free_ports

pytestmark = [pytest.mark.prometheus, pytest.mark.skipif(bool(why_not()), reason=why_not())]
DISK_BYTES = 128 << 20
QUIET_SECONDS = 8.0
"""For how long no alert may fire: longer than the rules wait."""
LOADED = "loaded"
PARTITIONS = 3
GROUP = "readers"


class Site(NamedTuple):
    cluster: NodeCluster
    prometheus: Prometheus
    disk: Path | None
    """A small disk with a log directory of each broker; None where it cannot be mounted."""

    def expect(self, *alerts: str) -> None:
        """Wait until these fire, and no others."""
        self.prometheus.wait_for(f"expected {sorted(alerts)}", lambda: self.prometheus.firing() == set(alerts))

    def expect_quiet(self) -> None:
        self.cluster.restart_ended()
        self.cluster.wait_until_healthy(LOADED)
        self.expect()
        time.sleep(QUIET_SECONDS)
        assert self.prometheus.firing() == set()


@contextmanager
def load(servers: str) -> Iterator[None]:
    """Records to every partition of LOADED, and a group that reads them."""
    ended = threading.Event()

    def write() -> None:
        producer = Producer(
            {"bootstrap.servers": servers, "acks": "all", "linger.ms": 5, "message.timeout.ms": 300_000}
        )
        while not ended.wait(0.02):
            for partition in range(PARTITIONS):
                producer.produce(LOADED, os.urandom(200), partition=partition)
            producer.poll(0)
        producer.flush(HANG_SECONDS)

    def read() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "auto.commit.interval.ms": 200,
                "auto.offset.reset": "latest",
            }
        )
        consumer.subscribe([LOADED])
        while not ended.is_set():
            consumer.poll(0.2)
        consumer.close()

    threads = [threading.Thread(target=each) for each in (write, read)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(HANG_SECONDS)


@contextmanager
def small_disk(path: Path) -> Iterator[Path | None]:
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "raylog-test", str(path)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield path if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("monitoring")
    ports = free_ports(2 * COUNT)
    address = f"127.0.0.1:{ports[0]}-{ports[-1]}"
    with small_disk(path / "disk-1") as disk:
        cluster = NodeCluster(path, config={"raylog.metrics.address": address}, log_dirs=2)
        try:
            create_topic(cluster.bootstrap_servers, LOADED, partitions=PARTITIONS, replication_factor=COUNT)
            cluster.wait_until_healthy(LOADED)
            targets = [f"127.0.0.1:{port}" for port in ports]
            with load(cluster.bootstrap_servers), prometheus(path, targets) as server:
                server.wait_for("all nodes are scraped", lambda: server.value('sum(up{job="raylog"})') == len(targets))
                yield Site(cluster, server, disk)
        finally:
            cluster.kill()


def test_promtool_accepts_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(MONITORING / "alerts.yml")], check=True, capture_output=True)


def test_under_load_no_alert_fires(site: Site) -> None:
    site.expect_quiet()


def test_each_panel_shows_something(site: Site) -> None:
    with site.cluster.client() as client:
        admin.alter_quotas(client, {"client-id": "slow"}, {"producer_byte_rate": 1000.0})

    def is_throttled() -> bool:  # the brokers learn of the quota a little later
        produce_throttled(site.cluster.bootstrap_servers)
        return site.prometheus.value("sum(raylog_throttled_total)") > 0

    site.prometheus.wait_for("no client is throttled", is_throttled)
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 40
    for expression in expressions:
        asked = re.sub(r"\$__rate_interval", "10s", expression).replace("$topic", ".*")
        site.prometheus.wait_for(f"no series: {asked}", lambda asked=asked: bool(site.prometheus.query(asked)))  # type: ignore[misc]


def test_metrics_named_in_rules_and_panels_are_shown(site: Site) -> None:
    """A wrong name in a rule would be an alert that never fires. Those for mirrors are in test_mirror_alerts.py."""
    texts = (MONITORING / "alerts.yml").read_text() + (MONITORING / "dashboard.json").read_text()
    of_a_node = set(re.findall(r"\b(?:kafka|raylog|process)_[a-z_]+\b", texts)) - {"raylog_node_up"}
    for name in {name for name in of_a_node if not name.startswith("raylog_mirror_")}:
        site.prometheus.wait_for(f"{name} is unknown", lambda name=name: bool(site.prometheus.query(name)))  # type: ignore[misc]


def test_figures_are_those_that_clients_count(site: Site) -> None:
    topic, count = "counted", 20_000
    servers = site.cluster.bootstrap_servers
    create_topic(servers, topic, partitions=1, replication_factor=COUNT)
    delivered = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal delivered
        delivered += error is None

    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"x" * (number % 500), on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(HANG_SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "counting", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read = 0
    while read < count:
        read += sum(message.error() is None for message in consumer.consume(1000, 1.0))
    consumer.commit(offsets=[TopicPartition(topic, 0, count - 300)], asynchronous=False)
    consumer.close()
    assert delivered == count
    shown = site.prometheus
    prefix, one = "kafka_server_brokertopicmetrics", f'{{topic="{topic}"}}'
    shown.wait_for("records", lambda: shown.value(f"sum({prefix}_messagesin_total{one})") == delivered)
    size_bytes = shown.value(f"max(kafka_log_log_size{one})")
    assert shown.value(f"sum({prefix}_bytesin_total{one})") == size_bytes
    sent = f"sum({prefix}_bytesout_total{one})"
    shown.wait_for("sent bytes", lambda: abs(shown.value(sent) - size_bytes) <= size_bytes / 100)
    assert shown.value(f"max(kafka_log_log_logendoffset{one})") == count
    shown.wait_for("the lag", lambda: shown.value(f"sum(kafka_consumergroup_lag{one})") == 300)
    with site.cluster.client() as client:
        admin.commit_offsets(client, "counting", {PartitionOf(topic, 0): count})


def test_a_killed_broker(site: Site) -> None:
    site.expect_quiet()
    site.cluster.brokers[0].kill()
    site.expect("RaylogNodeDown", "RaylogBrokerFenced", "RaylogUnderReplicatedPartitions")
    site.expect_quiet()


def test_one_endpoint_for_all_nodes(site: Site, tmp_path: Path) -> None:
    site.expect_quiet()
    nodes = {labels["node_id"]: labels["instance"] for labels, _ in site.prometheus.query("raylog_node_info")}
    assert len(nodes) == 2 * COUNT
    options = [option for node, address in nodes.items() for option in ("--target", f"{node}={address}")]
    command = [sys.executable, "-m", "raylog.cli.main", "metrics", "--serve", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            url = serving.stdout.readline().rpartition(" ")[2].strip()
            address = url.split("/")[2]
            with prometheus(tmp_path, [address], discovery=f"http://{address}/targets") as shown:
                shown.wait_for("nodes", lambda: shown.value("count(raylog_node_up == 1)") == len(nodes))
                shown.wait_for("targets", lambda: shown.value('count(up{job="discovered"} == 1)') == len(nodes))
                series = "count(kafka_log_log_logendoffset)"
                shown.wait_for("series", lambda: shown.value(series) == site.prometheus.value(series))
                time.sleep(QUIET_SECONDS)
                assert shown.firing() == set()
                site.cluster.brokers[0].kill()
                down = {"RaylogNodeDown", "RaylogBrokerFenced", "RaylogUnderReplicatedPartitions"}
                shown.wait_for("a node is down", lambda: shown.firing() == down)
                assert shown.query("raylog_node_up == 0")[0][0]["node"] == "0"
                site.cluster.restart_ended()
                shown.wait_for("all is well", lambda: not shown.firing())
        finally:
            serving.kill()
    site.expect_quiet()


def test_a_stopped_follower(site: Site) -> None:
    site.expect_quiet()
    follower = site.cluster.followers(LOADED)[0]
    follower.signal(signal.SIGSTOP)
    try:
        site.expect("RaylogNodeDown", "RaylogBrokerFenced", "RaylogUnderReplicatedPartitions")
    finally:
        follower.signal(signal.SIGCONT)
    site.expect_quiet()


def test_too_few_replicas_and_partitions_without_a_leader(site: Site) -> None:
    site.expect_quiet()
    create_topic(site.cluster.bootstrap_servers, "alone", partitions=COUNT, replication_factor=1)
    for broker in site.cluster.brokers[:2]:
        broker.kill()
    down = {"RaylogNodeDown", "RaylogBrokerFenced", "RaylogUnderReplicatedPartitions"}
    few = {"RaylogUnderMinIsrPartitions", "RaylogOfflinePartitions"}
    site.prometheus.wait_for("too few replicas", lambda: down | few <= site.prometheus.firing())
    assert site.prometheus.firing() <= down | few | {"RaylogConsumerGroupHeldUp"}
    site.expect_quiet()


def test_no_majority_of_controllers(site: Site) -> None:
    site.expect_quiet()
    for controller in site.cluster.controllers[:2]:
        controller.kill()
    site.prometheus.wait_for(
        "no active controller", lambda: {"RaylogNoActiveController", "RaylogNodeDown"} <= site.prometheus.firing()
    )
    site.expect_quiet()


def test_a_group_that_is_held_up(site: Site) -> None:
    site.expect_quiet()
    servers = site.cluster.bootstrap_servers
    create_topic(servers, "ignored", partitions=1, replication_factor=COUNT)
    with site.cluster.client() as client:
        admin.commit_offsets(client, "stuck", {PartitionOf("ignored", 0): 0})
    time.sleep(3)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("ignored", b"nobody reads this")
    producer.flush(HANG_SECONDS)
    site.expect("RaylogConsumerGroupHeldUp")
    with site.cluster.client() as client:
        admin.commit_offsets(client, "stuck", {PartitionOf("ignored", 0): 1})
    site.expect_quiet()


def test_a_client_over_its_quota(site: Site) -> None:
    site.expect_quiet()
    with site.cluster.client() as client:
        admin.alter_quotas(client, {"client-id": "slow"}, {"producer_byte_rate": 1000.0})
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            produce_throttled(site.cluster.bootstrap_servers)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        site.expect("RaylogClientThrottled")
    finally:
        ended.set()
        thread.join(HANG_SECONDS)
    site.expect_quiet()


def test_a_disk_that_is_almost_full(site: Site) -> None:
    if site.disk is None:
        pytest.skip("a disk can only be mounted by root")
    site.expect_quiet()
    ballast = site.disk / "ballast"
    try:
        ballast.write_bytes(bytes(shutil.disk_usage(site.disk).free - DISK_BYTES // 20))
        site.expect("RaylogDiskAlmostFull")
    finally:
        ballast.unlink(missing_ok=True)
    site.expect_quiet()


def test_a_log_directory_that_is_lost(site: Site) -> None:
    """The last test: what was in the directory is gone."""
    site.expect_quiet()
    broker = site.cluster.brokers[2]
    lost = site.cluster.path / "disk-0" / broker.spec.name
    lost.rename(lost.with_name("lost"))
    site.prometheus.wait_for(
        "the directory is offline", lambda: "RaylogLogDirectoryOffline" in site.prometheus.firing()
    )


def produce_throttled(servers: str) -> None:
    """As a client that has a quota of 1,000 bytes per second."""
    producer = Producer({"bootstrap.servers": servers, "client.id": "slow"})
    for _ in range(5):
        producer.produce(LOADED, bytes(4000))
    producer.flush(10)
