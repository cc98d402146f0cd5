"""The declarations of messages: calling a wire type declares one field of a message.

    rack: str | None = string(None, since=1, null_since=1)
    topics: tuple[MetadataResponseTopic, ...] = array(MetadataResponseTopic)

A message class is the union of all versions of its message. The field exists in versions `since` to `until` (both
inclusive) and may be null from `null_since` on; with `tag` it is an optional tagged field (KIP-482). A field that a
version lacks keeps its default. `raylog.protocol.codec` compiles the declarations.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, Final, Protocol, TypeVar, dataclass_transform

from raylog.core.errors import ErrorCode
from raylog.core.ids import ZERO_TOPIC_ID

LATEST: Final = 32767
"""The `until` of fields without a last version."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API of Kafka, with the versions that the message classes support."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int | None

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from


class Message(Protocol):
    """A whole request or response body; its nested structures have no `api`."""

    api: ClassVar[Api]


T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def message(cls: type[T]) -> type[T]:
    """Makes a message or one of its structures: a frozen dataclass with slots whose fields are given by keyword.

    There are hundreds, and a process uses few: they share their methods, and each `__init__` is compiled when it is
    first called. `dataclass` compiles seven methods for each class, which would be a third of the start of a program.
    """
    for name, method in _METHODS.items():
        setattr(cls, name, method)
    return dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)(cls)


def _values(made: Any) -> tuple[object, ...]:
    return tuple(getattr(made, name) for name in made.__slots__)


def _first_init(made: Any, **values: object) -> None:
    """Compile the `__init__` of the class, for this call and all later ones."""
    cls = type(made)
    cls.__init__ = _compiled_init(cls)
    cls.__init__(made, **values)


def _compiled_init(cls: type[Any]) -> Any:
    """Sets the slots directly, as the compiled readers do: object.__setattr__ takes two to three times as long."""
    names: dict[str, Any] = {}
    parameters, lines = [], []
    for each in fields(cls):
        names[f"set_{each.name}"] = getattr(cls, each.name).__set__
        names[f"default_{each.name}"] = each.default
        parameters.append(f"{each.name}=default_{each.name}")
        lines.append(f"    set_{each.name}(self, {each.name})")
    head = f"def __init__(self, *, {', '.join(parameters)}):" if parameters else "def __init__(self):"
    exec(compile("\n".join([head, *lines, "    return"]), f"<{cls.__name__}>", "exec"), names)
    return names["__init__"]


def _repr(made: Any) -> str:
    given = zip(made.__slots__, _values(made), strict=True)
    return f"{type(made).__qualname__}({', '.join(f'{name}={value!r}' for name, value in given)})"


def _eq(made: Any, other: object) -> Any:
    return _values(made) == _values(other) if type(other) is type(made) else NotImplemented


def _hash(made: Any) -> int:
    return hash(_values(made))


def _refuse_assignment(made: object, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _set_values(made: Any, values: tuple[object, ...]) -> None:
    for name, value in zip(made.__slots__, values, strict=True):
        object.__setattr__(made, name, value)


_METHODS: Final = {
    "__init__": _first_init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse_assignment,
    "__delattr__": _refuse_assignment,
    "__getstate__": _values,
    "__setstate__": _set_values,
}


@dataclass(frozen=True, slots=True)
class Wire:
    """The encoding of one field. `element` is a wire type, or the class of a nested structure."""

    element: WireType | type
    is_array: bool = False
    since: int = 0
    until: int = LATEST
    null_since: int = LATEST
    tag: int | None = None

    def exists_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return version >= self.null_since


@dataclass(frozen=True, slots=True)
class WireType:
    """A scalar of the protocol; `code` is its struct format if its size is fixed, else empty.

    Calling it declares a field, as `dataclasses.field` does, and is typed `Any` for the same reason.
    """

    name: str
    zero: object
    code: str = ""
    size_bytes: int = 0

    def __call__(
        self,
        default: object = ...,
        *,
        since: int = 0,
        until: int = LATEST,
        null_since: int = LATEST,
        tag: int | None = None,
    ) -> Any:
        wire = Wire(self, since=since, until=until, null_since=null_since, tag=tag)
        return field(default=self.zero if default is ... else default, metadata={"wire": wire})


int8 = WireType("int8", 0, "b", 1)
int16 = WireType("int16", 0, "h", 2)
int32 = WireType("int32", 0, "i", 4)
int64 = WireType("int64", 0, "q", 8)
uint16 = WireType("uint16", 0, "H", 2)
float64 = WireType("float64", 0.0, "d", 8)
boolean = WireType("boolean", False, "?", 1)
uuid = WireType("uuid", ZERO_TOPIC_ID, "16s", 16)
error = WireType("error", ErrorCode.NONE, "h", 2)
string = WireType("string", "")
binary = WireType("binary", b"")
record_set = WireType("record_set", None)
"""Record batches as one memoryview into the buffer that was decoded, never copied."""
record_buffers = WireType("record_buffers", ())
"""Record batches as a tuple of buffers, written one after the other; decoded as one memoryview."""


def array(
    element: WireType | type,
    default: tuple[object, ...] | None = (),
    *,
    since: int = 0,
    until: int = LATEST,
    null_since: int = LATEST,
    tag: int | None = None,
) -> Any:
    """Declares a field that holds a tuple of scalars or of structures."""
    wire = Wire(element, is_array=True, since=since, until=until, null_since=null_since, tag=tag)
    return field(default=default, metadata={"wire": wire})


def struct(
    element: type,
    default: object = ...,
    *,
    since: int = 0,
    until: int = LATEST,
    null_since: int = LATEST,
    tag: int | None = None,
) -> Any:
    """Declares a field that holds one structure. Its default is a structure of defaults, or `default`."""
    wire = Wire(element, since=since, until=until, null_since=null_since, tag=tag)
    return field(default=element() if default is ... else default, metadata={"wire": wire})
