"""Requests that stock clients do not send, drawn from the declarations of the messages.

A step is what a peer does on one connection: some requests, valid, with one absurd field, or not requests at all. Step
`number` of `seed` always has the same form; ids that the broker assigned are taken from its responses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any
from uuid import UUID

from raylog.protocol import registry, schema
from raylog.protocol.codec import declared
from raylog.protocol.framing import REQUEST_BYTES_MAX
from raylog.protocol.header import encode_request_header
from raylog.protocol.registry import APIS, INTERNAL_APIS, KAFKA_APIS, ApiSpec, api_for
from raylog.protocol.schema import Message, Wire, WireType
from raylog.protocol.wire import uvarint
from tests.hostile.record_sets import record_set
from tests.hostile.responses import Learned
from tests.support.mutations import mutated

TARGET = "target"
TOPICS = (TARGET, TARGET, TARGET, "hostile", "other", "h" * 249)
NOT_TOPICS = ("", ".", "..", "../x", "a/b", "a b", "h" * 250, "é", "nul\0", "__cluster_metadata")
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
NAMES = ("g1", "g2", "")
CONFIG_KEYS = (
    "retention.ms",
    "max.message.bytes",
    "segment.bytes",
    "cleanup.policy",
    "compression.type",
    "no.such.key",
)
CONFIG_VALUES = ("", "-1", "0", "1048576", "compact", "gzip", "9" * 40, "NaN", "1e9")
FLOWS = (
    (registry.CREATE_TOPICS, registry.METADATA, registry.PRODUCE, registry.FETCH, registry.DELETE_RECORDS),
    (registry.METADATA, registry.PRODUCE, registry.PRODUCE, registry.LIST_OFFSETS, registry.FETCH, registry.FETCH),
    (registry.CREATE_TOPICS, registry.CREATE_PARTITIONS, registry.INCREMENTAL_ALTER_CONFIGS, registry.DELETE_TOPICS),
    (registry.JOIN_GROUP, registry.JOIN_GROUP, registry.SYNC_GROUP, registry.HEARTBEAT, registry.OFFSET_COMMIT),
    (registry.JOIN_GROUP, registry.OFFSET_COMMIT, registry.OFFSET_FETCH, registry.LEAVE_GROUP, registry.DELETE_GROUPS),
    (registry.INIT_PRODUCER_ID, registry.ADD_PARTITIONS_TO_TXN, registry.PRODUCE, registry.END_TXN, registry.FETCH),
    (registry.INIT_PRODUCER_ID, registry.ADD_OFFSETS_TO_TXN, registry.TXN_OFFSET_COMMIT, registry.END_TXN),
    (registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE, registry.API_VERSIONS, registry.METADATA),
)
"""Requests in the order in which clients send them, each after the response to the one before it."""
INTEGERS = {
    "acks": (-1, -1, -1, 1, 1, 0, 2),
    "broker_id": (7, 8, -1),
    "broker_ids": (0, 0, 1, -1),
    "count": (1, 2, 3, 4),
    "max_bytes": (1 << 20, 1 << 20, 1, 0),
    "max_wait_ms": (0, 1, 10),
    "num_partitions": (1, 2, 3, -1, 0),
    "partition_max_bytes": (1 << 20, 1 << 20, 1, 0),
    "rebalance_timeout_ms": (1, 100),
    "replica_id": (-1,) * 9 + (0, 5),
    "replicas": (0, 0, 1, -1),
    "replication_factor": (1, 1, -1, 2, 0),
    "resource_type": (2, 2, 2, 1, 3, 0, 32, 127),
    "resource_types": (2, 1, 0, 32),
    "session_timeout_ms": (6_000, 10_000, 1, 300_000),
}
"""Plausible values by the name of the field. No broker is unregistered and no broker's configuration changed (resource
type 4), nor that of an internal topic: an operator may do that, and it affects other clients."""
MOSTLY_EMPTY = ("assignments", "configs", "forgotten_topics")
PARTITIONS = (0, 0, 0, 1, 2, -1)
OTHERS = (0, 0, 0, 1, 1, -1, 2, 5, 100)


class Ending(Enum):
    """What follows the last request of a step."""

    READ = "reads all responses"
    CLOSE = "closes the connection at once"
    SILENCE = "keeps the connection open and silent"


@dataclass(frozen=True, slots=True)
class Step:
    """`writes` are produced one at a time: each after the response to the one before it, if `in_turn`."""

    name: str
    writes: Iterator[bytes]
    ending: Ending
    in_turn: bool = False


class Requests:
    """Draws the steps of one seed."""

    def __init__(self, seed: int, learned: Learned, now_ms: Callable[[], int]) -> None:
        self._seed = seed
        self._learned = learned
        self._now_ms = now_ms

    def step(self, number: int) -> Step:
        dice = Random(f"{self._seed} {number}")
        draw = Drawing(dice, self._learned, self._now_ms)
        kind = dice.random()
        if kind < 0.3:
            flow = dice.choice(FLOWS)
            return Step("flow", (draw.frame(key) for key in flow), Ending.READ, in_turn=True)
        if kind < 0.65:
            return Step("request", (draw.frame() for _ in range(1)), dice.choice((Ending.READ,) * 9 + (Ending.CLOSE,)))
        if kind < 0.75:
            writes = (b"".join(draw.frame() for _ in range(count)) for count in (dice.randint(2, 60),))
            return Step("pipelined", writes, dice.choice((Ending.READ, Ending.READ, Ending.CLOSE)))
        if kind < 0.85:
            return Step("mutated frame", (mutated(draw.frame(), dice) for _ in range(1)), dice.choice(tuple(Ending)))
        if kind < 0.9:
            return Step(
                "partial frame", (draw.partial() for _ in range(1)), dice.choice((Ending.CLOSE, Ending.SILENCE))
            )
        if kind < 0.95:
            return Step("noise", (draw.noise() for _ in range(1)), dice.choice(tuple(Ending)))
        return Step("silent", iter(()), Ending.SILENCE)


class Drawing:
    """Draws the frames of one step, which mostly use the same topic, group and transactional id."""

    def __init__(self, dice: Random, learned: Learned, now_ms: Callable[[], int]) -> None:
        self._dice = dice
        self._learned = learned
        self._now_ms = now_ms
        self._topic = dice.choice(TOPICS)
        self._name = dice.choice(NAMES)
        self._absurd_after = 0
        """The number of fields until the absurd one; below zero after it."""

    def frame(self, key: int | None = None) -> bytes:
        """A request of this API or of any other: sometimes with one absurd field, or with an absurd header."""
        dice = self._dice
        spec = api_for(key) if key is not None else dice.choice(APIS)
        assert spec is not None
        version = dice.randint(spec.lowest, spec.highest)
        self._absurd_after = dice.randrange(12) if dice.random() < (0.15 if key is not None else 0.5) else -1
        body = self._structure(spec.request, version, spec.is_flexible(version))
        header = encode_request_header(
            spec.key, version, dice.randint(-(2**31), 2**31 - 1), dice.choice(("x", "", None))
        )
        if key is None and dice.random() < 0.1:
            header = self._absurd_header(spec)
        return struct.pack(">i", len(header) + len(body)) + header + body

    def body(self, cls: type[Message], version: int) -> bytes:
        """A valid message of this class."""
        self._absurd_after = -1
        return self._structure(cls, version, cls.api.is_flexible(version))

    def partial(self) -> bytes:
        """A frame without its end."""
        whole = self.frame()
        return whole[: self._dice.randrange(1, len(whole))]

    def noise(self) -> bytes:
        """Bytes that are not a request, some with an absurd length."""
        dice = self._dice
        if dice.random() < 0.4:
            return dice.randbytes(dice.randint(1, 5000))
        length = dice.choice((-(2**31), -1, 0, 7, 8, 9, 100, REQUEST_BYTES_MAX, REQUEST_BYTES_MAX + 1, 2**31 - 1))
        key, version = dice.choice(tuple(KAFKA_APIS)), dice.randint(-1, 20)
        return struct.pack(">ihhih", length, key, version, dice.getrandbits(31), -1) + dice.randbytes(
            dice.randint(0, 200)
        )

    def _absurd_header(self, spec: ApiSpec) -> bytes:
        dice = self._dice
        key = dice.choice((spec.key, spec.key, dice.choice(INTERNAL_APIS).key, dice.choice(tuple(KAFKA_APIS)), 999, -1))
        version = dice.choice((-1, spec.highest + 1, 2**15 - 1, dice.randint(0, spec.highest)))
        client_id = dice.choice(
            (b"\xff\xff", b"\0\1x", b"\xff\xfe", b"\x7f\xff", b"\0\2\xc3\x28", struct.pack(">h", 249) + b"x" * 249)
        )
        tags = dice.choice((b"", b"\0", b"\x02\x01\x01x\x05\x00", b"\xff\xff\xff\xff\x0f", b"\x01\x00\x7f"))
        return struct.pack(">hhi", key, version, dice.getrandbits(31)) + client_id + tags

    def _structure(self, cls: type, version: int, flexible: bool) -> bytes:
        plain, tagged = declared(cls, version)
        encoded = b"".join(self._field(cls, each.name, how, version, flexible) for each, how in plain)
        return encoded + self._tags(cls, tagged, version) if flexible else encoded

    def _tags(self, cls: type, tagged: Sequence[tuple[Any, Wire]], version: int) -> bytes:
        dice = self._dice
        given = [
            (how.tag or 0, self._field(cls, each.name, how, version, True))
            for each, how in tagged
            if dice.random() < 0.5
        ]
        if self._is_absurd():
            given += dice.choice(([(0, b"x")], [(70_000, bytes(10))] * 3, given, [(1, b"")]))
            return dice.choice((uvarint(2**31), uvarint(len(given) + 1), uvarint(len(given)))) + self._joined(given)
        return uvarint(len(given)) + self._joined(given)

    def _joined(self, given: Sequence[tuple[int, bytes]]) -> bytes:
        return b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in given)

    def _field(self, cls: type, name: str, how: Wire, version: int, flexible: bool) -> bytes:
        dice = self._dice
        absurd = self._is_absurd()
        if how.nullable_in(version) and dice.random() < 0.15:
            return self._null(how, flexible)
        if not how.is_array:
            nullable = how.nullable_in(version)
            return self._element(cls, name, how.element, version, flexible, nullable=nullable, absurd=absurd)
        count = dice.choice((0, 0, 0, 1) if name in MOSTLY_EMPTY else (0, 1, 1, 1, 2, 3))
        items = [self._element(cls, name, how.element, version, flexible) for _ in range(count)]
        if not absurd:
            return self._length(len(items), flexible) + b"".join(items)
        match dice.randrange(3):
            case 0:
                items *= 2 if sum(map(len, items)) > 1000 else dice.choice((2, 300))
                return self._length(len(items), flexible) + b"".join(items)
            case 1:
                return self._null(how, flexible) + b"".join(items)
            case _:
                return self._absurd_length(len(items), flexible) + b"".join(items)

    def _null(self, how: Wire, flexible: bool) -> bytes:
        if not how.is_array and not isinstance(how.element, WireType):
            return b"\xff"
        return self._length(-1, flexible, short=how.element is schema.string and not how.is_array)

    def _element(
        self,
        cls: type,
        name: str,
        kind: WireType | type,
        version: int,
        flexible: bool,
        *,
        nullable: bool = False,
        absurd: bool = False,
    ) -> bytes:
        dice = self._dice
        if not isinstance(kind, WireType):
            return b"\x01" * nullable + self._structure(kind, version, flexible)
        if kind.code:
            value = self._number(name, kind, absurd=absurd)
            return struct.pack(f">{kind.code}", value)
        if kind is schema.string:
            data = self._text(cls, name, absurd=absurd)
        elif kind is schema.binary:
            data = dice.choice((b"", b"\0" * 8, dice.randbytes(30), bytes(5000)))
        else:
            data = record_set(dice, self._learned, self._now_ms())
        if absurd and dice.random() < 0.5:
            return self._absurd_length(len(data), flexible, short=kind is schema.string) + data
        return self._length(len(data), flexible, short=kind is schema.string) + data

    def _number(self, name: str, kind: WireType, *, absurd: bool) -> Any:
        dice = self._dice
        learned = self._learned.value(name, dice)
        if kind is schema.uuid:
            known = learned is not None and not absurd and dice.random() < 0.9
            return learned.bytes if known else dice.choice((bytes(16), b"\xff" * 16, UUID(int=1).bytes))
        if kind is schema.boolean:
            return dice.random() < 0.5
        if kind is schema.float64:
            return dice.choice((0.0, -1.0, float("nan"), float("inf")))
        if kind is schema.uint16:
            return dice.choice((0, 1, 2**16 - 1))
        bits = 8 * kind.size_bytes - 1
        if absurd:
            return dice.choice((2**bits - 1, -(2**bits), 2**bits - 2, 2 ** (bits - 1), -2))
        if learned is not None and dice.random() < 0.8:
            return learned
        plausible = PARTITIONS if name.startswith("partition") or name == "index" else OTHERS
        return dice.choice(INTEGERS.get(name, plausible))

    def _text(self, cls: type, name: str, *, absurd: bool) -> bytes:
        dice = self._dice
        if absurd and dice.random() < 0.7:
            return dice.choice((b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"x" * (2**15 - 1), b"", b"\0" * 249))
        learned = self._learned.value(name, dice)
        if name == "member_id" and dice.random() < 0.3:
            return b""
        if name == "resource_name" and not absurd:  # see INTEGERS: of the internal topics it is not changed either
            return dice.choice((*(self._topic,) * 12, *TOPICS)).encode()
        if learned is not None:
            return str(learned).encode()[: 2**15 - 1]
        if name == "value":
            return dice.choice(CONFIG_VALUES).encode()
        if name == "configuration_keys" or (name == "name" and "Config" in cls.__name__):
            return dice.choice(CONFIG_KEYS).encode()
        if absurd:
            return dice.choice(NOT_TOPICS).encode()
        if name in ("name", "topic_names", "topic", "topic_name", "resource_name"):
            return dice.choice((*(self._topic,) * 12, *TOPICS, *INTERNAL_TOPICS)).encode()
        return dice.choice((*(self._name,) * 6, *NAMES)).encode()

    def _length(self, count: int, flexible: bool, *, short: bool = False) -> bytes:
        if flexible:
            return uvarint(count + 1)
        return struct.pack(">h" if short else ">i", count)

    def _absurd_length(self, count: int, flexible: bool, *, short: bool = False) -> bytes:
        dice = self._dice
        if flexible:
            return dice.choice((uvarint(2**31), uvarint(2**32 - 1), uvarint(count + 2), b"\xff" * 5, uvarint(count)))
        if short:
            return struct.pack(">h", dice.choice((-2, -(2**15), 2**15 - 1, count // 2)))
        return struct.pack(">i", dice.choice((-2, -(2**31), 2**31 - 1, 600_000, count + 1, max(count - 1, 0))))

    def _is_absurd(self) -> bool:
        self._absurd_after -= 1
        return self._absurd_after == -1
