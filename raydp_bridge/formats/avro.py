"""Values in Avro, one datum each without the schema, by fastavro (the extra `formats`).

Types are those of Spark's from_avro: enum and uuid are strings, fixed is binary, a union with null is the other type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from io import BytesIO
from typing import Any, Final
from uuid import UUID

import fastavro
import pyarrow as pa

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.formats.numbers import as_float32, as_whole

_PRIMITIVE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
_TIMES_OF_DAY: Final = (("int", "time-millis"), ("long", "time-micros"))
_PRECISION_MAX: Final = 38
_DECIMALS: Final = Context(prec=_PRECISION_MAX)
Convert = Callable[[Any], Any]


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
        self.arrow_type = _arrow_type(self._schema, {}, ())
        self._prepare = _writer(self._schema, {})
        self._convert = _reader(self._schema, {})
        self._raw_reader, self._raw_writer = None, _parsed(schema, raw=True)
        if writer_schema is not None:
            _arrow_type(_parsed(writer_schema), {}, ())  # bounds what a value can become
            self._raw_reader, self._raw_writer = self._raw_writer, _parsed(writer_schema, raw=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _avro, self._given

    def decode(self, value: bytes) -> Any:
        stream = BytesIO(value)
        # fastavro applies the logical types of the writer, and none to defaults; they are to be those of the reader.
        decoded = fastavro.schemaless_reader(stream, self._raw_writer, self._raw_reader)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes follow the value")
        return decoded if self._convert is None else self._convert(decoded)

    def encode(self, value: Any) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, self._schema, self._prepare(value))
        return stream.getvalue()


def _avro(schema: Any, writer_schema: Any) -> Avro:
    return Avro(schema, writer_schema=writer_schema)


def _parsed(schema: str | Mapping[str, Any], *, raw: bool = False) -> Any:
    """`raw`: without logical types."""
    try:
        given = json.loads(schema) if isinstance(schema, str) else dict(schema)
        return fastavro.parse_schema(_without_logical_types(given) if raw else given)
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
    if logical := _logical(schema):
        return _logical_type(schema, logical)
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


def _logical(schema: Mapping[str, Any]) -> str:
    """The logical type; empty if there is none, or one to ignore: as Avro specifies, an unknown or invalid one."""
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str) or not isinstance(logical, str):
        return ""
    if logical == "decimal":
        return logical if kind in ("bytes", "fixed") and schema.get("precision") else ""
    return logical if (kind, logical) in _LOGICAL or (kind, logical) in _TIMES_OF_DAY else ""


def _logical_type(schema: Mapping[str, Any], logical: str) -> pa.DataType:
    if logical == "decimal":
        if schema["precision"] > _PRECISION_MAX:
            raise ConfigError(f"schema: the precision of a decimal must be at most {_PRECISION_MAX}")
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    key = schema["type"], logical
    if key in _TIMES_OF_DAY:
        raise ConfigError(f"schema: the logical type {logical!r} is not supported")
    return _LOGICAL[key]


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key == "default" else _without_logical_types(value)
        for key, value in schema.items()
        if key != "logicalType" and not key.startswith("__")  # __: of a parsed schema
    }


def _reader(schema: Any, named: dict[str, Any], *, in_default: bool = False) -> Convert | None:
    """From a value without logical types to one that Arrow converts to the type; None if they are the same.

    `in_default`: the value can be the default of a field, which is JSON; bytes are text in ISO-8859-1 there.
    """
    if isinstance(schema, list):
        other = _reader(next(each for each in schema if each != "null"), named, in_default=in_default)
        return other and (lambda value: None if value is None else other(value))
    if isinstance(schema, str):
        if schema in named:
            return _reader(named[schema], named, in_default=in_default)
        return _default_bytes if schema == "bytes" and in_default else None
    kind = schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    match _logical(schema):
        case "decimal":
            return _decimal_reader(schema["precision"], schema.get("scale", 0))
        case "timestamp-millis" | "local-timestamp-millis":
            return lambda value: value * 1000
    match kind:
        case "record" | "error":
            return _record_reader(schema["fields"], named, in_default=in_default)
        case "fixed":
            return _default_bytes if in_default else None
        case "enum":
            return None
        case "array":
            item = _reader(schema["items"], named, in_default=in_default)
            return item and (lambda value: [item(each) for each in value])
        case "map":
            item_of_map = _reader(schema["values"], named, in_default=in_default)
            return item_of_map and (lambda value: {key: item_of_map(each) for key, each in value.items()})
    return _reader(kind, named, in_default=in_default)


def _record_reader(fields: list[Mapping[str, Any]], named: dict[str, Any], *, in_default: bool) -> Convert | None:
    converts = {}
    for field in fields:
        convert_field = _reader(field["type"], named, in_default=in_default or "default" in field)
        if convert_field is not None:
            converts[field["name"]] = convert_field
    if in_default:  # the default of a record can lack fields that have one of their own
        defaults = {field["name"]: field["default"] for field in fields if "default" in field}
    else:
        defaults = {}
    if not converts and not defaults:
        return None

    def convert(value: Mapping[str, Any]) -> dict[str, Any]:
        converted = {**defaults, **value}
        for name, convert_field in converts.items():
            converted[name] = convert_field(converted[name])
        return converted

    return convert


def _decimal_reader(precision: int, scale: int) -> Convert:
    limit = 10**precision

    def convert(value: Any) -> Decimal:
        unscaled = int.from_bytes(_default_bytes(value), "big", signed=True)
        if not -limit < unscaled < limit:
            raise ValueError(f"{unscaled} exceeds the precision {precision}")
        return Decimal(unscaled).scaleb(-scale, _DECIMALS)

    return convert


def _default_bytes(value: Any) -> Any:
    return value.encode("latin-1") if isinstance(value, str) else value


def _writer(schema: Any, named: dict[str, Any]) -> Convert:
    """From a value of Arrow to one that fastavro writes unchanged.

    The result raises TypeError, ValueError and OverflowError for a value that the schema does not have. fastavro itself
    cuts numbers to the type, takes any value for a boolean and drops fields that the schema lacks.
    """
    if isinstance(schema, list):
        convert = _writer(next(each for each in schema if each != "null"), named)
        return (lambda value: None if value is None else convert(value)) if "null" in schema else convert
    if isinstance(schema, str):
        return _PRIMITIVE_WRITERS[schema] if schema in _PRIMITIVE_WRITERS else _writer(named[schema], named)
    kind = schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    if logical := _logical(schema):
        return _logical_writer(schema, logical)
    match kind:
        case "record" | "error":
            fields = [(each["name"], "default" in each, _writer(each["type"], named)) for each in schema["fields"]]
            return _record_writer(schema["name"], fields)
        case "enum":
            return _enum_writer(schema["name"], frozenset(schema["symbols"]))
        case "fixed":
            return _fixed_writer(schema["name"], schema["size"])
        case "array":
            item = _writer(schema["items"], named)
            return lambda value: [item(each) for each in _of_type(value, list)]
        case "map":
            item = _writer(schema["values"], named)
            return lambda value: {_as_text(key): item(each) for key, each in _of_type(value, dict).items()}
    return _writer(kind, named)


def _record_writer(record: str, fields: list[tuple[str, bool, Convert]]) -> Convert:
    """`fields` have a name, and whether there is a default."""
    names = frozenset(name for name, _, _ in fields)

    def convert(value: Any) -> dict[str, Any]:
        if unknown := _of_type(value, dict).keys() - names:
            raise ValueError(f"{record} has no field {', '.join(sorted(unknown))}")
        converted = {}
        for name, has_default, convert_field in fields:
            if name in value or not has_default:
                try:
                    converted[name] = convert_field(value.get(name))
                except (TypeError, ValueError, OverflowError) as error:
                    raise ValueError(f"{name}: {error}") from None
        return converted

    return convert


def _enum_writer(name: str, symbols: frozenset[str]) -> Convert:
    def convert(value: Any) -> Any:
        if value not in symbols:
            raise ValueError(f"{value!r} is not a symbol of {name}")
        return value

    return convert


def _fixed_writer(name: str, size: int) -> Convert:
    def convert(value: Any) -> Any:
        if len(_of_type(value, bytes)) != size:
            raise ValueError(f"{name} has {size} bytes, not {len(value)}")
        return value

    return convert


def _logical_writer(schema: Mapping[str, Any], logical: str) -> Convert:
    match logical:
        case "decimal":
            return _decimal_writer(schema["precision"], schema.get("scale", 0))
        case "date":
            return _as_date
        case "uuid":
            return lambda value: str(value if isinstance(value, UUID) else UUID(_of_type(value, str)))
        case "timestamp-millis" | "timestamp-micros":
            return _as_instant
    return lambda value: value if isinstance(value, datetime) else _as_long(value)


def _decimal_writer(precision: int, scale: int) -> Convert:
    def convert(value: Any) -> Decimal:
        number = Decimal(value) if type(value) is int else _of_type(value, Decimal)
        if number and number.adjusted() + 1 + scale > precision:
            raise ValueError(f"{number} exceeds decimal({precision}, {scale})")
        return number  # fastavro refuses more digits after the point than `scale`

    return convert


def _of_type(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} is required, not {type(value).__name__}")
    return value


def _as_bool(value: Any) -> Any:
    return _of_type(value, bool)


def _as_bytes(value: Any) -> Any:
    return _of_type(value, bytes)


def _as_text(value: Any) -> Any:
    return _of_type(value, str)


def _as_int(value: Any) -> int:
    return as_whole(value, -(1 << 31), (1 << 31) - 1)


def _as_long(value: Any) -> int:
    return as_whole(value, -(1 << 63), (1 << 63) - 1)


def _as_double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError(f"a number is required, not {type(value).__name__}")
    return float(value)


def _as_float(value: Any) -> float:
    return as_float32(_as_double(value))


def _as_date(value: Any) -> Any:
    if isinstance(value, datetime):
        raise TypeError("a date is required, not a timestamp")
    if isinstance(value, str):
        return date.fromisoformat(value)
    return value if isinstance(value, date) else _as_int(value)


def _as_instant(value: Any) -> Any:
    """Times without a time zone are in UTC; fastavro would take that of this host."""
    if not isinstance(value, datetime):
        return _as_long(value)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


_PRIMITIVE_WRITERS: Final[Mapping[str, Convert]] = {
    "boolean": _as_bool,
    "int": _as_int,
    "long": _as_long,
    "float": _as_float,
    "double": _as_double,
    "bytes": _as_bytes,
    "string": _as_text,
}
