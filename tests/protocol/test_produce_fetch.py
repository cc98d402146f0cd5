"""Record batches pass through Produce and Fetch without a copy: as views of the frame and as buffers of the log."""

from __future__ import annotations

import pytest

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.core.ids import ZERO_TOPIC_ID
from raylog.protocol import fetch, produce
from raylog.protocol.leader_hint import LeaderIdAndEpoch, NodeEndpoint
from raylog.protocol.registry import FETCH, PRODUCE, api_for

BATCH = bytes(range(256)) * 40


def produce_request(*batches: bytes | None) -> produce.ProduceRequest:
    partitions = tuple(
        produce.ProducePartition(index=index, records=None if batch is None else memoryview(batch))
        for index, batch in enumerate(batches)
    )
    return produce.ProduceRequest(
        acks=-1, timeout_ms=1500, topics=(produce.ProduceTopic(name="t", partitions=partitions),)
    )


@pytest.mark.parametrize("version", range(3, 14))
def test_produced_records_are_writable_views_of_the_frame(version: int) -> None:
    request = produce_request(BATCH, b"", None, b"tiny")
    frame = bytearray(b"header" + b"".join(produce.encode_produce_request(version, request)))
    found = produce.decode_produce_request(version, memoryview(frame), 6).topics[0].partitions
    assert [None if each.records is None else bytes(each.records) for each in found] == [BATCH, b"", None, b"tiny"]
    records = found[0].records
    assert records is not None
    assert not records.readonly
    assert records.obj is frame
    records[:3] = b"abc"
    assert frame.count(b"abc" + BATCH[3:]) == 1


def test_batches_of_a_producer_are_sent_uncopied() -> None:
    request = produce_request(BATCH)
    buffers = produce.encode_produce_request(9, request)
    assert any(each is request.topics[0].partitions[0].records for each in buffers)


@pytest.mark.parametrize("version", range(4, 19))
def test_fetched_buffers_are_passed_through_in_order(version: int) -> None:
    first, second, third = memoryview(BATCH), memoryview(BATCH[:5000]), memoryview(bytes(6000))
    response = fetch.FetchResponse(
        responses=(
            fetch.FetchTopicResponse(
                name="t",
                partitions=(
                    fetch.FetchPartitionResponse(partition_index=0, high_watermark=9, records=(first, second)),
                    fetch.FetchPartitionResponse(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
                    fetch.FetchPartitionResponse(partition_index=2, records=(third, b"tail")),
                    fetch.FetchPartitionResponse(partition_index=3, records=None),
                ),
            ),
        )
    )
    buffers = fetch.encode_fetch_response(version, response)
    assert [each for each in buffers if len(each) >= 5000] == [first, second, third]
    assert all(any(each is view for each in buffers) for view in (first, second, third))
    assert len(buffers) == 6  # head, first, second, between, third, tail
    frame = b"".join(buffers)
    partitions = fetch.decode_fetch_response(version, frame).responses[0].partitions
    assert [None if each.records is None else b"".join(each.records) for each in partitions] == [
        BATCH + BATCH[:5000],
        b"",
        bytes(6000) + b"tail",
        None,
    ]
    assert all(isinstance(view, memoryview) and view.obj is frame for view in partitions[0].records or ())
    assert partitions[1].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", range(4, 19))
def test_the_replica_id_is_decoded_in_every_version(version: int) -> None:
    request = fetch.FetchRequest(
        replica_id=3,
        replica_state=fetch.ReplicaState(replica_epoch=8),
        topics=(fetch.FetchTopic(name="t", partitions=(fetch.FetchPartition(partition=1, fetch_offset=5),)),),
    )
    found = fetch.decode_fetch_request(version, fetch.encode_fetch_request(version, request))
    assert found.replica_id == 3
    assert found.replica_state == (
        fetch.ReplicaState(replica_id=3, replica_epoch=8) if version >= 15 else fetch.ReplicaState()
    )
    consumer = fetch.decode_fetch_request(version, fetch.encode_fetch_request(version, fetch.FetchRequest()))
    assert consumer.replica_id == -1


def test_leader_hints_exist_since_their_version() -> None:
    hint, node = LeaderIdAndEpoch(leader_id=2, leader_epoch=7), NodeEndpoint(node_id=2, host="h", port=9092)
    partition = produce.ProducePartitionResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint)
    response = produce.ProduceResponse(
        responses=(produce.ProduceTopicResponse(name="t", partitions=(partition,)),), node_endpoints=(node,)
    )
    for version, known in ((9, False), (10, True)):
        found = produce.decode_produce_response(version, produce.encode_produce_response(version, response))
        assert found.responses[0].partitions[0].current_leader == (hint if known else LeaderIdAndEpoch())
        assert found.node_endpoints == ((node,) if known else ())


def test_topics_have_names_up_to_v12_and_ids_since_v13() -> None:
    request = produce_request(b"")
    assert (
        produce.decode_produce_request(12, b"".join(produce.encode_produce_request(12, request))).topics[0].name == "t"
    )
    found = produce.decode_produce_request(13, b"".join(produce.encode_produce_request(13, request))).topics[0]
    assert (found.name, found.topic_id) == ("", ZERO_TOPIC_ID)


@pytest.mark.parametrize("version", [8, 9])
def test_records_longer_than_the_frame_are_refused(version: int) -> None:
    raw = b"".join(produce.encode_produce_request(version, produce_request(BATCH)))
    with pytest.raises(ProtocolViolation, match="records is longer than the frame"):
        produce.decode_produce_request(version, raw[:-10])


def test_the_registry_uses_the_same_codecs() -> None:
    request = produce_request(BATCH)
    raw = b"".join(produce.encode_produce_request(9, request))
    produced, fetched = api_for(PRODUCE), api_for(FETCH)
    assert produced is not None
    assert fetched is not None
    assert produced.decode_request(9, raw) == request
    follower = fetch.encode_fetch_request(16, fetch.FetchRequest(replica_id=4))
    assert fetched.decode_request(16, follower).replica_id == 4
    assert produced.encode_response(9, produce.ProduceResponse()) == [
        produce.encode_produce_response(9, produce.ProduceResponse())
    ]
