"""Which quotas exist, for which entities, and which values they may have (KIP-546, KIP-599, KIP-612)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from raylog.core.addresses import canonical_address
from raylog.core.errors import ErrorCode, KafkaError
from raylog.quotas.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    NAME_CHARACTERS_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    entity,
)

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
WHOLE_NUMBER_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class _Values:
    """What values a quota may have."""

    type: str
    greatest: int | None = None
    """None: no limit, and not only whole numbers."""


CLIENT_KEYS: Final[Mapping[str, _Values]] = {
    PRODUCER_BYTE_RATE: _Values("LONG", LONG_MAX),
    CONSUMER_BYTE_RATE: _Values("LONG", LONG_MAX),
    REQUEST_PERCENTAGE: _Values("DOUBLE"),
    CONTROLLER_MUTATION_RATE: _Values("DOUBLE"),
}
IP_KEYS: Final[Mapping[str, _Values]] = {CONNECTION_CREATION_RATE: _Values("INT", INT_MAX)}


def checked_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these types and names; the name None is the default. Raises KafkaError(INVALID_REQUEST)."""
    names: dict[str, str | None] = {}
    for kind, name in parts:
        if kind in names:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind[:NAME_CHARACTERS_MAX]}")
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind[:NAME_CHARACTERS_MAX]}")
        if name is not None and not 0 < len(name) <= NAME_CHARACTERS_MAX:
            raise _invalid(
                f"The name of a {kind} has at most {NAME_CHARACTERS_MAX} characters"
                if name
                else f"Empty {kind} not supported"
            )
        names[kind] = name
    if not names or (IP in names and len(names) > 1):
        raise _invalid("Invalid empty client quota entity")
    if names.get(IP) is not None:
        names[IP] = _address(str(names[IP]))
    return entity(names)


def check_value(of: QuotaEntity, key: str, value: float) -> None:
    """Raises KafkaError(INVALID_REQUEST)."""
    check_key(of, key)
    values = {**CLIENT_KEYS, **IP_KEYS}[key]
    if not value > 0 or math.isinf(value):  # NaN is not greater than 0
        raise _invalid(f"Quota {key} must be greater than 0, and finite")
    if values.greatest is None:
        return
    if value > float(values.greatest):
        raise _invalid(f"Proposed value for {key} is too large for a {values.type}.")
    if abs(value - math.floor(value + WHOLE_NUMBER_TOLERANCE)) > WHOLE_NUMBER_TOLERANCE:
        raise _invalid(f"{key} cannot be a fractional value.")


def check_key(of: QuotaEntity, key: str) -> None:
    """Raises KafkaError(INVALID_REQUEST) for a quota that the entity cannot have."""
    if key not in (IP_KEYS if of[0][0] == IP else CLIENT_KEYS):
        raise _invalid(f"Invalid configuration key {key[:NAME_CHARACTERS_MAX]}")


def _address(text: str) -> str:
    """Raises KafkaError(INVALID_REQUEST). Kafka resolves names of hosts as well."""
    try:
        return canonical_address(text)
    except ValueError:
        raise _invalid(f"{text} is not a valid IP address") from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
