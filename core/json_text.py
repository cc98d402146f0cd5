"""JSON text that others have written."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value of `text`. Raises ValueError, also if it is nested too deeply or contains what UTF-8 cannot encode."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates, which no request can contain
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value
