"""Bytes <-> generated messages, bounded: `decode(MetadataRequest, 9, body)`, `encode(response, 9)`.

For each message and version a reader and a writer are compiled once from the declarations of the class, as
`dataclasses` compiles `__init__`: adjacent fields of fixed size become one `struct` call, and no version is checked
while a message is read. `print(codec.reader_source(MetadataRequest, 9, True))` shows the generated code.

The input is untrusted. Every element count is checked against the remaining bytes, at the smallest size of an element,
before it is used, so time is linear in the size of the frame; and the number of elements per message is limited, so
memory is bounded whatever the maximum frame size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import Field, fields
from functools import cache
from typing import Any, TypeVar, cast

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.protocol import wire
from raylog.protocol.framing import length_prefix
from raylog.protocol.schema import Message, Wire, WireType, binary, error, record_buffers, record_set, string, uuid
from raylog.protocol.wire import DAMAGE, UNWRITABLE, Buffer

M = TypeVar("M", bound=Message)

Reader = Callable[[Buffer, int, int], tuple[Any, int]]
"""(buffer, position, end) -> (message, position after it)."""

Writer = Callable[[Any, Callable[[Buffer], object]], None]
"""(message, put): calls `put` with each piece."""

STRING_BYTES_MAX = 32767
"""Older versions of a message could not carry a longer string; Kafka refuses one in newer versions too."""
PASS_THROUGH_BYTES = 4096
"""From this size on, copying a buffer costs more than sending it separately."""


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """The message at `position` of `buffer`.

    Bytes after its end are ignored, as in Kafka: librdkafka 2.16 sends three extra bytes after Metadata v13. Raises
    ProtocolViolation for a missing byte, a length beyond the frame, null in a field that is not nullable in this
    version, text that is not UTF-8. Raises ValueError for a version the class does not have.
    """
    read = reader(cls, version)
    wire.BUDGET.refill()
    try:
        message, _ = read(buffer, position, len(buffer))
    except DAMAGE as damage:
        raise ProtocolViolation(f"{cls.__name__} v{version}: {damage}") from damage
    return cast(M, message)


def encode(message: Message, version: int) -> bytes:
    """The body of `message` in `version`; fields the version lacks are left out.

    Raises ValueError for a value the wire cannot carry, or for a version the class does not have.
    """
    return b"".join(encode_pieces(message, version))


def encode_buffers(message: Message, version: int) -> list[Buffer]:
    """As `encode`, but buffers of PASS_THROUGH_BYTES and more are returned in the list without a copy."""
    return _joined(encode_pieces(message, version))


def encode_frame(header: Buffer, message: Message, version: int) -> list[Buffer]:
    """As `encode_buffers`, preceded by the length prefix and the header of a frame."""
    pieces = [header, *encode_pieces(message, version)]
    length = sum(map(len, pieces))
    pieces.insert(0, length_prefix(length))
    return [b"".join(pieces)] if length < PASS_THROUGH_BYTES else _joined(pieces)


class EncodedElements:
    """An array of structures that is already encoded, as a field of the response `of`: for long ones, in steps."""

    def __init__(self, element: type, *, of: type[Message], version: int) -> None:
        self.data = bytearray()
        self._write = structure_writer(element, version, of.api.is_flexible(version))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, element: Any) -> None:
        self._write(element, self.data.extend)
        self._count += 1

    def add_in_steps(
        self, elements: Iterable[Any], *, step: int, work: Callable[[Any], int] = lambda element: 1
    ) -> Generator[None, None, None]:
        """Add each element as it is made; yields whenever `step` units of work are done, as `work` counts them."""
        done = 0
        for element in elements:
            self.add(element)
            done += work(element)
            if done >= step:
                done = 0
                yield


def _joined(pieces: Iterable[Buffer]) -> list[Buffer]:
    """The same bytes in fewer buffers: small ones are joined, large ones are not copied."""
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for piece in pieces:
        if len(piece) < PASS_THROUGH_BYTES:
            small.append(piece)
            continue
        if small:
            buffers.append(b"".join(small))
            small = []
        buffers.append(piece)
    if small:
        buffers.append(b"".join(small))
    return buffers


def encode_pieces(message: Message, version: int) -> list[Buffer]:
    write = writer(type(message), version)
    pieces: list[Buffer] = []
    try:
        write(message, pieces.append)
    except UNWRITABLE as refusal:
        raise ValueError(f"{type(message).__name__} v{version} cannot be written: {refusal}") from refusal
    return pieces


@cache
def reader(cls: type[Message], version: int) -> Reader:
    """The compiled reader of a whole message."""
    return structure_reader(cls, version, flexible_of(cls, version))


@cache
def writer(cls: type[Message], version: int) -> Writer:
    """The compiled writer of a whole message."""
    return structure_writer(cls, version, flexible_of(cls, version))


def flexible_of(cls: type[Message], version: int) -> bool:
    if not cls.api.lowest <= version <= cls.api.highest:
        raise ValueError(f"{cls.__name__} has versions {cls.api.lowest}-{cls.api.highest}, not {version}")
    return cls.api.is_flexible(version)


@cache
def structure_reader(cls: type, version: int, flexible: bool) -> Reader:
    return cast(Reader, reader_source(cls, version, flexible).function("read"))


@cache
def structure_writer(cls: type, version: int, flexible: bool) -> Writer:
    return cast(Writer, writer_source(cls, version, flexible).function("write"))


# Properties of declarations, for readers and writers.


def declared(cls: type, version: int) -> tuple[list[tuple[Field[Any], Wire]], list[tuple[Field[Any], Wire]]]:
    """The fields that the version has: in wire order, and the tagged ones in the order of their tags."""
    present = [(each, how) for each in fields(cls) if (how := cast(Wire, each.metadata["wire"])).exists_in(version)]
    return [pair for pair in present if pair[1].tag is None], [pair for pair in present if pair[1].tag is not None]


def fixed_type(how: Wire) -> WireType | None:
    """The field's wire type if it is a scalar of fixed size, else None."""
    if how.is_array or not isinstance(how.element, WireType) or not how.element.code:
        return None
    return how.element


@cache
def least_bytes(cls: type, version: int, flexible: bool) -> int:
    """The smallest encoded size of a structure of this class."""
    tag_section = 1 if flexible else 0
    return tag_section + sum(least_field_bytes(how, version, flexible) for _, how in declared(cls, version)[0])


def least_field_bytes(how: Wire, version: int, flexible: bool) -> int:
    if how.is_array:
        return 1 if flexible else 4
    if isinstance(how.element, WireType):
        return how.element.size_bytes or (1 if flexible else 2 if how.element is string else 4)
    return 1 if how.nullable_in(version) else least_bytes(how.element, version, flexible)


def least_element_bytes(element: WireType | type, version: int, flexible: bool) -> int:
    size = least_field_bytes(Wire(element), version, flexible)
    if size < 1:
        raise TypeError(f"{element} takes no bytes in version {version}, so an array of it would have no bound")
    return size


class Source:
    """A function that is being generated: its lines, and the names they use."""

    def __init__(self, title: str, names: dict[str, object]) -> None:
        self.title = title
        self.names = dict(names)
        self.lines: list[str] = []
        self.depth = 0

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.add(head)
        self.depth += 1
        yield
        self.depth -= 1

    def function(self, name: str) -> object:
        exec(compile(str(self), f"<{self.title}>", "exec"), self.names)
        return self.names[name]


# Reading.

READING: dict[str, object] = {
    "violation": ProtocolViolation,
    "spend": wire.BUDGET.spend,
    "read_uvarint": wire.read_uvarint,
    "read_tags": wire.read_tags,
    "skip_tags": wire.skip_tags,
    "error_of": wire.ERROR_CODES.get,
    "UNKNOWN": ErrorCode.UNKNOWN_SERVER_ERROR,
    "uuid_from": wire.uuid_from,
    "unpack_from": struct.unpack_from,
    "unpack_length_16": struct.Struct(">h").unpack_from,
    "unpack_length_32": struct.Struct(">i").unpack_from,
}


def reader_source(cls: type, version: int, flexible: bool) -> Source:
    """The code of `read(buffer, at, end)`, which keeps each field in a local `f_<name>`."""
    code = Source(f"{cls.__name__} v{version} reader", {"cls": cls} | READING)
    plain, tagged = declared(cls, version)
    with code.block("def read(buffer, at, end):"):
        for run in runs(plain):
            if isinstance(run, list):
                read_fixed(code, run)
            else:
                each, how = run
                read_sized(code, f"f_{each.name}", how, f"{cls.__name__}.{each.name}", version, flexible)
        if tagged:
            read_tagged(code, cls, tagged, version)
        elif flexible:
            code.add("if buffer[at] == 0: at += 1", "else: at = skip_tags(buffer, at, end)")
        make_message(code, cls, {each.name for each, _ in plain + tagged})
    return code


def make_message(code: Source, cls: type, read_names: set[str]) -> None:
    """Creates the message from the locals, with defaults for fields that the version lacks.

    It sets the slots directly: `__init__` of a frozen class goes through object.__setattr__ and takes three times as
    long, which is half the time of reading a message. So a message class cannot have a __post_init__.
    """
    assert not hasattr(cls, "__post_init__"), cls
    code.names["new"] = object.__new__
    code.add("message = new(cls)")
    for each in fields(cls):
        code.names[f"set_{each.name}"] = getattr(cls, each.name).__set__
        if each.name not in read_names:
            code.names[f"default_{each.name}"] = each.default
        value = f"f_{each.name}" if each.name in read_names else f"default_{each.name}"
        code.add(f"set_{each.name}(message, {value})")
    code.add("return message, at")


def runs(
    plain: list[tuple[Field[Any], Wire]],
) -> Iterator[list[tuple[str, WireType]] | tuple[Field[Any], Wire]]:
    """The fields in order, with adjacent fields of fixed size grouped in one list."""
    run: list[tuple[str, WireType]] = []
    for each, how in plain:
        kind = fixed_type(how)
        if kind is not None:
            run.append((each.name, kind))
            continue
        if run:
            yield run
        run = []
        yield each, how
    if run:
        yield run


def read_fixed(code: Source, run: list[tuple[str, WireType]]) -> None:
    layout = struct.Struct(">" + "".join(kind.code for _, kind in run))
    unpack = f"unpack_{run[0][0]}"
    code.names[unpack] = layout.unpack_from
    code.add(f"{' '.join(f'f_{name},' for name, _ in run)} = {unpack}(buffer, at)", f"at += {layout.size}")
    for name, kind in run:
        if kind in SEEN_AS:
            code.add(f"f_{name} = {SEEN_AS[kind].format(f'f_{name}')}")


SEEN_AS = {error: "error_of({}, UNKNOWN)", uuid: "uuid_from({})"}
"""Conversions of fields of fixed size from the value that struct returns."""

MADE_OF_BYTES = {
    string: "str({}, 'utf-8')",
    binary: "bytes({})",
    record_set: "{}",
    record_buffers: "({},) if size else ()",
}
"""Conversions of fields of variable size."""


def read_sized(code: Source, target: str, how: Wire, place: str, version: int, flexible: bool) -> None:
    """Reads a field of variable size into `target`: a string, bytes, an array or a structure."""
    nullable = how.nullable_in(version)
    element = how.element
    if not how.is_array and not isinstance(element, WireType):
        read = f"read_{element.__name__}"
        code.names[read] = structure_reader(element, version, flexible)
        if nullable:
            code.add(f"{target} = None", "at += 1")
        with code.block("if buffer[at - 1] < 128:") if nullable else nullcontext():
            code.add(f"{target}, at = {read}(buffer, at, end)")
        return
    if flexible:
        code.add("size = buffer[at] - 1", "at += 1")
        with code.block("if size > 126:"):
            code.add("more = buffer[at]")
            code.add("if more < 128: size, at = (more << 7) + size - 128, at + 1")
            code.add("else: size, at = read_uvarint(buffer, at - 1); size -= 1")
            if element is string and not how.is_array:
                code.add(f"if size > {STRING_BYTES_MAX}: raise violation('{place} is longer than a string may be')")
    elif how.element is not string or how.is_array:
        code.add("size, = unpack_length_32(buffer, at)", "at += 4")
    else:
        code.add("size, = unpack_length_16(buffer, at)", "at += 2")
    if nullable:
        code.add(f"if size == -1: {target} = None")
    with code.block("elif size < 0:" if nullable else "if size < 0:"):
        code.add(f"raise violation('{place}: null or a negative length')")
    least = least_element_bytes(how.element, version, flexible) if how.is_array else 1
    with code.block(f"elif size * {least} > end - at:"):
        code.add(f"raise violation('{place} is longer than the frame')")
    with code.block("else:"):
        if how.is_array or not isinstance(element, WireType):
            read_elements(code, target, element, place, version, flexible)
        else:
            code.add("at += size", f"{target} = {MADE_OF_BYTES[element].format('buffer[at - size:at]')}")


def read_elements(
    code: Source, target: str, element: WireType | type, place: str, version: int, flexible: bool
) -> None:
    """Reads `size` elements into the tuple `target`. `size` has been checked against the remaining bytes."""
    code.add("spend(size)")
    if isinstance(element, WireType) and element.code:
        layout = "'>' + '16s' * size" if element is uuid else f"f'>{{size}}{element.code}'"
        code.add(f"{target} = unpack_from({layout}, buffer, at)", f"at += size * {element.size_bytes}")
        if element in SEEN_AS:
            code.add(f"{target} = tuple([{SEEN_AS[element].format('each')} for each in {target}])")
        return
    code.add("items = []")
    with code.block("for _ in range(size):"):
        read_sized(code, "item", Wire(element), place, version, flexible)
        code.add("items.append(item)")
    code.add(f"{target} = tuple(items)")


def read_tagged(code: Source, cls: type, tagged: list[tuple[Field[Any], Wire]], version: int) -> None:
    """Reads the tagged fields that the version has, and skips the others."""
    for each, _ in tagged:
        code.names[f"default_{each.name}"] = each.default
        code.add(f"f_{each.name} = default_{each.name}")
    code.add("tags, after = ((), at + 1) if buffer[at] == 0 else read_tags(buffer, at, end)")
    with code.block("for tag, at, end in tags:"):
        for each, how in tagged:
            place = f"{cls.__name__}.{each.name}"
            with code.block(f"if tag == {how.tag}:"):
                kind = fixed_type(how)
                if kind is not None:
                    read_fixed(code, [(each.name, kind)])
                else:
                    read_sized(code, f"f_{each.name}", how, place, version, True)
                code.add(f"if at != end: raise violation('{place} does not have the declared size')")
    code.add("at = after")


# Writing.

WRITING: dict[str, object] = {
    "ONE_BYTE": wire.ONE_BYTE,
    "uvarint": wire.uvarint,
    "pack": struct.pack,
    "pack_length_16": struct.Struct(">h").pack,
    "pack_length_32": struct.Struct(">i").pack,
}


def writer_source(cls: type, version: int, flexible: bool) -> Source:
    """The code of `write(message, put)`."""
    code = Source(f"{cls.__name__} v{version} writer", WRITING)
    plain, tagged = declared(cls, version)
    with code.block("def write(message, put):"):
        for run in runs(plain):
            if isinstance(run, list):
                write_fixed(code, run)
            else:
                write_sized(code, f"message.{run[0].name}", run[1], version, flexible)
        if tagged:
            write_tagged(code, tagged, version)
        elif flexible:
            code.add(r"put(b'\0')")
        code.add("return")
    return code


def write_fixed(code: Source, run: list[tuple[str, WireType]]) -> None:
    pack = f"pack_{run[0][0]}"
    code.names[pack] = struct.Struct(">" + "".join(kind.code for _, kind in run)).pack
    code.add(f"put({pack}({', '.join(f'message.{name}' + ('.bytes' if kind is uuid else '') for name, kind in run)}))")


def write_sized(code: Source, value: str, how: Wire, version: int, flexible: bool) -> None:
    """Writes the expression `value`: a string, bytes, an array or a structure."""
    structure = how.element if isinstance(how.element, type) and not how.is_array else None
    if flexible or structure:
        null = r"b'\xff'" if structure else r"b'\0'"
        length = "ONE_BYTE[size + 1] if size < 127 else uvarint(size + 1)"
    elif how.element is not string or how.is_array:
        null, length = r"b'\xff\xff\xff\xff'", "pack_length_32(size)"
    else:
        null, length = r"b'\xff\xff'", "pack_length_16(size)"
    nullable = how.nullable_in(version)
    if nullable:
        code.add(f"if {value} is None: put({null})")
    with code.block("else:") if nullable else nullcontext():
        if structure:
            if nullable:
                code.add(r"put(b'\1')")
            write = f"write_{structure.__name__}"
            code.names[write] = structure_writer(structure, version, flexible)
            code.add(f"{write}({value}, put)")
        elif how.is_array:
            code.add(f"items = {value}", "size = len(items)", f"put({length})")
            write_elements(code, how.element, version, flexible)
        elif how.element is record_buffers:
            code.add(f"buffers = {value}", "size = sum(map(len, buffers))", f"put({length})")
            code.add("for raw in buffers: put(raw)")
        else:
            code.add(f"raw = {value}" + (".encode()" if how.element is string else ""))
            code.add("size = len(raw)", f"put({length})", "put(raw)")


def write_elements(code: Source, element: WireType | type, version: int, flexible: bool) -> None:
    """Writes the elements of `items`; `size` is their number."""
    if element is uuid:
        code.add("put(b''.join([each.bytes for each in items]))")
    elif isinstance(element, WireType) and element.code:
        code.add(f"put(pack(f'>{{size}}{element.code}', *items))")
    elif isinstance(element, WireType):
        with code.block("for item in items:"):
            write_sized(code, "item", Wire(element), version, flexible)
    else:
        code.names["Encoded"] = EncodedElements
        with code.block("if items.__class__ is Encoded:"):
            code.add("put(items.data)")
        with code.block("else:"), code.block("for item in items:"):
            write_sized(code, "item", Wire(element), version, flexible)


def write_tagged(code: Source, tagged: list[tuple[Field[Any], Wire]], version: int) -> None:
    """Writes the tagged fields that differ from their default."""
    code.add("put_whole = put", "tags = []")
    for each, how in tagged:
        default = f"default_{each.name}"
        code.names[default] = each.default
        with code.block(f"if message.{each.name} is not {default} and message.{each.name} != {default}:"):
            code.add("pieces = []", "put = pieces.append")
            kind = fixed_type(how)
            if kind is not None:
                write_fixed(code, [(each.name, kind)])
            else:
                write_sized(code, f"message.{each.name}", how, version, True)
            code.add("content = b''.join(pieces)")
            code.add(f"tags.append(uvarint({how.tag}) + uvarint(len(content)) + content)")
    code.add("put_whole(uvarint(len(tags)) + b''.join(tags) if tags else b'\\0')")
