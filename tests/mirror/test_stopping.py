"""A flow stops while a cluster does not respond, whatever the timeouts of its clients, and its successor goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from raylog.client import local_broker
from raylog.mirror import flow_worker
from tests.client.served import Target
from tests.mirror.conftest import CONFIG
from tests.mirror.flows import create, flow_between, running, seen
from tests.mirror.test_flow_worker import produce
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS

NOWHERE = Target("127.0.0.1:1")
HOUR_MS = "3600000"
PATIENT: dict[str, Any] = {
    f"{alias}_{key}": HOUR_MS
    for alias in "AB"
    for key in ("admin_default_api_timeout_ms", "producer_delivery_timeout_ms", "producer_max_block_ms")
}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster that tests freeze."""
    with cluster_thread(CONFIG, tmp_path_factory.mktemp("frozen") / "data") as cluster:
        yield cluster


@contextmanager
def freezing(cluster: RunningCluster) -> Iterator[None]:
    """It accepts connections and requests meanwhile, and does nothing."""
    goes_on, has_stopped = threading.Event(), threading.Event()

    def hold() -> None:
        has_stopped.set()
        assert goes_on.wait(10 * HANG_SECONDS)

    cluster.loop.call_soon_threadsafe(hold)
    assert has_stopped.wait(HANG_SECONDS)
    try:
        yield
    finally:
        goes_on.set()


@pytest.mark.parametrize("away", ["source", "target"])
def test_while_it_waits_for_the_first_response_of_a_cluster(east: Target, away: str) -> None:
    source, target = (NOWHERE, east) if away == "source" else (east, NOWHERE)
    with running(flow_between(source, target, topics="t", **PATIENT)) as run:
        run.wait(lambda status: any(each.error for each in status.control))


def test_shards_are_given_up_while_a_cluster_does_not_respond(east: Target) -> None:
    with running(flow_between(east, NOWHERE, topics="t", **PATIENT)) as run:
        run.wait(lambda status: any(each.error for each in status.control))
        run.use_share(1, 2)


def test_while_its_offset_syncs_are_not_acknowledged(
    east: Target, frozen: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_broker, "ANSWER_SECONDS", 3600.0)
    source = Target(frozen.bootstrap_servers)
    topic = source.new_topic()
    with running(flow_between(source, east, topics=topic, **PATIENT)) as run:
        produce(source, topic, [b"before"])
        run.wait_for_end(topic, {0: 1})
        with freezing(frozen):
            run.stop()


@pytest.mark.parametrize("exactly_once", ["enabled", "disabled"])
def test_records_that_the_target_has_not_acknowledged_are_copied_by_the_next_one(
    east: Target, frozen: RunningCluster, exactly_once: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_worker, "STOP_SECONDS", 0.5)
    target, topic = Target(frozen.bootstrap_servers), east.new_topic()
    create(target, f"A.{topic}")
    flow = flow_between(east, target, topics=topic, exactly_once_source_support=exactly_once, **PATIENT)
    with running(flow) as run:
        produce(east, topic, [b"before"])
        run.wait_for_end(topic, {0: 1})
        with freezing(frozen):
            produce(east, topic, [b"%d" % number for number in range(20)])
            run.wait(lambda _: (at := run.partition(topic)) and at.lag == 20)
            run.stop()
    with running(flow) as run:
        run.wait_for_end(topic, {0: 21})
    copied = seen(target, f"A.{topic}")
    if exactly_once == "enabled":
        assert copied == seen(east, topic)
    else:
        assert list(dict.fromkeys(each[1] for each in copied)) == [each[1] for each in seen(east, topic)]
