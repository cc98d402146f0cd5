"""Frames captured from stock clients are decoded, and encoded again byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raylog.core.errors import ProtocolViolation
from raylog.protocol.header import RequestHeader, decode_request_header
from raylog.protocol.registry import api_for
from tests.support.capture import GOLDEN, encoded, shown

FRAMES = [
    pytest.param(frame, id=f"{path.stem}-{frame['header']['api_key']}-v{frame['header']['api_version']}-{number}")
    for path in sorted(GOLDEN.glob("*.json"))
    for number, frame in enumerate(json.loads(path.read_text()))
]


def read(raw: bytes) -> tuple[RequestHeader, Any]:
    header, position = decode_request_header(raw)
    spec = api_for(header.api_key)
    assert spec is not None
    return header, spec.decode_request(header.api_version, raw, position)


@pytest.mark.parametrize("frame", FRAMES)
def test_a_captured_frame_is_decoded_and_encoded(frame: dict[str, Any]) -> None:
    raw = bytes.fromhex(frame["hex"])
    header, message = read(raw)
    assert header == RequestHeader(**frame["header"])
    assert shown(message) == frame["message"]
    size = len(raw) - frame["spare_bytes"]
    assert encoded(header, message) == raw[:size]
    for stop in range(size):
        with pytest.raises(ProtocolViolation):
            read(raw[:stop])


def test_frames_of_every_supported_client_exist() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == {"aiokafka", "confluent_kafka", "kafka_python", "kcat"}
    assert len(FRAMES) >= 30
