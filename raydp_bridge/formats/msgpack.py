"""Values in msgpack, with a schema that is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pyarrow as pa

from raylog.raydp_bridge.formats.numbers import as_float32

Check = Callable[[Any], None]


class Msgpack:
    """Values are maps for structs, by the names of fields; missing fields are null, unknown ones are ignored.

    Times are msgpack's timestamps, or integers in the unit of the type.
    """

    name = "msgpack"

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.arrow_type = arrow_type
        self._check = _check_of(arrow_type)

    def __reduce__(self) -> tuple[type[Msgpack], tuple[pa.DataType]]:
        return Msgpack, (self.arrow_type,)

    def decode(self, value: bytes) -> Any:
        decoded = msgpack.unpackb(value, timestamp=3, strict_map_key=False)
        if decoded is None:
            return None
        if self._check is not None:
            self._check(decoded)
        return decoded

    def encode(self, value: Any) -> bytes:
        packed: bytes = msgpack.packb(value, datetime=True)
        return packed


def _check_of(kind: pa.DataType) -> Check | None:
    """Raises TypeError or ValueError for what Arrow would convert with a loss or not as meant; None if nothing is.

    Arrow cuts the fraction off a number for an integer or a time, makes a large double infinite for a float, and takes
    a list of pairs for a struct.
    """
    if pa.types.is_integer(kind):
        return _check_integer
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _check_time
    if pa.types.is_float32(kind):
        return _check_float32
    if pa.types.is_struct(kind):
        fields = [(field.name, _check_of(field.type)) for field in kind]
        return _struct_check([(name, check) for name, check in fields if check is not None])
    if pa.types.is_map(kind):
        return _map_check(_check_of(kind.key_type), _check_of(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_check(_check_of(kind.value_type))
    return None


def _check_integer(value: Any) -> None:
    if type(value) is not int and value is not None:
        raise TypeError(f"an integer is required, not {type(value).__name__}")


def _check_time(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError("a timestamp or an integer is required, not float")


def _check_float32(value: Any) -> None:
    if isinstance(value, float):
        as_float32(value)


def _struct_check(fields: list[tuple[str, Check]]) -> Check:
    def check(value: Any) -> None:
        if value is None:
            return
        if type(value) is not dict:
            raise TypeError(f"a map is required, not {type(value).__name__}")
        for name, check_field in fields:
            check_field(value.get(name))

    return check


def _map_check(check_key: Check | None, check_item: Check | None) -> Check:
    def check(value: Any) -> None:
        if value is None:
            return
        if type(value) is not dict:
            raise TypeError(f"a map is required, not {type(value).__name__}")
        if check_key is not None:
            for key in value:
                check_key(key)
        if check_item is not None:
            for item in value.values():
                check_item(item)

    return check


def _list_check(check_item: Check | None) -> Check:
    def check(value: Any) -> None:
        if value is None:
            return
        if type(value) is not list:
            raise TypeError(f"a list is required, not {type(value).__name__}")
        if check_item is not None:
            for item in value:
                check_item(item)

    return check
