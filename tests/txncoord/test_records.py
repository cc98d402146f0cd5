"""Transactions are recorded in Kafka's key and value formats, and other records are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import InvariantViolation
from raylog.core.ids import ProducerId, ProducerIdentity, TopicPartition
from raylog.txncoord import records
from raylog.txncoord.records import TransactionForgotten, TransactionRecord, TransactionState, TransactionUpdated

_names = st.text(max_size=20)
_partitions = st.builds(TopicPartition, _names, st.integers(0, 1 << 30))
_identities = st.builds(ProducerIdentity, st.integers(0, 1 << 60).map(ProducerId), st.integers(0, 32_767))
_times = st.integers(-1, 1 << 60)
_open = st.builds(
    TransactionUpdated,
    _names,
    _identities,
    st.integers(1, 1 << 30),
    st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    st.frozensets(_partitions, max_size=5),
    _times,
    _times,
    client_version=st.sampled_from([0, 2]),
    previous_producer_id=st.integers(-1, 1 << 60).map(ProducerId),
    next_producer_id=st.integers(-1, 1 << 60).map(ProducerId),
)
_empty = st.builds(
    TransactionUpdated,
    _names,
    _identities,
    st.integers(1, 1 << 30),
    st.just(TransactionState.EMPTY),
    st.just(frozenset()),
    _times,
    _times,
)


@given(st.one_of(_open, _empty, st.builds(TransactionForgotten, _names)), st.booleans())
def test_records_are_encoded_and_decoded(record: TransactionRecord, flexible: bool) -> None:
    assert records.decode(*records.encode(record, flexible=flexible)) == record


def test_the_bytes_are_kafkas() -> None:
    """Written by hand after TransactionLogKey.json and TransactionLogValue.json, version 0."""
    record = TransactionUpdated(
        "tx",
        ProducerIdentity(ProducerId(7), 3),
        60_000,
        TransactionState.PREPARE_COMMIT,
        frozenset({TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)}),
        1_700_000_000_001,
        1_700_000_000_000,
    )
    key, value = records.encode(record)
    assert key.hex() == "000000027478"
    assert value is not None
    assert value.hex() == (
        "0000000000000000000700030000ea6002"
        "00000002"
        "000161000000020000000000000002"
        "0001620000000100000001"
        "0000018bcfe568010000018bcfe56800"
    )  # fmt: skip


def test_the_bytes_of_version_1_are_kafkas() -> None:
    """Written by hand after TransactionLogValue.json, version 1: the tags 0 to 2 are those of KIP-890."""
    record = TransactionUpdated(
        "tx",
        ProducerIdentity(ProducerId(7), 3),
        60_000,
        TransactionState.PREPARE_COMMIT,
        frozenset({TopicPartition("a", 2), TopicPartition("a", 0)}),
        1_700_000_000_001,
        1_700_000_000_000,
    )
    head, tail = "0001000000000000000700030000ea6002", "0000018bcfe568010000018bcfe56800"
    partitions = "02026103000000000000000200"
    _, value = records.encode(record, flexible=True)
    assert value is not None
    assert value.hex() == head + partitions + tail + "00", "no tag with its default"
    ended = replace(record, previous_producer_id=ProducerId(7), next_producer_id=ProducerId(8), client_version=2)
    _, value = records.encode(ended)
    assert value is not None
    tags = "03000800000000000000070108000000000000000802020002"
    assert value.hex() == head + partitions + tail + tags


def test_an_empty_transaction_has_null_partitions() -> None:
    record = TransactionUpdated("tx", ProducerIdentity(ProducerId(7), 0), 1, TransactionState.EMPTY, frozenset(), 5, -1)
    _, value = records.encode(record)
    assert value is not None
    assert value[17:21] == b"\xff\xff\xff\xff"


def test_unknown_keys_are_ignored_and_invalid_bytes_refused() -> None:
    assert records.decode(b"\x00\x09", b"x") is None
    key, value = records.encode(
        TransactionUpdated("tx", ProducerIdentity(ProducerId(7), 0), 1, TransactionState.ONGOING, frozenset(), 5, 5)
    )
    assert value is not None
    for cut in range(len(value)):
        with pytest.raises(InvariantViolation):
            records.decode(key, value[:cut])
    with pytest.raises(InvariantViolation, match="version 2"):
        records.decode(key, b"\x00\x02" + value[2:])
