"""A target that is full, slow or away, throttles or refuses: the flow names it, waits, and copies each record once."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.cli.mirror import table
from raylog.client.admin.admin_client import AdminClient
from raylog.mirror.config import FlowConfig
from raylog.mirror.flow_status import FlowStatus
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.client.served import Target
from tests.mirror.conftest import CONFIG
from tests.mirror.flows import create, ends, flow_between, running, seen
from tests.mirror.test_flow_worker import produce
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.hang import HANG_SECONDS

FULL = "KAFKA_STORAGE_ERROR"


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster_thread({**CONFIG, "quota.window.num": 2}, tmp_path_factory.mktemp("troubled") / "data") as cluster:
        yield cluster


@pytest.fixture
def west(troubled: RunningCluster) -> Target:
    return Target(troubled.bootstrap_servers)


def shown(status: FlowStatus) -> str:
    """By `raylog mirror status`."""
    actor = SimpleNamespace(number=0, state="running", metrics="", flows=[status])
    return table([cast("Any", actor)])


def exactly_once_flow(east: Target, west: Target, topics: str) -> FlowConfig:
    return flow_between(
        east,
        west,
        topics=topics,
        exactly_once_source_support="enabled",
        B_producer_delivery_timeout_ms="600",  # when a batch that is not acknowledged is shown as an error
        B_producer_request_timeout_ms="300",
        B_producer_max_block_ms="600",
    )


class FullDisk:
    """Writes to files of this topic fail, as on a file system without space."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self._disk = cluster.broker.disk
        self._topic = topic

    def __enter__(self) -> None:
        write = self._disk.pwrite

        def failing(handle: Any, data: Any, position: int) -> None:
            if f"/{self._topic}-" in os.readlink(f"/proc/self/fd/{handle}"):
                raise OSError(errno.ENOSPC, "No space left on device")
            write(handle, data, position)

        self._disk.pwrite = failing  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        del self._disk.pwrite


def test_a_full_disk_is_named_and_everything_is_copied_once_there_is_room(
    east: Target, west: Target, troubled: RunningCluster
) -> None:
    topic, other = east.new_topic(), east.new_topic()
    for each in (topic, other):
        create(west, f"A.{each}")
    produce(east, topic, [b"%d" % number for number in range(20)])
    flow = exactly_once_flow(east, west, f"{topic},{other}")
    with running(flow, backoff_ms_max=300) as run:
        run.wait_for_end(topic, {0: 20})
        with FullDisk(troubled, f"A.{topic}"):
            produce(east, topic, [b"later %d" % number for number in range(20)])
            produce(east, other, [b"there is room for this"])
            run.wait(lambda status: "failing" in {each.state for each in status.partitions} and FULL in shown(status))
            run.wait_for_end(other, {0: 1})
            run.wait(lambda _: (at := run.partition(topic)) and (at.next_offset, at.lag) == (20, 20))
        run.wait_for_end(topic, {0: 40})
        assert FULL not in shown(run.wait(lambda _: (at := run.partition(topic)) and not at.error))
    assert seen(west, f"A.{topic}") == seen(east, topic)


def test_a_target_that_does_not_respond_is_named_and_gets_each_record_once(
    east: Target, west: Target, troubled: RunningCluster
) -> None:
    topic = east.new_topic()
    flow = exactly_once_flow(east, west, topic)
    goes_on, has_stopped = threading.Event(), threading.Event()

    def hold() -> None:
        has_stopped.set()
        assert goes_on.wait(HANG_SECONDS)

    produce(east, topic, [b"before"])
    with running(flow, backoff_ms_max=300) as run:
        run.wait_for_end(topic, {0: 1})
        troubled.loop.call_soon_threadsafe(hold)
        assert has_stopped.wait(HANG_SECONDS)
        try:
            produce(east, topic, [b"%d" % number for number in range(20)])
            status = run.wait(lambda status: any(each.error for each in status.partitions))
            assert re.search(r"cluster B: .*not acknowledged within delivery.timeout.ms \(600 ms\)", shown(status))
        finally:
            goes_on.set()
        run.wait_for_end(topic, {0: 21})
    assert seen(west, f"A.{topic}") == seen(east, topic)


def test_a_target_that_throttles_slows_the_flow_down_and_is_no_error(east: Target, west: Target) -> None:
    topic = east.new_topic()
    create(west, f"A.{topic}")
    for number in range(4):
        produce(east, topic, [b"%d" % number + bytes(100_000)])
    flow = flow_between(east, west, topics=topic, exactly_once_source_support="enabled", B_producer_client_id="slow")
    with AdminClient(bootstrap_servers=west.plain) as admin:
        admin.alter_client_quotas({(("client-id", "slow"),): {"producer_byte_rate": 130_000}})
    statuses: list[FlowStatus] = []
    began = time.monotonic()
    with running(flow) as run:
        while not (at := run.partition(topic)) or at.next_offset != 4:
            statuses.append(run.wait(lambda _: True))
            assert time.monotonic() < began + HANG_SECONDS
    assert time.monotonic() > began + 1
    assert not [
        each for status in statuses for each in (*status.errors, *(at.error for at in status.partitions)) if each
    ]
    assert seen(west, f"A.{topic}") == seen(east, topic)


def rule(kind: ResourceType, name: str, permission: Permission) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.WRITE, permission)


@pytest.mark.parametrize("refused", ["transactional id", "progress"])
def test_a_target_that_refuses_the_progress_of_a_flow_is_named_and_gets_each_record_once(
    east: Target, west: Target, refused: str
) -> None:
    topic, alias = east.new_topic(), refused[:1].upper()
    flow = flow_between(
        east, west, topics=topic, aliases=(alias, "B"), exactly_once_source_support="enabled", tasks_max="1"
    )
    create(west, f"{alias}.{topic}")
    names = (
        [(ResourceType.TOPIC, f"raylog-mirror-progress.{alias}.internal")]
        if refused == "progress"
        else [(ResourceType.TRANSACTIONAL_ID, f"raylog-mirror-{alias}-B-{shard}") for shard in range(4)]
    )
    produce(east, topic, [b"%d" % number for number in range(20)])
    with AdminClient(bootstrap_servers=west.plain) as admin:
        admin.create_acls([rule(*name, Permission.DENY) for name in names])
        with running(flow, backoff_ms_max=300) as run:
            status = run.wait(lambda status: status.errors or any(each.error for each in status.partitions))
            assert "uthoriz" in shown(status)
            assert seen(west, f"{alias}.{topic}") == []
            admin.delete_acls([AclFilter(resource_name=name, operation=Operation.WRITE) for _, name in names])
            run.wait_for_end(topic, ends(east, topic))
            run.wait(lambda status: "uthoriz" not in shown(status))
    assert seen(west, f"{alias}.{topic}") == seen(east, topic)
