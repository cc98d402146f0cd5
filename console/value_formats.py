"""Keys, values and headers as people read them: JSON, msgpack, Avro, text or hex. Pure.

What comes from a record is hostile: it is parsed within bounds, and where it is not what the format says, it is shown
as text or hex, with the reason. Nothing here is ever HTML; the page shows texts as texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgpack

AUTO, JSON, MSGPACK, AVRO, TEXT, HEX = "auto", "json", "msgpack", "avro", "text", "hex"
FORMATS: Final[Mapping[str, str]] = {name: name for name in (AUTO, JSON, MSGPACK, AVRO, TEXT, HEX)}
PARSED_BYTES_MAX: Final = 1 << 20
"""Longer values are shown as text or hex, since their beginning is no document."""
DEPTH_MAX: Final = 64
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_OPENING, _CLOSING = ("{", "["), ("}", "]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HEX_LINE: Final = 16
_CONFLUENT_HEAD: Final = 5
"""A zero byte and the id of a schema in a registry."""

AvroDecoder = Callable[[bytes], Any]
"""Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as text in a format; `problem` says why it is not in the format that was asked for."""

    format: str
    text: str | None
    size_bytes: int
    truncated: bool = False
    problem: str | None = None

    def answer(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "text": self.text,
            "size_bytes": self.size_bytes,
            "truncated": self.truncated,
            "problem": self.problem,
        }


NULL: Final = Shown("null", None, 0)


def shown(value: bytes | None, wanted: str, *, characters_max: int, avro: AvroDecoder | None = None) -> Shown:
    """At most so many characters of it. `avro` decodes a datum by the user's schema."""
    if value is None:
        return NULL
    problem = None
    if len(value) <= PARSED_BYTES_MAX and wanted not in (TEXT, HEX):
        try:
            if wanted == AUTO:
                name, text = _guessed(value, characters_max)
            else:
                name, text = wanted, _decoded(value, wanted, avro, characters_max)
            return _cut(name, text, len(value), characters_max)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            problem = f"not {wanted}: {str(error)[:200]}" if wanted != AUTO else None
    text_form = None if wanted == HEX else _as_text(value, exact=wanted != TEXT, characters_max=characters_max)
    if text_form is not None:
        return _cut(TEXT, text_form, len(value), characters_max, problem)
    lines = characters_max // (len(_hex_line(bytes(_HEX_LINE), 0)) + 1)  # with its line break
    part = value[: max(1, lines) * _HEX_LINE]
    text = "\n".join(_hex_line(part[at : at + _HEX_LINE], at) for at in range(0, len(part), _HEX_LINE))
    return Shown(HEX, text, len(value), len(part) < len(value), problem)


def pretty(text: str, *, characters_max: int) -> str:
    """JSON with a line for each entry, up to the token that exceeds `characters_max`.

    Names, numbers and texts stay as they are, doubled names too. `text` is valid JSON.
    """
    return _beginning(_lines(text), characters_max)


def _lines(text: str) -> Iterator[str]:
    depth, before = 0, ""
    for match in _TOKEN.finditer(text):
        token = match.group()
        opened, closes = before in _OPENING, token in _CLOSING
        depth -= closes
        if opened is not closes or before == ",":
            yield "\n" + "  " * depth
        yield ": " if token == ":" else token
        depth += token in _OPENING
        before = token


def _beginning(parts: Iterable[str], characters_max: int) -> str:
    """The parts up to the one that exceeds `characters_max`: indentation can make a text far longer than its value."""
    taken, size = [], 0
    for part in parts:
        taken.append(part)
        size += len(part)
        if size > characters_max:
            break
    return "".join(taken)


def _guessed(value: bytes, characters_max: int) -> tuple[str, str]:
    """JSON or text, or a map or an array of msgpack. Raises ValueError."""
    text = _as_text(value, exact=True, characters_max=PARSED_BYTES_MAX)
    if text is not None:
        if text.lstrip()[:1] in ("{", "[", '"'):
            try:
                return JSON, _json(text, characters_max)
            except (ValueError, RecursionError):
                pass
        return TEXT, text
    if value[0] >> 4 in (8, 9) or value[0] in (0xDC, 0xDD, 0xDE, 0xDF):
        return MSGPACK, _msgpack(value, characters_max)
    raise ValueError("unknown")


def _decoded(value: bytes, wanted: str, avro: AvroDecoder | None, characters_max: int) -> str:
    """Raises ValueError and what msgpack raises."""
    if wanted == JSON:
        return _json(value.decode(), characters_max)
    if wanted == MSGPACK:
        return _msgpack(value, characters_max)
    if avro is None:
        raise ValueError("a schema is needed")
    framed = len(value) > _CONFLUENT_HEAD and value[0] == 0
    try:
        return _document(avro(value), characters_max)
    except ValueError:
        if not framed:
            raise
    return _document(avro(value[_CONFLUENT_HEAD:]), characters_max)


def _json(text: str, characters_max: int) -> str:
    """Raises ValueError, and RecursionError."""
    json.loads(text, parse_int=str, parse_float=str)
    return pretty(text, characters_max=characters_max)


def _msgpack(value: bytes, characters_max: int) -> str:
    """Raises ValueError, msgpack.UnpackException, and TypeError for maps whose keys are maps or arrays."""
    found = msgpack.unpackb(value, strict_map_key=False, timestamp=0, unicode_errors="backslashreplace")
    return _document(found, characters_max)


def _document(value: Any, characters_max: int) -> str:
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False)
    return _beginning(encoder.iterencode(_plain(value, DEPTH_MAX)), characters_max)


def _plain(value: Any, depth: int) -> Any:
    """What JSON can show. Raises ValueError."""
    if depth == 0:
        raise ValueError(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        return {_name(name): _plain(each, depth - 1) for name, each in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, msgpack.ExtType):
        return [_plain(each, depth - 1) for each in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # infinite ones and NaN are no JSON
    return _name(value)


def _name(value: Any) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, msgpack.ExtType):
        return f"ext {value.code}: 0x{value.data.hex()}"
    if isinstance(value, msgpack.Timestamp):
        return f"{value.seconds}.{value.nanoseconds:09}"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _as_text(value: bytes, *, exact: bool, characters_max: int) -> str | None:
    """None if `exact` and it is not UTF-8, or has control characters that no text has."""
    part = value[: 4 * characters_max]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        cut = len(part) < len(value) and error.start >= len(part) - 3
        if exact and not cut:
            return None
        text = part[: error.start].decode() if cut else part.decode(errors="replace")
    if exact and _CONTROL.search(text):
        return None
    return text


def _hex_line(part: bytes, at: int) -> str:
    pairs = " ".join(f"{byte:02x}" for byte in part).ljust(3 * _HEX_LINE - 1)
    characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{at:08x}  {pairs}  {characters}"


def _cut(name: str, text: str, size_bytes: int, characters_max: int, problem: str | None = None) -> Shown:
    truncated = len(text) > characters_max or (name == TEXT and size_bytes > 4 * characters_max)
    return Shown(name, text[:characters_max], size_bytes, truncated, problem)
