"""Values in Avro, one datum each without the schema, by fastavro (the extra `formats`).

Types are those of Spark's from_avro: enum and uuid are strings, fixed is binary, a union with null is the other type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final
from uuid import UUID

import fastavro
import pyarrow as pa

from raylog.core.errors import ConfigError

_PRIMITIVE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}
_PRECISION_MAX: Final = 38


class Avro:
    """`schema` is Avro's JSON, or what it contains; values that another one has written need it as `writer_schema`.

    Raises ConfigError for a schema that is not one, and for types that Spark does not have: recursive ones, unions of
    several types, times of day.
    """

    name = "Avro"

    def __init__(
        self, schema: str | Mapping[str, Any], *, writer_schema: str | Mapping[str, Any] | None = None
    ) -> None:
        self._given = schema, writer_schema
        self._schema = _parsed(schema)
        self._writer_schema = None if writer_schema is None else _parsed(writer_schema)
        self.arrow_type = _arrow_type(self._schema, {}, ())
        if self._writer_schema is not None:
            _arrow_type(self._writer_schema, {}, ())  # bounds what a value can become
        self._uuids = "uuid" in json.dumps(self._schema, default=str)

    def __reduce__(self) -> tuple[Any, ...]:
        return _avro, self._given

    def decode(self, value: bytes) -> Any:
        stream = BytesIO(value)
        if self._writer_schema is None:
            decoded = fastavro.schemaless_reader(stream, self._schema, None)
        else:
            decoded = fastavro.schemaless_reader(stream, self._writer_schema, self._schema)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes follow the value")
        return _with_texts(decoded) if self._uuids else decoded

    def encode(self, value: Any) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, self._schema, value)
        return stream.getvalue()


def _avro(schema: Any, writer_schema: Any) -> Avro:
    return Avro(schema, writer_schema=writer_schema)


def _parsed(schema: str | Mapping[str, Any]) -> Any:
    try:
        return fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else dict(schema))
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ConfigError(f"schema: {error!s}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"schema: is not one of Avro: {error!r}") from None


def _arrow_type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    """`named` are the types that were defined before, `inside` those that contain this one."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise ConfigError(f"schema: a union must be of null and one other type, not {schema}")
        return _arrow_type(others[0], named, inside)
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        if schema in inside:
            raise ConfigError(f"schema: {schema} contains itself, which a column cannot")
        if schema in named:
            return _arrow_type(named[schema], named, inside)
        raise ConfigError(f"schema: the type {schema!r} is not supported")
    kind = schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    if "logicalType" in schema:
        return _logical_type(schema)
    match kind:
        case "record" | "error":
            if not schema["fields"]:
                raise ConfigError(f"schema: the record {schema['name']} has no fields")
            within = (*inside, schema["name"])
            fields = [(each["name"], _arrow_type(each["type"], named, within)) for each in schema["fields"]]
            return pa.struct(fields)
        case "enum":
            return pa.string()
        case "fixed":
            if not schema["size"]:
                raise ConfigError(f"schema: {schema['name']} has size 0")
            return pa.binary()
        case "array":
            return pa.list_(_arrow_type(schema["items"], named, inside))
        case "map":
            return pa.map_(pa.string(), _arrow_type(schema["values"], named, inside))
    return _arrow_type(kind, named, inside)


def _logical_type(schema: Mapping[str, Any]) -> pa.DataType:
    logical = schema["logicalType"]
    if logical == "decimal":
        if schema["precision"] > _PRECISION_MAX:
            raise ConfigError(f"schema: the precision of a decimal must be at most {_PRECISION_MAX}")
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical not in _LOGICAL:
        raise ConfigError(f"schema: the logical type {logical!r} is not supported")
    return _LOGICAL[logical]


def _with_texts(value: Any) -> Any:
    """UUIDs as texts."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: _with_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_texts(each) for each in value]
    return value
