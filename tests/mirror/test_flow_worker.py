"""A flow copies what readers of the source see, in order, and goes on after every disturbance."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest
from confluent_kafka import Producer

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.consumer.fetched import FetchedBatches
from raylog.client.errors import AdminError
from raylog.client.partition_reader import PartitionReader
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.config import mirror_config
from raylog.mirror.flow_worker import FlowWorker
from raylog.mirror.formats import OffsetSync
from raylog.mirror.offset_translation import OffsetSyncStore
from raylog.mirror.shard_worker import ShardWorker
from raylog.protocol.records.batch import split_batches
from raylog.protocol.records.compression import Codec
from raylog.security.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.client.served import Target
from tests.mirror.flows import create, ends, flow_between, running, seen
from tests.support.hang import HANG_SECONDS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MODES = pytest.mark.parametrize("mode", ["disabled", "enabled"], ids=["at-least-once", "exactly-once"])


def produce(target: Target, topic: str, values: list[Any], partition: int = 0, codec: str = "none") -> None:
    """By librdkafka, in one batch."""
    producer = Producer({"bootstrap.servers": target.plain, "linger.ms": 5, "compression.type": codec})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"k%d" % number, partition=partition, timestamp=1_000 + number)
    assert producer.flush(20) == 0


@MODES
def test_every_kind_of_record_arrives_as_it_was(east: Target, west: Target, mode: str) -> None:
    topic = east.new_topic(2)
    create(west, f"A.{topic}", 2)
    for codec in CODECS:
        produce(east, topic, [f"{codec}-{number}" * 20 for number in range(30)], codec=codec)
    producer = Producer({"bootstrap.servers": east.plain, "transactional.id": f"t-{topic}"})
    producer.init_transactions(20)
    for name, ends_by in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, f"{name}-{number}", partition=1)
        producer.flush(20)
        ends_by(20)
    produce(east, topic, [None, b"", b"x"], partition=1)
    producer = Producer({"bootstrap.servers": east.plain})
    producer.produce(topic, b"v", None, 1, headers=[("h", b"1"), ("h", None), ("\u00e9", b"")], timestamp=7)
    assert producer.flush(20) == 0
    with running(flow_between(east, west, topics=topic, exactly_once_source_support=mode)) as flow:
        flow.wait_for_end(topic, ends(east, topic, 2))
        assert [each.lag for each in flow.status().partitions] == [0, 0]
    for partition, count in ((0, 150), (1, 9 if mode == "enabled" else 14)):
        level = "read_committed" if mode == "enabled" else "read_uncommitted"
        source = seen(east, topic, partition, isolation=level)
        assert len(source) == count
        assert seen(west, f"A.{topic}", partition) == source


def test_a_worker_that_takes_over_copies_each_record_once_also_if_the_former_one_goes_on(
    east: Target, west: Target
) -> None:
    topic = east.new_topic()
    create(west, f"A.{topic}")
    flow = flow_between(east, west, topics=topic, exactly_once_source_support="enabled")
    produce(east, topic, [b"%d" % number for number in range(50)])
    with running(flow, commit_interval_ms=2_000) as former:
        former.wait(lambda status: len(seen(west, f"A.{topic}", isolation="read_uncommitted")) == 50)
        former.freeze()  # in a transaction
        produce(east, topic, [b"later %d" % number for number in range(50)])
        with running(flow) as latter:
            latter.wait_for_end(topic, ends(east, topic))
            former.thaw()
            former.wait(lambda status: status.errors)
    assert seen(west, f"A.{topic}") == seen(east, topic)


def test_a_worker_that_takes_over_knows_the_lag_also_if_there_is_nothing_to_copy(east: Target, west: Target) -> None:
    topic = east.new_topic()
    create(west, f"A.{topic}")
    produce(east, topic, [b"1", b"2"])
    flow = flow_between(east, west, topics=topic)
    with running(flow, has_control=False) as former:
        former.wait_for_end(topic, ends(east, topic))
    with running(flow, has_control=False) as latter:
        latter.wait(lambda status: [each.lag for each in status.partitions] == [0])


@MODES
def test_what_the_target_does_not_take_is_reported_and_copied_once_it_can_be(
    east: Target, west: Target, mode: str
) -> None:
    topic, other = east.new_topic(2), east.new_topic()
    create(west, f"A.{topic}", 1)
    create(west, f"A.{other}", max_message_bytes="1000")
    for number in range(3):
        produce(east, topic, [b"%d" % number], partition=1)
        produce(east, other, [b"small"])
    produce(east, other, [b"x" * 2_000])
    produce(east, other, [b"behind it"])
    flow = flow_between(east, west, topics=f"{topic},{other}", exactly_once_source_support=mode)
    with running(flow, has_control=False, backoff_ms_max=300) as run:
        run.wait(lambda status: any("max.message.bytes=1000" in str(each.error) for each in status.partitions))
        blocked = run.partition(topic, 1)
        assert blocked is not None
        assert blocked.error == f"topic 'A.{topic}' of the target has only 1 partitions"
        assert blocked.lag is None
        with AdminClient(bootstrap_servers=west.plain) as admin:
            admin.create_partitions({f"A.{topic}": 2})
            resource = ConfigResource(ConfigResourceType.TOPIC, f"A.{other}")
            admin.incremental_alter_configs({resource: {"max.message.bytes": "100000"}})
        run.wait_for_end(topic, {1: ends(east, topic, 2)[1]})
        run.wait_for_end(other, ends(east, other))
        assert [each.error for each in run.status().partitions if each.next_offset] == [None, None]
    assert seen(west, f"A.{topic}", 1) == seen(east, topic, 1)
    found = seen(west, f"A.{other}")
    assert {value for _, value, _, _ in found} == {b"small", b"x" * 2_000, b"behind it"}
    assert mode == "disabled" or found == seen(east, other)


@MODES
def test_a_target_that_refuses_by_authorization_is_reported_and_gets_all_once_it_permits(
    east: Target, west: Target, mode: str
) -> None:
    topic, other = east.new_topic(), east.new_topic()
    create(west, f"A.{topic}")
    for number in range(3):
        produce(east, topic, [b"%d" % number])
        produce(east, other, [b"%d" % number])
    flow = flow_between(east, west, topics=f"{topic},{other}", exactly_once_source_support=mode)
    with AdminClient(bootstrap_servers=west.plain) as admin:
        admin.create_acls([acl(f"A.{topic}", Operation.ALL, Permission.ALLOW)])
        admin.create_acls([acl(f"A.{topic}", Operation.WRITE, Permission.DENY)])
        with running(flow, backoff_ms_max=300) as run:
            run.wait_for_end(other, {0: 3})
            run.wait(lambda _: (shown := run.partition(topic)) and shown.state == "failing")
            refused = run.partition(topic)
            assert refused is not None
            assert "Not authorized" in str(refused.error)
            admin.delete_acls([AclFilter(resource_name=f"A.{topic}", operation=Operation.WRITE)])
            run.wait_for_end(topic, {0: 3})
            assert (shown := run.partition(topic)) is not None
            assert (shown.state, shown.error) == ("running", None)
    assert seen(west, f"A.{topic}") == seen(east, topic)


def acl(topic: str, operation: Operation, permission: Permission) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, PatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)


def test_a_batch_that_is_too_large_for_the_target_is_sent_in_parts_in_its_codec(east: Target, west: Target) -> None:
    topic = east.new_topic()
    create(west, f"A.{topic}", max_message_bytes="3000")
    produce(
        east,
        topic,
        [bytes([number]) * 10 + random.Random(number).randbytes(200) * 3 for number in range(40)],
        codec="lz4",
    )
    flow = flow_between(east, west, topics=topic, exactly_once_source_support="enabled")
    with running(flow, has_control=False) as run:
        run.wait_for_end(topic, ends(east, topic))
    assert seen(west, f"A.{topic}") == seen(east, topic)
    with PartitionReader(west.plain, f"A.{topic}", 0, offset="earliest", mapped=False) as reader:
        chunk = reader.read()
        assert chunk is not None
        headers = [header for _, header in split_batches(chunk.records) if not header.is_control]
        assert len(headers) > 3
        assert {header.codec for header in headers} == {Codec.LZ4}


def test_what_was_sent_is_committed_when_the_flow_is_stopped(east: Target, west: Target) -> None:
    topic = east.new_topic()
    create(west, f"A.{topic}")
    produce(east, topic, [b"1", b"2"])
    flow = flow_between(east, west, topics=topic, exactly_once_source_support="enabled")
    with running(flow, has_control=False, commit_interval_ms=1_000_000) as run:
        run.wait(lambda _: len(seen(west, f"A.{topic}", isolation="read_uncommitted")) == 2)
        assert seen(west, f"A.{topic}") == []
    assert seen(west, f"A.{topic}") == seen(east, topic)


def test_records_that_were_deleted_before_they_were_copied_are_reported(east: Target, west: Target) -> None:
    topic = east.new_topic()
    create(west, f"A.{topic}")
    flow = flow_between(east, west, topics=topic, exactly_once_source_support="enabled")
    produce(east, topic, [b"%d" % number for number in range(10)])
    with running(flow) as run:
        run.wait_for_end(topic, ends(east, topic))
    for number in range(10):
        produce(east, topic, [b"more %d" % number])
    with AdminClient(bootstrap_servers=east.plain) as admin:
        admin.delete_records({TopicPartition(topic, 0): 15})
    with running(flow) as run:
        run.wait_for_end(topic, ends(east, topic))
        shown = run.partition(topic)
        assert shown is not None
        assert (shown.lost, str(shown.error)[:34]) == (5, "offsets 10 to 14 are not copied: t")
    assert [value for _, value, _, _ in seen(west, f"A.{topic}")] == [
        *(b"%d" % number for number in range(10)),
        *(b"more %d" % number for number in range(5, 10)),
    ]


@MODES
def test_a_flow_that_begins_at_the_end_and_is_restarted_before_its_first_record_goes_on_at_that_end(
    east: Target, west: Target, mode: str
) -> None:
    topic = east.new_topic(2)
    create(west, f"A.{topic}", 2)
    produce(east, topic, [b"before"])
    flow = flow_between(east, west, topics=topic, exactly_once_source_support=mode, consumer_auto_offset_reset="latest")
    with running(flow, has_control=False) as run:
        run.wait_for_end(topic, {0: 1, 1: 0})
        with AdminClient(bootstrap_servers=east.plain) as admin:
            admin.create_partitions({topic: 3})
        run.wait(lambda _: run.partition(topic, 2))
        with AdminClient(bootstrap_servers=west.plain) as admin:
            admin.create_partitions({f"A.{topic}": 3})
        run.wait_for_end(topic, {2: 0})
    for partition in range(3):
        produce(east, topic, [b"meanwhile"], partition)
    with running(flow, has_control=False) as run:
        run.wait_for_end(topic, ends(east, topic, 3))
    for partition in range(3):
        assert [value for _, value, _, _ in seen(west, f"A.{topic}", partition)] == [b"meanwhile"]


def test_topics_are_created_in_the_target_and_grow_there(east: Target, west: Target) -> None:
    prefix = f"grows-{east.new_topic()}"
    create(east, f"{prefix}-1", retention_ms="7200000")
    produce(east, f"{prefix}-1", [b"first"])
    with running(flow_between(east, west, topics=f"{prefix}.*")) as run:
        run.wait_for_end(f"{prefix}-1", {0: 1})
        with AdminClient(bootstrap_servers=east.plain) as admin:
            admin.create_partitions({f"{prefix}-1": 3})
        create(east, f"{prefix}-2")
        produce(east, f"{prefix}-1", [b"grown"], partition=2)
        produce(east, f"{prefix}-2", [b"new"])
        run.wait_for_end(f"{prefix}-1", {2: 1})
        run.wait_for_end(f"{prefix}-2", {0: 1})
    assert [value for _, value, _, _ in seen(west, f"A.{prefix}-1", 2)] == [b"grown"]
    with AdminClient(bootstrap_servers=west.plain) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, f"A.{prefix}-1")
        assert admin.describe_configs([resource])[resource]["retention.ms"].value == "7200000"


@pytest.mark.parametrize(
    ("runs", "before", "reset"),
    [(True, 5, "earliest"), (False, 5, "earliest"), (False, 25, "latest")],
    ids=["running", "stopped", "fewer"],
)
def test_a_topic_that_is_created_again_is_copied_from_its_beginning(
    east: Target, west: Target, runs: bool, before: int, reset: str
) -> None:
    topic = east.new_topic()
    flow = flow_between(east, west, topics=topic, exactly_once_source_support="enabled")
    produce(east, topic, [b"old %d" % number for number in range(before)])
    with running(flow) as run:
        run.wait_for_end(topic, {0: before})
        if runs:
            create_again(east, topic)
            run.wait_for_end(topic, {0: 20})
            assert "created again" in str(run.partition(topic))
    if not runs:
        create_again(east, topic)
        again = flow_between(
            east, west, topics=topic, exactly_once_source_support="enabled", A_consumer_auto_offset_reset=reset
        )
        with running(again) as run:
            run.wait_for_end(topic, {0: 20})
            assert "created again" in str(run.partition(topic))
    values = [value for _, value, _, _ in seen(west, f"A.{topic}")]
    assert values == [b"old %d" % number for number in range(before)] + [b"new %d" % number for number in range(20)]
    store = OffsetSyncStore()
    store.loaded()
    with PartitionReader(east.plain, flow.offset_syncs_topic, 0) as reader:
        while reader.position < reader.end_offset():
            for record in reader.read_records():
                store.add(OffsetSync.decode(record.key, record.value))
    assert store.translate(TopicPartition(topic, 0), 0) == before  # behind the former topic's last copy


@pytest.mark.parametrize(
    "given", [{}, {"A->B.enabled": "true", "A.admin.bootstrap.servers": "nowhere"}], ids=["heartbeats", "fails"]
)
def test_a_flow_that_runs_no_shards_gives_them_up_at_once(given: dict[str, str]) -> None:
    entries = {"clusters": "A, B", "A.bootstrap.servers": "localhost:1", "B.bootstrap.servers": "localhost:1"}
    flow = mirror_config({**entries, **given}).pairs[0]

    async def run() -> None:
        worker = FlowWorker(flow, has_control=False)
        async with asyncio.timeout(HANG_SECONDS):
            running = asyncio.create_task(worker.run())
            await worker.use_share(0, 2)
            worker.stop()
            await running
            await worker.use_share(0, 1)

    asyncio.run(run())


@pytest.mark.parametrize(
    "given",
    [
        {"A_security_protocol": "SSL", "A_ssl_truststore_location": "/no/such/file.pem"},
        {"B_security_protocol": "SASL_PLAINTEXT", "B_sasl_mechanism": "PLAIN"},
        {"B_bootstrap_servers": "nowhere"},
    ],
    ids=["authority", "login", "address"],
)
def test_clients_that_cannot_be_made_are_reported_and_tried_again(
    east: Target, west: Target, given: dict[str, str]
) -> None:
    flow = flow_between(east, west, topics="t", aliases=("A", "B"), **given)
    with running(flow) as run:
        run.wait(lambda status: any("INVALID_CONFIG" in error for error in status.errors))


def test_copying_goes_on_while_the_topics_cannot_be_described(
    east: Target, west: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = east.new_topic()
    produce(east, topic, [b"before"])

    questions = 0

    async def fail(*_: object) -> None:
        nonlocal questions
        questions += 1
        raise AdminError.of({None: KafkaError(ErrorCode.NETWORK_EXCEPTION, "connection lost")}, {})

    with running(flow_between(east, west, topics=topic)) as run:
        run.wait_for_end(topic, {0: 1})
        monkeypatch.setattr(AsyncAdminClient, "describe_topics", fail)
        run.wait(lambda status: questions > 4 and any("connection lost" in error for error in status.errors))
        produce(east, topic, [b"meanwhile"])
        run.wait_for_end(topic, {0: 2})


def test_offset_syncs_whose_producer_cannot_be_made_are_reported(east: Target, west: Target) -> None:
    topic = east.new_topic()
    produce(east, topic, [b"record"])
    with running(flow_between(east, west, topics=topic, A_producer_delivery_timeout_ms="1")) as run:
        run.wait_for_end(topic, {0: 1})
        run.wait(lambda status: any("offset syncs: INVALID_CONFIG" in error for error in status.errors))


def test_shards_are_given_up_while_the_clusters_do_not_respond(
    east: Target, west: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"wide-{east.new_topic()}"
    for cluster, name in ((east, topic), (west, f"A.{topic}")):
        create(cluster, name, 32)

    async def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "away")

    with running(flow_between(east, west, topics=topic), has_control=False) as run:
        run.wait(lambda status: {number % 2 for number in status.shards} == {0, 1})
        monkeypatch.setattr(run.worker, "_plans", refuse)
        asyncio.run_coroutine_threadsafe(run.worker.use_share(1, 2), run.loop).result(HANG_SECONDS)
        assert {number % 2 for number in run.status().shards} == {1}


def test_a_shard_that_fails_unexpectedly_is_shown_and_opened_again(
    east: Target, west: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = east.new_topic()
    produce(east, topic, [b"record"])
    poll, repaired = ShardWorker._poll, threading.Event()

    async def fail(worker: ShardWorker, wait_seconds: float) -> FetchedBatches | None:
        if not repaired.is_set():
            raise ZeroDivisionError
        return await poll(worker, wait_seconds)

    monkeypatch.setattr(ShardWorker, "_poll", fail)
    with running(flow_between(east, west, topics=topic)) as run:
        run.wait(lambda status: any("ZeroDivisionError" in error for error in status.errors))
        repaired.set()
        run.wait_for_end(topic, {0: 1})


def create_again(cluster: Target, topic: str) -> None:
    """With records at all positions that the former one had."""
    with AdminClient(bootstrap_servers=cluster.plain) as admin:
        admin.delete_topics([topic])
    create(cluster, topic)
    produce(cluster, topic, [b"new %d" % number for number in range(20)])
