"""(shell) Arrow columns of bytes to columns of values and back, by a format.

What cannot be converted is null or an error. It calls libraries that raise anything for bytes that others have written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol, get_args

import pyarrow as pa

from raylog.client.errors import SerializationError
from raylog.core.errors import ConfigError

Mode = Literal["FAILFAST", "PERMISSIVE"]
"""What becomes of a value that cannot be converted: an error that fails the task, or null. Spark's words."""
MODES: Final[tuple[str, ...]] = get_args(Mode)
_SHOWN: Final = 80
"""How much of a malformed value an error shows."""


class ValueFormat(Protocol):
    """Picklable: it is sent to the tasks."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def arrow_type(self) -> pa.DataType:
        """Of the decoded values."""

    def decode(self, value: bytes) -> Any:
        """As Arrow converts it to `arrow_type`. Raises any exception for a malformed value."""

    def encode(self, value: Any) -> bytes:
        """`value` is one of Arrow, maps are dictionaries. Raises any exception for a value that does not fit."""


def check_mode(mode: str) -> None:
    """Raises ConfigError."""
    if mode not in MODES:
        raise ConfigError(f"mode={mode!r}: must be one of {', '.join(MODES)}")


def decode_column(column: pa.Array, value_format: ValueFormat, mode: Mode = "FAILFAST") -> pa.Array:
    """The decoded values of a binary or string column; null stays null. Raises SerializationError."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    decoded = _converted(column.to_pylist(), value_format.decode, f"decoded as {value_format.name}", mode)
    return _array(decoded, value_format, mode)


def encode_column(column: pa.Array, value_format: ValueFormat, mode: Mode = "FAILFAST") -> pa.Array:
    """The encoded values as binary; null stays null. Raises SerializationError."""
    encode = value_format.encode
    try:
        values = column.to_pylist(maps_as_pydicts="lossy")
    except Exception:  # some value is not one of Python, such as a time after the year 9999
        rows = [column.slice(number, 1) for number in range(len(column))]
        values = [None if row.null_count else row for row in rows]
        encode = partial(_encode_row, value_format)
    return pa.array(_converted(values, encode, f"encoded as {value_format.name}", mode), pa.binary())


def _encode_row(value_format: ValueFormat, row: pa.Array) -> bytes:
    """`row` is an array of one value."""
    return value_format.encode(row.to_pylist(maps_as_pydicts="lossy")[0])


def _converted(values: Sequence[Any], convert: Callable[[Any], Any], what: str, mode: Mode) -> list[Any]:
    converted = []
    for value in values:
        try:
            converted.append(None if value is None else convert(value))
        except Exception as error:
            if mode == "FAILFAST":
                raise _refused(value, what, error) from None
            converted.append(None)
    return converted


def _array(values: list[Any], value_format: ValueFormat, mode: Mode) -> pa.Array:
    """All at once; one by one if a value does not fit the type."""
    kind = value_format.arrow_type
    try:
        return pa.array(values, kind)
    except Exception:
        made = []
        for value in values:
            try:
                made.append(pa.array([value], kind))
            except Exception as error:
                if mode == "FAILFAST":
                    raise _refused(value, f"converted from {value_format.name} to {kind}", error) from None
                made.append(pa.nulls(1, kind))
        return pa.concat_arrays(made)


def _refused(value: Any, what: str, error: Exception) -> SerializationError:
    if isinstance(value, pa.Array):
        text = value.to_string(skip_new_lines=True)
    else:
        text = repr(value[:_SHOWN] if isinstance(value, bytes) else value)
    shown = text[: 4 * _SHOWN]
    reason = str(error) or type(error).__name__
    return SerializationError(f"a value cannot be {what}: {reason} (mode=PERMISSIVE gives null instead): {shown}")
