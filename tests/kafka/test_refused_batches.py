"""What raylog refuses of produced batches, Apache Kafka refuses too, with the same codes but for two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.records.compression import Codec
from tests.protocol.records.raw_batches import CONTROL, LOG_APPEND_TIME, raw_batch, raw_record, sized, varint
from tests.support.cluster_thread import cluster_thread
from tests.support.kafka_peer import kafka_peer
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.kafka

HUGE = (1 << 31) - 1
TP = TopicPartition("t", 0)
BATCHES = {
    "too few records": raw_batch(raw_record(0), 2),
    "too many records": raw_batch(raw_record(0) + raw_record(1), 1),
    "2**31 - 1 records": raw_batch(raw_record(0), HUGE),
    "-1 records": raw_batch(raw_record(0), -1, last_offset_delta=0),
    "a negative offset delta": raw_batch(raw_record(0), 1, last_offset_delta=-1),
    "a base offset": raw_batch(raw_record(0), 1, base_offset=1),
    "no records": raw_batch(b"", 0),
    "2**31 - 1 headers": raw_batch(sized(b"\0\0\0\x01\x01" + varint(HUGE)), 1),
    "two batches": raw_batch(raw_record(0), 1) * 2,
    "a control batch": raw_batch(raw_record(0), 1, attributes=CONTROL),
    "a wrong offset delta": raw_batch(raw_record(0), 1, last_offset_delta=5),
    "a timestamp of 2**62": raw_batch(raw_record(0, timestamp_delta=1 << 62), 1),
    "a timestamp of -2**63": raw_batch(raw_record(0), 1, base_timestamp=-(1 << 63)),
    "LogAppendTime": raw_batch(raw_record(0), 1, attributes=LOG_APPEND_TIME, max_timestamp=-1),
    **{f"garbage as {codec.name}": raw_batch(b"garbage", 1, attributes=codec) for codec in Codec if codec},
    **{f"few records in {codec.name}": raw_batch(raw_record(0), 2, codec=codec) for codec in Codec if codec},
}
GOOD = raw_batch(raw_record(0, value=b"good"), 1)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    day = {"log.message.timestamp.after.max.ms": "86400000"}
    with kafka_peer(tmp_path_factory.mktemp("kafka"), day) as peer:
        peer.start()
        yield peer.bootstrap_servers


@pytest.fixture(scope="module")
def raylog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster_thread({}, Path(tmp_path_factory.mktemp("raylog")) / "log") as running:
        yield running.bootstrap_servers


def codes(bootstrap_servers: str) -> dict[str, ErrorCode]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic("t", 1)])["t"].result(30)
    found = {}
    with RawClient(bootstrap_servers, client_id="tests") as client:
        for name, batch in BATCHES.items():
            try:
                client.produce(TP, bytearray(batch))
            except KafkaError as error:
                found[name] = error.code
            else:
                found[name] = ErrorCode.NONE
        assert client.produce(TP, bytearray(GOOD)) == 0, "nothing before it was appended"
    return found


def test_codes(kafka: str, raylog: str) -> None:
    ours, theirs = codes(raylog), codes(kafka)
    differing = {name: theirs[name] for name in BATCHES if ours[name] is not theirs[name]}
    assert set(differing.values()) <= {ErrorCode.UNKNOWN_SERVER_ERROR}, differing
    assert ErrorCode.NONE not in ours.values()
    assert {ours[name] for name in differing} <= {ErrorCode.INVALID_RECORD}
