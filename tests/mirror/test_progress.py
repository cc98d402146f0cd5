"""Progress is read as it was written, and a record of something else is refused by name."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror.progress import OFFSET_MAX, FlowId, Progress, decode_progress, encode_progress

FLOW = FlowId("A", "B")
TP = TopicPartition("orders", 3)
KEY, VALUE = encode_progress(FLOW, TP, Progress(7))


OFFSETS = st.integers(0, OFFSET_MAX)


@given(OFFSETS, st.none() | st.uuids(), st.none() | st.tuples(OFFSETS, OFFSETS))
def test_progress_is_read_as_it_was_written(offset: int, topic_id: UUID | None, last: tuple[int, int] | None) -> None:
    progress = Progress(offset, topic_id, last)
    assert decode_progress(FLOW, *encode_progress(FLOW, TP, progress)) == (TP, progress)
    assert decode_progress(FLOW, KEY, None) == (TP, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (b"", VALUE),
        (KEY.replace(b'"A"', b'"C"'), VALUE),
        (KEY.replace(b"3", b"-3"), VALUE),
        (KEY, b"[" * 100_000),
        (KEY, b'{"next_offset": -1}'),
        (KEY, b'{"next_offset": 9223372036854775808}'),
        (KEY, b'{"next_offset": "7"}'),
        (KEY, b'{"next_offset": 7, "topic_id": "x"}'),
        (KEY, b'{"next_offset": 7, "topic_id": 7}'),
        (KEY, b'{"next_offset": 7, "last_copied": [6]}'),
        (KEY, b'{"next_offset": 7, "last_copied": [6, -1]}'),
        (KEY, b'{"next_offset": 7, "last_copied": ["6", 6]}'),
    ],
)
def test_records_of_something_else_are_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(KafkaError, match=r"raylog-mirror-progress\.A\.internal"):
        decode_progress(FLOW, key, value)
