"""`raylog status` prints the same as text and as JSON, also for a broker that is not running."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.broker import BrokerStatus
from raylog.actors.cluster import ClusterStatus
from raylog.actors.controller import ControllerStatus
from raylog.cli.metrics import endpoints, targets
from raylog.cli.status import describe, table
from raylog.core.errors import ConfigError
from raylog.quotas.client_quotas import Identity
from raylog.quotas.usage import Throttled

THROTTLED = [
    Throttled("producer_byte_rate", Identity("alice", None), 3, 1500),
    Throttled("connection_creation_rate", Identity("10.0.0.1", None), 1, 9),
]
TOPICS = {"b": 2, "a": 1}
OFFLINE = {"a-0": "the file was deleted"}
DAMAGED = {"b-1": "the batch at offset 7 fails its checksum"}
RUNNING = BrokerStatus(
    0, "127.0.0.1", 9092, 4711, "node-a", "running", "cluster-id", TOPICS, 15, "C", THROTTLED, OFFLINE, DAMAGED
)
ACTIVE = ControllerStatus(1000, 4712, active=True)
SHOWN_BROKER = replace(RUNNING, metrics="127.0.0.1:9404")
SHOWN_CONTROLLER = replace(ACTIVE, metrics="[::1]:9416")
AWAY = ControllerStatus(1000, 0, active=False)
RESTARTING = BrokerStatus(0, "", 0, 0, "", "restarting", "", {})


def test_a_running_cluster() -> None:
    assert describe("mine", ClusterStatus([RUNNING], [ACTIVE], [])) == {
        "name": "mine",
        "cluster_id": "cluster-id",
        "bootstrap_servers": "127.0.0.1:9092",
        "brokers": [
            {
                "id": 0,
                "host": "127.0.0.1",
                "port": 9092,
                "pid": 4711,
                "node": "node-a",
                "state": "running",
                "niceness": 15,
                "record_scan": "C",
                "throttled": [
                    {
                        "quota": "producer_byte_rate",
                        "user": "alice",
                        "client_id": None,
                        "ip": None,
                        "times": 3,
                        "total_ms": 1500,
                    },
                    {
                        "quota": "connection_creation_rate",
                        "user": None,
                        "client_id": None,
                        "ip": "10.0.0.1",
                        "times": 1,
                        "total_ms": 9,
                    },
                ],
                "offline": OFFLINE,
                "uncleanable": DAMAGED,
                "metrics": None,
            },
        ],
        "controllers": [{"id": 1000, "pid": 4712, "active": True, "metrics": None, "address": None}],
        "coordinators": [],
        "topics": {"a": {"partitions": 1}, "b": {"partitions": 2}},
    }
    assert table(describe("mine", ClusterStatus([RUNNING], [ACTIVE], []))) == (
        "cluster mine (cluster-id)\n\n"
        "BROKER  STATE    LISTENS ON      PID   NICE  RECORD SCAN  RAY NODE\n"
        "0       running  127.0.0.1:9092  4711  15    C            node-a\n\n"
        "CONTROLLER  STATE   PID\n"
        "1000        active  4712\n\n"
        "TOPIC  PARTITIONS\n"
        "a      1\n"
        "b      2\n\n"
        "BROKER  QUOTA                     USER   CLIENT ID  IP        THROTTLED  MS\n"
        "0       producer_byte_rate        alice  -          -         3          1500\n"
        "0       connection_creation_rate  -      -          10.0.0.1  1          9\n\n"
        "BROKER  OFFLINE  REASON\n"
        "0       a-0      the file was deleted\n\n"
        "BROKER  UNCLEANABLE  REASON\n"
        "0       b-1          the batch at offset 7 fails its checksum"
    )


def test_coordinators_are_shown_with_their_roles() -> None:
    group = replace(RUNNING, id=2000, throttled=[], offline={}, uncleanable={})
    status = describe("mine", ClusterStatus([], [], [group, replace(RESTARTING, id=3001)]))
    assert [(each["id"], each["role"], each["state"]) for each in status["coordinators"]] == [
        (2000, "group-coordinator", "running"),
        (3001, "transaction-coordinator", "restarting"),
    ]
    assert status["bootstrap_servers"] == ""
    assert "RAY NODE  ROLE\n2000         running" in table(status)


def test_a_restarting_broker() -> None:
    status = describe("mine", ClusterStatus([RESTARTING], [AWAY], []))
    (broker,) = status["brokers"]
    assert (broker["id"], broker["port"], broker["pid"], broker["state"]) == (0, 0, 0, "restarting")
    assert (status["controllers"], status["cluster_id"]) == (
        [{"id": 1000, "pid": 0, "active": False, "metrics": None, "address": None}],
        None,
    )
    assert "restarting" in table(status)


def test_metrics_are_listed_with_their_addresses() -> None:
    shown = table(describe("mine", ClusterStatus([SHOWN_BROKER], [SHOWN_CONTROLLER], [])))
    assert "NODE             METRICS\n" in shown
    assert "broker 0         http://127.0.0.1:9404/metrics\n" in shown
    assert "controller 1000  http://[::1]:9416/metrics" in shown


def test_targets_for_prometheus_are_the_nodes_that_show_metrics() -> None:
    coordinator = replace(SHOWN_BROKER, id=2000, metrics="127.0.0.1:9410")
    assert targets(
        "mine",
        endpoints(
            ClusterStatus(
                [SHOWN_BROKER, replace(RESTARTING, id=1)], [SHOWN_CONTROLLER, replace(AWAY, id=1001)], [coordinator]
            )
        ),
    ) == [
        {"targets": ["127.0.0.1:9404"], "labels": {"cluster": "mine", "node": "broker-0"}},
        {"targets": ["127.0.0.1:9410"], "labels": {"cluster": "mine", "node": "coordinator-2000"}},
        {"targets": ["[::1]:9416"], "labels": {"cluster": "mine", "node": "controller-1000"}},
    ]
    with pytest.raises(ConfigError, match=r"mine shows metrics: set raylog\.metrics\.address"):
        targets("mine", endpoints(ClusterStatus([RESTARTING], [AWAY], [])))
