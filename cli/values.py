"""Names, and bytes of records, as text that is safe to print to a terminal or to JSON."""

from __future__ import annotations

import base64


def shown(data: bytes | None) -> str:
    """For the terminal: quoted text with escapes if the bytes are UTF-8, else 0x and hex digits."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    escaped = printable(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{escaped}"'


def printable(text: str) -> str:
    """With escapes for characters that a terminal would obey, such as those of control sequences."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def json_fields(name: str, data: bytes | None) -> dict[str, str | None]:
    """For JSON: {name: text or null}, or {name_base64: ...} if the bytes are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
