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
_PARSED: Final = "__fastavro_parsed"
"""A schema with this key is not checked by fastavro."""


def is_installed() -> bool:
    return find_spec("fastavro") is not None


def decoder(schema: str) -> Callable[[bytes], Any]:
    """Decodes a datum, and raises ValueError for one that the schema does not describe. Raises KafkaError."""
    if not is_installed():
        raise _refused("fastavro is not installed; it belongs to raylog's extra `formats`")
    import fastavro

    try:
        given = json.loads(schema)
        _check(given, DEPTH_MAX, "", {})
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


def _check(schema: Any, depth: int, namespace: str, names: dict[str, bool | None]) -> bool:
    """Whether values of it take no bytes.

    `names` has for each named type so far whether its values take no bytes, and None inside its own definition. Raises
    KafkaError for a type that contains itself, which fastavro reads without a limit of the depth, and where values that
    take no bytes are repeated, which a few bytes make endless.
    """
    if depth == 0:
        raise _refused(f"is nested deeper than {DEPTH_MAX}")
    if isinstance(schema, str):
        name = _full_name(schema, namespace)
        if schema == "null" or name not in names:
            return schema == "null"
        if names[name] is None:
            raise _refused(f"has a type that contains itself: {name}")
        if names[name]:
            raise _refused(f"repeats a type whose values take no bytes: {name}")
        return False
    if isinstance(schema, list):
        for each in schema:
            _check(each, depth - 1, namespace, names)
        return False
    if not isinstance(schema, dict) or _PARSED in schema:
        raise _refused("is not a schema of Avro")
    kind = schema.get("type")
    if kind == "array":
        if _check(schema.get("items"), depth - 1, namespace, names):
            raise _refused("has arrays of values that take no bytes")
        return False
    if kind == "map":
        _check(schema.get("values"), depth - 1, namespace, names)
        return False
    if kind in ("record", "error"):
        name = _full_name(schema["name"], schema.get("namespace", namespace))
        names[name] = None
        inner = name.rpartition(".")[0]
        fields = schema.get("fields")
        listed = fields if isinstance(fields, list) else []
        empty = [
            _check(each.get("type") if isinstance(each, dict) else None, depth - 1, inner, names) for each in listed
        ]
        names[name] = all(empty)
        return all(empty)
    if kind == "fixed":
        empty_fixed = not schema.get("size")
        names[_full_name(schema["name"], schema.get("namespace", namespace))] = empty_fixed
        return empty_fixed
    return _check(kind, depth - 1, namespace, names)


def _full_name(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _refused(rule: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"schema: {rule}")
