"""A client's end of one connection, sans-IO: sends requests, matches responses by correlation id, negotiates versions.

The owner writes the result of `take_output()`, passes in the bytes it reads, and calls `next_response()` until it
returns None. The first request must be ApiVersions (`negotiate`); after its response every request uses the highest
version that both sides support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.protocol import codec, fetch, registry
from raylog.protocol.framing import FRAME_BYTES_MAX, RESPONSE_BYTES_MIN, frame
from raylog.protocol.header import decode_response_header, encode_request
from raylog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raylog.protocol.registry import api_for
from raylog.protocol.schema import Message
from raylog.protocol.wire import Buffer
from raylog.transport.receive_buffer import ReceiveBuffer

CLIENT_SOFTWARE_NAME = "raylog"
CLIENT_SOFTWARE_VERSION = "0.1.0"
TLS_ALERT: Final = b"\x15\x03"
"""How an alert of TLS begins, which a listener with TLS sends to a client without. As the length of a frame it is
352 MB, more than the first response can have."""


@dataclass(frozen=True, slots=True)
class _Sent:
    api_key: int
    api_version: int
    correlation_id: int


class ClientConnection:
    """Responses arrive in the order of the requests, as Kafka guarantees; any other order is a protocol violation."""

    def __init__(self, *, client_id: str, response_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._client_id = client_id
        self._received = ReceiveBuffer(frame_bytes_min=RESPONSE_BYTES_MIN, frame_bytes_max=response_bytes_max)
        self._output: list[Buffer] = []
        self._in_flight: list[_Sent] = []
        self._next_correlation_id = 0
        self._served: dict[int, tuple[int, int]] | None = None

    def negotiate(self, version: int = 3) -> None:
        """Request the broker's versions; `next_response` returns the response and stores it here."""
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
        )
        self._send(request, version)

    @property
    def negotiated(self) -> bool:
        """Whether the versions of the broker are known."""
        return self._served is not None

    @property
    def last_correlation_id(self) -> int:
        """That of the request sent last."""
        return self._next_correlation_id - 1

    def version_for(self, api_key: int) -> int:
        """The highest version both sides support. Raises KafkaError(UNSUPPORTED_VERSION) if there is none."""
        spec = api_for(api_key)
        assert spec is not None, f"API key {api_key} is not in the registry"
        lowest, highest = (self._served or {}).get(api_key, (0, -1))
        version = min(spec.highest, highest)
        if version < max(spec.lowest, lowest):
            theirs, ours = f"{lowest} to {highest}", f"{spec.lowest} to {spec.highest}"
            message = f"the broker supports {spec.name} versions {theirs}, this client {ours}"
            if highest < lowest:
                message = f"{spec.name} is not served there"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        return version

    def send(self, request: Message, *, answered: bool = True, version_max: int | None = None) -> int:
        """Queue a request and return its correlation id. Use `answered=False` for Produce with acks=0."""
        version = self.version_for(request.api.key)
        if version_max is not None:
            version = min(version, version_max)
        return self._send(request, version, answered=answered)

    def take_output(self) -> list[Buffer]:
        output, self._output = self._output, []
        return output

    def receive_buffer(self) -> memoryview:
        return self._received.free()

    def bytes_received(self, count: int) -> None:
        self._received.filled(count)

    def next_response(self) -> tuple[int, Any] | None:
        """Correlation id and response, or None. Records in it are views that are valid until more bytes are received.

        Raises ProtocolViolation for bytes that cannot be a response to the pending request.
        """
        body = self._received.next_frame()
        if body is None:
            if self._served is None and self._received.begins_with(TLS_ALERT):
                raise ProtocolViolation(
                    "received a TLS alert, not a response; its listener uses TLS (security.protocol=SSL or SASL_SSL)"
                )
            return None
        if not self._in_flight:
            raise ProtocolViolation("received a response without a request")
        sent = self._in_flight.pop(0)
        correlation_id, position = decode_response_header(sent.api_key, sent.api_version, body)
        if correlation_id != sent.correlation_id:
            raise ProtocolViolation(f"received correlation id {correlation_id}, expected {sent.correlation_id}")
        response = self._decode(sent, body, position)
        return correlation_id, response

    def _send(self, request: Message, version: int, *, answered: bool = True) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        buffers = encode_request(request, api_version=version, correlation_id=correlation_id, client_id=self._client_id)
        self._output.extend(frame(buffers))
        if answered:
            self._in_flight.append(_Sent(request.api.key, version, correlation_id))
        return correlation_id

    def _decode(self, sent: _Sent, body: memoryview, position: int) -> Any:
        if sent.api_key == registry.FETCH:
            return fetch.decode_fetch_response(sent.api_version, body, position)
        spec = api_for(sent.api_key)
        assert spec is not None
        if sent.api_key != registry.API_VERSIONS:
            return codec.decode(spec.response, sent.api_version, body, position)
        response = self._decode_api_versions(sent.api_version, body, position)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and sent.api_version > 0:
            self.negotiate(version=0)
        elif response.error_code == ErrorCode.NONE:
            self._served = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        return response

    @staticmethod
    def _decode_api_versions(version: int, body: memoryview, position: int) -> ApiVersionsResponse:
        """A broker that does not support our version responds in version 0 (KIP-511)."""
        try:
            return codec.decode(ApiVersionsResponse, version, body, position)
        except ProtocolViolation:
            return codec.decode(ApiVersionsResponse, 0, body, position)
