"""The responses to a hostile peer: checked, and searched for ids that its next requests use."""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import fields
from random import Random
from typing import Any, ClassVar

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.protocol import registry
from raylog.protocol.codec import reader
from raylog.protocol.framing import REQUEST_BYTES_MAX, REQUEST_BYTES_MIN
from raylog.protocol.header import decode_client_id, decode_response_header
from raylog.protocol.messages.api_versions import ApiVersionsResponse
from raylog.protocol.registry import api_for
from raylog.protocol.schema import Message
from raylog.protocol.wire import BUDGET


class Learned:
    """The latest values of some fields in responses, by the name of the field."""

    NAMES = frozenset(
        ("topic_id", "member_id", "generation_id", "producer_id", "producer_epoch", "session_id", "leader_epoch")
    )
    ALIASES: ClassVar = {"generation_id_or_member_epoch": "generation_id", "current_leader_epoch": "leader_epoch"}
    KEPT_MAX = 5

    def __init__(self) -> None:
        self.spared: Any = None
        """A value that is not noted: the id of a topic to which any client may write, but must not here."""
        self._values: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=self.KEPT_MAX))

    def take(self, structure: Any) -> None:
        """Note the values in a response. Fails for UNKNOWN_SERVER_ERROR, which means an unexpected error."""
        for each in fields(structure):
            value = getattr(structure, each.name)
            assert value is not ErrorCode.UNKNOWN_SERVER_ERROR, f"UNKNOWN_SERVER_ERROR in {structure}"
            if each.name in self.NAMES and value != self.spared:
                self._values[each.name].append(value)
            for item in value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,):
                if hasattr(item, "__dataclass_fields__"):
                    self.take(item)

    def value(self, name: str, dice: Random) -> Any:
        """One of the latest values, mostly the last; None if there is none, or the field is not one of them."""
        chance = dice.random()
        name = name.removeprefix("v3_and_below_")
        known = self._values.get(self.ALIASES.get(name, name))
        return known[-1 - int(chance**3 * len(known))] if known else None


class Responses:
    """Checks the responses on one connection: their order, their correlation ids, and that they can be decoded."""

    def __init__(self, learned: Learned) -> None:
        self._learned = learned
        self._sent = bytearray()
        self._received = bytearray()
        self._open: deque[tuple[int, int, int]] = deque()
        """Key, version and correlation id of the requests whose responses have not arrived."""

    @property
    def awaited(self) -> int:
        return len(self._open)

    def sent(self, data: bytes) -> None:
        """Note the whole frames in what was sent, up to an invalid length."""
        self._sent += data
        while len(self._sent) >= 4:
            length = int.from_bytes(self._sent[:4], signed=True)
            if not REQUEST_BYTES_MIN <= length <= REQUEST_BYTES_MAX or len(self._sent) < 4 + length:
                return
            request = bytes(self._sent[4 : 4 + length])
            del self._sent[: 4 + length]
            if _is_answered(request):
                self._open.append(struct.unpack_from(">hhi", request))

    def received(self, data: bytes) -> None:
        """Check the whole responses in what was received. Raises AssertionError and ProtocolViolation."""
        self._received += data
        while len(self._received) >= 4:
            length = int.from_bytes(self._received[:4], signed=True)
            assert length >= 4, f"a response of {length} bytes"
            if len(self._received) < 4 + length:
                return
            response = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            assert self._open, f"a response without a request: {response!r}"
            self._check(response, *self._open.popleft())

    def _check(self, response: bytes, key: int, version: int, correlation_id: int) -> None:
        spec = api_for(key)
        assert spec is not None, f"a response to API key {key}"
        cls: type[Message] = spec.response
        if not spec.serves(version):
            assert cls is ApiVersionsResponse, f"a response to {spec.name} v{version}"
            version = 0
        found, at = decode_response_header(key, version, response)
        assert found == correlation_id, f"correlation id {found} in the response to {spec.name}, not {correlation_id}"
        BUDGET.refill()
        message, end = reader(cls, version)(memoryview(response), at, len(response))
        assert end == len(response), f"{len(response) - end} bytes follow the {cls.__name__} v{version}"
        self._learned.take(message)


def _is_answered(request: bytes) -> bool:
    """False for a Produce with acks=0. A request that cannot be decoded closes the connection, so either will do."""
    key, version = struct.unpack_from(">hh", request)
    spec = api_for(key)
    if key != registry.PRODUCE or spec is None or not spec.serves(version):
        return True
    try:
        _, at = decode_client_id(spec, version, request)
        return bool(spec.decode_request(version, request, at).acks != 0)
    except ProtocolViolation:
        return True
