"""A member of a streams group (KIP-1071) of which a test says every word: no client for Python speaks its protocol."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from typing import Any

from raylog.core.errors import ErrorCode
from raylog.protocol import codec
from raylog.protocol.header import decode_response_header, encode_request
from raylog.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)
from raylog.protocol.registry import STREAMS_GROUP_HEARTBEAT
from tests.support.hang import HANG_SECONDS


class StreamsMember:
    """A member of a streams group that sends what a test asks for, to whichever broker coordinates the group."""

    def __init__(self, bootstrap_servers: str, group: str, topology: Topology) -> None:
        self._addresses = [address.rsplit(":", 1) for address in bootstrap_servers.split(",")]
        self._group = group
        self._topology = topology
        self.epoch = 0

    def beat(self, **more: Any) -> Any:
        given: dict[str, Any] = {"group_id": self._group, "member_id": "worker", "member_epoch": self.epoch}
        if self.epoch == 0:
            given |= {"topology": self._topology, "rebalance_timeout_ms": 1000, "process_id": "process"}
        deadline = time.monotonic() + HANG_SECONDS
        response: Any = None
        for host, port in itertools.cycle(self._addresses):
            response = _ask((host, int(port)), StreamsGroupHeartbeatRequest(**{**given, **more}))
            if response.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert response.error_code == ErrorCode.NONE, response
        self.epoch = response.member_epoch
        return response

    def settle(self) -> None:
        """Until it has all tasks."""
        deadline = time.monotonic() + HANG_SECONDS
        while self.beat(active_tasks=(), standby_tasks=(), warmup_tasks=()).status or self.epoch < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _ask(address: tuple[str, int], request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    frame = b"".join(encode_request(request, api_version=0, correlation_id=1, client_id="streams"))
    with socket.create_connection(address, timeout=HANG_SECONDS) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", answers.read(4))
        body = answers.read(size)
    _, position = decode_response_header(STREAMS_GROUP_HEARTBEAT, 0, body)
    return codec.decode(StreamsGroupHeartbeatResponse, 0, body, position)
