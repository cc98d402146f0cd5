"""What a request of the page asks for: the parameters of its query, or the JSON object in its body. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from raylog.core.errors import ErrorCode, KafkaError

T = TypeVar("T")
TEXT_CHARACTERS_MAX: Final = 4_096
ENTRIES_MAX: Final = 1_000
INT64_MAX: Final = (1 << 63) - 1
_SHOWN_MAX: Final = 60
_REQUIRED: Final[Any] = object()


class Fields:
    """Every method returns a checked value, or the default, and raises KafkaError(INVALID_REQUEST).

    An empty text counts as a field that is missing, as the inputs of a form send it.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def text(self, name: str, default: Any = _REQUIRED, *, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
        found = self._found(name, default)
        if found is None:
            return default  # type: ignore[no-any-return]
        if not isinstance(found, str):
            raise self.refused(name, "must be a text")
        if len(found) > characters_max:
            raise self.refused(name, f"must have at most {characters_max} characters")
        if not _is_encodable(found):
            raise self.refused(name, "must be valid Unicode")
        return found

    def number(self, name: str, default: Any = _REQUIRED, *, least: int = 0, most: int = INT64_MAX) -> int:
        """A whole number; from a query it comes as a text."""
        found = self._found(name, default)
        if found is None:
            return default  # type: ignore[no-any-return]
        number = _whole_number(found)
        if number is None or not least <= number <= most:
            raise self.refused(name, f"must be a whole number between {least} and {most}")
        return number

    def flag(self, name: str) -> bool:
        """False if it is missing."""
        found = self._given.get(name, False)
        if found in (True, "true"):
            return True
        if found in (False, "false", ""):
            return False
        raise self.refused(name, "must be true or false")

    def choice(self, name: str, options: Mapping[str, T], default: str | None = None) -> T:
        """What the option stands for."""
        found = self._given.get(name)
        chosen = default if found in (None, "") else found
        if not isinstance(chosen, str) or chosen not in options:
            raise self.refused(name, f"must be one of {', '.join(options)}")
        return options[chosen]

    def texts(self, name: str, *, entries_max: int = ENTRIES_MAX) -> list[str]:
        """A list, or texts separated by commas as in a query; empty if it is missing."""
        found = self._given.get(name) or []
        listed = [each.strip() for each in found.split(",") if each.strip()] if isinstance(found, str) else found
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise self.refused(name, "must be a list of texts")
        if len(listed) > entries_max:
            raise self.refused(name, f"must have at most {entries_max} entries")
        return listed

    def mapping(self, name: str) -> dict[str, str | None]:
        """Texts, or null, by texts; empty if it is missing."""
        found = self._given.get(name) or {}
        if not isinstance(found, dict) or not all(each is None or isinstance(each, str) for each in found.values()):
            raise self.refused(name, "must be an object of texts")
        if len(found) > ENTRIES_MAX:
            raise self.refused(name, f"must have at most {ENTRIES_MAX} entries")
        return found

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; empty if it is missing."""
        found = self._given.get(name) or []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.refused(name, "must be a list of objects")
        if len(found) > ENTRIES_MAX:
            raise self.refused(name, f"must have at most {ENTRIES_MAX} entries")
        return [Fields(each) for each in found]

    def refused(self, name: str, rule: str) -> KafkaError:
        """For a rule that only the caller knows."""
        found = self._given.get(name)
        return KafkaError(ErrorCode.INVALID_REQUEST, f"{name}={_shown(found)}: {rule}")

    def _found(self, name: str, default: Any) -> Any:
        found = self._given.get(name)
        if found in (None, ""):
            if default is _REQUIRED:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: must be given")
            return None
        return found


def _is_encodable(text: str) -> bool:
    """False if it has half of a surrogate pair, which JSON can name and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole_number(found: Any) -> int | None:
    if isinstance(found, bool):
        return None
    if isinstance(found, int):
        return found
    if isinstance(found, str) and len(found) <= 20 and found.removeprefix("-").isdecimal() and found.isascii():
        return int(found)
    return None


def _shown(found: Any) -> str:
    if isinstance(found, (Mapping, Sequence)) and not isinstance(found, str):
        return "..."
    text = repr(found) if isinstance(found, str) else str(found)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
