"""Messages of the local endpoint are decoded as encoded, and all other bytes are protocol violations."""

from __future__ import annotations

from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.protocol.local_messages import (
    DATAGRAM_BYTES_MAX,
    REFUSAL_CHARACTERS_MAX,
    AbortedInFile,
    AbortedListed,
    Answer,
    ClosePartition,
    Hello,
    ListAborted,
    LocateSegment,
    OpenPartition,
    PartitionClosed,
    PartitionOpened,
    Refused,
    Request,
    SegmentLocated,
    Welcome,
    decode_answer,
    decode_request,
    encode,
    pack_aborted,
    unpack_aborted,
)
from tests.support.mutations import mutations

REQUESTS: list[Request] = [
    Hello(1),
    OpenPartition("topic", 3),
    LocateSegment(7, 1 << 60),
    ListAborted(7, 5, 1 << 40, 1 << 63, 6, 1 << 60),
    ClosePartition(7),
]
ANSWERS: list[Answer] = [
    Welcome("User:alice"),
    PartitionOpened(7, UUID(int=1 << 127)),
    SegmentLocated(5, 1 << 31, 2),
    AbortedListed(1 << 60),
    PartitionClosed(),
    Refused(ErrorCode.OFFSET_OUT_OF_RANGE, "gone"),
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_requests(request_: Request) -> None:
    assert decode_request(encode(request_)) == request_
    with pytest.raises(ProtocolViolation):
        decode_answer(encode(request_))


@pytest.mark.parametrize("answer", ANSWERS)
def test_responses(answer: Answer) -> None:
    assert decode_answer(encode(answer)) == answer
    with pytest.raises(ProtocolViolation):
        decode_request(encode(answer))


def test_lists_of_aborted_transactions() -> None:
    transactions = [AbortedInFile(1, 2, 3), AbortedInFile(1 << 62, 0, 1 << 60)]
    assert unpack_aborted(pack_aborted(transactions)) == transactions
    with pytest.raises(ProtocolViolation):
        unpack_aborted(pack_aborted(transactions)[:-1])


@pytest.mark.parametrize("message", [*REQUESTS, *ANSWERS])
def test_truncated_and_extended_datagrams_are_refused(message: Request | Answer) -> None:
    whole = encode(message)
    for wrong in (*(whole[:size] for size in range(len(whole))), whole + b"\0", whole + whole):
        for decode in (decode_request, decode_answer):
            with pytest.raises(ProtocolViolation):
                decode(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        1,
        "x",
        None,
        [99],
        [[1], 1],
        [1],
        [1, 1, 1],
        [1, True],
        [1, 1.0],
        [2, b"topic", 3],
        [2, "topic", None],
        [-2, 7, b"short"],
        [-2, 7, "x" * 16],
        [-5, 9999, "no such code"],
        [-5, None, "x"],
    ],
)
def test_wrong_types_are_refused(wrong: object) -> None:
    datagram = msgpack.packb(wrong)
    for decode in (decode_request, decode_answer):
        with pytest.raises(ProtocolViolation):
            decode(datagram)


@given(st.binary(max_size=60))
def test_random_bytes_are_refused(datagram: bytes) -> None:
    for decode in (decode_request, decode_answer):
        try:
            decode(datagram)
        except ProtocolViolation:
            pass


@pytest.mark.parametrize("message", [*REQUESTS, *ANSWERS])
def test_mutated_datagrams_are_read_or_refused(message: Request | Answer) -> None:
    for datagram in mutations(encode(message), 500, message):
        for decode in (decode_request, decode_answer):
            try:
                assert encode(decode(datagram))
            except ProtocolViolation:
                pass


@pytest.mark.parametrize(
    "datagram",
    [
        b"\x91" * DATAGRAM_BYTES_MAX,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        encode(OpenPartition("x" * DATAGRAM_BYTES_MAX, 0)),
    ],
)
def test_excessive_lengths_are_refused(datagram: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_request(datagram)


def test_the_longest_messages_fit() -> None:
    longest: list[Request | Answer] = [
        OpenPartition("x" * 249, 1 << 31),
        Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "ü" * REFUSAL_CHARACTERS_MAX),
    ]
    assert all(len(encode(message)) <= DATAGRAM_BYTES_MAX for message in longest)
