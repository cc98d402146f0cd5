"""Values in Protobuf, by the package protobuf (the extra `formats`).

Types are those of Spark's from_protobuf: enums are strings; google.protobuf.Timestamp is a timestamp. Unsigned integers
have a wider type, uint64 decimal(20, 0). A field without presence that is not set has its default value, one with
presence is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from raylog.core.errors import ConfigError
from raylog.raydp_bridge.formats.numbers import as_float32, as_whole

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCALARS: Final[Mapping[int, pa.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
Convert = Callable[[Any], Any]


class Protobuf:
    """`message` is a generated class, or a descriptor; the tasks get its descriptor, and need not import it.

    Raises ConfigError for messages that contain themselves, and for those without fields.
    """

    name = "Protobuf"

    def __init__(self, message: type[Message] | Descriptor) -> None:
        descriptor = message if isinstance(message, Descriptor) else getattr(message, "DESCRIPTOR", None)
        if not isinstance(descriptor, Descriptor):
            raise ConfigError(f"message={message!r}: must be a generated class or a descriptor")
        self._files: dict[str, bytes] = {}
        self._collect(descriptor.file)
        self._descriptor = descriptor
        self._class = GetMessageClass(descriptor)
        self.arrow_type = _struct_type(descriptor, ())
        self._read = _reader(descriptor)

    @classmethod
    def from_descriptor_set(cls, descriptor_set: bytes, name: str) -> Protobuf:
        """`descriptor_set` is what `protoc --include_imports --descriptor_set_out` writes; `name` the full name of the
        message. Raises ConfigError."""
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
            return _protobuf([file.SerializeToString() for file in files], name)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"descriptor set: has no message {name!r}: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _protobuf, (list(self._files.values()), self._descriptor.full_name)

    def decode(self, value: bytes) -> Any:
        return self._read(self._class.FromString(value))

    def encode(self, value: Any) -> bytes:
        message = self._class()
        _fill(message, value)
        encoded: bytes = message.SerializeToString(deterministic=True)
        return encoded

    def _collect(self, file: FileDescriptor) -> None:
        """The file after those it imports."""
        if file.name not in self._files:
            for imported in file.dependencies:
                self._collect(imported)
            self._files[file.name] = file.serialized_pb


def _protobuf(files: list[bytes], name: str) -> Protobuf:
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return Protobuf(pool.FindMessageTypeByName(name))


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _struct_type(descriptor: Descriptor, inside: tuple[str, ...]) -> pa.DataType:
    if descriptor.full_name in inside:
        raise ConfigError(f"message {descriptor.full_name} contains itself, which a column cannot")
    if not descriptor.fields:
        raise ConfigError(f"message {descriptor.full_name} has no fields, which a column cannot")
    within = (*inside, descriptor.full_name)
    return pa.struct([(field.name, _field_type(field, within)) for field in descriptor.fields])


def _field_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_value_type(entry["key"], inside), _value_type(entry["value"], inside))
    kind = _value_type(field, inside)
    return pa.list_(kind) if field.is_repeated else kind


def _value_type(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return pa.timestamp("us", "UTC")
        return _struct_type(field.message_type, inside)
    return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else _SCALARS[field.cpp_type]


def _reader(descriptor: Descriptor) -> Convert:
    """From a message to a dictionary."""
    fields = [(field.name, field.has_presence, _field_reader(field)) for field in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not message.HasField(name) else convert(getattr(message, name))
            for name, has_presence, convert in fields
        }

    return read


def _field_reader(field: FieldDescriptor) -> Convert:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        read_key, read_value = _value_reader(entry["key"]), _value_reader(entry["value"])
        return lambda values: [(read_key(key), read_value(values[key])) for key in values]
    convert = _value_reader(field)
    return (lambda values: [convert(value) for value in values]) if field.is_repeated else convert


def _value_reader(field: FieldDescriptor) -> Convert:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return lambda time: time.seconds * 1_000_000 + time.nanos // 1000
        return _reader(field.message_type)
    if field.enum_type is not None:
        # by the first of the names that share a number, as in Java; values_by_number has the last one
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda number: names.get(number) or str(number)
    return lambda value: value


def _fill(message: Any, values: Mapping[str, Any]) -> None:
    """Set the fields of a message from a dictionary; null is not set. Raises KeyError for a field it does not have."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        field = fields[name]
        if value is None:
            continue
        if _is_map(field):
            _fill_map(getattr(message, name), field.message_type.fields_by_name, value)
        elif field.is_repeated:
            _fill_list(getattr(message, name), field, value)
        elif field.message_type is not None:
            getattr(message, name).SetInParent()
            _fill_message(getattr(message, name), value)
        else:
            setattr(message, name, _scalar(field, value))


def _fill_map(target: Any, entry: Mapping[str, FieldDescriptor], values: Mapping[Any, Any]) -> None:
    key_field, field = entry["key"], entry["value"]
    for key, value in values.items():
        if value is None:
            raise ValueError(f"null in the map {field.containing_type.full_name}")
        if field.message_type is not None:
            _fill_message(target[_scalar(key_field, key)], value)
        else:
            target[_scalar(key_field, key)] = _scalar(field, value)


def _fill_list(target: Any, field: FieldDescriptor, values: list[Any]) -> None:
    for value in values:
        if value is None:
            raise ValueError(f"null in the list {field.name}")
        if field.message_type is not None:
            _fill_message(target.add(), value)
        else:
            target.append(_scalar(field, value))


def _fill_message(message: Any, value: Any) -> None:
    if message.DESCRIPTOR.full_name != _TIMESTAMP:
        _fill(message, value)
        return
    if not isinstance(value, datetime):
        raise TypeError(f"a timestamp is required, not {type(value).__name__}")
    since = (value.replace(tzinfo=UTC) if value.tzinfo is None else value) - _EPOCH
    message.seconds, rest = divmod(since, timedelta(seconds=1))
    message.nanos = 1000 * rest.microseconds


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    """The number of an enum, and other values as they are. Raises TypeError and ValueError for some that protobuf would
    write as others."""
    if field.enum_type is not None:
        if not isinstance(value, str):
            return as_whole(value, -(1 << 31), (1 << 31) - 1)
        known = field.enum_type.values_by_name.get(value)
        return int(value) if known is None else known.number
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_UINT64:
            return as_whole(value, 0, (1 << 64) - 1)
        case FieldDescriptor.CPPTYPE_FLOAT if isinstance(value, (int, float, Decimal)):
            return as_float32(float(value))
        case FieldDescriptor.CPPTYPE_BOOL if not isinstance(value, bool):
            raise TypeError(f"a boolean is required, not {type(value).__name__}")
    return value
