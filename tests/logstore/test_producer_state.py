"""A batch is appended once per producer: duplicates are recognised, gaps and old epochs refused, as in Kafka."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore.producer_state import BATCHES_REMEMBERED, BatchMetadata, ProducerState
from raylog.protocol.records.batch import BatchHeader

MAX = (1 << 31) - 1


def header(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, offset: int = 0) -> BatchHeader:
    return BatchHeader(offset, 100, 0, 2, 0, 0, count - 1, 10, 20, producer_id, epoch, sequence, count)


def remembering(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    for one in headers:
        state.update(one, base_offset=one.base_offset, now_ms=0, marker=None)
    return state


def refusal(state: ProducerState, one: BatchHeader) -> ErrorCode:
    before = state.encode_snapshot()
    with pytest.raises(KafkaError) as caught:
        state.check(one)
    assert state.encode_snapshot() == before
    return caught.value.code


def test_only_the_next_sequence_is_accepted() -> None:
    state = remembering(header(0, 3))
    assert state.check(header(3)) is None
    for sequence in (1, 2, 4, 100):
        assert refusal(state, header(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_start_at_any_sequence() -> None:
    assert ProducerState().check(header(500)) is None


def test_the_last_five_batches_are_recognised_with_their_offsets() -> None:
    batches = [header(n * 2, 2, offset=100 + n * 2) for n in range(7)]
    state = remembering(*batches)
    for one in batches[-BATCHES_REMEMBERED:]:
        found = state.check(one)
        assert found is not None
        assert (found.first_offset, found.last_offset) == (one.base_offset, one.last_offset)
    assert refusal(state, batches[1]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, header(12, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "same first, other last"


def test_a_new_epoch_fences_the_old_one_and_starts_at_0() -> None:
    state = remembering(header(0, epoch=2))
    assert refusal(state, header(1, epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, header(1, epoch=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, epoch=3)) is None
    state.update(header(0, epoch=3), base_offset=9, now_ms=0, marker=None)
    assert refusal(state, header(0, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_sequence_wraps_to_0() -> None:
    state = remembering(header(MAX - 1, 2))
    assert state.check(header(0)) is None
    state = remembering(header(MAX, 3))
    assert state.check(header(2)) is None
    found = state.check(header(MAX, 3))
    assert found is not None
    assert found.first_sequence == MAX


def test_inactive_producers_expire_by_their_last_use() -> None:
    state = remembering(header(0))
    state.update(header(0, producer_id=8), base_offset=1, now_ms=50, marker=None)
    assert state.expire(now_ms=100, expiration_ms=100) == 1
    assert list(state.producers()) == [8]


def test_the_snapshot_is_kafkas_file_byte_for_byte() -> None:
    state = remembering(header(5, 3, producer_id=1000, epoch=2, offset=40))
    body = (
        (1).to_bytes(4)
        + (1000).to_bytes(8)
        + (2).to_bytes(2)
        + (7).to_bytes(4)  # last sequence
        + (42).to_bytes(8)  # last offset
        + (2).to_bytes(4)  # offset delta
        + (20).to_bytes(8)  # max timestamp
        + b"\xff" * 4  # coordinator epoch
        + b"\xff" * 8  # no transaction
    )
    assert state.encode_snapshot() == (1).to_bytes(2) + crc32c(body).to_bytes(4) + body


@given(st.dictionaries(st.integers(0, 1 << 40), st.tuples(st.integers(0, 9), st.integers(0, MAX)), max_size=8))
def test_snapshots_are_encoded_and_decoded(producers: dict[int, tuple[int, int]]) -> None:
    state = ProducerState()
    for number, (producer_id, (epoch, sequence)) in enumerate(producers.items()):
        state.update(
            header(sequence, 2, producer_id=producer_id, epoch=epoch), base_offset=number * 2, now_ms=0, marker=None
        )
    data = state.encode_snapshot()
    again = ProducerState.decode_snapshot(data, now_ms=5)
    assert again.encode_snapshot() == data
    for producer_id, (epoch, sequence) in producers.items():
        assert again.check(header(sequence, 2, producer_id=producer_id, epoch=epoch)) is not None


def test_truncated_and_damaged_snapshots_are_refused() -> None:
    data = remembering(header(0), header(0, producer_id=8)).encode_snapshot()
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"."):
            ProducerState.decode_snapshot(data[:size], now_ms=0)
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(ValueError, match=r"."):
            ProducerState.decode_snapshot(bytes(broken), now_ms=0)


def test_a_batch_that_failed_must_be_retried_before_later_ones() -> None:
    state = ProducerState()
    state.expect_retry(header(5), now_ms=0)
    assert refusal(state, header(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(5)) is None
    assert state.check(header(9, producer_id=8)) is None
    assert state.check(header(0, epoch=1)) is None, "the client raised its epoch (KIP-360)"
    state.expire(now_ms=99, expiration_ms=100)
    assert refusal(state, header(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "retention alone forgets nothing"
    state.expire(now_ms=100, expiration_ms=100)
    assert state.check(header(6)) is None
    state.expect_retry(header(5), now_ms=0)
    state.update(header(5), base_offset=0, now_ms=0, marker=None)
    assert state.check(header(6)) is None


def test_older_batches_are_restored_only_if_consecutive() -> None:
    batches = [header(n, offset=n) for n in range(8)]
    state = remembering(batches[7])
    state.recall(header(6, epoch=1, offset=6))
    state.recall(batches[5])
    for one in reversed(batches[:7]):
        state.recall(one)
    assert [b.last_sequence for b in state.producers()[7].batches] == [3, 4, 5, 6, 7]
    assert state.producers()[7].batches[0] == BatchMetadata(3, 3, 0, 20)
