"""From raylog to raylog, and with --kafka from and to Apache Kafka, readers of the target see the source's records.

In order, with every codec, of transactions, compacted topics and topics with LogAppendTime, nulls and headers; and a
loop of both clusters copies each record once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

from tests.client.served import Target
from tests.mirror.conftest import CONFIG
from tests.mirror.flows import Seen, create, ends, flow_between, flows_among, running, seen
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import HANG_SECONDS
from tests.support.kafka_peer import kafka_peer

KAFKA = pytest.mark.kafka
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 5
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.fixture(
    scope="module",
    params=["raylog raylog", pytest.param("kafka raylog", marks=KAFKA), pytest.param("raylog kafka", marks=KAFKA)],
)
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    with ExitStack() as opened:
        found = []
        for kind in request.param.split():
            folder = tmp_path_factory.mktemp(kind)
            if kind == "kafka":
                peer = opened.enter_context(kafka_peer(folder / "kafka"))
                peer.start()
                found.append(Target(peer.bootstrap_servers))
            else:
                config = {**CONFIG, "log.cleaner.backoff.ms": 100}
                found.append(Target(opened.enter_context(cluster_thread(config, folder / "data")).bootstrap_servers))
        yield found[0], found[1]


def write(cluster: Target, topic: str, records: list[tuple[bytes | None, bytes | None]], **given: str) -> None:
    """In one batch, by librdkafka."""
    producer = Producer({"bootstrap.servers": cluster.plain, "linger.ms": 5, **given})
    if "transactional.id" in given:
        producer.init_transactions(HANG_SECONDS)
        producer.begin_transaction()
    for key, value in records:
        producer.produce(topic, value, key, partition=0, headers=[("h", b"1"), ("h", None), ("\u00e9", b"")])
    if "transactional.id" in given:
        producer.commit_transaction(HANG_SECONDS)
    assert producer.flush(HANG_SECONDS) == 0


def write_all_kinds(cluster: Target, topic: str) -> None:
    for codec in CODECS:
        write(
            cluster,
            topic,
            [(b"k%d" % number, codec.encode() * 30) for number in range(20)],
            **{"compression.type": codec},
        )
    write(cluster, topic, [(None, None), (b"", b""), (b"key", None)])
    write(cluster, topic, [(b"k", b"kept")], **{"transactional.id": topic})
    dropped = Producer({"bootstrap.servers": cluster.plain, "transactional.id": topic})
    dropped.init_transactions(HANG_SECONDS)
    dropped.begin_transaction()
    dropped.produce(topic, b"dropped", partition=0)
    assert dropped.flush(HANG_SECONDS) == 0
    dropped.abort_transaction(HANG_SECONDS)
    write(cluster, topic, [(b"k", b"behind")])


def write_and_compact(cluster: Target, topic: str) -> None:
    """Until superseded records are gone, so that there are gaps within batches and between them."""
    for turn in range(4):
        write(
            cluster,
            topic,
            [(b"k%d" % number, b"%d" % turn) for number in range(turn, KEYS)],
            **{"compression.type": "lz4"},
        )
    deadline = time.monotonic() + HANG_SECONDS
    while len(seen(cluster, topic)) >= 14:  # the first three turns have 12 records
        assert time.monotonic() < deadline, "not compacted"
        write(cluster, topic, [(b"last", b"")])  # the active segment is not compacted
        time.sleep(0.3)


def without_times(records: list[Seen]) -> list[Seen]:
    return [record[:3] for record in records]


@pytest.mark.parametrize("mode", ["disabled", "enabled"], ids=["at-least-once", "exactly-once"])
def test_readers_of_the_copy_see_the_source(sides: tuple[Target, Target], mode: str) -> None:
    source, target = sides
    plain, appended, compacted = (f"{kind}-{mode}" for kind in ("plain", "appended", "compacted"))
    create(source, plain)
    create(source, appended, message_timestamp_type="LogAppendTime")
    create(source, compacted, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001")
    for topic in (plain, appended):
        write_all_kinds(source, topic)
    write_and_compact(source, compacted)
    topics = f"{plain},{appended},{compacted}"
    flow = flow_between(
        source, target, topics=topics, exactly_once_source_support=mode, sync_topic_configs_enabled="false"
    )
    for topic in (plain, appended, compacted):
        create(target, f"A.{topic}")
    with running(flow) as run:
        for topic in (plain, appended, compacted):
            run.wait_for_end(topic, ends(source, topic))
    isolation = "read_committed" if mode == "enabled" else "read_uncommitted"
    for topic in (plain, appended):
        written, copied = seen(source, topic, isolation=isolation), seen(target, f"A.{topic}")
        assert without_times(copied) == without_times(written)
        assert [time_ms for *_, (_, time_ms) in copied] == [time_ms for *_, (_, time_ms) in written]
        assert len(copied) > 100
    copied = seen(target, f"A.{compacted}")
    rest = iter(copied)
    assert all(record in rest for record in seen(source, compacted))  # which is compacted further meanwhile
    assert KEYS < len(copied) < 14


@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["disabled", "enabled"], ids=["at-least-once", "exactly-once"])
def test_a_loop_with_equal_names_copies_each_record_once(sides: tuple[Target, Target], mode: str) -> None:
    clusters, topic = dict(zip("AB", sides, strict=True)), f"loop-{mode}"
    for alias, cluster in clusters.items():
        create(cluster, topic)
        for turn, given in enumerate(({}, {"enable.idempotence": "true"}, {"transactional.id": f"{alias}-{topic}"})):
            write(cluster, topic, [(None, f"{alias}-{turn}-{number}".encode()) for number in range(10)], **given)
    given = {"topics": topic, "exactly_once_source_support": mode, "replication_policy_class": IDENTITY}
    wanted = sorted(record[1] for cluster in clusters.values() for record in seen(cluster, topic))
    assert len(wanted) == 60
    there, back = flows_among(clusters, "A->B", "B->A", **given)
    with running(there) as one, running(back) as other:
        deadline = time.monotonic() + HANG_SECONDS
        for cluster in clusters.values():
            while len(seen(cluster, topic)) < len(wanted):
                assert time.monotonic() < deadline, [run.status() for run in (one, other)]
                time.sleep(0.1)
        for run in (one, other):
            run.wait(lambda status: all(each.lag == 0 for each in status.partitions))
    for cluster in clusters.values():
        assert sorted(record[1] for record in seen(cluster, topic)) == wanted
