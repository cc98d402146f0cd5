"""Values are shown in the format that they have; hostile ones end as text or hex, within bounds."""

from __future__ import annotations

import json
import tracemalloc
from io import BytesIO
from typing import Any

import fastavro
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.console.avro_schema import decoder
from raylog.console.value_formats import AUTO, AVRO, FORMATS, HEX, JSON, MSGPACK, TEXT, pretty, shown
from raylog.core.errors import KafkaError

CHARACTERS = 2_000
EMPTY_RECORD = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "null"}]}


def record_of(*types: Any, **rest: str) -> str:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "fields": fields, **rest})


def text_of(value: bytes | None, wanted: str = AUTO, **options: Any) -> tuple[str, str | None]:
    found = shown(value, wanted, characters_max=CHARACTERS, **options)
    return found.format, found.text


@pytest.mark.parametrize(
    ("value", "format_name", "text"),
    [
        (None, "null", None),
        (b"", TEXT, ""),
        (b"hello", TEXT, "hello"),
        ("grüße \N{SNOWMAN}".encode(), TEXT, "grüße \N{SNOWMAN}"),
        (b"12", TEXT, "12"),
        (b'{"a":1,"a":[]}', JSON, '{\n  "a": 1,\n  "a": []\n}'),
        (b"[1.10, 12345678901234567890]", JSON, "[\n  1.10,\n  12345678901234567890\n]"),
        (b"{not json", TEXT, "{not json"),
        (b"<script>alert(1)</script>", TEXT, "<script>alert(1)</script>"),
        (msgpack.packb({"id": 1, "raw": b"\x00\xff"}), MSGPACK, '{\n  "id": 1,\n  "raw": "0x00ff"\n}'),
        (b"\x00\x01\x02", HEX, "00000000  00 01 02" + " " * 39 + "  ..."),
        (b"\x93\x01", HEX, "00000000  93 01" + " " * 42 + "  .."),
    ],
)
def test_what_is_guessed(value: bytes | None, format_name: str, text: str | None) -> None:
    assert text_of(value) == (format_name, text)


def test_a_format_that_does_not_fit_is_said() -> None:
    found = shown(b"hello", JSON, characters_max=CHARACTERS)
    assert (found.format, found.text) == (TEXT, "hello")
    assert found.problem is not None
    assert found.problem.startswith("not json: ")
    assert shown(b"\xff\x00", MSGPACK, characters_max=CHARACTERS).format == HEX
    assert text_of(b"\xff", TEXT) == (TEXT, "\N{REPLACEMENT CHARACTER}")
    assert text_of(b"hello", HEX)[0] == HEX


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON_VALUES, st.sampled_from([None, 1, "\t"]))
def test_pretty_json_means_the_same(value: Any, indent: Any) -> None:
    for ensure_ascii in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)
        assert json.loads(pretty(text, characters_max=10**6)) == value


@given(JSON_VALUES.filter(lambda value: isinstance(value, (dict, list)) and value))
def test_msgpack_of_any_document(value: Any) -> None:
    try:
        packed = msgpack.packb(value)
    except OverflowError:
        return
    name, text = text_of(packed, MSGPACK)
    assert name == MSGPACK
    assert text is not None
    if len(text) < CHARACTERS:
        assert json.loads(text) == value


@given(st.binary(max_size=200) | st.text(max_size=50).map(lambda text: text.encode()), st.sampled_from(list(FORMATS)))
def test_any_bytes_are_shown_within_bounds(value: bytes, wanted: str) -> None:
    found = shown(value, wanted, characters_max=300)
    assert found.text is not None
    assert len(found.text) <= 300
    assert found.size_bytes == len(value)


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 500_000 + b"]" * 500_000,
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\x01",
        b"9" * 100_000,
        b'{"a": ' + b"9" * 100_000 + b"}",
        b'{"a": NaN, "b": Infinity}',
        b"\xd6\xff" + b"\xff" * 4,
        b"{" + b" " * 900_000 + b"}",
        b"\xc1",
        b"\x81\x90\x01",
        b"\x81\x80\x01",
    ],
)
@pytest.mark.parametrize("wanted", [AUTO, JSON, MSGPACK])
def test_bombs(value: bytes, wanted: str) -> None:
    found = shown(value, wanted, characters_max=CHARACTERS)
    assert found.text is not None
    assert len(found.text) <= CHARACTERS


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 900 + b"1," * 30_000 + b"1" + b"]" * 900,
        b"[" * 60 + b"1," * 200_000 + b"1" + b"]" * 60,
        b"\x91" * 60 + b"\xdd" + (200_000).to_bytes(4, "big") + b"\x01" * 200_000,
    ],
    ids=["deep", "json", "msgpack"],
)
def test_the_memory_of_indentation_is_bounded(value: bytes) -> None:
    tracemalloc.start()
    try:
        found = shown(value, AUTO, characters_max=CHARACTERS)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.truncated
    assert peak_bytes < 12 << 20


def test_long_values_are_cut_and_said_to_be() -> None:
    for value in (b"x" * 5_000, json.dumps(["x" * 5_000]).encode(), bytes(5_000), "\N{SNOWMAN}".encode() * 5_000):
        found = shown(value, AUTO, characters_max=CHARACTERS)
        assert found.truncated
        assert found.size_bytes == len(value)
        assert len(found.text or "") <= CHARACTERS
    snowmen = shown("\N{SNOWMAN}".encode() * (1 << 20), AUTO, characters_max=CHARACTERS)
    assert (snowmen.format, snowmen.text) == (TEXT, "\N{SNOWMAN}" * CHARACTERS)
    assert shown(b'{"a": "' + b"x" * (2 << 20) + b'"}', JSON, characters_max=CHARACTERS).format == TEXT


class TestAvro:
    SCHEMA = json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}}],
        }
    )

    def encoded(self, value: Any) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(self.SCHEMA)), value)
        return stream.getvalue()

    def test_a_datum_with_and_without_the_head_of_a_registry(self) -> None:
        value = {"id": 7, "tags": ["a", "b"]}
        for head in (b"", b"\x00\x00\x00\x00\x2a"):
            name, text = text_of(head + self.encoded(value), AVRO, avro=decoder(self.SCHEMA))
            assert name == AVRO
            assert json.loads(text or "") == value

    def test_another_datum_is_said_not_to_fit(self) -> None:
        found = shown(b"hello", AVRO, characters_max=CHARACTERS, avro=decoder(self.SCHEMA))
        assert found.format == TEXT
        assert found.problem is not None
        assert found.problem.startswith("not avro: ")
        assert shown(b"x", AVRO, characters_max=CHARACTERS).problem == "not avro: a schema is needed"

    @given(st.binary(max_size=60))
    def test_any_bytes(self, value: bytes) -> None:
        assert shown(value, AVRO, characters_max=CHARACTERS, avro=decoder(self.SCHEMA)).text is not None

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            ("", "is not a schema"),
            ("{", "is not a schema"),
            ("3", "is not a schema"),
            ('"nothing"', "is not a schema"),
            ('{"type": "record"}', "is not a schema"),
            ('{"type": "array", "items": "null"}', "values that take no bytes"),
            ('{"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}', "values that take no bytes"),
            (json.dumps({"type": "array", "items": EMPTY_RECORD}), "values that take no bytes"),
            (
                record_of({"name": "E", "type": "record", "fields": []}, {"type": "array", "items": "E"}),
                "take no bytes: E",
            ),
            (record_of({**EMPTY_RECORD, "namespace": "a"}, {"type": "array", "items": "a.r"}), "take no bytes: a.r"),
            (record_of({"name": "f", "type": "fixed", "size": 0}, {"type": "array", "items": "f"}), "take no bytes: f"),
            (record_of({**EMPTY_RECORD, "fields": []}, "r", namespace="b"), "take no bytes: b.r"),
            (record_of("int", ["null", "R"]), "contains itself: R"),
            (record_of("int", {"type": "array", "items": "c.R"}, namespace="c"), "contains itself: c.R"),
            (json.dumps({"__fastavro_parsed": True, "__named_schemas": {}, **EMPTY_RECORD}), "is not a schema"),
            ("[" * 100 + "]" * 100, "is nested deeper"),
            ("[" * 100_000, "is not a schema"),
        ],
    )
    def test_refused_schemas(self, schema: str, message: str) -> None:
        with pytest.raises(KafkaError, match=message):
            decoder(schema)

    def test_a_named_type_can_be_used_again(self) -> None:
        schema = record_of(
            {"name": "P", "type": "record", "fields": [{"name": "x", "type": "int"}]}, "n.P", namespace="n"
        )
        name, text = text_of(b"\x02\x04", AVRO, avro=decoder(schema))
        assert (name, json.loads(text or "")) == (AVRO, {"f0": {"x": 1}, "f1": {"x": 2}})
