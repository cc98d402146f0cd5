"""Values in msgpack, Avro and Protobuf become columns and are encoded again; malformed ones are null or an error."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import msgpack
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from raylog.client.errors import SerializationError
from raylog.core.errors import ConfigError
from raylog.raydp_bridge.formats.avro import Avro
from raylog.raydp_bridge.formats.msgpack import Msgpack
from raylog.raydp_bridge.formats.protobuf import Protobuf
from raylog.raydp_bridge.formats.values import ValueFormat, check_mode, decode_column, encode_column

TIME = datetime(2013, 1, 1, 5, 17, 0, 123_000, tzinfo=UTC)
LOCAL_TIME = datetime.fromisoformat("1970-01-01T00:00:01")
SCHEMA = pa.struct(
    [
        ("n", pa.int64()),
        ("name", pa.string()),
        ("data", pa.binary()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("inner", pa.struct([("flag", pa.bool_())])),
    ]
)
AVRO = {
    "type": "record",
    "name": "a.Flight",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "data", "type": "bytes"},
        {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "inner",
            "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "flag", "type": "boolean"}]}],
        },
    ],
}


def message_of(name: str) -> Protobuf:
    return Protobuf.from_descriptor_set(DESCRIPTORS.SerializeToString(), name)


def _descriptors() -> descriptor_pb2.FileDescriptorSet:
    kinds = descriptor_pb2.FieldDescriptorProto
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(name="flight.proto", package="a", syntax="proto3", dependency=[timestamp_pb2.DESCRIPTOR.name])
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="flag", number=1, type=kinds.TYPE_BOOL, label=kinds.LABEL_OPTIONAL)
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    color.value.add(name="AZURE", number=1)
    color.options.allow_alias = True
    flight = file.message_type.add(name="Flight")
    entry = flight.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    plain = [("n", kinds.TYPE_INT64), ("name", kinds.TYPE_STRING), ("data", kinds.TYPE_BYTES)]
    for number, (name, kind) in enumerate([*plain, ("price", kinds.TYPE_DOUBLE)], 1):
        flight.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    message = kinds.TYPE_MESSAGE
    optional, repeated = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    flight.field.add(name="at", number=5, type=message, label=optional, type_name=".google.protobuf.Timestamp")
    flight.field.add(name="tags", number=6, type=kinds.TYPE_STRING, label=repeated)
    flight.field.add(name="counts", number=7, type=message, label=repeated, type_name=".a.Flight.CountsEntry")
    flight.field.add(name="inner", number=8, type=message, label=optional, type_name=".a.Inner")
    flight.field.add(name="color", number=9, type=kinds.TYPE_ENUM, label=optional, type_name=".a.Color")
    flight.field.add(name="inners", number=10, type=message, label=repeated, type_name=".a.Inner")
    flight.field.add(name="big", number=11, type=kinds.TYPE_UINT64, label=optional)
    sample = file.message_type.add(name="Sample")
    by_number = sample.nested_type.add(name="ByNumberEntry")
    by_number.options.map_entry = True
    by_number.field.add(name="key", number=1, type=kinds.TYPE_UINT64, label=optional)
    by_number.field.add(name="value", number=2, type=message, label=optional, type_name=".a.Inner")
    sample.field.add(name="by_number", number=1, type=message, label=repeated, type_name=".a.Sample.ByNumberEntry")
    sample.field.add(name="times", number=2, type=message, label=repeated, type_name=".google.protobuf.Timestamp")
    sample.field.add(name="small", number=3, type=kinds.TYPE_FLOAT, label=optional)
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=message, label=optional, type_name=".a.Node")
    file.message_type.add(name="Empty")
    return found


DESCRIPTORS = _descriptors()
MSGPACK, AVRO_FORMAT, PROTOBUF = Msgpack(SCHEMA), Avro(AVRO), message_of("a.Flight")


class Text:
    name = "text"
    arrow_type = pa.string()

    def decode(self, value: bytes) -> str:
        return value.decode()

    def encode(self, value: Any) -> bytes:
        return str(value).encode()


TEXT_FORMAT = Text()
FORMATS: list[ValueFormat] = [MSGPACK, AVRO_FORMAT, PROTOBUF]
formats = pytest.mark.parametrize("value_format", FORMATS, ids=lambda each: each.name)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ROW = st.fixed_dictionaries(
    {
        "n": st.integers(-(1 << 63), (1 << 63) - 1),
        "name": TEXT,
        "data": st.binary(max_size=5),
        "price": st.floats(allow_nan=False),
        "at": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001
            lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
        ),
        "tags": st.lists(TEXT, max_size=3),
        "counts": st.dictionaries(TEXT, INT32, max_size=3),
        "inner": st.none() | st.fixed_dictionaries({"flag": st.booleans()}),
    }
)


def column_of(rows: list[Mapping[str, Any] | None], kind: pa.DataType) -> pa.Array:
    return pa.array([row and {**row, "counts": sorted(row["counts"].items())} for row in rows], kind)


@formats
@given(rows=st.lists(st.none() | ROW, max_size=4))
def test_values_are_decoded_as_they_were_encoded(value_format: ValueFormat, rows: list[Any]) -> None:
    again = pickle.loads(pickle.dumps(value_format))
    assert again.arrow_type == value_format.arrow_type
    encoded = encode_column(column_of(rows, SCHEMA), again)
    assert encoded.type == pa.binary()
    decoded = decode_column(encoded, value_format)
    assert decoded.type == value_format.arrow_type
    shown = [row and {name: row[name] for name in SCHEMA.names} for row in decoded.to_pylist(maps_as_pydicts="strict")]
    assert shown == rows


@formats
@given(data=st.binary(max_size=40))
def test_any_bytes_are_a_value_or_malformed(value_format: ValueFormat, data: bytes) -> None:
    column = pa.array([data, None], pa.binary())
    permissive = decode_column(column, value_format, "PERMISSIVE")
    assert (len(permissive), permissive.type) == (2, value_format.arrow_type)
    if permissive[0].is_valid:
        assert decode_column(column, value_format).equals(permissive)


@formats
def test_a_malformed_value_is_null_or_fails(value_format: ValueFormat) -> None:
    row = {"n": 1, "data": b"", "price": 0.5, "at": TIME, "tags": [], "counts": {}, "name": "a", "inner": None}
    good = encode_column(column_of([row], SCHEMA), value_format)[0].as_py()
    column = pa.array([good, b"\xff\xff\xff", None, good[:-1], good], pa.binary())
    assert decode_column(column, value_format, "PERMISSIVE").is_valid().to_pylist() == [True, False, False, False, True]
    with pytest.raises(SerializationError, match=f"cannot be decoded as {value_format.name}"):
        decode_column(column, value_format)


@formats
def test_a_value_that_does_not_fit_the_format_is_null_or_fails(value_format: ValueFormat) -> None:
    if value_format is MSGPACK:
        pytest.skip("everything fits")
    column = pa.array([{"n": "text"}], pa.struct([("n", pa.string())]))
    assert encode_column(column, value_format, "PERMISSIVE").to_pylist() == [None]
    with pytest.raises(SerializationError, match=f"cannot be encoded as {value_format.name}"):
        encode_column(column, value_format)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
def test_a_time_that_python_does_not_have_is_null_or_fails(kind: pa.DataType) -> None:
    days = 2_932_897  # until the year 10000
    times = pa.array([0, days if kind == pa.date32() else days * 86_400_000_000, None], kind)
    rows = pa.StructArray.from_arrays([times], ["at"])
    for column, good in ((times, times[0].as_py()), (rows, {"at": times[0].as_py()})):
        permissive = encode_column(column, TEXT_FORMAT, "PERMISSIVE").to_pylist()
        assert permissive[:2] == [str(good).encode(), None]
        assert encode_column(column.filter(pa.array([True, False, True])), TEXT_FORMAT)[0].as_py() == permissive[0]
        with pytest.raises(SerializationError, match=r"(?s)cannot be encoded as text: .*10000-01-01"):
            encode_column(column, TEXT_FORMAT)


def test_texts_are_decoded_too() -> None:
    kind = pa.struct([("a", pa.int64())])
    text = msgpack.packb({"a": 1}).decode("latin-1").encode()[1:]  # any text; not a map
    assert decode_column(pa.array([text.decode("utf-8", "ignore")]), Msgpack(kind), "PERMISSIVE").null_count == 1


def test_modes_are_those_of_spark() -> None:
    check_mode("FAILFAST")
    check_mode("PERMISSIVE")
    with pytest.raises(ConfigError, match="mode='DROPMALFORMED': must be one of FAILFAST, PERMISSIVE"):
        check_mode("DROPMALFORMED")


# --- msgpack


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 1.5),
        (pa.int64(), True),
        (pa.int64(), "1"),
        (pa.int32(), 1 << 40),
        (pa.int64(), (1 << 64) - 1),
        (pa.timestamp("us", "UTC"), 5.7),
        (pa.date32(), 5.7),
        (pa.float32(), 1e300),
        (pa.string(), 1),
        (pa.string(), {"a": 1}),
        (pa.struct([("a", pa.int64())]), [1]),
        (pa.struct([("a", pa.int64())]), [["a", 1]]),
        (pa.struct([("a", pa.int64())]), {"a": 1.5}),
        (pa.list_(pa.int64()), {"a": 1}),
        (pa.list_(pa.int64()), [1, 2.5]),
        (pa.map_(pa.string(), pa.int64()), [["a", 1]]),
        (pa.map_(pa.string(), pa.int64()), {"a": 0.5}),
        (pa.map_(pa.int64(), pa.string()), {1.5: "a", 1: "b"}),
        (pa.map_(pa.int64(), pa.string()), {True: "a"}),
        (pa.map_(pa.float32(), pa.string()), {1e300: "a"}),
    ],
    ids=str,
)
def test_msgpack_of_another_type_is_malformed(kind: pa.DataType, value: Any) -> None:
    column = pa.array([msgpack.packb(value)], pa.binary())
    assert decode_column(column, Msgpack(kind), "PERMISSIVE").null_count == 1
    with pytest.raises(SerializationError):
        decode_column(column, Msgpack(kind))


def test_fields_that_msgpack_lacks_are_null_and_unknown_ones_are_ignored() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    column = pa.array([msgpack.packb({"b": "x", "c": [1]}), msgpack.packb(None)], pa.binary())
    assert decode_column(column, Msgpack(kind)).to_pylist() == [{"a": None, "b": "x"}, None]


@pytest.mark.parametrize("value", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc6\xff"])
def test_hostile_msgpack_is_malformed(value: bytes) -> None:
    assert decode_column(pa.array([value], pa.binary()), Msgpack(pa.list_(pa.int64())), "PERMISSIVE").null_count == 1


# --- Avro


def test_logical_types_of_avro() -> None:
    logical = {
        "date": ("int", date(2013, 1, 1)),
        "timestamp-micros": ("long", TIME),
        "local-timestamp-micros": ("long", TIME.replace(tzinfo=None)),
        "uuid": ("string", UUID(int=5)),
    }
    fields: list[Any] = [
        {"name": name.replace("-", "_"), "type": {"type": kind, "logicalType": name}}
        for name, (kind, _) in logical.items()
    ]
    fields.append({"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}})
    fields.append({"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}})
    fields.append({"name": "again", "type": ["null", "E"]})
    fields.append({"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}})
    avro = Avro(json.dumps({"type": "record", "name": "R", "fields": fields}))
    row: dict[str, Any] = {name.replace("-", "_"): value for name, (_, value) in logical.items()}
    row |= {"d": Decimal("1.25"), "e": "B", "again": None, "f": b"xy"}
    decoded = decode_column(pa.array([avro.encode(row)], pa.binary()), avro)
    assert decoded.to_pylist() == [row | {"uuid": str(UUID(int=5))}]
    assert decode_column(encode_column(decoded, avro), avro).equals(decoded)


def test_the_schema_of_the_writer() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "x"}],
    }
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(old), {"a": 5})
    avro = pickle.loads(pickle.dumps(Avro(new, writer_schema=old)))
    assert decode_column(pa.array([stream.getvalue()], pa.binary()), avro).to_pylist() == [{"a": 5, "b": "x"}]


def decoded_by(reader: Any, writer: Any, value: Any) -> Any:
    """What a value is that `writer` has encoded, without logical types, and `reader` decodes."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), value)
    avro = pickle.loads(pickle.dumps(Avro(json.dumps(reader), writer_schema=json.dumps(writer))))
    return decode_column(pa.array([stream.getvalue()], pa.binary()), avro)[0].as_py()


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}


@pytest.mark.parametrize(
    ("reader", "writer", "value", "expected"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, "long", 1_357_017_420_123, TIME),
        ({"type": "long", "logicalType": "timestamp-micros"}, "long", 1_357_017_420_123_000, TIME),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            "int",
            1000,
            datetime.fromisoformat("1970-01-01T00:00:01"),
        ),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}, 5, 5),
        ("int", {"type": "int", "logicalType": "date"}, 15_706, 15_706),
        ({"type": "int", "logicalType": "date"}, "int", 15_706, date(2013, 1, 1)),
        ("string", {"type": "string", "logicalType": "uuid"}, str(UUID(int=5)), str(UUID(int=5))),
        ("bytes", DECIMAL, b"\x7d", b"\x7d"),
        (DECIMAL, "bytes", b"\xff", Decimal("-0.01")),
        (DECIMAL, "bytes", (10**38 - 1).to_bytes(16, "big"), Decimal(10**38 - 1).scaleb(-2, Context(prec=38))),
    ],
    ids=str,
)
@pytest.mark.parametrize("wrap", ["", "union", "array", "map", "record"])
def test_logical_types_are_those_of_the_reader(reader: Any, writer: Any, value: Any, expected: Any, wrap: str) -> None:
    wraps: dict[str, Any] = {
        "": (lambda kind: kind, value, expected),
        "union": (lambda kind: ["null", kind], value, expected),
        "array": (lambda kind: {"type": "array", "items": kind}, [value], [expected]),
        "map": (lambda kind: {"type": "map", "values": kind}, {"k": value}, [("k", expected)]),
        "record": (record, {"a": value}, {"a": expected}),
    }
    wrapped, value, expected = wraps[wrap]
    assert decoded_by(wrapped(reader), wrapped(writer), value) == expected


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("bytes", "\u00ff", b"\xff"),
        (["bytes", "null"], "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", b"\xff"),
        (DECIMAL, "\u00ff", Decimal("-0.01")),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_357_017_420_123, TIME),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
        ({"type": "record", "name": "I", "fields": [{"name": "a", "type": "bytes"}]}, {"a": "\u00ff"}, {"a": b"\xff"}),
        ("string", "\u00ff", "\u00ff"),
        (["null", "bytes"], None, None),
    ],
    ids=str,
)
def test_defaults_of_the_reader(kind: Any, default: Any, expected: Any) -> None:
    reader = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": kind, "default": default}],
    }
    for _ in range(2):
        assert decoded_by(reader, record("int"), {"a": 1}) == {"a": 1, "b": expected}


def test_a_decimal_of_avro_with_too_many_digits_is_malformed() -> None:
    avro = Avro({**DECIMAL, "precision": 3})
    with pytest.raises(SerializationError, match=r"1000 exceeds the precision 3"):
        decode_column(pa.array([Avro('"bytes"').encode((1000).to_bytes(2, "big"))], pa.binary()), avro)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ({"type": "string", "logicalType": "varchar"}, "x", pa.string()),
        ({"type": "string", "logicalType": "date"}, "x", pa.string()),
        ({"type": "string", "logicalType": "timestamp-millis"}, "x", pa.string()),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 5, pa.int64()),
        ({"type": "long", "logicalType": "time-millis"}, 5, pa.int64()),
        ({"type": "bytes", "logicalType": "uuid"}, b"x", pa.binary()),
        ({"type": "bytes", "logicalType": "decimal"}, b"x", pa.binary()),
        ({"type": "string", "logicalType": "decimal", "precision": 3}, "x", pa.string()),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "other"}, b"xy", pa.binary()),
        ({"type": "array", "items": "int", "logicalType": "set"}, [1], pa.list_(pa.int32())),
        ({"type": "int", "logicalType": ["date"]}, 1, pa.int32()),
    ],
    ids=str,
)
def test_logical_types_that_avro_does_not_have_are_ignored(kind: Any, value: Any, expected: pa.DataType) -> None:
    avro = Avro(record(kind))
    assert avro.arrow_type == pa.struct([("a", expected)])
    column = pa.array([{"a": value}], avro.arrow_type)
    encoded = encode_column(column, avro)
    assert decode_column(encoded, avro).equals(column)
    assert decode_column(encoded, Avro(record(kind), writer_schema=record(kind))).equals(column)


@pytest.mark.parametrize("text", ["123E4567-E89B-12D3-A456-426614174000", "no UUID"])
def test_a_uuid_of_avro_is_its_text(text: str) -> None:
    avro = Avro({"type": "string", "logicalType": "uuid"})
    assert decode_column(pa.array([Avro('"string"').encode(text)], pa.binary()), avro).to_pylist() == [text]


def test_a_schema_of_avro_without_anything_to_convert_is_not_walked() -> None:
    kind = record({"type": "array", "items": {"type": "int", "logicalType": "date"}})
    assert Avro(kind)._convert is None
    assert Avro(kind, writer_schema=kind)._convert is None


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is not one of Avro"),
        ("5", "is not one of Avro"),
        ({"type": "record"}, "schema"),
        ({"type": "record", "name": "R", "fields": []}, "has no fields"),
        (record("nothing"), "schema"),
        (record("null"), "the type 'null' is not supported"),
        (record(["int", "string"]), "a union must be of null and one other type"),
        (record({"type": "array", "items": "null"}), "the type 'null' is not supported"),
        (record(["null", "R"]), "R contains itself"),
        (record({"type": "array", "items": "R"}), "R contains itself"),
        (record({"type": "int", "logicalType": "time-millis"}), "the logical type 'time-millis' is not supported"),
        (record({"type": "fixed", "name": "F", "size": 0}), "has size 0"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 39}), "at most 38"),
    ],
)
def test_schemas_that_no_column_can_have_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Avro(schema)


INSTANT = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("long", pa.array([1.5])),
        ("long", pa.array([Decimal("1.50")])),
        ("long", pa.array([True])),
        ("long", pa.array([float("nan")])),
        ("int", pa.array([1 << 31])),
        (["null", "int"], pa.array([1 << 31])),
        ("boolean", pa.array([None], pa.bool_())),
        ("boolean", pa.array(["false"])),
        ("boolean", pa.array([2])),
        ("float", pa.array([1e300])),
        (["null", "float"], pa.array([1e300])),
        ("double", pa.array([True])),
        ({"type": "string", "logicalType": "uuid"}, pa.array(["text"])),
        ({"type": "int", "logicalType": "date"}, pa.array([TIME])),
        (INSTANT, pa.array([1.5])),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, pa.array([Decimal(123)])),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["B"])),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"abc"])),
        ({"type": "array", "items": "boolean"}, pa.array([[None]], pa.list_(pa.bool_()))),
        ({"type": "map", "values": "long"}, pa.array([[("a", 0.5)]], pa.map_(pa.string(), pa.float64()))),
        (record("long") | {"name": "I"}, pa.array([{"a": 1, "b": 2}])),
        (record("boolean") | {"name": "I"}, pa.array([{"a": None}], pa.struct([("a", pa.bool_())]))),
    ],
    ids=str,
)
def test_avro_writes_no_other_value_than_the_column_has(kind: Any, column: pa.Array) -> None:
    avro, row = Avro(record(kind)), pa.StructArray.from_arrays([column], ["a"])
    assert encode_column(row, avro, "PERMISSIVE").to_pylist() == [None]
    with pytest.raises(SerializationError, match="cannot be encoded as Avro: a: "):
        encode_column(row, avro)


def test_numbers_of_another_type_are_encoded_in_avro_if_they_are_equal() -> None:
    for kind, column in (
        ("long", pa.array([2.0])),
        ("int", pa.array([Decimal("2.00")])),
        ("float", pa.array([2])),
        ("double", pa.array([Decimal("2.0")])),
    ):
        avro = Avro(json.dumps(kind))
        assert decode_column(encode_column(column, avro), avro).to_pylist() == [2]
    special = pa.array([float("inf"), float("-inf")])
    assert decode_column(encode_column(special, Avro('"float"')), Avro('"float"')).to_pylist() == special.to_pylist()


def test_a_field_that_the_column_lacks_has_the_default_of_avro() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]}
    with pytest.raises(SerializationError, match="b: an integer is required"):
        encode_column(pa.array([{"a": 1}]), Avro(schema))
    schema["fields"][1]["default"] = 7  # type: ignore[index]
    avro = Avro(schema)
    assert decode_column(encode_column(pa.array([{"a": 1}]), avro), avro).to_pylist() == [{"a": 1, "b": 7}]


@pytest.mark.parametrize("unit", ["millis", "micros"])
@pytest.mark.parametrize("optional", [False, True])
def test_times_without_time_zone_are_utc_in_avro(unit: str, optional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = {"type": "long", "logicalType": f"timestamp-{unit}"}
    avro = Avro(record(["null", kind] if optional else kind))
    column = pa.array([{"a": TIME.replace(tzinfo=None)}])
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert decode_column(encode_column(column, avro), avro).to_pylist() == [{"a": TIME}]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_bytes_after_an_avro_value_are_malformed() -> None:
    avro = Avro('"int"')
    assert decode_column(pa.array([avro.encode(1)], pa.binary()), avro).to_pylist() == [1]
    with pytest.raises(SerializationError, match="1 bytes follow the value"):
        decode_column(pa.array([avro.encode(1) + b"\0"], pa.binary()), avro)


# --- Protobuf


def test_fields_of_protobuf() -> None:
    row = {"color": "BLUE", "inners": [{"flag": True}, {}], "big": Decimal((1 << 64) - 1)}
    (found,) = decode_column(pa.array([PROTOBUF.encode(row)], pa.binary()), PROTOBUF).to_pylist()
    assert (found["color"], found["inners"]) == ("BLUE", [{"flag": True}, {"flag": False}])
    assert found["big"] == (1 << 64) - 1
    assert (found["n"], found["name"], found["inner"], found["at"]) == (0, "", None, None), "defaults, and no presence"
    unknown = decode_column(pa.array([PROTOBUF.encode({"color": "7"})], pa.binary()), PROTOBUF)
    assert unknown.to_pylist()[0]["color"] == "7"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("a.Flight", {"big": 1.5}),
        ("a.Flight", {"big": Decimal("1.5")}),
        ("a.Flight", {"big": Decimal(1 << 64)}),
        ("a.Flight", {"color": 1.5}),
        ("a.Flight", {"inner": {"flag": 2}}),
        ("a.Flight", {"inners": [{"flag": True}, None]}),
        ("a.Sample", {"small": 1e300}),
        ("a.Sample", {"by_number": {1: None}}),
        ("a.Sample", {"by_number": {Decimal("1.5"): {"flag": True}}}),
    ],
    ids=str,
)
def test_protobuf_writes_no_other_value_than_the_column_has(name: str, row: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        message_of(name).encode(row)


def test_unsigned_keys_are_encoded_as_they_are_decoded() -> None:
    sample = message_of("a.Sample")
    kind = pa.struct([sample.arrow_type.field("by_number"), sample.arrow_type.field("small")])
    column = pa.array([{"by_number": [(Decimal((1 << 64) - 1), {"flag": True})], "small": 0.5}], kind)
    decoded = decode_column(encode_column(column, sample), sample)
    assert decoded.field("by_number").equals(column.field("by_number"))
    assert decoded.field("small").equals(column.field("small"))


def test_a_null_among_times_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="null in the list times"):
        message_of("a.Sample").encode({"times": [TIME, None]})
    with pytest.raises(TypeError, match="a timestamp is required, not date"):
        message_of("a.Sample").encode({"times": [date(2013, 1, 1)]})


def test_a_number_of_an_enum_has_its_first_name() -> None:
    flight = message_of("a.Flight")
    assert flight.decode(flight.encode({"color": "AZURE"}))["color"] == "BLUE"


def test_a_generated_class_is_enough() -> None:
    value_format = pickle.loads(pickle.dumps(Protobuf(wrappers_pb2.StringValue)))
    encoded = wrappers_pb2.StringValue(value="x").SerializeToString()
    assert decode_column(pa.array([encoded], pa.binary()), value_format).to_pylist() == [{"value": "x"}]


def test_messages_that_no_column_can_have_are_refused() -> None:
    for name, message in (
        ("a.Node", r"a\.Node contains itself"),
        ("a.Empty", r"a\.Empty has no fields"),
        ("a.Missing", "has no message 'a.Missing'"),
    ):
        with pytest.raises(ConfigError, match=message):
            message_of(name)
    with pytest.raises(ConfigError, match="descriptor set: has no message"):
        Protobuf.from_descriptor_set(b"\xff", "a.Flight")
    with pytest.raises(ConfigError, match="must be a generated class or a descriptor"):
        Protobuf(str)
