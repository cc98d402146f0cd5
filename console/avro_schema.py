"""(shell) Avro with a schema that the user has typed, if fastavro is installed (the extra `formats`).

It is a shell because fastavro raises whatever its loops meet in a value that was written by another schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Final

from raylog.core.errors import ErrorCode, KafkaError

CHARACTERS_MAX: Final = 16_000
DEPTH_MAX: Final = 32
_EMPTY: Final = ("null",)


def is_installed() -> bool:
    return find_spec("fastavro") is not None


def decoder(schema: str) -> Callable[[bytes], Any]:
    """Decodes a datum, and raises ValueError for one that the schema does not describe. Raises KafkaError."""
    if not is_installed():
        raise _refused("fastavro is not installed; it belongs to raylog's extra `formats`")
    import fastavro

    try:
        given = json.loads(schema)
        _check(given, DEPTH_MAX)
        parsed = fastavro.parse_schema(given)
    except KafkaError:
        raise
    except Exception as error:
        raise _refused(f"is not a schema of Avro: {str(error)[:200]}") from None

    def decode(value: bytes) -> Any:
        stream = BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes follow the value")
        return found

    return decode


def _check(schema: Any, depth: int) -> bool:
    """Whether values of it take no bytes. Raises KafkaError for arrays of such, which a few bytes make endless."""
    if depth == 0:
        raise _refused(f"is nested deeper than {DEPTH_MAX}")
    if isinstance(schema, str):
        return schema in _EMPTY
    if isinstance(schema, list):
        for each in schema:
            _check(each, depth - 1)
        return False
    if not isinstance(schema, dict):
        raise _refused("is not a schema of Avro")
    kind = schema.get("type")
    if kind == "array":
        if _check(schema.get("items"), depth - 1):
            raise _refused("has arrays of values that take no bytes")
        return False
    if kind == "map":
        _check(schema.get("values"), depth - 1)
        return False
    if kind in ("record", "error"):
        fields = schema.get("fields")
        listed = fields if isinstance(fields, list) else []
        empty = [_check(each.get("type") if isinstance(each, dict) else None, depth - 1) for each in listed]
        return all(empty)
    if kind == "fixed":
        return not schema.get("size")
    return _check(kind, depth - 1)


def _refused(rule: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"schema: {rule}")
