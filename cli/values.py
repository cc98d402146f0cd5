"""Bytes of records as text: whatever they hold, the terminal or the JSON that shows them stays whole."""

from __future__ import annotations

import base64


def shown(data: bytes | None) -> str:
    """For a person: quoted text where the bytes are UTF-8, with the unprintable escaped, else 0x and hex digits."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    escaped = "".join(_escape(char) for char in text)
    return f'"{escaped}"'


def json_fields(name: str, data: bytes | None) -> dict[str, str | None]:
    """For a program: {name: text or null}, or {name_base64: ...} where the bytes are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else char.encode("unicode_escape").decode()
